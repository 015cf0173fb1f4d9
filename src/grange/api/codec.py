"""Bytes to documents and views, and back.

JSON is the wire form; YAML is accepted where people write. A document from outside is bounded in
depth before anything walks it, so that the walkers may recurse.
"""

import json
import re
from functools import lru_cache
from typing import Any, NoReturn, TypeVar, cast

import msgspec

from grange.api.fields import member
from grange.api.http import JSON
from grange.api.meta import Document, View
from grange.api.status import BadRequest, TooLarge, UnsupportedMediaType

V = TypeVar("V", bound=View)

DEPTH_MAX = 64
VALUES_MAX = 100_000
"""How many members and items a document from outside may have in all: walking it takes that long."""
_FEW_VALUES = 10_000  # so few need no closer look
DUPLICATES_MAX = 100
_APART = re.compile(rb'"\s+:')
DUPLICATES_BODY_MAX_BYTES = 256 * 1024

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
_view_decoders: dict[type, msgspec.json.Decoder[Any]] = {}
_POSITION = re.compile(r"\(byte (\d+)\)")


def encode(obj: Document | View) -> bytes:
    """Compact JSON."""
    return _encoder.encode(obj)


def encode_any(value: object) -> bytes:
    """Compact JSON of any JSON value."""
    return _encoder.encode(value)


def decode_any(body: bytes) -> Any:
    """Any JSON value, bounded in depth and number of values.

    Raises:
        BadRequest: the body is no JSON (names line and column), or too deep.
        TooLarge: it has more than ``VALUES_MAX`` members and items.
    """
    check_values(body)
    try:
        value = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _refuse_json(body, error)
    # A value cannot be deeper than it has opening brackets: counting them settles most bodies.
    if body.count(b"{") + body.count(b"[") > DEPTH_MAX:
        check_depth(value)
    return value


