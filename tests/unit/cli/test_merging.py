"""Three-way merges: what was applied and is wanted no more goes; what others set stays."""

from typing import Any

from hypothesis import given, settings, strategies as st

from grange.api.kinds import POD
from grange.api.patch import merge_patch
from grange.cli.three_way import three_way

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


def pod(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", **container}]}}


PRESENT: dict[str, Any] = {
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "a",
                "imagePullPolicy": "Always",
                "volumeMounts": [{"mountPath": "/token", "name": "token"}],
            },
            {"name": "injected", "image": "proxy"},
        ],
        "volumes": [{"name": "token"}],
    }
}


def test_applying_a_pod_again_changes_nothing() -> None:
    """The server adds fields to containers, volumes and their mounts."""
    wanted = pod(image="a")
    assert three_way(wanted, wanted, PRESENT, POD) == {}


def test_items_with_a_key_are_merged_one_by_one() -> None:
    patch = three_way(pod(image="a"), pod(image="b"), PRESENT, POD)
    main, injected = PRESENT["spec"]["containers"]
    assert patch == {"spec": {"containers": [{**main, "image": "b"}, injected]}}
    mounted = pod(image="a", volumeMounts=[{"mountPath": "/data", "name": "data"}])
    patch = three_way(pod(image="a"), mounted, PRESENT, POD)
    mounts = patch["spec"]["containers"][0]["volumeMounts"]
    assert [item["mountPath"] for item in mounts] == ["/data", "/token"]


def test_item_that_is_no_longer_wanted_is_removed() -> None:
    two = pod(image="a")
    two["spec"]["containers"].append({"name": "injected", "image": "proxy"})
    patch = three_way(two, pod(image="a"), PRESENT, POD)
    assert [item["name"] for item in patch["spec"]["containers"]] == ["main"]


def test_lists_without_keys_are_replaced() -> None:
    last, wanted = pod(command=["a"]), pod(command=["b"])
    patch = three_way(
        last, wanted, {"spec": {"containers": [{"name": "main", "command": ["a"]}]}}, POD
    )
    assert patch["spec"]["containers"] == [{"name": "main", "command": ["b"]}]
    twice = {"spec": {"containers": [{"name": "x"}, {"name": "x"}]}}
    assert three_way({}, twice, PRESENT, POD) == twice


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
