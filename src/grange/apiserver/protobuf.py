"""Bodies in Kubernetes' protobuf encoding, of every kind of Kubernetes that is served.

Typed Go clients (``kubectl create pdb``, operators built with controller-runtime) send protobuf, and
some have no other try. What they send is read here into the same documents that JSON gives; answers
are JSON, which every such client accepts. Kinds of our own have no protobuf form, here as in
Kubernetes.

The form: four magic bytes, then an ``Unknown`` message that names the type and holds the object.
Go leaves out nothing but unset pointers, so empty strings, zeros and false of plain fields are
dropped here as JSON drops them. Numbers, names and types of the fields are data, which
``scripts/make_protobuf.py`` writes.
"""

import base64
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from grange.api import codec, timestamps
from grange.api.meta import Document
from grange.api.status import BadRequest, TooLarge, UnsupportedMediaType
from grange.apiserver.negotiation import PROTOBUF
from grange.base.protobuf_schema import (
    FieldReader,
    ProtobufError,
    TooManyFieldsError,
    length_delimited,
)

MEDIA_TYPE = PROTOBUF
FIELDS_MAX = 50_000
"""Reading takes about a microsecond a field, and holds the event loop."""

_MAGIC = b"k8s\x00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LIST, _MAP, _INLINED, _POINTER, _REQUIRED = "[]", "{}", "=", "?", "!"
_TABLE = Path(__file__).parent / "protobuf_messages.txt"
# What the others are wrapped in, and what special types are made of.
_WRAPPERS = """
Unknown 1:typeMeta:TypeMeta 2:raw:raw
TypeMeta 1:apiVersion:string 2:kind:string
Timestamp 1:seconds:int 2:nanos:int
IntOrString 1:type:int 2:int:int 3:string:string
Quantity 1:string:string
Raw 1:raw:raw
"""
_SPECIAL = frozenset({"time", "microtime", "quantity", "json", "int-or-string"})
_ANY_VERSION = "DeleteOptions"  # belongs to every group


class _Field(NamedTuple):
    """A field of a message.

    Attributes:
        name: in JSON.
        shape: ``[]``, ``{}``, ``=`` or nothing.
        kind: of the value, or of each.
        keeps_zero: a zero means something.
    """

    name: str
    shape: str
    kind: str
    keeps_zero: bool


class _Table(NamedTuple):
    """What can be read.

    Attributes:
        bodies: apiVersion and kind to the message.
        messages: each by field number.
    """

    bodies: dict[tuple[str, str], str]
    messages: dict[str, dict[int, _Field]]


@lru_cache(maxsize=1)
def _table() -> _Table:
    table = _Table({}, {})
    for line in (_TABLE.read_text(encoding="ascii") + _WRAPPERS).splitlines():
        name, _, rest = line.partition(" ")
        if name.startswith("@"):
            kind, _, message = rest.partition(" ")
            table.bodies[name[1:], kind] = message
        elif name and not name.startswith("#"):
            table.messages[name] = dict(_field(text) for text in rest.split())
    return table


def _field(text: str) -> tuple[int, _Field]:
    number, name, kind = text.split(":")
    shape = next((mark for mark in (_LIST, _MAP, _INLINED) if kind.startswith(mark)), "")
    plain = kind.removeprefix(shape).rstrip(_POINTER + _REQUIRED)
    return int(number), _Field(name, shape, plain, kind.endswith((_POINTER, _REQUIRED)))


def is_protobuf(media_type: str) -> bool:
    """Whether a content type is Kubernetes' protobuf."""
    return media_type.partition(";")[0].strip().lower() == MEDIA_TYPE


def decode(body: bytes) -> Document:
    """The document of a body.

    Raises:
        UnsupportedMediaType: it is of a kind that is read only as JSON or YAML.
        TooLarge: it has more than ``FIELDS_MAX`` fields.
        BadRequest: the body is damaged.
    """
    if not body.startswith(_MAGIC):
        raise BadRequest("the body is not Kubernetes' protobuf: it lacks the magic bytes")
    try:
        return _decode(body[len(_MAGIC) :])
    except TooManyFieldsError as error:
        raise TooLarge(f"the body has more than {FIELDS_MAX} fields; send JSON") from error
    except ProtobufError as error:
        raise _damaged(str(error)) from error


