"""JSON patch and merge patch: RFC by RFC, and against an implementation that we did not write."""

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings, strategies as st

from grange.api import codec
from grange.api.patch import json_patch, merge_patch
from grange.api.status import BadRequest, Invalid

KEYS = st.sampled_from(["a", "b", "m/n", "~x", "", "0", "1"])
SCALARS = st.none() | st.text("ab", max_size=2) | st.integers(-3, 3)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=4)


def pointers(value: Any, path: str = "") -> list[str]:
    """Every place in a value, as JSON pointers."""
    found = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += pointers(inner, f"{path}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += pointers(inner, f"{path}/{index}")
    return found


@st.composite
def operations(draw: st.DrawFn, document: Any) -> dict[str, Any]:
    paths = st.sampled_from(pointers(document)[1:] or ["/a"])
    near = paths | st.builds("{}/{}".format, paths, st.sampled_from(["a", "0", "1", "-", "9"]))
    name = draw(st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]))
    operation = {"op": name, "path": draw(near)}
    if name in ("add", "replace", "test"):
        operation["value"] = draw(VALUES)
    if name in ("move", "copy"):
        operation["from"] = draw(paths)
    return operation


@settings(max_examples=150, deadline=None)
@given(st.data(), DOCUMENTS)
def test_json_patch_agrees_with_an_independent_implementation(
    data: st.DataObject, document: dict[str, Any]
) -> None:
    patch = data.draw(st.lists(operations(document), max_size=3))
    before = copy.deepcopy((document, patch))
    try:
        expected = jsonpatch.apply_patch(copy.deepcopy(document), copy.deepcopy(patch))
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        with pytest.raises((BadRequest, Invalid)):
            json_patch.apply(document, patch)
    else:
        assert json_patch.apply(document, patch) == expected
    assert (document, patch) == before


@settings(max_examples=100, deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_json_patch_made_elsewhere_leads_to_the_same_place(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    patch = jsonpatch.make_patch(before, after).patch
    assert json_patch.apply(before, patch) == after


@pytest.mark.parametrize(
    ("document", "operation", "expected"),
    [
        ({"a": [1, 3]}, {"op": "add", "path": "/a/1", "value": 2}, {"a": [1, 2, 3]}),
        ({"a": []}, {"op": "add", "path": "/a/-", "value": 1}, {"a": [1]}),
        ({}, {"op": "add", "path": "", "value": {"b": 1}}, {"b": 1}),
        ({"a": 1}, {"op": "replace", "path": "", "value": {"b": 1}}, {"b": 1}),
        ({"a": [1, 2]}, {"op": "replace", "path": "/a/0", "value": 9}, {"a": [9, 2]}),
        ({"a": {"b": 1}}, {"op": "move", "from": "/a/b", "path": "/c"}, {"a": {}, "c": 1}),
        ({"a": {"b": 1}}, {"op": "copy", "from": "/a", "path": "/c"}, {"a": {"b": 1}, "c": {"b": 1}}),
        ({"m/n": 1, "~1": 2}, {"op": "remove", "path": "/m~1n"}, {"~1": 2}),
        ({"~1": 2}, {"op": "replace", "path": "/~01", "value": 3}, {"~1": 3}),
        ({"a": 1}, {"op": "test", "path": "/a", "value": 1.0}, {"a": 1}),
        ({"a": {"x": [1, {"y": None}]}}, {"op": "test", "path": "/a", "value": {"x": [1, {"y": None}]}}, {"a": {"x": [1, {"y": None}]}}),
    ],
)  # fmt: skip
def test_json_patch_follows_the_rfc(
    document: dict[str, Any], operation: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert json_patch.apply(document, [operation]) == expected


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ({"op": "test", "path": "/a", "value": 2}, 'test failed: the value at "/a" differs'),
        ({"op": "test", "path": "/b", "value": True}, 'test failed: the value at "/b" differs'),
        ({"op": "remove", "path": "/x/y"}, 'nothing is at "/x"'),
        ({"op": "replace", "path": "/x", "value": 1}, 'nothing is at "/x"'),
        ({"op": "add", "path": "/a/x", "value": 1}, '"/a" is neither an object nor a list'),
        ({"op": "add", "path": "/l/2", "value": 1}, '"/l/2" is no place in a list of 1'),
        ({"op": "remove", "path": "/l/01"}, 'nothing is at "/l/01"'),
        ({"op": "remove", "path": "/l/-"}, 'nothing is at "/l/-"'),
        ({"op": "move", "from": "/m~1n", "path": "/c"}, 'nothing is at "/m~1n"'),
    ],
)
def test_json_patch_that_cannot_be_done_is_invalid(operation: Any, message: str) -> None:
    with pytest.raises(Invalid) as raised:
        json_patch.apply({"a": 1, "b": 1, "l": [0]}, [operation])
    assert raised.value.message == f"operation 0 of the JSON patch cannot be done: {message}"


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (1, "must be an object"),
        (
            {"path": "/a"},
            "has the unknown op null; use one of add, remove, replace, move, copy, test",
        ),
        ({"op": ["add"], "path": "/a"}, 'has the unknown op ["add"]'),
        ({"op": "drop", "path": "/a"}, 'has the unknown op "drop"'),
        ({"op": "add", "value": 1}, 'needs "path", a JSON pointer'),
        ({"op": "add", "path": 1, "value": 1}, 'needs "path", a JSON pointer'),
        ({"op": "add", "path": "a", "value": 1}, 'has "path": "a", which does not begin with "/"'),
        ({"op": "add", "path": "/~2", "value": 1}, 'where "~" must be written "~0"'),
        ({"op": "add", "path": "/a"}, 'needs "value"'),
        ({"op": "move", "path": "/a"}, 'needs "from", a JSON pointer'),
        ({"op": "move", "from": "/o", "path": "/o/x"}, "moves a value into itself"),
        ({"op": "remove", "path": ""}, "may not remove the whole document"),
    ],
)
def test_json_patch_that_is_malformed_is_a_bad_request(operation: Any, message: str) -> None:
    with pytest.raises(BadRequest) as raised:
        json_patch.apply({"a": 1, "o": {}}, [operation])
    assert message in raised.value.message
    assert "operation 0 of the JSON patch" in raised.value.message


