"""Three-way merges: what was applied and is wanted no more goes; what others set stays."""

from typing import Any

from hypothesis import given, settings, strategies as st

from grange.api.patch import merge_patch
from grange.cli.verbs.apply import three_way

SCALARS = st.booleans() | st.integers(0, 3) | st.sampled_from(["x", "y"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


def test_a_field_that_is_no_longer_wanted_is_removed() -> None:
    last = {"spec": {"a": 1, "b": 2}}
    present = {"spec": {"a": 1, "b": 2, "theirs": 3}, "status": {"x": 1}}
    assert three_way(last, {"spec": {"a": 1}}, present) == {"spec": {"b": None}}


def test_nothing_to_change_gives_an_empty_patch() -> None:
    wanted = {"spec": {"a": [1, {"b": 2}]}}
    assert three_way(wanted, wanted, {"spec": {"a": [1, {"b": 2}], "theirs": True}}) == {}


@settings(max_examples=200, deadline=None)
@given(last=DOCUMENTS, wanted=DOCUMENTS, present=DOCUMENTS)
def test_the_patch_brings_every_wanted_field_about(
    last: dict[str, Any], wanted: dict[str, Any], present: dict[str, Any]
) -> None:
    patch = three_way(last, wanted, present)
    result = merge_patch.apply(present, patch)
    assert three_way(wanted, wanted, result) == {}
    for key in last:
        if key not in wanted:
            assert key not in result
    for key, value in present.items():
        if key not in wanted and key not in last:
            assert result[key] == value
