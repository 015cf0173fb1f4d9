"""Names and labels by which a controller and its pods know each other."""

from itertools import islice

import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.controllers import builders

from grange.api import names
from grange.controllers.replication import podtemplate
from grange.controllers.shared import pod_identity

NODE_NAMES = st.from_regex(
    r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?(\.[a-z0-9]{1,40}){0,4}", fullmatch=True
)
RC_NAMES = st.from_regex(r"[a-z]([-a-z0-9.]{0,80}[a-z0-9])?", fullmatch=True)


def test_name_for_node_reads_controller_dash_node() -> None:
    assert pod_identity.name_for_node(builders.controller("web"), "node-1", set()) == "web-node-1"


@settings(max_examples=200, deadline=None)
@given(RC_NAMES, NODE_NAMES)
def test_name_for_node_is_a_dns_label_and_the_same_every_time(name: str, node: str) -> None:
    owner = builders.controller(name)
    made = pod_identity.name_for_node(owner, node, set())
    assert names.check_dns_label(made) is None
    assert pod_identity.name_for_node(owner, node, set()) == made
    other = pod_identity.name_for_node(owner, node, {made})
    assert names.check_dns_label(other) is None
    assert other != made


@settings(max_examples=100, deadline=None)
@given(RC_NAMES)
def test_label_value_is_one_and_is_the_name_where_it_can_be(name: str) -> None:
    value = pod_identity.label_value(name)
    assert names.check_label_value(value) is None
    assert value == name or names.check_label_value(name) is not None


def test_label_values_of_long_names_differ() -> None:
    assert pod_identity.label_value("a" * 70 + "b") != pod_identity.label_value("a" * 70 + "c")


@pytest.mark.parametrize("name", ["web", "w" * 80, "a.b." + "c" * 60])
def test_ordinal_names_count_from_zero_and_skip_taken_ones(name: str) -> None:
    owner = builders.controller(name)
    first = list(islice(pod_identity.ordinal_names(owner, set()), 3))
    assert [text.rsplit("-", 1)[1] for text in first] == ["0", "1", "2"]
    assert all(names.check_dns_label(text) is None for text in first)
    assert next(pod_identity.ordinal_names(owner, {first[0]})) == first[1]


def test_template_hash_changes_with_the_template_only() -> None:
    one = builders.controller()
    assert pod_identity.template_hash(one) == pod_identity.template_hash(
        builders.controller(replicas=5)
    )
    other = builders.controller(template={**builders.TEMPLATE, "metadata": {}})
    assert pod_identity.template_hash(one) != pod_identity.template_hash(other)


def test_placement_hash_changes_with_the_node_selector() -> None:
    one = builders.controller()
    other = builders.controller(nodeSelector={"matchLabels": {"zone": "a"}})
    assert pod_identity.placement_hash(one) != pod_identity.placement_hash(other)


def test_node_of_reads_the_pin_of_an_unbound_pod() -> None:
    owner = builders.controller()
    assert pod_identity.node_of(builders.pod(owner, node="a", bound=False)) == "a"
    assert pod_identity.node_of(builders.pod(owner, node="b")) == "b"
    packed = builders.controller(placement="Packed")
    assert pod_identity.node_of(builders.pod(packed, name="web-0")) == ""


def test_r14_every_pod_carries_the_labels_of_its_controller() -> None:
    """R14: P2's pod id and RC id labels are the controller's name and uid here."""
    owner = builders.controller(podLabels={"tier": "front", pod_identity.RC_ID_LABEL: "forged"})
    made = podtemplate.pod_document(owner, name="web-a", node="a")
    assert made["metadata"]["labels"] == {
        "app": "web",
        "tier": "front",
        pod_identity.RC_NAME_LABEL: "web",
        pod_identity.RC_ID_LABEL: "rc-uid",
        pod_identity.TEMPLATE_HASH_LABEL: pod_identity.template_hash(owner),
    }
    assert made["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "grange.dev/v1alpha1",
            "kind": "ReplicationController",
            "name": "web",
            "uid": "rc-uid",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_pod_document_pins_the_node_in_every_alternative() -> None:
    terms = [{"matchExpressions": [{"key": "x", "operator": "Exists"}]}, {}]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }
    owner = builders.controller(
        template={"spec": {"affinity": affinity, "nodeName": "everything-here", "containers": []}},
        nodeSelector={
            "matchLabels": {"zone": "a"},
            "matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}],
        },
    )
    made = podtemplate.pod_document(owner, name="web-a", node="a")["spec"]
    assert "nodeName" not in made
    required = made["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    wanted = [
        {"key": "zone", "operator": "In", "values": ["a"]},
        {"key": "gpu", "operator": "DoesNotExist"},
    ]
    pin = [{"key": "metadata.name", "operator": "In", "values": ["a"]}]
    assert required["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "x", "operator": "Exists"}, *wanted], "matchFields": pin},
        {"matchExpressions": wanted, "matchFields": pin},
    ]
    assert owner.spec.template["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"] == [{"matchExpressions": [{"key": "x", "operator": "Exists"}]}, {}]


def test_packed_pod_document_without_selector_has_no_affinity() -> None:
    made = podtemplate.pod_document(builders.controller(placement="Packed"), name="web-0")
    assert "affinity" not in made["spec"]


@pytest.mark.parametrize(
    ("zoned", "keys"),
    [
        (False, ["kubernetes.io/hostname"]),
        (True, ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]),
    ],
)
def test_packed_pods_prefer_to_be_spread(zoned: bool, keys: list[str]) -> None:
    owner = builders.controller(placement="Packed")
    made = podtemplate.pod_document(owner, name="web-0", zoned=zoned)
    constraints = made["spec"]["topologySpreadConstraints"]
    assert [item["topologyKey"] for item in constraints] == keys
    for item in constraints:
        assert item["whenUnsatisfiable"] == "ScheduleAnyway"
        assert item["labelSelector"]["matchLabels"].items() <= made["metadata"]["labels"].items()
    assert "topologySpreadConstraints" not in owner.spec.template["spec"]


def test_spread_of_the_template_wins() -> None:
    mine = [{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]
    spec = {**builders.TEMPLATE["spec"], "topologySpreadConstraints": mine}
    owner = builders.controller(placement="Packed", template={**builders.TEMPLATE, "spec": spec})
    made = podtemplate.pod_document(owner, name="web-0", zoned=True)
    assert made["spec"]["topologySpreadConstraints"] == mine


def test_pod_bound_to_a_node_of_its_own_needs_no_spread() -> None:
    made = podtemplate.pod_document(builders.controller(), name="web-a", node="a")
    assert "topologySpreadConstraints" not in made["spec"]
