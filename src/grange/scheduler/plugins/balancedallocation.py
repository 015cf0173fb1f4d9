"""NodeResourcesBalancedAllocation: rather where CPU and memory end up evenly used."""

from collections.abc import Hashable

from grange.placement import kernels, reference
from grange.placement.columns import Integers, NodeTable, Rows
from grange.scheduler.framework import CycleState, Normalise, Plugin, Scope
from grange.scheduler.nodeinfo import NodeInfo, PodInfo


class _Balanced:
    scope = Scope.USAGE
    normalise = Normalise.NONE

    def applies(self, pod: PodInfo) -> bool:
        """Not to pods that ask for neither: they balance nothing."""
        need = pod.request.resources
        return bool(need.cpu_milli or need.memory_bytes)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """75 leaves the balance as it is."""
        return reference.balanced_allocation(pod.request, node.allocatable, node.usage)

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        """75 leaves the balance as it is."""
        return kernels.balanced_allocation(table, rows, pod.request)


def _signature(pod: PodInfo) -> Hashable:
    return pod.request.resources.cpu_milli, pod.request.resources.memory_bytes


PLUGIN = Plugin(
    "NodeResourcesBalancedAllocation", score=_Balanced(), weight=1, signature=_signature
)
