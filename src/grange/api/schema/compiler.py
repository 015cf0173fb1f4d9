"""Schemas compiled to msgspec types, so that a document that is right is found right in C.

The type only accepts or rejects: it accepts exactly the documents in which ``reporter``
finds no fault and no null, which a property test checks. Everything wrong is then described by
the reporter, which is slow and thorough.
"""

from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

import msgspec

from grange.api import timestamps
from grange.api.schema.definitions import (
    INT_OR_STRING,
    KEEPS_UNKNOWN,
    MICRO_TIME,
    Definitions,
    Schema,
)

INT_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


class Compiler:
    """Types for the definitions of one set; each definition is compiled once."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._types: dict[str, Any] = {}
        self._open: set[str] = set()
        self.exact = True
        """Whether the types alone decide; false once one was met that is not precise enough."""

    def definition(self, name: str) -> Any:  # a type form, which has no static type
        """The type of a definition."""
        found = self._types.get(name)
        if found is not None:
            return found
        if name in self._open:
            self.exact = False
            return Any
        schema = self._definitions.get(name)
        if schema is None:
            return Any
        self._open.add(name)
        found = self._types[name] = self._type(schema, name.rpartition(".")[2])
        self._open.discard(name)
        return found

    def _type(self, schema: Schema, name: str) -> Any:
        target = schema.get("$ref")
        if target == MICRO_TIME:
            return Annotated[str, msgspec.Meta(pattern=timestamps.MICRO_TIME)]
        if target is not None:
            return self.definition(target.rpartition("/")[2])
        built = self._enumeration(schema) if "enum" in schema else self._plain(schema, name)
        return built | None if schema.get("nullable") and built is not Any else built

    def _enumeration(self, schema: Schema) -> Any:
        choices = schema["enum"]
        if all(isinstance(choice, str) for choice in choices):
            return Literal[tuple(choices)]
        self.exact = False
        return Any

    def _plain(self, schema: Schema, name: str) -> Any:
        if schema.get(INT_OR_STRING) or schema.get("format") == "int-or-string":
            return (
                Annotated[int, msgspec.Meta(ge=INT_RANGES["int32"][0], le=INT_RANGES["int32"][1])]
                | str
            )
        match schema.get("type"):
            case "object":
                return self._object(schema, name)
            case "array":
                return self._array(schema, name)
            case "string":
                return _string(schema)
            case "integer":
                return _number(int, schema)
            case "number":
                return _number(float, schema)
            case "boolean":
                return bool
        return Any

    def _array(self, schema: Schema, name: str) -> Any:
        items = self._type(schema["items"], name) if "items" in schema else Any
        listed = list[items]  # type: ignore[valid-type] # known at run time only
        return _limited(listed, schema, ("minItems", "maxItems"))

    def _object(self, schema: Schema, name: str) -> Any:
        properties = schema.get("properties")
        if properties is None:
            values = schema.get("additionalProperties")
            held = self._type(values, name) if isinstance(values, dict) else Any
            return dict[str, held]  # type: ignore[valid-type] # known at run time only
        required = schema.get("required") or ()
        fields: list[tuple[str, Any, Any]] = []
        for index, (field, part) in enumerate(properties.items()):
            kind = self._type(part, f"{name}_{index}")
            if field in required:
                fields.append((f"f{index}", kind, msgspec.field(name=field)))
            else:
                missing = msgspec.field(name=field, default=msgspec.UNSET)
                fields.append((f"f{index}", _optional(kind), missing))
        return msgspec.defstruct(
            name,
            fields,
            forbid_unknown_fields=not schema.get(KEEPS_UNKNOWN),
            kw_only=True,
            gc=False,
        )


def _optional(kind: Any) -> Any:
    return kind if kind is Any else reduce(or_, (kind, msgspec.UnsetType))


def _string(schema: Schema) -> Any:
    match schema.get("format"):
        case "date-time":
            return Annotated[str, msgspec.Meta(pattern=timestamps.TIME)]
        case "quantity":
            return int | float | str
    return _limited(str, schema, ("minLength", "maxLength"), schema.get("pattern"))


def _limited(kind: Any, schema: Schema, names: tuple[str, str], pattern: str | None = None) -> Any:
    least, most = schema.get(names[0]), schema.get(names[1])
    if least is None and most is None and pattern is None:
        return kind
    return Annotated[kind, msgspec.Meta(min_length=least, max_length=most, pattern=pattern)]


def _number(kind: type[int | float], schema: Schema) -> Any:
    low, high = (
        INT_RANGES.get(schema.get("format", ""), (None, None)) if kind is int else (None, None)
    )
    least, most = schema.get("minimum"), schema.get("maximum")
    low = least if low is None else low if least is None else max(low, least)
    high = most if high is None else high if most is None else min(high, most)
    if low is None and high is None:
        return kind
    return Annotated[kind, msgspec.Meta(ge=low, le=high)]
