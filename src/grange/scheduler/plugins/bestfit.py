"""BestFit: the node that would have least left.

Score = S · (1 - ½ · left(cpu) / 128 CPUs - ½ · left(gpu) / 8 GPUs), where left is what the node would
have free with the pod on it. As in Weng et al., USENIX ATC 2023, §6.1 (the classic heuristic of vector
bin packing), where both resources count alike and are measured by the largest node.
"""

from collections.abc import Hashable

import numpy as np

from grange.placement import packing
from grange.placement.columns import Integers, NodeTable, Rows
from grange.scheduler.framework import CycleState, Normalise, Plugin, Scope
from grange.scheduler.nodeinfo import NodeInfo, PodInfo


class _BestFit:
    scope = Scope.LOAD
    normalise = Normalise.NONE

    def applies(self, pod: PodInfo) -> bool:
        """Always."""
        return True

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """The less is left, the better."""
        wants = packing.asked(pod.request)
        shares = [
            packing.SCALE * min(max(0, left - want), most) // (2 * most)
            for left, want, most in zip(
                packing.left(node.load), wants, packing.LARGEST, strict=True
            )
        ]
        return packing.SCALE - sum(shares)

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        """The same for many."""
        wants = packing.asked(pod.request)
        total: Integers = np.full(len(table.valid[rows]), packing.SCALE, np.int64)
        for left, want, most in zip(
            packing.left_rows(table, rows), wants, packing.LARGEST, strict=True
        ):
            total -= packing.SCALE * np.clip(left - want, 0, most) // (2 * most)
        return total


def _signature(pod: PodInfo) -> Hashable:
    return packing.asked(pod.request)


PLUGIN = Plugin("BestFit", score=_BestFit(), scale=packing.SCALE, signature=_signature)
