"""NodeDeclaredFeatures: no node that does not declare a feature which the pod's spec needs (KEP-5328)."""

from collections.abc import Hashable

import numpy as np

from grange.api.kinds.node import Node
from grange.api.kinds.pod import PodSpec
from grange.placement.columns import Integers, Mask, NodeTable, Rows
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.framework import SUCCESS, Code, CycleState, Plugin, Scope, Status
from grange.scheduler.nodeinfo import NodeInfo, PodInfo

_REASON = "node(s) didn't match Pod's required features"
_REJECTED = Status(Code.UNRESOLVABLE, (_REASON,))
_NONE: frozenset[str] = frozenset()

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


class _Declared:
    scope = Scope.NODE

    def applies(self, pod: PodInfo) -> bool:
        """To pods that need a feature."""
        return bool(required(pod.pod.spec))

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Whether the node declares all of them."""
        declared = node.node.status.declared_features if node.node is not None else ()
        return SUCCESS if required(pod.pod.spec).issubset(declared) else _REJECTED

    def filter_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Mask:
        """Where all of them are declared."""
        wanted = required(pod.pod.spec)
        mask: Mask = np.zeros(table.size, np.bool_)
        mask[[row for row, has in table.declared.items() if wanted <= has]] = True
        return mask[rows]

    def count_reasons(
        self, pod: PodInfo, table: NodeTable, rows: Integers
    ) -> list[tuple[str, int]]:
        """One reason for all."""
        return [(_REASON, len(rows))]


def _signature(pod: PodInfo) -> Hashable:
    return required(pod.pod.spec) or _NONE


def _now_declared(pod: PodInfo, before: Object, after: Object) -> bool:
    wanted = required(pod.pod.spec)
    return not isinstance(after, Node) or wanted.issubset(after.status.declared_features)


PLUGIN = Plugin(
    "NodeDeclaredFeatures",
    filter=_Declared(),
    signature=_signature,
    events=(
        Registration(ClusterEvent(Subject.NODE, Action.ADD | Action.NODE_FEATURES), _now_declared),
    ),
)
