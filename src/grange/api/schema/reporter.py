"""What is wrong with a document, fault by fault.

Walks a document along its schema. Null members mean absent, as they do in the API's decoding, and
are removed on the way. Recursion is bounded by the depth of the document, which ``codec`` bounds.
"""

import difflib
import re
from typing import Any

from grange.api import timestamps
from grange.api.fields import entry, member
from grange.api.schema.compiler import INT_RANGES
from grange.api.schema.definitions import (
    INT_OR_STRING,
    KEEPS_UNKNOWN,
    MICRO_TIME,
    Definitions,
    Schema,
    takes_null,
)
from grange.api.status import Cause, shown
from grange.api.validation.causes import CAUSES_MAX

UNKNOWN_FIELD = "unknown field"
# Finding the nearest name is slow: it is done for the first few faults and for names of usual length.
_SUGGESTIONS_MAX = 10
_SUGGESTED_NAME_MAX = 64


class Reporter:
    """Gathers the causes of one document, at most ``CAUSES_MAX``.

    Attributes:
        causes: what was found.
        suggestions: for how many unknown fields the nearest known name was looked for.
    """

    def __init__(self, definitions: Definitions, *, drop_unknown: bool = False) -> None:
        self._definitions = definitions
        self._drop_unknown = drop_unknown
        self.causes: list[Cause] = []
        self.suggestions = 0
        self._visitors = {
            "object": self._visit_object,
            "array": self._visit_array,
            "string": self._visit_string,
            "integer": self._visit_integer,
            "number": self._visit_number,
            "boolean": self._visit_boolean,
        }

    def visit(self, schema: Schema, value: Any, path: str) -> None:
        """Check one value and what is below it."""
        if len(self.causes) >= CAUSES_MAX:
            return
        if schema.get("$ref") == MICRO_TIME:
            self._visit_micro_time(value, path)
            return
        schema = self._definitions.resolve(schema)
        if "enum" in schema:
            self._visit_enum(schema, value, path)
            return
        if schema.get(INT_OR_STRING) or schema.get("format") == "int-or-string":
            if _is_integer(value):
                self._check_range("int32", value, path)
            elif not isinstance(value, str):
                self._wrong_type(path, "integer or string", value)
            return
        visitor = self._visitors.get(schema.get("type", ""))
        if visitor is not None:
            visitor(schema, value, path)

    def _visit_boolean(self, schema: Schema, value: Any, path: str) -> None:
        if not isinstance(value, bool):
            self._wrong_type(path, "boolean", value)

    def _visit_number(self, schema: Schema, value: Any, path: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._wrong_type(path, "number", value)
        else:
            self._check_bounds(schema, value, path)

    def _visit_enum(self, schema: Schema, value: Any, path: str) -> None:
        choices = schema["enum"]
        # True equals 1 in Python, not in JSON.
        if any(value == choice and type(value) is type(choice) for choice in choices):
            return
        listed = ", ".join(shown(choice) for choice in choices)
        self._add(
            "FieldValueNotSupported",
            path,
            f"Unsupported value: {shown(value)}: supported values: {listed}",
        )

    def _visit_object(self, schema: Schema, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            self._wrong_type(path, "object", value)
            return
        properties: Schema | None = schema.get("properties")
        values = schema.get("additionalProperties")
        if properties is None:
            if isinstance(values, dict):
                self._visit_map(values, value, path)
            return
        for field in schema.get("required") or ():
            if value.get(field) is None and not (
                field in value and self._nullable(properties, field)
            ):
                self._add("FieldValueRequired", member(path, field), "Required value")
        for field in list(value):
            part = properties.get(field)
            if part is None:
                if not schema.get(KEEPS_UNKNOWN):
                    self._unknown(value, field, path, properties)
            elif value[field] is not None:
                self.visit(part, value[field], member(path, field))
            elif not self._nullable(properties, field):
                del value[field]

    def _nullable(self, properties: Schema, field: str) -> bool:
        part = properties.get(field)
        return part is not None and takes_null(self._definitions.resolve(part))

    def _visit_map(self, schema: Schema, value: dict[str, Any], path: str) -> None:
        nullable = takes_null(self._definitions.resolve(schema))
        for key in list(value):
            if value[key] is not None:
                self.visit(schema, value[key], entry(path, key))
            elif not nullable:
                del value[key]

    def _visit_array(self, schema: Schema, value: Any, path: str) -> None:
        if not isinstance(value, list):
            self._wrong_type(path, "array", value)
            return
        self._check_length(schema, len(value), path, ("minItems", "maxItems"), "items")
        items = schema.get("items")
        if items is None:
            return
        nullable = takes_null(self._definitions.resolve(items))
        for index, item in enumerate(value):
            if item is not None:
                self.visit(items, item, f"{path}[{index}]")
            elif not nullable:
                self._add(
                    "FieldValueInvalid", f"{path}[{index}]", "Invalid value: must not be null"
                )

    def _visit_string(self, schema: Schema, value: Any, path: str) -> None:
        form = schema.get("format")
        if form == "quantity":
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                self._wrong_type(path, "quantity", value)
            return
        if not isinstance(value, str):
            self._wrong_type(path, "string", value)
            return
        if form == "date-time":
            self._check_time(timestamps.TIME, value, path, "2026-11-21T10:19:00Z")
            return
        self._check_length(schema, len(value), path, ("minLength", "maxLength"), "characters")
        pattern = schema.get("pattern")
        if pattern is not None and not re.search(pattern, value):
            self._invalid(path, value, f"must match {pattern}")

    def _visit_micro_time(self, value: Any, path: str) -> None:
        if isinstance(value, str):
            example = "2026-11-21T10:19:00.000000Z"
            self._check_time(timestamps.MICRO_TIME, value, path, example)
        else:
            self._wrong_type(path, "string", value)

    def _check_time(self, pattern: str, value: str, path: str, example: str) -> None:
        if not re.search(pattern, value):
            self._invalid(path, value, f"must be an RFC 3339 time like {example}")

    def _visit_integer(self, schema: Schema, value: Any, path: str) -> None:
        if not _is_integer(value):
            self._wrong_type(path, "integer", value)
            return
        self._check_range(schema.get("format", ""), value, path)
        self._check_bounds(schema, value, path)

    def _check_range(self, form: str, value: int, path: str) -> None:
        low, high = INT_RANGES.get(form, (value, value))
        if not low <= value <= high:
            self._invalid(path, value, f"must be between {low} and {high}")

    def _check_bounds(self, schema: Schema, value: float, path: str) -> None:
        least, most = schema.get("minimum"), schema.get("maximum")
        if least is not None and value < least:
            self._invalid(path, value, f"must be greater than or equal to {least}")
        if most is not None and value > most:
            self._invalid(path, value, f"must be less than or equal to {most}")

    def _check_length(
        self, schema: Schema, length: int, path: str, names: tuple[str, str], unit: str
    ) -> None:
        least, most = schema.get(names[0]), schema.get(names[1])
        if least is not None and length < least:
            self._add(
                "FieldValueInvalid", path, f"Invalid value: must have at least {least} {unit}"
            )
        if most is not None and length > most:
            self._add("FieldValueTooLong", path, f"Too long: may not have more than {most} {unit}")

    def _unknown(self, value: dict[str, Any], field: str, path: str, known: Schema) -> None:
        if self._drop_unknown:
            del value[field]
            return
        if len(self.causes) >= CAUSES_MAX:
            return
        at = member(path, field)
        message = f'{UNKNOWN_FIELD} "{at}"'
        if len(self.causes) < _SUGGESTIONS_MAX and len(field) <= _SUGGESTED_NAME_MAX:
            self.suggestions += 1
            near = difflib.get_close_matches(field, known, n=1, cutoff=0.7)
            if near:
                message += f'; did you mean "{near[0]}"?'
        self._add("FieldValueInvalid", at, message)

    def _wrong_type(self, path: str, expected: str, value: Any) -> None:
        message = f"expected {expected}, got {type_name(value)}"
        self._add("FieldValueTypeInvalid", path, message)

    def _invalid(self, path: str, value: Any, message: str) -> None:
        self._add("FieldValueInvalid", path, f"Invalid value: {shown(value)}: {message}")

    def _add(self, reason: str, path: str, message: str) -> None:
        if len(self.causes) < CAUSES_MAX:
            self.causes.append(Cause(reason=reason, message=message, field=path))


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def type_name(value: object) -> str:
    """What JSON calls the type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