def count_values(body: bytes) -> int:
    """How many members and items JSON has, empty brackets included; never too few."""
    # A member or item comes after a comma or an opening bracket; those in strings count at first.
    most = body.count(b",") + body.count(b"[") + body.count(b"{")
    if most <= _FEW_VALUES:
        return most
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    strings = plain.count(b'"') // 2
    if strings > 2 * VALUES_MAX + 2:  # a member has two at most, so there are too many of them
        return min(most, strings // 2)
    outside = b"".join(plain.split(b'"')[::2])
    return outside.count(b",") + outside.count(b"[") + outside.count(b"{")


def check_values(body: bytes) -> None:
    """Refuse JSON with too many members and items, before anything is made of it.

    Raises:
        TooLarge: it has more than ``VALUES_MAX``.
    """
    # Each takes two bytes at least, and the innermost bracket may be empty.
    if len(body) > 2 * VALUES_MAX and count_values(body) > VALUES_MAX + 1:
        raise TooLarge(
            f"the body has more than {VALUES_MAX} members and items; split it into several objects"
        )


def decode_trusted(body: bytes) -> Any:
    """Any JSON value from bytes that we encoded ourselves."""
    return _decoder.decode(body)


def clone(value: Any) -> Any:
    """A copy of a JSON value that shares nothing with it; faster than ``copy.deepcopy``."""
    if isinstance(value, dict | list):
        return _decoder.decode(_encoder.encode(value))
    return value


def decode_document(body: bytes, media_type: str = JSON) -> Document:
    """One document from a request's body: JSON, or YAML by the media type.

    Raises:
        UnsupportedMediaType: the media type is neither.
        BadRequest: the body cannot be read (names line and column), is too deep, or is no object.
    """
    kind = _media_kind(media_type)
    if kind.endswith("yaml"):
        documents = load_yaml_documents(body)
        if len(documents) != 1:
            raise BadRequest(f"expected one YAML document in the body, found {len(documents)}")
        return documents[0]
    if kind and not kind.endswith("json"):
        raise UnsupportedMediaType(
            f'the server reads JSON and YAML, not "{kind}"; write the object to a file and use '
            "`kubectl apply -f FILE`, which sends JSON"
        )
    value = decode_any(body)
    if not isinstance(value, dict):
        raise BadRequest(f"expected a JSON object, got {_name(value)}")
    return cast("Document", value)


def is_yaml(media_type: str) -> bool:
    """Whether a body of this media type is YAML."""
    return _media_kind(media_type).endswith("yaml")


def is_json(media_type: str) -> bool:
    """Whether a body of this media type is JSON: a document or one of the patches."""
    return _media_kind(media_type).endswith("json")


@lru_cache(maxsize=64)
def _media_kind(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def duplicate_fields(body: bytes, value: object) -> tuple[str, ...]:
    """The paths of the fields that a JSON body has more than once, at most ``DUPLICATES_MAX``.

    Decoding keeps the last of them. Bodies above ``DUPLICATES_BODY_MAX_BYTES`` that are not compact
    are not searched: that would hold the event loop for too long.

    Args:
        body: what was decoded.
        value: what it was decoded to, not changed since.
    """
    encoded = _encoder.encode(value)
    if encoded == body:  # as our own clients write; nothing was lost
        return ()
    if _keeps_all_keys(body, encoded) or len(body) > DUPLICATES_BODY_MAX_BYTES:
        return ()
    text = body.decode()
    try:
        json.loads(text, object_pairs_hook=_check_unique)
    except _DuplicateError:
        found: dict[str, None] = {}
        _find_duplicates(json.loads(text, object_pairs_hook=_Pairs), "", found)
        return tuple(found)
    return ()


def _keeps_all_keys(body: bytes, encoded: bytes) -> bool:
    """Whether decoding surely lost no member; what it lost would be missing among the keys.

    A key ends with a quote and a colon. Inside of strings quotes are escaped, alike on both sides
    unless the body writes them as code points; and a body may set the colon apart.
    """
    if body.count(b'":') != encoded.count(b'":'):
        return False
    if b"\\u0022" in body:
        return False
    # Most bodies have no quote before white space, which is found sooner than by the pattern.
    spaced = b'" ' in body or b'"\n' in body or b'"\t' in body or b'"\r' in body
    return not spaced or _APART.search(body) is None


class _DuplicateError(Exception):
    """An object has a member twice."""


def _check_unique(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise _DuplicateError


class _Pairs(list[tuple[str, object]]):
    """The members of a JSON object in their order, duplicates included."""


def _find_duplicates(value: object, path: str, found: dict[str, None]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, item in value:
            at = member(path, key)
            if key in seen and len(found) < DUPLICATES_MAX:
                found[at] = None
            seen.add(key)
            if isinstance(item, list):
                _find_duplicates(item, at, found)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, list):
                _find_duplicates(item, f"{path}[{index}]", found)


def decode_view(body: bytes, view: type[V]) -> V:
    """The partial view of a document's bytes; fields that the view lacks are skipped.

    Raises:
        BadRequest: the body is no JSON, or a field that the view names has another type.
    """
    decoder = _view_decoders.get(view)
    if decoder is None:
        decoder = _view_decoders[view] = msgspec.json.Decoder(view)
    try:
        return cast("V", decoder.decode(body))
    except msgspec.ValidationError as error:
        raise BadRequest(f"cannot read a {view.__name__}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _refuse_json(body, error)


def convert(document: Document, view: type[V]) -> V:
    """The partial view of a document.

    Raises:
        BadRequest: a field that the view names has another type.
    """
    try:
        return msgspec.convert(document, view)
    except msgspec.ValidationError as error:
        raise BadRequest(f"cannot read a {view.__name__}: {error}") from error


def to_document(view: View) -> Document:
    """The document of a view: the fields that differ from their defaults; parts may be empty."""
    # Views hold tuples, documents lists: by way of the bytes, as everything that we read.
    return cast("Document", _decoder.decode(_encoder.encode(view)))


def load_yaml_documents(text: str | bytes) -> list[Document]:
    """The documents of a YAML stream, empty ones left out.

    Raises:
        BadRequest: the stream cannot be read (names line and column), repeats a key, expands or
            nests beyond bounds, or holds something other than mappings.
    """
    from grange.api import yaml_documents  # half as long to import as the rest of the room

    documents = []
    for value in yaml_documents.load(text):
        if value is None:
            continue
        if not isinstance(value, dict):
            raise BadRequest(f"expected every YAML document to be a mapping, got {_name(value)}")
        documents.append(cast("Document", value))
    return documents


def check_depth(value: object, limit: int = DEPTH_MAX) -> None:
    """Refuse a value that nests deeper than ``limit``, without recursion.

    Raises:
        BadRequest: it does.
    """
    level: list[object] = [value]
    for _ in range(limit):
        deeper: list[object] = []
        for item in level:
            if isinstance(item, dict):
                deeper += [v for v in item.values() if isinstance(v, dict | list)]
            elif isinstance(item, list):
                deeper += [v for v in item if isinstance(v, dict | list)]
        if not deeper:
            return
        level = deeper
    raise BadRequest(f"the document nests deeper than {limit} levels")


def _refuse_json(body: bytes, error: Exception) -> NoReturn:
    if not body.strip():
        raise BadRequest("the body is empty; send a JSON object") from error
    if isinstance(error, RecursionError):
        raise BadRequest(f"the document nests deeper than {DEPTH_MAX} levels") from error
    match = _POSITION.search(str(error))
    message = _POSITION.sub("", str(error)).strip().rstrip(":")
    if match is None:
        raise BadRequest(f"cannot read the body as JSON: {message}") from error
    at = int(match.group(1))
    line = body.count(b"\n", 0, at) + 1
    column = at - (body.rfind(b"\n", 0, at) + 1) + 1
    message = message.removeprefix("JSON is malformed: ")
    raise BadRequest(
        f"cannot read the body as JSON: {message} at line {line}, column {column}"
    ) from error


def _name(value: object) -> str:
    """What a value is that should have been an object."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case _:
            return "a list"
