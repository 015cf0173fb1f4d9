"""Whatever the network sends, the api room answers with causes and never with a crash."""

import copy
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from grange.api import codec, schema, tables
from grange.api.kinds import BUILT_IN
from grange.api.patch import merge_patch, strategic
from grange.api.schema.definitions import Schema, builtin
from grange.api.scheme import AnyKind
from grange.api.status import BadRequest
from grange.api.validation import validate

TEXT = st.sampled_from(
    [
        "",
        "a",
        "A b",
        "web",
        "10",
        "-1",
        "1Gi",
        "25%",
        "Always",
        "Never",
        "Exists",
        "In",
        "TCP",
        "a/b",
        "..",
        "é",
    ]
)
WRONG = st.sampled_from([None, True, 0, -1, 2**70, 1.5, "x", [], {}, [None], {"a": None}]).map(
    copy.deepcopy
)


DEPTH = 8
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "integer": st.sampled_from([-1, 0, 1, 80, 70_000, 2**31 - 1]),
    "int32": st.sampled_from([-1, 0, 1, 80, 70_000, 2**31 - 1]),
    "int64": st.sampled_from([-1, 0, 1, 300]),
    "boolean": st.booleans(),
    "date-time": st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456+01:00"]),
    "int-or-string": st.sampled_from([0, 1, -1, "1", "25%", "x"]),
    "quantity": st.sampled_from([0, 1, -1, 0.5, "1", "500m", "x"]),
}


# Made once: a strategy that is made at each draw costs as much as the draw.
CHANCE, COUNT, KEYS = st.floats(0, 1), st.integers(0, 2), st.lists(TEXT, max_size=2)


@cache
def one_of_names(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    """One value of an enumeration."""
    return st.sampled_from(names)


@cache
def some_names(names: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    """A few members of an object."""
    return st.lists(st.sampled_from(names), max_size=4, unique=True)


def value_of(draw: st.DrawFn, part: Schema, wrong: float, depth: int = 0) -> Any:
    """A value of a schema's shape: few of its members, now and then something else.

    A function and not a strategy: a strategy for each part would be made and validated at each draw.
    """
    part = builtin().resolve(part)
    if wrong and draw(CHANCE) < wrong:
        return draw(WRONG)
    if "enum" in part:
        return draw(one_of_names(tuple(part["enum"])))
    if part.get("type") == "array":
        count = draw(COUNT)
        return [value_of(draw, part["items"], wrong, depth + 1) for _ in range(count)]
    if part.get("type") != "object":
        return draw(SCALARS.get(str(part.get("format", part.get("type"))), TEXT))
    if "properties" in part:
        parts = part["properties"]
        names = draw(some_names(tuple(sorted(parts))))
        wanted = dict.fromkeys([*part.get("required", ()), *(names if depth < DEPTH else ())])
        return {name: value_of(draw, parts[name], wrong, depth + 1) for name in wanted}
    values = part.get("additionalProperties", {"type": "string"})
    keys = draw(KEYS)
    return {key: value_of(draw, values, wrong, depth + 1) for key in keys}


@st.composite
def shaped(draw: st.DrawFn, part: Schema, wrong: float) -> Any:
    """Values of a schema's shape."""
    return value_of(draw, part, wrong)


def whole(data: st.DataObject, info: AnyKind, wrong: float) -> dict[str, Any]:
    document: dict[str, Any] = data.draw(shaped({"$ref": f"#/definitions/{info.schema}"}, 0.0))
    for name in ("metadata", "spec", "status"):
        part = (builtin().get(info.schema) or {})["properties"].get(name)
        if part is not None:
            document[name] = data.draw(shaped(part, wrong))
    return document


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.mark.parametrize("info", BUILT_IN, ids=lambda info: info.kind)
@settings(max_examples=15, deadline=None, suppress_health_check=QUIET)
@given(data=st.data())
def test_valid_documents_are_judged_without_a_crash(info: AnyKind, data: st.DataObject) -> None:
    document = whole(data, info, 0.0)
    if schema.check(document, info):
        return
    old = copy.deepcopy(document)
    schema.apply_defaults(document, info)
    once = copy.deepcopy(document)
    schema.apply_defaults(document, info)
    assert document == once
    for before in (None, old, {}):
        validate(document, before, info)
    assert schema.check(document, info) == []
    codec.decode_view(codec.encode(document), info.view)
    assert all(isinstance(read(document), str) for read in info.fields.values())
    tables.table(info, [document], now=0.0, list_meta={})


@pytest.mark.parametrize("info", BUILT_IN, ids=lambda info: info.kind)
@settings(max_examples=12, deadline=None, suppress_health_check=QUIET)
@given(data=st.data())
def test_documents_that_do_not_fit_get_causes_with_paths(
    info: AnyKind, data: st.DataObject
) -> None:
    document = whole(data, info, 0.15)
    for cause in schema.check(document, info):
        assert cause.field
        assert cause.message
        assert cause.reason.startswith("FieldValue")
    schema.drop_unknown(document, info)


@pytest.mark.parametrize("info", BUILT_IN, ids=lambda info: info.kind)
@settings(max_examples=12, deadline=None, suppress_health_check=QUIET)
@given(data=st.data())
def test_any_two_documents_can_be_merged_or_are_refused(info: AnyKind, data: st.DataObject) -> None:
    document, patch = whole(data, info, 0.1), whole(data, info, 0.1)
    before = copy.deepcopy((document, patch))
    merge_patch.apply(document, patch)
    with suppress(BadRequest):
        strategic.apply(document, patch, info.schema)
    assert (document, patch) == before
