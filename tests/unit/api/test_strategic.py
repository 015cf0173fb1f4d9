"""Strategic merge: the examples of the field, the directives one by one, and laws."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.api.documents import controller, pod

from grange.api import codec
from grange.api.kinds import NODE, POD, REPLICATIONCONTROLLER, SERVICE
from grange.api.patch import merge_patch, strategic
from grange.api.schema.definitions import Definitions
from grange.api.status import BadRequest

Document = dict[str, Any]


def apply(document: Document, patch: Document, schema: str = POD.schema) -> Document:
    before = copy.deepcopy((document, patch))
    result = strategic.apply(document, patch, schema)
    assert (document, patch) == before
    return result


def containers(*items: Document) -> Document:
    return {"spec": {"containers": list(items)}}


def test_items_of_a_keyed_list_are_merged_by_their_key() -> None:
    document = containers({"name": "a", "image": "x", "args": ["1"]}, {"name": "b", "image": "y"})
    patch = containers({"name": "b", "image": "z"})
    assert apply(document, patch) == containers(
        {"name": "a", "image": "x", "args": ["1"]}, {"name": "b", "image": "z"}
    )


def test_new_items_come_first_as_they_do_in_kubernetes() -> None:
    document = containers({"name": "a"}, {"name": "b"})
    assert apply(document, containers({"name": "new"})) == containers(
        {"name": "new"}, {"name": "a"}, {"name": "b"}
    )


def test_keyed_lists_inside_keyed_lists_are_merged_too() -> None:
    document = containers(
        {"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}
    )
    patch = containers({"name": "a", "env": [{"name": "Y", "value": "3"}]})
    assert apply(document, patch) == containers(
        {"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "3"}]}
    )


def test_atomic_lists_are_replaced() -> None:
    document = containers({"name": "a", "command": ["x", "y"]})
    patch = containers({"name": "a", "command": ["z"]})
    assert apply(document, patch) == containers({"name": "a", "command": ["z"]})
    document = pod(tolerations=[{"key": "a", "operator": "Exists"}])
    patched = apply(document, {"spec": {"tolerations": [{"key": "b", "operator": "Exists"}]}})
    assert patched["spec"]["tolerations"] == [{"key": "b", "operator": "Exists"}]


def test_null_removes_and_maps_merge() -> None:
    document = {"metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"x": "y"}}}
    patch = {"metadata": {"labels": {"a": None, "c": "3"}, "annotations": None, "missing": None}}
    assert apply(document, patch) == {"metadata": {"labels": {"b": "2", "c": "3"}}}


def test_null_inside_what_is_new_is_left_out() -> None:
    assert apply({}, {"metadata": {"labels": {"a": None, "b": "c"}}}) == {
        "metadata": {"labels": {"b": "c"}}
    }


def test_delete_directive_removes_an_item() -> None:
    document = containers({"name": "a"}, {"name": "b"})
    assert apply(document, containers({"name": "a", "$patch": "delete"})) == containers(
        {"name": "b"}
    )
    assert apply(document, containers({"name": "z", "$patch": "delete"})) == document


def test_delete_directive_empties_an_object() -> None:
    assert apply(
        {"metadata": {"labels": {"a": "b"}}}, {"metadata": {"labels": {"$patch": "delete"}}}
    ) == {"metadata": {"labels": {}}}


def test_replace_directive_replaces_a_list() -> None:
    document = containers({"name": "a"}, {"name": "b"})
    patch = containers({"name": "c"}, {"$patch": "replace"})
    assert apply(document, patch) == containers({"name": "c"})


def test_replace_directive_replaces_an_object() -> None:
    document = pod(nodeSelector={"a": "b"})
    patch = {"spec": {"$patch": "replace", "nodeName": "n"}}
    assert apply(document, patch)["spec"] == {"nodeName": "n"}


def test_merge_directive_is_the_default() -> None:
    document = {"metadata": {"labels": {"a": "1"}}}
    patch = {"metadata": {"labels": {"$patch": "merge", "b": "2"}}}
    assert apply(document, patch) == {"metadata": {"labels": {"a": "1", "b": "2"}}}


def test_retain_keys_drops_the_other_members() -> None:
    document = pod(volumes=[{"name": "v", "emptyDir": {}}])
    patch = {
        "spec": {
            "volumes": [
                {"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}
            ]
        }
    }
    assert apply(document, patch)["spec"]["volumes"] == [{"name": "v", "configMap": {"name": "c"}}]


def test_set_element_order_orders_the_list() -> None:
    document = containers({"name": "a"}, {"name": "b"}, {"name": "c"})
    patch: Document = {
        "spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "d"}, {"name": "a"}],
            "containers": [{"name": "d"}],
        }
    }
    # b is not named: it stays in front of the first named item that it was in front of.
    names = [item["name"] for item in apply(document, patch)["spec"]["containers"]]
    assert names == ["b", "c", "d", "a"]


def test_set_element_order_alone_reorders() -> None:
    document = containers({"name": "a"}, {"name": "b"})
    patch: Document = {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}
    assert apply(document, patch) == containers({"name": "b"}, {"name": "a"})
    assert apply({"spec": {}}, patch) == {"spec": {}}


def test_sets_of_plain_values_are_united_and_deleted_from() -> None:
    document = {"metadata": {"finalizers": ["a", "b"]}}
    assert apply(document, {"metadata": {"finalizers": ["b", "c"]}}) == {
        "metadata": {"finalizers": ["a", "b", "c"]}
    }
    patch: Document = {
        "metadata": {
            "$deleteFromPrimitiveList/finalizers": ["a"],
            "$setElementOrder/finalizers": ["c", "b"],
            "finalizers": ["c"],
        }
    }
    assert apply(document, patch) == {"metadata": {"finalizers": ["c", "b"]}}
    assert apply({}, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}) == {
        "metadata": {}
    }


def test_service_ports_are_keyed_by_port() -> None:
    document = {"spec": {"ports": [{"port": 80, "targetPort": 1}, {"port": 443, "targetPort": 2}]}}
    patch = {"spec": {"ports": [{"port": 443, "targetPort": 3}]}}
    assert apply(document, patch, SERVICE.schema) == {
        "spec": {"ports": [{"port": 80, "targetPort": 1}, {"port": 443, "targetPort": 3}]}
    }


def test_conditions_of_a_node_are_keyed_by_type() -> None:
    document = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "r"}]}}
    patch = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    assert apply(document, patch, NODE.schema) == {
        "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "r"}]}
    }


def test_our_own_kind_merges_its_template_by_name() -> None:
    document = controller()
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}}
    patched = apply(document, patch, REPLICATIONCONTROLLER.schema)
    assert patched["spec"]["template"]["spec"]["containers"] == [
        {"name": "main", "command": ["serve"], "image": "x"}
    ]


def test_what_kubectl_apply_sends_for_a_changed_variable() -> None:
    """Recorded from kubectl 1.32, ``apply`` of a pod whose image and variables changed."""
    document = pod()
    document["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": "old"
    }
    document["spec"]["containers"] = [
        {
            "name": "main",
            "image": "web:1",
            "command": ["serve"],
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "value": "2"},
                {"name": "C", "value": "3"},
            ],
        }
    ]
    patch: Document = {
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "new"}},
        "spec": {
            "$setElementOrder/containers": [{"name": "main"}],
            "containers": [
                {
                    "name": "main",
                    "image": "web:2",
                    "$setElementOrder/env": [{"name": "C"}, {"name": "A"}],
                    "env": [{"name": "C", "value": "4"}, {"$patch": "delete", "name": "B"}],
                }
            ],
        },
    }
    patched = apply(document, patch)
    assert patched["metadata"]["annotations"] == patch["metadata"]["annotations"]
    assert patched["spec"]["containers"] == [
        {
            "name": "main",
            "image": "web:2",
            "command": ["serve"],
            "env": [{"name": "C", "value": "4"}, {"name": "A", "value": "1"}],
        }
    ]


def test_what_changes_its_type_is_replaced() -> None:
    assert apply({"spec": 1}, {"spec": {"a": {"$patch": "merge", "b": 1}}}) == {
        "spec": {"a": {"b": 1}}
    }
    assert apply({"spec": {"containers": "x"}}, containers({"name": "a"})) == containers(
        {"name": "a"}
    )
    assert apply({"spec": {"containers": [1]}}, {"spec": {"containers": 5}}) == {
        "spec": {"containers": 5}
    }


def test_items_without_a_key_and_twin_items_stay() -> None:
    document = {
        "spec": {"containers": [{"image": "x"}, {"name": "a"}, {"name": "a", "image": "y"}]}
    }
    assert apply(document, containers({"name": "a", "image": "z"}))["spec"]["containers"] == [
        {"image": "x"},
        {"name": "a", "image": "z"},
        {"name": "a", "image": "y"},
    ]
    assert apply(document, containers({"name": "a", "$patch": "delete"}))["spec"]["containers"] == [
        {"image": "x"}
    ]


def test_lists_that_the_schema_does_not_know_are_atomic() -> None:
    patch = {"spec": {"items": [{"name": "b", "$patch": "merge"}, [1]]}}
    document = {"spec": {"items": [{"name": "a"}]}}
    assert strategic.apply(document, patch, "no.such.Schema") == {
        "spec": {"items": [{"name": "b"}, [1]]}
    }
    assert strategic.apply(document, patch, "T", Definitions({"T": {}})) == {
        "spec": {"items": [{"name": "b"}, [1]]}
    }


def test_a_strategy_of_replacement_replaces_objects() -> None:
    schema = {"properties": {"a": {"type": "object", "x-kubernetes-patch-strategy": "replace"}}}
    patched = strategic.apply({"a": {"x": 1}}, {"a": {"y": 2}}, "T", Definitions({"T": schema}))
    assert patched == {"a": {"y": 2}}


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ([], "must be an object"),
        ({"$patch": "delete"}, "may not delete the whole object"),
        ({"spec": {"$patch": "drop"}}, 'spec: "$patch" must be one of delete, merge, replace'),
        ({"spec": {"$patch": 1}}, 'spec: "$patch" must be one of'),
        ({"spec": {"$retainKeys": "a"}}, 'spec: "$retainKeys" must be a list'),
        ({"spec": {"$retainKeys": ["a"], "b": 1}}, '"$retainKeys" leaves out "b", which the patch sets'),
        ({"spec": {"$other": 1}}, 'spec: unknown directive "$other"'),
        ({"spec": {"$setElementOrder/containers": 1}}, 'spec.containers: "$setElementOrder/containers" must be a list'),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": 1}}, "must be a list"),
        ({"spec": {"containers": [{"image": "x"}]}}, 'spec.containers: every item of the patch needs its merge key "name"'),
        ({"spec": {"containers": ["x"]}}, 'needs its merge key "name"'),
        (
            {"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}},
            "must list every item that the patch has",
        ),
        ({"$unknown": 1}, 'at the top: unknown directive "$unknown"'),
        (
            {"spec": {"containers": [{"name": "a", "env": [{"name": "X", "valueFrom": {"$patch": "x"}}]}]}},
            "spec.containers[name=a].env[name=X].valueFrom",
        ),
    ],
)  # fmt: skip
def test_misused_directives_are_refused_with_their_place(patch: Any, message: str) -> None:
    with pytest.raises(BadRequest) as raised:
        strategic.apply(pod(), patch, POD.schema)
    assert message in raised.value.message


# --- laws ------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "d"])
ITEMS = st.fixed_dictionaries(
    {"name": NAMES},
    optional={"image": st.sampled_from(["x", "y"]), "args": st.lists(st.just("1"), max_size=2)},
)
LISTS = st.lists(ITEMS, max_size=4, unique_by=lambda item: str(item["name"]))
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "containers": LISTS,
        "nodeName": st.sampled_from(["n", "m"]),
        "nodeSelector": st.dictionaries(NAMES, st.sampled_from(["1", "2"])),
    },
)
PODS = st.fixed_dictionaries(
    {"spec": SPECS},
    optional={
        "metadata": st.fixed_dictionaries({}, optional={"finalizers": st.lists(NAMES, unique=True)})
    },
)


@settings(max_examples=200, deadline=None)
@given(PODS, PODS)
def test_a_patch_twice_is_once(document: Document, patch: Document) -> None:
    once = apply(document, patch)
    assert apply(once, patch) == once


@settings(max_examples=200, deadline=None)
@given(PODS)
def test_an_empty_patch_and_the_document_itself_change_nothing(document: Document) -> None:
    assert apply(document, {}) == document
    assert apply(document, document) == document
    assert apply({}, document) == document


@settings(max_examples=200, deadline=None)
@given(PODS, PODS)
def test_a_merged_list_has_every_key_once(document: Document, patch: Document) -> None:
    names = [item["name"] for item in apply(document, patch)["spec"].get("containers", [])]
    expected = {
        item["name"] for part in (document, patch) for item in part["spec"].get("containers", [])
    }
    assert set(names) == expected
    assert len(names) == len(expected)


@settings(max_examples=200, deadline=None)
@given(PODS, PODS)
def test_without_lists_it_is_a_merge_patch(document: Document, patch: Document) -> None:
    patch["spec"].pop("containers", None)
    patch.get("metadata", {}).pop("finalizers", None)
    assert apply(document, patch) == merge_patch.apply(document, patch)


@settings(max_examples=200, deadline=None)
@given(LISTS, LISTS)
def test_kubectl_patch_leads_from_one_list_to_the_other(
    before: list[Document], after: list[Document]
) -> None:
    """Delete what is gone, merge what is left, set the order: the list is then the wanted one."""
    kept = {item["name"] for item in after}
    gone = [
        {"$patch": "delete", "name": item["name"]} for item in before if item["name"] not in kept
    ]
    old = {item["name"]: item for item in before}
    changes = [
        {**{key: None for key in old.get(item["name"], {}) if key not in item}, **item}
        for item in after
    ]
    patch: Document = {
        "spec": {
            "$setElementOrder/containers": [{"name": item["name"]} for item in after],
            "containers": gone + changes,
        }
    }
    assert apply(containers(*before), patch) == containers(*after)


def test_long_lists_merge_in_little_time() -> None:
    """Quadratic merging of what the network sends would stop the server for everybody."""
    many = [{"name": f"c{i}"} for i in range(20_000)]
    patched = apply(containers(*many), containers(*reversed(many)))
    assert patched["spec"]["containers"][0] == {"name": "c19999"}
    assert codec.encode(patched)