def _decode(body: bytes) -> Document:
    reader = _Reader()
    outer = reader.message("Unknown", body)
    meta = outer.get("typeMeta") or {}
    version, kind = meta.get("apiVersion") or "", meta.get("kind") or ""
    message = _table().bodies.get(("v1" if kind == _ANY_VERSION else version, kind))
    if message is None:
        raise UnsupportedMediaType(
            f'the server reads {kind or "such objects"} as JSON and YAML, not as "{MEDIA_TYPE}"; '
            "write the object to a file and use `kubectl apply -f FILE`, which sends JSON"
        )
    return {**meta, **reader.message(message, outer.get("raw") or b"")}


class _Reader:
    """Reads the messages of one body, and counts their fields."""

    def __init__(self) -> None:
        self._reader = FieldReader(FIELDS_MAX)
        self._messages = _table().messages

    def message(self, name: str, body: bytes) -> Document:
        # Recursion is bounded by the table: no message contains itself.
        fields = self._messages[name]
        document: Document = {}
        for number, wire, value in self._reader.fields(body):
            field = fields.get(number)
            if field is None:
                continue
            if field.shape == _MAP:
                key, item = self._entry(length_delimited(value, wire), field.kind)
                document.setdefault(field.name, {})[key] = item
                continue
            item = self._value(field.kind, wire, value)
            if field.shape == _LIST:
                document.setdefault(field.name, []).append(item)
            elif field.shape == _INLINED:
                document.update(item)
            elif item is not None and (field.keeps_zero or item not in ("", 0, False)):
                document[field.name] = item
        return document

    def _entry(self, body: bytes, kind: str) -> tuple[str, Any]:
        key: Any = ""
        item: Any = ""
        for number, wire, value in self._reader.fields(body):
            if number == 1:
                key = self._value("string", wire, value)
            elif number == 2:
                item = self._value(kind, wire, value)
        return key, item

    def _value(self, kind: str, wire: int, value: int | bytes) -> Any:
        if kind in ("int", "bool"):
            if not isinstance(value, int):
                raise _damaged("a number was expected")
            return bool(value) if kind == "bool" else value
        body = length_delimited(value, wire)
        match kind:
            case "string":
                try:
                    return body.decode()
                except UnicodeDecodeError:
                    raise _damaged("a text is not UTF-8") from None
            case "bytes":
                return base64.b64encode(body).decode()
            case "raw":
                return body
        return self._special(kind, body) if kind in _SPECIAL else self.message(kind, body)

    def _special(self, kind: str, body: bytes) -> Any:
        """A message that has another form in JSON."""
        match kind:
            case "quantity":
                return self.message("Quantity", body).get("string", "0")
            case "json":
                raw = self.message("Raw", body).get("raw")
                return codec.decode_any(raw) if raw else None
            case "int-or-string":
                either = self.message("IntOrString", body)
                return either.get("string", "") if either.get("type") else either.get("int", 0)
        return self._time(kind, body)

    def _time(self, kind: str, body: bytes) -> str | None:
        instant = self.message("Timestamp", body)
        seconds, nanos = instant.get("seconds", 0), instant.get("nanos", 0)
        if seconds <= 0:
            return None  # Go's zero time, long before the epoch
        try:
            if kind == "time":
                return timestamps.rfc3339(_EPOCH + timedelta(seconds=seconds))
            since = timedelta(seconds=seconds, microseconds=nanos // 1000)
            return timestamps.rfc3339_micro(_EPOCH + since)
        except OverflowError:
            raise _damaged("a time is out of range") from None


def _damaged(why: str) -> BadRequest:
    return BadRequest(f"cannot read the body as protobuf: {why}")
