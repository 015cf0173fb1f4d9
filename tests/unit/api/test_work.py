"""Work is bounded: what a document may cost, however it is made.

The work that grows with a document is counted, in comparisons, lines of Python or items, and never timed.
"""

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, strategies as st

from grange.api import codec, selectors
from grange.api.kinds import BUILT_IN
from grange.api.meta import Document
from grange.api.patch import json_patch, strategic
from grange.api.schema.definitions import builtin, reference
from grange.api.schema.reporter import Reporter
from grange.api.scheme import AnyKind
from grange.api.selectors import Fields, Labels, SelectorError
from grange.api.status import BadRequest, TooLarge, shown
from grange.api.validation import validate
from grange.api.validation.causes import CAUSES_MAX
from grange.api.yaml_documents import load

POD = next(info for info in BUILT_IN if info.kind == "Pod")
CONFIGMAP = next(info for info in BUILT_IN if info.kind == "ConfigMap")
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of Python a call executes, errors of the caller included."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except (BadRequest, TooLarge, SelectorError):
        pass
    finally:
        sys.settrace(before)
    return count


def growth(work: Callable[[int], object], small: int = 200) -> float:
    """How many times more lines a document ten times as large takes; ten is linear."""
    lines_of(lambda: work(small))  # fills the caches that both would use
    return lines_of(lambda: work(10 * small)) / lines_of(lambda: work(small))


