"""OpenAPI version 2 as protobuf: the form in which Go clients ask for it.

``kubectl explain`` and validation of older releases, and Helm's, read the definitions and the
operations of ``/openapi/v2`` in this form only. The messages are those of the ``openapi.v2`` package
of gnostic; extensions (``x-…``) go as YAML, which JSON is.
"""

import struct
from collections.abc import Callable, Mapping

from grange.api import codec
from grange.api.meta import Document

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_EXTENSION = "x-"
_NAME, _VALUE = 1, 2  # of all the entries of maps
_ANY_YAML = 2
_QUERY, _PATH = 3, 4
_PLACES = {"query": _QUERY, "path": _PATH}

_Encode = Callable[[Document], bytes]


def encode(document: Document) -> bytes:
    """The document of ``schema.openapi_v2``.

    Raises:
        KeyError: it has a field that has no place here.
    """
    return _message(document, _DOCUMENT)


# --- the encoding ------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(body)) + body


def _text(number: int, value: str) -> bytes:
    return _bytes(number, value.encode())


def _flag(number: int, value: bool) -> bytes:  # noqa: FBT001  a value, not a switch
    return _varint(number << 3 | _VARINT) + _varint(int(value))


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | _FIXED64) + struct.pack("<d", value)


def _texts(number: int, values: list[str]) -> bytes:
    return b"".join(_text(number, value) for value in values)


def _any(number: int, value: object) -> bytes:
    return _bytes(number, _bytes(_ANY_YAML, codec.encode_any(value)))


def _named(number: int, items: Mapping[str, Document], encoded: _Encode) -> bytes:
    """The entries of a map, in its order."""
    entries = (_text(_NAME, name) + _bytes(_VALUE, encoded(item)) for name, item in items.items())
    return b"".join(_bytes(number, entry) for entry in entries)


_Fields = Mapping[str, tuple[int, Callable[..., bytes]]]


def _message(document: Document, fields: _Fields) -> bytes:
    """A message: known fields by their table, then the extensions."""
    known, extensions = [], []
    for name, value in document.items():
        if name.startswith(_EXTENSION):
            number, _ = fields[_EXTENSION]
            extensions.append(_bytes(number, _text(_NAME, name) + _any(_VALUE, value)))
        else:
            number, field = fields[name]
            known.append(field(number, value))
    return b"".join([*known, *extensions])


# --- the messages ------------------------------------------------------------------------------


def _schema(document: Document) -> bytes:
    return _message(document, _SCHEMA)


def _schema_field(number: int, document: Document) -> bytes:
    return _bytes(number, _schema(document))


def _type(number: int, kind: str) -> bytes:
    return _bytes(number, _text(1, kind))


def _wrapped_schema(number: int, document: Document) -> bytes:
    """A schema that is the first choice, or the only element, of another message."""
    return _bytes(number, _bytes(1, _schema(document)))


def _additional(number: int, value: Document | bool) -> bytes:  # noqa: FBT001  a value
    if isinstance(value, bool):
        return _bytes(number, _flag(2, value))
    return _wrapped_schema(number, value)


def _schemas(number: int, items: Mapping[str, Document]) -> bytes:
    return _bytes(number, _named(1, items, _schema))


def _enum(number: int, values: list[object]) -> bytes:
    return b"".join(_any(number, value) for value in values)


def _paths(number: int, items: Mapping[str, Document]) -> bytes:
    return _bytes(number, _named(2, items, lambda item: _message(item, _PATH_ITEM)))


def _operation(number: int, document: Document) -> bytes:
    return _bytes(number, _message(document, _OPERATION))


def _parameters(number: int, items: list[Document]) -> bytes:
    return b"".join(_bytes(number, _bytes(1, _parameter(item))) for item in items)


def _parameter(document: Document) -> bytes:
    if document["in"] == "body":
        return _bytes(1, _message(document, _BODY_PARAMETER))
    place = _PLACES[document["in"]]
    fields = _QUERY_PARAMETER if place == _QUERY else _PATH_PARAMETER
    return _bytes(2, _bytes(place, _message(document, fields)))


def _responses(number: int, items: Mapping[str, Document]) -> bytes:
    return _bytes(number, _named(1, items, lambda item: _bytes(1, _message(item, _RESPONSE))))


_SCHEMA: _Fields = {
    "$ref": (1, _text),
    "format": (2, _text),
    "description": (4, _text),
    "default": (5, _any),
    "maximum": (7, _double),
    "minimum": (9, _double),
    "pattern": (13, _text),
    "required": (19, _texts),
    "enum": (20, _enum),
    "additionalProperties": (21, _additional),
    "type": (22, _type),
    "items": (23, _wrapped_schema),
    "properties": (25, _schemas),
    _EXTENSION: (31, _any),
}
_BODY_PARAMETER: _Fields = {
    "description": (1, _text),
    "name": (2, _text),
    "in": (3, _text),
    "required": (4, _flag),
    "schema": (5, _schema_field),
}
_PATH_PARAMETER: _Fields = {
    "required": (1, _flag),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (5, _text),
    "uniqueItems": (19, _flag),
}
_QUERY_PARAMETER: _Fields = {
    **_PATH_PARAMETER,
    "type": (6, _text),
    "uniqueItems": (20, _flag),
}
_RESPONSE: _Fields = {"description": (1, _text), "schema": (2, _wrapped_schema)}
_OPERATION: _Fields = {
    "tags": (1, _texts),
    "description": (3, _text),
    "operationId": (5, _text),
    "produces": (6, _texts),
    "consumes": (7, _texts),
    "parameters": (8, _parameters),
    "responses": (9, _responses),
    _EXTENSION: (13, _any),
}
_PATH_ITEM: _Fields = {
    "get": (2, _operation),
    "put": (3, _operation),
    "post": (4, _operation),
    "delete": (5, _operation),
    "patch": (8, _operation),
    "parameters": (9, _parameters),
}
_INFO: _Fields = {"title": (1, _text), "version": (2, _text)}
_DOCUMENT: _Fields = {
    "swagger": (1, _text),
    "info": (2, lambda number, info: _bytes(number, _message(info, _INFO))),
    "paths": (8, _paths),
    "definitions": (9, _schemas),
}
