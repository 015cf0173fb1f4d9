"""Protobuf's wire format, and messages as dictionaries by a table of their fields.

A table is text with a message a line: its name, and ``number:name:type`` for every field. Types are
``int`` (of any width, and enumerations), ``bool``, ``string``, ``bytes`` and names of messages, with
``[]`` before those of lists and ``{}`` before those of maps from strings. Fixed-width numbers are
read as bytes and never written.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from grange.base.errors import GrangeError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FIELDS_MAX = 100_000
"""In one message and those inside it: reading takes about a microsecond a field."""

_WIDTHS = {FIXED64: 8, FIXED32: 4}
_VARINT_MAX_BYTES = 10
_MASK = 0xFFFF_FFFF_FFFF_FFFF
_LIST, _MAP = "[]", "{}"
_NUMBERS = frozenset({"int", "bool"})


class ProtobufError(GrangeError):
    """The bytes are not a message: how."""


class TooManyFieldsError(ProtobufError):
    """Reading the message would take too long."""


class FieldReader:
    """Reads the fields of messages, up to a number of fields in all of them.

    Args:
        limit: of the fields.
    """

    def __init__(self, limit: int = FIELDS_MAX) -> None:
        self._limit = self._left = limit

    def fields(self, body: bytes) -> Iterator[tuple[int, int, int | bytes]]:
        """Number, wire type and value of each; numbers are signed, fixed ones are bytes.

        Raises:
            TooManyFieldsError: there are more than the limit.
            ProtobufError: the bytes are damaged.
        """
        at = 0
        while at < len(body):
            self._left -= 1
            if self._left < 0:
                raise TooManyFieldsError(f"it has more than {self._limit} fields")
            tag, at = varint(body, at)
            number, wire = tag >> 3, tag & 7
            if wire == VARINT:
                value, at = varint(body, at)
                yield number, wire, signed(value)
                continue
            if wire == BYTES:
                size, at = varint(body, at)
            elif wire in _WIDTHS:
                size = _WIDTHS[wire]
            else:
                raise ProtobufError(f"wire type {wire} is not known")
            if at + size > len(body):
                raise ProtobufError("it ends too early")
            yield number, wire, body[at : at + size]
            at += size


def varint(body: bytes, at: int) -> tuple[int, int]:
    """The number at a position, without its sign, and the position after it.

    Raises:
        ProtobufError: there is no whole number.
    """
    value = 0
    for index, byte in enumerate(body[at : at + _VARINT_MAX_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & _MASK, at + index + 1
    raise ProtobufError("it ends in the middle of a number")


def signed(value: int) -> int:
    """The number that 64 bits stand for."""
    return value - (1 << 64) if value >> 63 else value


def length_delimited(value: int | bytes, wire: int) -> bytes:
    """The bytes of a field that has a length.

    Raises:
        ProtobufError: the field is a number.
    """
    if wire != BYTES or not isinstance(value, bytes):
        raise ProtobufError("a text or message was expected")
    return value


class _MessageField(NamedTuple):
    number: int
    name: str
    shape: str
    kind: str


class Schema:
    """The messages of a table; see the module's docstring for its form.

    Args:
        table: the text.
    """

    def __init__(self, table: str) -> None:
        self._messages: dict[str, dict[str, _MessageField]] = {}
        for line in table.splitlines():
            name, *texts = line.split() or [""]
            if name and not name.startswith("#"):
                fields = [_parsed(text) for text in texts]
                self._messages[name] = {field.name: field for field in fields}
        self._by_number = {
            name: {field.number: field for field in fields.values()}
            for name, fields in self._messages.items()
        }

    def encode(self, message: str, document: Mapping[str, Any]) -> bytes:
        """The bytes of a message; values that are None, zero or empty are left out.

        Raises:
            KeyError: the message has no such field.
        """
        fields = self._messages[message]
        out = bytearray()
        for name, value in document.items():
            field = fields[name]
            if value is None:
                continue
            if field.shape == _MAP:
                for key, item in value.items():
                    entry = _delimited(1, key.encode()) + self._one(2, field.kind, item)
                    out += _delimited(field.number, entry)
            elif field.shape == _LIST and field.kind in _NUMBERS:
                if value:
                    packed = b"".join(_varint_bytes(int(item)) for item in value)
                    out += _delimited(field.number, packed)
            elif field.shape == _LIST:
                for item in value:
                    out += self._one(field.number, field.kind, item)
            elif isinstance(value, Mapping) or value:
                out += self._one(field.number, field.kind, value)
        return bytes(out)

    def _one(self, number: int, kind: str, value: Any) -> bytes:
        match kind:
            case "int" | "bool":
                return _varint_bytes(number << 3 | VARINT) + _varint_bytes(int(value))
            case "string":
                return _delimited(number, value.encode())
            case "bytes":
                return _delimited(number, value)
        return _delimited(number, self.encode(kind, value))

    def decode(self, message: str, body: bytes) -> dict[str, Any]:
        """The fields of a message that are set and known.

        Raises:
            ProtobufError: the bytes are damaged, or too many.
        """
        return self._decode(message, body, FieldReader())

    def _decode(self, message: str, body: bytes, reader: FieldReader) -> dict[str, Any]:
        # Recursion is bounded by the table: no message contains itself.
        fields = self._by_number[message]
        document: dict[str, Any] = {}
        for number, wire, value in reader.fields(body):
            field = fields.get(number)
            if field is None:
                continue
            if field.shape == _MAP:
                key, item = self._entry(length_delimited(value, wire), field.kind, reader)
                document.setdefault(field.name, {})[key] = item
            elif field.shape == _LIST:
                items = document.setdefault(field.name, [])
                if field.kind in _NUMBERS and isinstance(value, bytes):
                    items += _unpacked(value)
                else:
                    items.append(self._value(field.kind, wire, value, reader))
            else:
                document[field.name] = self._value(field.kind, wire, value, reader)
        return document

    def _entry(self, body: bytes, kind: str, reader: FieldReader) -> tuple[str, Any]:
        key: Any = ""
        item: Any = ""
        for number, wire, value in reader.fields(body):
            if number == 1:
                key = self._value("string", wire, value, reader)
            elif number == 2:
                item = self._value(kind, wire, value, reader)
        return key, item

    def _value(self, kind: str, wire: int, value: int | bytes, reader: FieldReader) -> Any:
        if kind in _NUMBERS:
            if not isinstance(value, int):
                raise ProtobufError("a number was expected")
            return bool(value) if kind == "bool" else value
        body = length_delimited(value, wire)
        match kind:
            case "string":
                return body.decode(errors="replace")
            case "bytes":
                return body
        return self._decode(kind, body, reader)


def _parsed(text: str) -> _MessageField:
    number, name, kind = text.split(":")
    shape = next((mark for mark in (_LIST, _MAP) if kind.startswith(mark)), "")
    return _MessageField(int(number), name, shape, kind.removeprefix(shape))


def _unpacked(body: bytes) -> list[int]:
    numbers, at = [], 0
    while at < len(body):
        number, at = varint(body, at)
        numbers.append(signed(number))
    return numbers


def _delimited(number: int, body: bytes) -> bytes:
    return _varint_bytes(number << 3 | BYTES) + _varint_bytes(len(body)) + body


def _varint_bytes(value: int) -> bytes:
    value &= _MASK
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
