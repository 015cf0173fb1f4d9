"""Errors go over the wire and come back as what they were."""

import msgspec
import pytest

from grange.api import codec, status
from grange.api.status import ApiError, Cause


@pytest.mark.parametrize("reason", sorted(status.BY_REASON))
def test_every_reason_survives_the_wire(reason: str) -> None:
    kind = status.BY_REASON[reason]
    error = kind(
        "what happened",
        kind="pods",
        name="web",
        group="g",
        causes=[Cause("FieldValueInvalid", "no", "spec.x")],
        retry_after_s=3,
    )
    body = msgspec.json.encode(error.status().document())
    again = status.from_status(kind.code, body)
    assert type(again) is kind
    assert (again.message, again.details, again.causes) == (
        error.message,
        error.details,
        error.causes,
    )
    document = codec.decode_document(body)
    assert (document["kind"], document["status"], document["code"]) == (
        "Status",
        "Failure",
        kind.code,
    )


def test_an_unknown_reason_falls_back_on_the_code() -> None:
    error = status.from_status(404, b'{"kind":"Status","reason":"Novel","message":"m"}')
    assert isinstance(error, status.NotFound)
    assert error.message == "m"


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[1]"])
def test_a_body_that_is_no_status_falls_back_on_code_and_text(body: bytes) -> None:
    error = status.from_status(503, body)
    assert isinstance(error, status.ServiceUnavailable)
    assert error.message


def test_an_unknown_code_is_an_internal_error() -> None:
    assert isinstance(status.from_status(599, b"{}"), status.InternalError)
    assert isinstance(status.from_status(410, b"{}"), ApiError)
