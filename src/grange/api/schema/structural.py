"""A kind's schema as Kubernetes wants it in a CustomResourceDefinition: structural, and in one piece.

Everything comes from the definitions that our own server checks by; nothing here is specific to any
kind. What is left out, and why:

- references: each is replaced by what it refers to;
- words that only built-in kinds may use (merge keys and the like);
- which lists of *pods* are maps: a server that knows the kind lets two entries of a pod have one
  key, a CustomResourceDefinition could not;
- the fields of an object's own metadata, which every server knows;
- what is below a part that is marked as opaque.
"""

import copy
from typing import Any

from grange.api import quantity
from grange.api.schema.definitions import (
    INT_OR_STRING,
    KEEPS_UNKNOWN,
    PREFIX,
    Schema,
    definitions_of,
    takes_null,
)
from grange.api.schema_builder import OPAQUE, RULED
from grange.api.scheme import AnyKind

_KEYWORDS = (
    "description",
    "type",
    "format",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "nullable",
    "required",
    KEEPS_UNKNOWN,
    INT_OR_STRING,
    "x-kubernetes-map-type",
    "default",
)
_OF_LISTS = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys")
_ANYTHING: Schema = {KEEPS_UNKNOWN: True}


def structural(info: AnyKind) -> Schema:
    """The schema of a kind.

    Args:
        info: a kind that brings its definitions along.

    Returns:
        A schema that keeps Kubernetes' rules for structural schemas and shares nothing with the
        definitions that could be changed.
    """
    whole = _Writer(info).written({"$ref": f"{PREFIX}{info.schema}"}, frozenset(), own=True)
    whole["properties"]["metadata"] = {"type": "object"}
    return whole


class _Writer:
    """Writes the definitions of one kind as one schema."""

    def __init__(self, info: AnyKind) -> None:
        self._own = info.definitions
        self._definitions = definitions_of(info)

    def written(self, schema: Schema, above: frozenset[str], *, own: bool) -> Schema:
        """A schema and everything below it.

        Args:
            schema: as the definitions have it.
            above: names of the definitions that it is part of; one that contains itself has no end.
            own: whether it is part of a definition that the kind brings along.
        """
        if schema.get(OPAQUE):
            return {"type": "object", "description": schema["description"], **_ANYTHING}
        name = schema.get("$ref", "").removeprefix(PREFIX)
        if name:
            if name in above:
                return dict(_ANYTHING)
            above |= {name}
            own = name in self._own
            siblings = {word: value for word, value in schema.items() if word != "$ref"}
            schema = {**self._definitions.resolve(schema), **siblings}
        schema = {**schema, **schema.get(RULED, {})}
        result = {word: copy.deepcopy(schema[word]) for word in _KEYWORDS if word in schema}
        match schema.get("format"):
            case "quantity":
                _make_int_or_string(result)
                result |= {"pattern": quantity.PATTERN, "maxLength": quantity.DIGITS_MAX}
            case "int-or-string":
                _make_int_or_string(result)
        if takes_null(schema):
            result[KEEPS_UNKNOWN] = True  # its type is not given
        match result.get("type"):
            case "object":
                result |= self._members(schema, above, own=own)
            case "array":
                if own and schema.get("x-kubernetes-list-type") != "atomic":
                    result |= {
                        word: copy.copy(schema[word]) for word in _OF_LISTS if word in schema
                    }
                result["items"] = self.written(schema.get("items") or {}, above, own=own)
        return result

    def _members(self, schema: Schema, above: frozenset[str], *, own: bool) -> Schema:
        properties: dict[str, Any] | None = schema.get("properties")
        if properties is not None:
            return {
                "properties": {
                    field: self.written(part, above, own=own) for field, part in properties.items()
                }
            }
        values = schema.get("additionalProperties")
        if isinstance(values, dict):
            return {"additionalProperties": self.written(values, above, own=own)}
        return dict(_ANYTHING)


def _make_int_or_string(schema: Schema) -> None:
    """Use the extension of Kubernetes, which ``type`` and ``format`` cannot express."""
    schema.pop("type", None)
    schema.pop("format", None)
    schema[INT_OR_STRING] = True