class Compared(str):
    """A string that counts how often it is compared."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return str(self) == str(other)

    __hash__ = str.__hash__


# --- selectors ----------------------------------------------------------------------------------


@given(st.text(alphabet=" \t=!<>(),ab", max_size=60))
def test_selector_tokens_cover_every_character_once(text: str) -> None:
    """So no run of characters is looked at again from each of its positions."""
    assert sum(len(match.group()) for match in selectors._TOKEN.finditer(text)) == len(text)


@pytest.mark.parametrize("unit", [" ", "a,", "!a,", "a in (b),", "(", "!", ",", "a=b,", "a\t"])
def test_selectors_are_read_in_linear_time(unit: str) -> None:
    assert growth(lambda size: Labels.parse(unit * size)) < 20
    assert growth(lambda size: Fields.parse(unit * size)) < 20


# --- size ---------------------------------------------------------------------------------------


def test_json_values_are_counted_outside_of_strings() -> None:
    most = codec.VALUES_MAX
    codec.check_values(b"[" + b",".join([b"1"] * most) + b"]")
    with pytest.raises(TooLarge, match="more than 100000 members and items"):
        codec.check_values(b"[" + b",".join([b"1"] * (most + 2)) + b"]")
    codec.check_values(json.dumps({"text": ',[{"' * most}).encode())
    codec.check_values(json.dumps({"text": "\\" * most + ",", "more": ',"' * most}).encode())
    with pytest.raises(TooLarge):
        codec.check_values(json.dumps([{"a": ","}] * most).encode())
    with pytest.raises(TooLarge):
        codec.check_values(json.dumps([""] * 3 * most).encode())
    with pytest.raises(TooLarge):
        codec.decode_any(b"[" + b"[]," * most + b"[]]")


@given(st.recursive(st.text(alphabet='",[{\\a', max_size=9), lambda x: st.lists(x, max_size=4)))
def test_values_are_never_counted_for_more_than_they_are(value: object) -> None:
    """A document at the limit passes, whatever its strings hold."""
    count = 0
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            count += max(1, len(item))
            stack += item
    body = json.dumps([value]).encode()
    filler = b",0" * (codec.VALUES_MAX - count)
    codec.check_values(body[:-1] + filler + b"]")


@pytest.mark.parametrize(
    "text",
    [
        "- a\n" * 200_000,
        "k: v\n---\n" * 200_000,
        "a: [" + "&a x," * 200_000 + "]",
        "a: {" + "[]: x," * 200_000 + "}",
        "---\n" * 300_000,
    ],
    ids=["items", "documents", "anchors", "keys", "starts"],
)
def test_yaml_with_too_many_values_is_refused_before_composing(text: str) -> None:
    with pytest.raises(TooLarge, match="more than 100000 values"):
        load(text)


def test_yaml_keys_are_not_values() -> None:
    text = "\n".join(f"k{number}: v" for number in range(70_000))
    assert len(load(text)[0]) == 70_000


@pytest.mark.parametrize(
    "scalar", ["1" * 5_000, "0x" + "f" * 5_000, "1:1" * 500, "." + "1" * 5_000, "2026-01-01" * 500]
)
def test_long_yaml_scalars_are_text(scalar: str) -> None:
    assert load(f"a: {scalar}x") == [{"a": f"{scalar}x"}]
    assert load(f"a: {scalar}") == [{"a": scalar}]


@pytest.mark.parametrize("tag", ["!!int", "!!float", "!!bool"])
@pytest.mark.parametrize("scalar", ["1" * 5_000, "0x" + "f" * 5_000, "x", '""', "09", "{}"])
def test_yaml_tags_that_do_not_fit_are_bad_requests(tag: str, scalar: str) -> None:
    if (tag, scalar) == ("!!float", "09"):
        assert load(f"a: {tag} {scalar}")
        return
    with pytest.raises(BadRequest) as refused:
        load(f"a: {tag} {scalar}")
    assert len(refused.value.message) < 1_000


# --- faults -------------------------------------------------------------------------------------


def test_nearest_names_are_looked_for_a_few_times_only() -> None:
    reporter = Reporter(builtin())
    reporter.visit(reference(META), {f"nam{number}": 1 for number in range(50_000)}, "metadata")
    assert len(reporter.causes) == CAUSES_MAX
    assert reporter.suggestions == 10
    assert 'did you mean "name"?' in reporter.causes[0].message
    reporter = Reporter(builtin())
    reporter.visit(reference(META), {"name" * 100_000: 1}, "metadata")
    assert reporter.suggestions == 0
    assert len(reporter.causes[0].message) < 400


def test_paths_below_a_long_key_stay_short() -> None:
    entry = {"type": "object", "properties": {"a": {"type": "string"}}}
    schema = {"type": "object", "additionalProperties": entry}
    reporter = Reporter(builtin())
    reporter.visit(schema, {"k" * 1_000_000: {"a": 1, "b": 2}}, "spec.map")
    assert len(reporter.causes) == 2
    assert all(len(cause.field) < 200 for cause in reporter.causes)


@pytest.mark.parametrize(
    ("info", "document"),
    [
        (CONFIGMAP, {"metadata": {"name": "a", "finalizers": ["x"] * 5_000}}),
        (CONFIGMAP, {"metadata": {"name": "a"}, "data": {f"/{n}": "" for n in range(5_000)}}),
        (POD, {"metadata": {"name": "a"}, "spec": {"containers": [{}] * 5_000}}),
    ],
)
def test_no_object_has_more_faults_than_are_read(info: AnyKind, document: Document) -> None:
    assert len(validate({"metadata": {"namespace": "d"}, **document}, None, info)) <= 2 * CAUSES_MAX


def test_values_are_shown_without_writing_all_of_them() -> None:
    assert shown("x" * 1_000_000) == '"' + "x" * 199 + "…"
    assert len(shown([{"a": [1]}] * 100_000)) == 201
    assert lines_of(lambda: shown([{"a": [1]}] * 100_000)) < 5_000
    assert shown({"a": [1, "b"]}) == '{"a": [1, "b"]}'


def test_finalizers_of_a_deleted_object_are_compared_once() -> None:
    names_of = [Compared(f"a.b/{number}") for number in range(500)]
    old = {"metadata": {"name": "a", "deletionTimestamp": "x", "finalizers": names_of}}
    new = {"metadata": {"name": "a", "namespace": "b", "finalizers": [*reversed(names_of)]}}
    Compared.comparisons = 0
    validate(new, old, CONFIGMAP)
    assert Compared.comparisons < 10_000


# --- patches ------------------------------------------------------------------------------------


def test_json_patch_moves_a_bounded_number_of_items() -> None:
    document = {"list": [0] * 90_000}
    front = {"op": "add", "path": "/list/0", "value": 1}
    for operation in (
        front,
        {"op": "remove", "path": "/list/0"},
        {"op": "move", "from": "/list/0", "path": "/list/1"},
    ):
        with pytest.raises(BadRequest, match="replace the list"):
            json_patch.apply(document, [operation] * 9_000)
    end = {"op": "add", "path": "/list/-", "value": 1}
    assert len(json_patch.apply(document, [end] * 9_000)["list"]) == 99_000
    assert len(json_patch.apply({"list": []}, [front] * 6_000)["list"]) == 6_000


def test_json_patch_copies_a_bounded_number_of_values() -> None:
    copies = [{"op": "copy", "from": "/a", "path": f"/b{number}"} for number in range(20)]
    with pytest.raises(BadRequest, match="copies more than 100000 values"):
        json_patch.apply({"a": [[]] * 10_000}, copies)
    with pytest.raises(TooLarge):
        json_patch.apply({"a": [0] * 70_000, "b": [0] * 20_000}, copies[:1])


def owners(count: int) -> list[Document]:
    return [{"uid": str(number), "name": "a"} for number in range(count)]


@pytest.mark.parametrize(
    "patch",
    [
        lambda size: {
            "ownerReferences": [{"uid": str(n), "$patch": "delete"} for n in range(size)]
        },
        lambda size: {"ownerReferences": [{"uid": str(n), "name": "b"} for n in range(size)]},
        lambda size: {"$setElementOrder/ownerReferences": owners(size)[::-1]},
        lambda size: {"$deleteFromPrimitiveList/finalizers": [f"f{n}" for n in range(size)]},
        lambda size: {"finalizers": [f"f{n}" for n in range(size)]},
        lambda size: {"$retainKeys": [f"k{n}" for n in range(size)]},
        lambda size: {"labels": {f"k{n}": None for n in range(size)}},
    ],
    ids=["delete", "merge", "order", "remove", "add", "retain", "labels"],
)
def test_strategic_merge_is_linear(patch: Callable[[int], Document]) -> None:
    def apply(size: int) -> None:
        document = {
            "metadata": {
                "ownerReferences": owners(size),
                "finalizers": [f"f{number}" for number in range(size)],
                "labels": {f"k{number}": "" for number in range(size)},
            }
        }
        strategic.apply(document, {"metadata": patch(size)}, CONFIGMAP.schema)

    assert growth(apply) < 15


def test_plain_members_are_merged_in_few_steps() -> None:
    """Neither paths for messages nor directives are looked for where there are none."""
    patch = {"data": {f"k{number}": "v" for number in range(1_000)}}
    assert lines_of(lambda: strategic.apply({"data": {}}, patch, CONFIGMAP.schema)) < 7_000


def test_status_of_a_pod_is_merged_in_few_steps() -> None:
    """What the schema states about lists is looked up once per schema."""
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    patch = {"status": {"phase": "Running", "conditions": conditions}}
    strategic.apply(patch, patch, POD.schema)
    assert lines_of(lambda: strategic.apply(patch, patch, POD.schema)) < 350


def test_retained_keys_are_compared_once() -> None:
    keys = [Compared(f"k{number}") for number in range(500)]
    patch = {"data": {"$retainKeys": keys, **{str(key): "v" for key in keys}}}
    Compared.comparisons = 0
    strategic.apply({"data": {f"o{number}": "" for number in range(500)}}, patch, CONFIGMAP.schema)
    assert Compared.comparisons < 5_000


def test_repeated_items_under_one_key_are_deleted_together() -> None:
    document = {"metadata": {"ownerReferences": [*owners(3), *owners(2), *owners(1)]}}
    patch = {"metadata": {"ownerReferences": [{"uid": "0", "$patch": "delete"}]}}
    merged = strategic.apply(document, patch, CONFIGMAP.schema)
    assert [owner["uid"] for owner in merged["metadata"]["ownerReferences"]] == ["1", "2", "1"]
