"""ImageLocality: prefers nodes that have the pod's images, if more than one node has them."""

from collections.abc import Hashable
from dataclasses import dataclass

from grange.placement import images, kernels
from grange.placement.columns import Integers, NodeTable, Rows
from grange.scheduler.framework import PASS, CycleState, Normalise, Plugin, PreFilterResult, Scope
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot


@dataclass(frozen=True, slots=True)
class _Nodes:
    total: int


class _Counts:
    def for_each(self, pod: PodInfo) -> bool:
        """It only counts nodes."""
        return False

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeInfoSnapshot
    ) -> PreFilterResult:
        """Remember how many nodes there are."""
        if pod.images:
            state.write(_Nodes(snapshot.num_nodes))
        return PASS


class _Local:
    scope = Scope.NODES
    normalise = Normalise.NONE

    def applies(self, pod: PodInfo) -> bool:
        """To pods that name images."""
        return bool(pod.images)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """By the size of what is there and the share of nodes that have it."""
        nodes = state.read(_Nodes)
        total = nodes.total if nodes is not None else 1
        found = [node.image_states[name] for name in pod.images if name in node.image_states]
        shares = [images.share(item.size_bytes, item.num_nodes, total) for item in found]
        return images.score(shares, images.slots(pod.pod.spec))

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        """By the size of what is there and the share of nodes that have it."""
        return kernels.image_locality(table, rows, pod.images, images.slots(pod.pod.spec))


def _signature(pod: PodInfo) -> Hashable:
    return (pod.images, images.slots(pod.pod.spec)) if pod.images else ()


PLUGIN = Plugin(
    "ImageLocality", pre_filter=_Counts(), score=_Local(), weight=1, signature=_signature
)
