"""What Kubernetes makes of a CustomResourceDefinition, as its documentation describes it.

``violations`` names the rules that a schema breaks: those of *Specifying a structural schema*, by
their numbers there, and the others of that page by name. ``faults`` is what such a server finds in
an object, under strict field validation. One difference is known and left out: it takes 1.0 where
an integer is wanted.
"""

import copy
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from grange.api.meta import Document

INT_OR_STRING = "x-kubernetes-int-or-string"
KEEPS_UNKNOWN = "x-kubernetes-preserve-unknown-fields"
JUNCTORS = ("allOf", "anyOf", "oneOf", "not")
FORBIDDEN = (
    *("$ref", "definitions", "dependencies", "deprecated", "discriminator", "id"),
    *("patternProperties", "readOnly", "writeOnly", "xml"),
)
VALUE_WORDS = (
    *("format", "enum", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("multipleOf", "minLength", "maxLength", "minItems", "maxItems", "minProperties"),
    *("maxProperties", "required", "uniqueItems"),
)
STRUCTURE_WORDS = (
    *("type", "title", "description", "default", "nullable", "properties", "items"),
    *("additionalProperties", "example", "externalDocs", INT_OR_STRING, KEEPS_UNKNOWN),
    *("x-kubernetes-embedded-resource", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
    *("x-kubernetes-map-type", "x-kubernetes-validations"),
)
KNOWN = {*VALUE_WORDS, *STRUCTURE_WORDS, *JUNCTORS}
NOT_IN_JUNCTORS = ("description", "type", "default", "additionalProperties", "nullable")
IN_METADATA = {"name", "generateName"}
SCALARS = {"string", "integer", "number", "boolean"}


# --- the schema ------------------------------------------------------------------------------------


def violations(schema: Document) -> list[str]:
    """The rules that a schema breaks, each with the place."""
    return [*_structure(schema, ""), *_metadata(schema)]


def _metadata(schema: Document) -> Iterator[str]:
    part = (schema.get("properties") or {}).get("metadata") or {}
    if set(part) - {"type", "description", "properties"}:
        yield "4 metadata: has more than names"
    if set(part.get("properties") or {}) - IN_METADATA:
        yield "4 metadata: restricts more than name and generateName"


def _structure(schema: Document, at: str) -> Iterator[str]:
    loose = schema.get(INT_OR_STRING) or schema.get(KEEPS_UNKNOWN)
    kind = schema.get("type")
    if not kind and not loose:
        yield f"1 type {at}"
    if kind and schema.get(INT_OR_STRING):
        yield f"int-or-string {at}: has a type"
    if schema.get(KEEPS_UNKNOWN) and kind not in (None, "object"):
        yield f"preserve-unknown-fields {at}: is no object"
    yield from _words(schema, at)
    yield from _lists(schema, at)
    for word in JUNCTORS:
        inner = schema.get(word) or []
        for part in inner if isinstance(inner, list) else [inner]:
            yield from _junction(part, schema, f"{at}<{word}>")
    if "default" in schema:
        value = copy.deepcopy(schema["default"])
        if faults(schema, value):
            yield f"default {at}: breaks its own schema"
    for field, part in (schema.get("properties") or {}).items():
        yield from _structure(part, f"{at}.{field}")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from _structure(schema[word], f"{at}[{word}]")


def _words(schema: Document, at: str) -> Iterator[str]:
    for word in schema:
        if word in FORBIDDEN:
            yield f"forbidden {at}: {word}"
        elif word not in KNOWN:
            yield f"unknown {at}: {word}"
    if schema.get("uniqueItems"):
        yield f"forbidden {at}: uniqueItems"
    if schema.get("additionalProperties") is False:
        yield f"forbidden {at}: additionalProperties false"
    if "additionalProperties" in schema and "properties" in schema:
        yield f"forbidden {at}: properties next to additionalProperties"
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        yield f"1 type {at}: items are not described"


def _lists(schema: Document, at: str) -> Iterator[str]:
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if (schema.get("x-kubernetes-list-type") == "map") != bool(keys):
        yield f"list-map-keys {at}: go with list-type map"
    items = schema.get("items") or {}
    fields = items.get("properties") or {}
    for key in keys:
        if fields.get(key, {}).get("type") not in SCALARS:
            yield f"list-map-keys {at}: {key} is no scalar field"
        elif key not in (items.get("required") or ()) and "default" not in fields[key]:
            yield f"list-map-keys {at}: {key} may be missing"


def _junction(part: Document, outside: Document, at: str) -> Iterator[str]:
    pattern = outside.get(INT_OR_STRING) and part in ({"type": "integer"}, {"type": "string"})
    for word in NOT_IN_JUNCTORS:
        if word in part and not pattern:
            yield f"3 {at}: {word}"
    for field, inner in (part.get("properties") or {}).items():
        beyond = (outside.get("properties") or {}).get(field)
        if beyond is None:
            yield f"2 {at}: {field} is not specified outside"
        else:
            yield from _junction(inner, beyond, f"{at}.{field}")
    if "items" in part:
        if "items" not in outside:
            yield f"2 {at}: items are not specified outside"
        else:
            yield from _junction(part["items"], outside["items"], f"{at}[]")
    for word in JUNCTORS:
        deeper = part.get(word) or []
        for one in deeper if isinstance(deeper, list) else [deeper]:
            yield from _junction(one, outside, f"{at}<{word}>")


# --- objects ---------------------------------------------------------------------------------------


def faults(schema: Document, value: Any) -> list[str]:
    """What is wrong with a value, which is changed: nulls that mean nothing go, defaults come."""
    _settle(schema, value)
    return list(_judge(schema, value, ""))


def _settle(schema: Document, value: Any) -> None:
    """Defaults and nulls, from the top down."""
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        for field, part in properties.items():
            absent = value.get(field) is None and not (field in value and part.get("nullable"))
            if absent and "default" in part:
                value[field] = copy.deepcopy(part["default"])
        values = schema.get("additionalProperties")
        for field in list(value):
            part = properties.get(field, values)
            if part is None:
                continue
            if value[field] is None and not _takes_null(part):
                del value[field]
            else:
                _settle(part, value[field])
    elif isinstance(value, list):
        for item in value:
            _settle(schema.get("items") or {}, item)


def _takes_null(schema: Document) -> bool:
    """Without a type nothing is stated about null."""
    return bool(schema.get("nullable") or not (schema.get("type") or schema.get(INT_OR_STRING)))


def _judge(schema: Document, value: Any, at: str) -> Iterator[str]:
    if value is None and _takes_null(schema):
        return
    if not _fits(schema, value):
        yield f"{at}: type"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: enum"
    if isinstance(value, str):
        yield from _text(schema, value, at)
    elif isinstance(value, bool):
        pass
    elif isinstance(value, int | float):
        yield from _number(schema, value, at)
    elif isinstance(value, list):
        yield from _list(schema, value, at)
    elif isinstance(value, dict):
        yield from _object(schema, value, at)


def _fits(schema: Document, value: Any) -> bool:
    if schema.get(INT_OR_STRING):
        return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
    match schema.get("type"):
        case None:
            return True
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(schema: Document, value: str, at: str) -> Iterator[str]:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        yield f"{at}: length"
    pattern = schema.get("pattern")
    if pattern is not None and not re.search(_end(pattern), value, re.ASCII):
        yield f"{at}: pattern"
    if schema.get("format") == "date-time" and not _is_instant(value):
        yield f"{at}: format"


def _end(pattern: str) -> str:
    """The end of RE2 is the end of the text; Python's lets a line end follow."""
    return re.sub(r"\$$", r"\\Z", pattern)


def _is_instant(value: str) -> bool:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", value):
        return False
    try:
        datetime.fromisoformat(value.upper())
    except ValueError:
        return False
    return True


def _number(schema: Document, value: float, at: str) -> Iterator[str]:
    bits = {"int32": 31, "int64": 63}.get(schema.get("format", ""))
    if bits is not None and not -(2**bits) <= value < 2**bits:
        yield f"{at}: format"
    if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{at}: bounds"


def _list(schema: Document, value: list[Any], at: str) -> Iterator[str]:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{at}: length"
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys:
        seen = [
            tuple(str(item.get(key)) for key in keys) for item in value if isinstance(item, dict)
        ]
        if len({*seen}) < len(seen):
            yield f"{at}: repeated key"
    for number, item in enumerate(value):
        yield from _judge(schema.get("items") or {}, item, f"{at}[{number}]")


def _object(schema: Document, value: Document, at: str) -> Iterator[str]:
    for field in schema.get("required") or ():
        if field not in value:
            yield f"{at}.{field}: required"
    properties, values = schema.get("properties") or {}, schema.get("additionalProperties")
    for field, inner in value.items():
        part = properties.get(field, values)
        if part is not None:
            yield from _judge(part, inner, f"{at}.{field}")
        elif not schema.get(KEEPS_UNKNOWN):
            yield f"{at}.{field}: unknown"
