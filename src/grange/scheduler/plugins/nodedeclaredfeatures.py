"""NodeDeclaredFeatures: only nodes that declare the features which the pod's spec needs (KEP-5328)."""

from collections.abc import Collection

from grange.api.kinds.pod import PodSpec
from grange.scheduler.node_plugin import DECLARED_FEATURES, NodeFilter
from grange.scheduler.podinfo import PodInfo

RESTART_ALL = "RestartAllContainersOnContainerExits"
USER_NAMESPACE_ON_HOST_NETWORK = "UserNamespacesHostNetworkSupport"


def required(spec: PodSpec) -> frozenset[str]:
    """The features that a node must declare to run the pod."""
    found = set()
    if any(
        rule.get("action") == "RestartAllContainers"
        for container in (*spec.containers, *spec.init_containers)
        for rule in container.restart_policy_rules
    ):
        found.add(RESTART_ALL)
    if spec.host_network and spec.host_users is False:
        found.add(USER_NAMESPACE_ON_HOST_NETWORK)
    return frozenset(found)


class NodeDeclaredFeatures(NodeFilter[frozenset[str], Collection[str]]):
    """Compares needed features with declared ones."""

    name = "NodeDeclaredFeatures"
    attribute = DECLARED_FEATURES
    reason = "node(s) didn't match Pod's required features"

    def demand(self, pod: PodInfo) -> frozenset[str]:
        return required(pod.pod.spec)

    def allows(self, demand: frozenset[str], value: Collection[str]) -> bool:
        return demand.issubset(value)


PLUGIN = NodeDeclaredFeatures().plugin()
