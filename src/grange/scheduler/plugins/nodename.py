"""NodeName: a pod that names its node goes nowhere else."""

from collections.abc import Hashable

import numpy as np

from grange.placement.columns import Integers, Mask, NodeTable, Rows
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.framework import SUCCESS, Code, CycleState, Plugin, Scope, Status
from grange.scheduler.nodeinfo import NodeInfo, PodInfo

_REASON = "node(s) didn't match the requested node name"


class _Named:
    scope = Scope.NODE

    def applies(self, pod: PodInfo) -> bool:
        """To pods that name a node."""
        return bool(pod.pod.spec.node_name)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Whether it is the one."""
        if pod.pod.spec.node_name in ("", node.name):
            return SUCCESS
        return Status(Code.UNRESOLVABLE, (_REASON,))

    def filter_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Mask:
        """Only the one."""
        mask: Mask = np.zeros(table.size, np.bool_)
        row = table.rows.get(pod.pod.spec.node_name)
        if row is not None:
            mask[row] = True
        return mask[rows]

    def count_reasons(
        self, pod: PodInfo, table: NodeTable, rows: Integers
    ) -> list[tuple[str, int]]:
        """One reason for all."""
        return [(_REASON, len(rows))]


def _signature(pod: PodInfo) -> Hashable:
    return pod.pod.spec.node_name


def _is_the_one(pod: PodInfo, before: Object, after: Object) -> bool:
    return after is None or after.metadata.name == pod.pod.spec.node_name


PLUGIN = Plugin(
    "NodeName",
    filter=_Named(),
    signature=_signature,
    events=(Registration(ClusterEvent(Subject.NODE, Action.ADD), _is_the_one),),
)
