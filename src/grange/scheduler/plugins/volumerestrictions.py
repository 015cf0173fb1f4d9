"""VolumeRestrictions: no two pods on one node that use the same inline disk, unless all only read."""

from collections.abc import Hashable

from grange.api.kinds.pod import Pod
from grange.placement import disks, kernels, ports
from grange.placement.columns import Integers, Mask, NodeTable, Rows
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.framework import SUCCESS, Code, CycleState, Plugin, Scope, Status
from grange.scheduler.nodeinfo import NodeInfo, PodInfo

_REASON = "node(s) had no available disk"
_REJECTED = Status(Code.UNSCHEDULABLE, (_REASON,))


class _Available:
    scope = Scope.LOAD

    def applies(self, pod: PodInfo) -> bool:
        """To pods that name disks in their spec."""
        return bool(pod.disks)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Whether no pod there uses one of them."""
        return _REJECTED if ports.conflict(node.usage.ports, pod.disks) else SUCCESS

    def filter_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Mask:
        """Where no pod uses one of them."""
        return kernels.free_of(table, rows, pod.disks)

    def count_reasons(
        self, pod: PodInfo, table: NodeTable, rows: Integers
    ) -> list[tuple[str, int]]:
        """One reason for all."""
        return [(_REASON, len(rows))]


def _signature(pod: PodInfo) -> Hashable:
    return pod.disks


def _frees_a_disk(pod: PodInfo, before: Object, after: Object) -> bool:
    if not isinstance(before, Pod):
        return True
    used = ports.held(ports.NO_PORTS, disks.inline_disks(before.spec))
    return ports.conflict(used, pod.disks)


PLUGIN = Plugin(
    "VolumeRestrictions",
    filter=_Available(),
    signature=_signature,
    events=(
        Registration(ClusterEvent(Subject.ASSIGNED_POD, Action.DELETE), _frees_a_disk),
        Registration(ClusterEvent(Subject.NODE, Action.ADD)),
    ),
)
