"""kubectl asks for tables first and objects second; typed clients for protobuf first and JSON second."""

import pytest
from hypothesis import given, settings, strategies as st

from grange.api.status import NotAcceptable
from grange.apiserver.negotiation import Form, accepts_json, object_form, parse_accept

KUBECTL = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,"
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
TYPED = "application/vnd.kubernetes.protobuf,application/json"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", Form.OBJECT),
        ("*/*", Form.OBJECT),
        ("application/json", Form.OBJECT),
        (TYPED, Form.OBJECT),
        ("application/vnd.kubernetes.protobuf, */*", Form.OBJECT),
        (KUBECTL, Form.TABLE),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Form.OBJECT),
        ("application/json; as=PartialObjectMetadata; g=meta.k8s.io; v=v1", Form.PARTIAL),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,*/*", Form.PARTIAL),
        ("application/json;q=0,*/*", Form.OBJECT),
        ("application/yaml", Form.OBJECT),
    ],
)
def test_first_clause_that_can_be_served_decides(accept: str, form: Form) -> None:
    assert object_form(accept) is form


@pytest.mark.parametrize(
    "accept",
    ["application/vnd.kubernetes.protobuf", "text/html", "application/json;as=Unknown;g=x;v=v1"],
)
def test_form_that_is_not_served_is_refused(accept: str) -> None:
    with pytest.raises(NotAcceptable, match="application/json"):
        object_form(accept)


def test_plain_json_is_reported_from_other_forms_of_json() -> None:
    assert accepts_json("")
    assert accepts_json("*/*")
    assert not accepts_json("application/json;as=Table;v=v1;g=meta.k8s.io")


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='ajson/*;,=qv1 "', max_size=60))
def test_any_header_is_read(accept: str) -> None:
    assert all(media.type for media in parse_accept(accept))
