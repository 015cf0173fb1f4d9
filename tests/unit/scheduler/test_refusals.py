"""Plugins that keep a pod from nodes on which it could not run: disks, features, claims."""

from typing import Any

import msgspec
import pytest
from tests.unit.scheduler.test_topology_plugins import World

from grange.api.kinds.node import Node
from grange.scheduler.diagnosis import Diagnosis
from grange.sim import builders

READ_ONLY = {"readOnly": True}
GCE: dict[str, Any] = {"gcePersistentDisk": {"pdName": "d"}}
AWS: dict[str, Any] = {"awsElasticBlockStore": {"volumeID": "v"}}
ISCSI: dict[str, Any] = {"iscsi": {"iqn": "i", "targetPortal": "p", "lun": 0}}
RBD: dict[str, Any] = {"rbd": {"monitors": ["a", "b"], "image": "i"}}


def volume(source: dict[str, Any], **more: Any) -> dict[str, Any]:
    ((kind, fields),) = source.items()
    return {"volumes": [{"name": "v", kind: {**fields, **more}}]}


CASES = [
    (volume(GCE), volume(GCE), True),
    (volume(GCE), volume(GCE, **READ_ONLY), True),
    (volume(GCE, **READ_ONLY), volume(GCE, **READ_ONLY), False),
    (volume(GCE), volume(GCE, pdName="e"), False),
    (volume(AWS, **READ_ONLY), volume(AWS, **READ_ONLY), True),
    (volume(AWS), volume(AWS, volumeID="w"), False),
    (volume(ISCSI), volume(ISCSI, **READ_ONLY), True),
    (volume(ISCSI, **READ_ONLY), volume(ISCSI, **READ_ONLY), False),
    (volume(RBD), volume(RBD, monitors=["b", "c"]), True),
    (volume(RBD), volume(RBD, monitors=["c"]), False),
    (volume(RBD), volume(RBD, pool="other"), False),
    (volume(RBD, pool="rbd"), volume(RBD), True),
    (volume(RBD, **READ_ONLY), volume(RBD, **READ_ONLY), False),
    (volume(GCE, pdName="v"), volume(AWS), False),
]


@pytest.mark.parametrize(("placed", "waiting", "conflict"), CASES)
def test_disk_in_use_keeps_a_pod_from_the_node(
    placed: dict[str, Any], waiting: dict[str, Any], conflict: bool
) -> None:
    """The conflict matrix of kube-scheduler's VolumeRestrictions."""
    made = World()
    made.nodes("n")
    made.put("first", "n", **placed)
    if conflict:
        assert made.refusal(builders.pod("p", **waiting)) == (
            "0/1 nodes are available: 1 node(s) had no available disk."
        )
    else:
        assert made.place(builders.pod("p", **waiting)) == "n"


def test_disk_is_free_when_its_last_user_goes() -> None:
    made = World()
    made.nodes("n")
    first = builders.pod("first", nodeName="n", **volume(AWS))
    made.cache.add_pod(first)
    assert isinstance(made.decide(builders.pod("p", **volume(AWS))), Diagnosis)
    made.cache.remove_pod(first)
    assert made.place(builders.pod("p", **volume(AWS))) == "n"


def declaring(name: str, *features: str) -> Node:
    node = builders.node(name)
    status = msgspec.structs.replace(node.status, declared_features=features)
    return msgspec.structs.replace(node, status=status)


RESTARTS: dict[str, Any] = {
    "containers": [{"name": "a", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]
}


def test_pod_waits_for_a_node_that_declares_its_features() -> None:
    made = World()
    made.nodes("old")
    pod = builders.pod("p", **RESTARTS)
    assert made.refusal(pod) == (
        "0/1 nodes are available: 1 node(s) didn't match Pod's required features."
    )
    made.cache.update_node(None, declaring("old", "Other"))
    assert isinstance(made.decide(pod), Diagnosis)
    made.cache.update_node(None, declaring("old", "RestartAllContainersOnContainerExits"))
    assert made.place(pod) == "old"


def test_other_restart_rules_need_no_feature() -> None:
    made = World()
    made.nodes("n")
    rules = [{"action": "Restart"}]
    pod = builders.pod("p", containers=[{"name": "a", "restartPolicyRules": rules}])
    assert made.place(pod) == "n"


def test_user_namespace_on_the_host_network_needs_a_feature() -> None:
    made = World()
    made.cache.add_node(declaring("new", "UserNamespacesHostNetworkSupport"))
    made.nodes("old")
    pod = builders.pod("p", hostNetwork=True, hostUsers=False)
    assert made.place(pod) == "new"


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        ({"resourceClaimName": "gpu"}, 'resourceclaim "gpu" not found'),
        (
            {"resourceClaimTemplateName": "gpu"},
            'pod claim "c": waiting for its ResourceClaim to be created',
        ),
    ],
)
def test_resource_claim_that_does_not_exist_is_waited_for(
    claim: dict[str, str], reason: str
) -> None:
    made = World()
    made.nodes("n")
    pod = builders.pod("p", resourceClaims=[{"name": "c", **claim}])
    assert made.refusal(pod) == f"0/1 nodes are available: {reason}."


def test_preference_that_cannot_be_evaluated_is_an_error() -> None:
    made = World()
    made.nodes("n")
    term = {"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["x"]}]}
    preferred = [{"weight": 1, "preference": term}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    found = made.decide(builders.pod("p", affinity=affinity))
    assert isinstance(found, Diagnosis)
    assert found.error
    assert "preference.matchExpressions[0].values: must be one integer" in found.message
