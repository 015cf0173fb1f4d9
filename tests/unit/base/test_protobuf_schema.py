"""Messages by a table of their fields."""

import pytest
from hypothesis import given, strategies as st

from grange.base import protobuf_schema
from grange.base.protobuf_schema import FieldReader, ProtobufError, Schema, TooManyFieldsError

SCHEMA = Schema(
    """
# a comment
Outer 1:name:string 2:count:int 3:ready:bool 4:inner:Inner 5:items:[]Inner 6:labels:{}string 7:raw:bytes 8:groups:[]int
Inner 1:value:int
"""
)

DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(min_size=1).filter(lambda text: text.isprintable()),
        "count": st.integers(-(2**63), 2**63 - 1).filter(bool),
        "ready": st.just(value=True),
        "inner": st.fixed_dictionaries({}, optional={"value": st.integers(1, 9)}),
        "items": st.lists(st.fixed_dictionaries({"value": st.integers(1, 300)}), min_size=1),
        "labels": st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), min_size=1),
        "raw": st.binary(min_size=1),
        "groups": st.lists(st.integers(0, 2**32), min_size=1),
    },
)


@given(DOCUMENTS)
def test_decoding_returns_what_was_encoded(document: dict[str, object]) -> None:
    assert SCHEMA.decode("Outer", SCHEMA.encode("Outer", document)) == document


def test_encoding_is_that_of_protobuf() -> None:
    assert SCHEMA.encode("Outer", {"name": "hi", "count": 300}) == b"\x0a\x02hi\x10\xac\x02"
    assert SCHEMA.encode("Outer", {"inner": {"value": 0}}) == b"\x22\x00"
    assert SCHEMA.encode("Outer", {"name": "", "count": 0, "inner": None}) == b""


def test_fields_that_are_not_known_are_skipped() -> None:
    body = b"\x7a\x01x" + SCHEMA.encode("Outer", {"count": 1}) + b"\x4d\0\0\0\0"
    assert SCHEMA.decode("Outer", body) == {"count": 1}


def test_encoding_an_unknown_field_is_an_error() -> None:
    with pytest.raises(KeyError, match="nmae"):
        SCHEMA.encode("Outer", {"nmae": "x"})


@given(st.binary(max_size=60))
def test_garbage_is_read_or_refused(body: bytes) -> None:
    try:
        document = SCHEMA.decode("Outer", body)
    except ProtobufError:
        return
    assert document.keys() <= {
        *("name", "count", "ready", "inner", "items", "labels", "raw", "groups")
    }


@pytest.mark.parametrize(
    "body", [b"\x0a\x05hi", b"\x10", b"\x0b", b"\x08\x01", b"\x10" + b"\xff" * 11, b"\x12\x01x"]
)
def test_damaged_messages_are_refused(body: bytes) -> None:
    with pytest.raises(ProtobufError):
        SCHEMA.decode("Outer", body)


def test_messages_of_too_many_fields_are_refused() -> None:
    with pytest.raises(TooManyFieldsError, match="more than 3"):
        list(FieldReader(3).fields(b"\x10\x01" * 4))
    assert protobuf_schema.FIELDS_MAX > 3