def test_json_patch_is_bounded() -> None:
    with pytest.raises(BadRequest, match="must be a list"):
        json_patch.apply({}, {})  # type: ignore[arg-type] # wrong on purpose
    with pytest.raises(BadRequest, match="at most 10000 operations"):
        json_patch.apply({}, [{}] * 10_001)
    doubling = [{"op": "copy", "from": "/a", "path": "/a/-"}] * 40
    with pytest.raises(BadRequest, match="copies more than"):
        json_patch.apply({"a": ["x" * 100]}, doubling)
    nesting = [{"op": "copy", "from": "/a", "path": "/a/b"}] * 10_000
    with pytest.raises(BadRequest, match=r"deep|copies more"):
        json_patch.apply({"a": {}}, nesting)
    listed: dict[str, Any] = {"op": "add", "path": "", "value": []}
    with pytest.raises(BadRequest, match="leaves something that is not an object"):
        json_patch.apply({}, [listed])
    deeper: list[dict[str, Any]] = [
        {"op": "add", "path": "/a" * depth, "value": {}} for depth in range(1, 80)
    ]
    with pytest.raises(BadRequest, match="nests deeper than 64 levels"):
        json_patch.apply({}, deeper)


def test_json_patch_shares_nothing_with_what_it_was_given() -> None:
    value = {"x": [1]}
    document = {"keep": {"y": [2]}}
    operations: list[dict[str, Any]] = [
        {"op": "add", "path": "/a", "value": value},
        {"op": "copy", "from": "/keep", "path": "/b"},
    ]
    changed = json_patch.apply(document, operations)
    changed["a"]["x"].append(9)
    changed["keep"]["y"].append(9)
    assert (value, document) == ({"x": [1]}, {"keep": {"y": [2]}})
    assert changed["b"] == {"y": [2]}


# --- merge patch -----------------------------------------------------------------------------------

RFC_7386 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ({"a": 1}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    ({"a": 1}, {}, {"a": 1}),
]


@pytest.mark.parametrize(("document", "patch", "expected"), RFC_7386)
def test_merge_patch_follows_the_rfc(
    document: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = copy.deepcopy((document, patch))
    assert merge_patch.apply(document, patch) == expected
    assert (document, patch) == before


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_merge_patch_twice_is_once(document: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge_patch.apply(document, patch)
    assert merge_patch.apply(once, patch) == once


def without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_null(inner) for key, inner in value.items() if inner is not None}
    return value


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_merge_patch_between_two_documents_makes_the_second(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    patch = merge_patch.difference(without_null(old), without_null(new))
    assert merge_patch.apply(without_null(old), patch) == without_null(new)


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS)
def test_merge_patch_into_nothing_is_the_patch_without_null(patch: dict[str, Any]) -> None:
    assert merge_patch.apply({}, patch) == without_null(patch)


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_merge_patch_shares_nothing_with_what_it_was_given(
    document: dict[str, Any], patch: dict[str, Any]
) -> None:
    before = codec.encode_any([document, patch])
    changed = merge_patch.apply(document, patch)
    stack: list[Any] = [changed]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack += item.values()
            item.clear()
        elif isinstance(item, list):
            stack += item
            item.clear()
    assert codec.encode_any([document, patch]) == before


def test_merge_patch_must_be_an_object() -> None:
    with pytest.raises(BadRequest, match="must be an object"):
        merge_patch.apply({}, [])  # type: ignore[arg-type] # wrong on purpose
