"""Bindings as requests and what their answers mean, one by one or many in one request."""

from collections.abc import Sequence

import msgspec

from grange.api import bindings, http
from grange.api.bindings import Binding
from grange.api.http import Request
from grange.api.kinds import POD
from grange.api.status import (
    ApiError,
    Forbidden,
    InternalError,
    MethodNotAllowed,
    NotFound,
    error_of,
)
from grange.client import requests

_HEADERS = {"accept": http.JSON, "content-type": http.JSON}
_QUERY = {"fieldValidation": "Ignore"}  # no field of a body that is made here is there twice
_answers = msgspec.json.Decoder(bindings.StatusList)
_encode = msgspec.json.Encoder().encode

NOT_SERVED = (NotFound, MethodNotAllowed, Forbidden)
"""The answer of a server that does not take many bindings in one request: one of Kubernetes does not
know the path, and refuses it already for that reason to those who may only bind."""


def one(binding: Binding) -> Request:
    """A binding at its pod's own path, as every server takes it."""
    where = (POD, binding.name, binding.namespace, "binding")
    return requests.post(*where, binding.document())


def many(group: Sequence[Binding]) -> Request:
    """Bindings in one request; at most ``bindings.LIMIT``."""
    items = [binding.document() for binding in group]
    body = {"apiVersion": "v1", "kind": "BindingList", "items": items}
    return Request("POST", bindings.PATH, query=_QUERY, headers=_HEADERS, body=_encode(body))


def outcomes(body: bytes, count: int) -> list[ApiError | None]:
    """What became of each binding; None where the pod has its node.

    Raises:
        InternalError: the body does not have it for each of them.
    """
    try:
        items = _answers.decode(body).items
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InternalError(f"bindings: cannot read the answer: {error}") from error
    if len(items) != count:
        raise InternalError(f"bindings: {len(items)} answers to {count} bindings")
    return [None if item.status == "Success" else error_of(item.code, item) for item in items]
