"""Defaults that a schema declares, compiled to a function that visits only where there are any."""

import copy
from collections.abc import Callable
from typing import Any

from grange.api.schema.definitions import Definitions, Schema

Filler = Callable[[Any], None]


def compile_filler(definitions: Definitions, schema: Schema) -> Filler | None:
    """A function that puts a schema's defaults into a value in place, or None without any.

    A default for an object is put in first and then filled itself, so that an absent object whose
    schema has ``default: {}`` gets the defaults of its members.
    """
    return _compile(definitions, schema, frozenset())


def _compile(definitions: Definitions, schema: Schema, above: frozenset[str]) -> Filler | None:
    target = schema.get("$ref")
    if target is not None:
        if target in above:
            return None
        above |= {target}
        schema = definitions.resolve(schema)
    properties = schema.get("properties")
    if properties is not None:
        return _object(definitions, properties, above)
    items = schema.get("items")
    values = schema.get("additionalProperties")
    if isinstance(items, dict):
        return _each(_compile(definitions, items, above), list)
    if isinstance(values, dict):
        return _each(_compile(definitions, values, above), dict)
    return None


def _object(definitions: Definitions, properties: Schema, above: frozenset[str]) -> Filler | None:
    missing: list[tuple[str, Any]] = []
    deeper: list[tuple[str, Filler]] = []
    for field, part in properties.items():
        if "default" in part:
            missing.append((field, part["default"]))
        inner = _compile(definitions, part, above)
        if inner is not None:
            deeper.append((field, inner))
    if not missing and not deeper:
        return None

    def fill(value: Any) -> None:
        if not isinstance(value, dict):
            return
        for field, default in missing:
            if field not in value:
                value[field] = copy.deepcopy(default)
        for field, inner in deeper:
            if field in value:
                inner(value[field])

    return fill


def _each(inner: Filler | None, container: type[list[Any] | dict[str, Any]]) -> Filler | None:
    if inner is None:
        return None

    def fill(value: Any) -> None:
        if isinstance(value, container):
            for item in value.values() if isinstance(value, dict) else value:
                inner(item)

    return fill
