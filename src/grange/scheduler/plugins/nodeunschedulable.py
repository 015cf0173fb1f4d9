"""NodeUnschedulable: a cordoned node takes no new pods, except those that tolerate it."""

from collections.abc import Hashable

from grange.api.kinds.node import Node
from grange.placement import taints
from grange.placement.columns import Integers, Mask, NodeTable, Rows
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.framework import SUCCESS, Code, CycleState, Plugin, Scope, Status
from grange.scheduler.nodeinfo import NodeInfo, PodInfo

_REASON = "node(s) were unschedulable"


class _Open:
    scope = Scope.NODE

    def applies(self, pod: PodInfo) -> bool:
        """To pods without the toleration."""
        return not taints.tolerated(pod.pod.spec.tolerations, taints.UNSCHEDULABLE)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Whether the node is open."""
        if node.node is None or not node.node.spec.unschedulable or not self.applies(pod):
            return SUCCESS
        return Status(Code.UNRESOLVABLE, (_REASON,))

    def filter_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Mask:
        """Which are open."""
        return ~table.unschedulable[rows]

    def count_reasons(
        self, pod: PodInfo, table: NodeTable, rows: Integers
    ) -> list[tuple[str, int]]:
        """One reason for all."""
        return [(_REASON, len(rows))]


def _signature(pod: PodInfo) -> Hashable:
    return taints.tolerated(pod.pod.spec.tolerations, taints.UNSCHEDULABLE)


def _opened(pod: PodInfo, before: Object, after: Object) -> bool:
    if not isinstance(after, Node):
        return True
    was_open = isinstance(before, Node) and not before.spec.unschedulable
    return not after.spec.unschedulable and not was_open


PLUGIN = Plugin(
    "NodeUnschedulable",
    filter=_Open(),
    signature=_signature,
    events=(Registration(ClusterEvent(Subject.NODE, Action.ADD | Action.NODE_TAINT), _opened),),
)
