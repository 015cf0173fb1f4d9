"""NodePorts: no two pods on one node that want the same host port."""

from collections.abc import Hashable

from grange.api.kinds.pod import Pod
from grange.placement import kernels, ports
from grange.placement.columns import Integers, Mask, NodeTable, Rows
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.framework import SUCCESS, Code, CycleState, Plugin, Scope, Status
from grange.scheduler.nodeinfo import NodeInfo, PodInfo

_REASON = "node(s) didn't have free ports for the requested pod ports"
_REJECTED = Status(Code.UNSCHEDULABLE, (_REASON,))


class _Free:
    scope = Scope.LOAD

    def applies(self, pod: PodInfo) -> bool:
        """To pods that want host ports."""
        return bool(pod.ports)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Whether all of them are free."""
        return _REJECTED if ports.conflict(node.usage.ports, pod.ports) else SUCCESS

    def filter_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Mask:
        """Where all of them are free."""
        return kernels.free_of(table, rows, pod.ports)

    def count_reasons(
        self, pod: PodInfo, table: NodeTable, rows: Integers
    ) -> list[tuple[str, int]]:
        """One reason for all."""
        return [(_REASON, len(rows))]


def _signature(pod: PodInfo) -> Hashable:
    return pod.ports


def _frees_a_port(pod: PodInfo, before: Object, after: Object) -> bool:
    if not isinstance(before, Pod):
        return True
    return ports.conflict(ports.held(ports.NO_PORTS, ports.host_ports(before.spec)), pod.ports)


PLUGIN = Plugin(
    "NodePorts",
    filter=_Free(),
    signature=_signature,
    events=(
        Registration(ClusterEvent(Subject.ASSIGNED_POD, Action.DELETE), _frees_a_port),
        Registration(ClusterEvent(Subject.NODE, Action.ADD)),
    ),
)
