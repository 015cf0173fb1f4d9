"""DotProduct: the node whose free resources are least in line with what the pod asks for.

Score = S · (1 - ½ · Σ free(r) · asked(r) / largest(r)²) over CPU and GPU. The alignment of free and
asked amounts is Tetris' (Grandl et al., SIGCOMM 2014), which takes the largest; as a packing heuristic
Weng et al., USENIX ATC 2023, §6.1, take the smallest, which fills nodes up.
"""

from collections.abc import Hashable

import numpy as np

from grange.placement import packing
from grange.placement.columns import Integers, NodeTable, Rows
from grange.scheduler.framework import CycleState, Normalise, Plugin, Scope
from grange.scheduler.nodeinfo import NodeInfo, PodInfo


class _DotProduct:
    scope = Scope.LOAD
    normalise = Normalise.NONE

    def applies(self, pod: PodInfo) -> bool:
        """Always."""
        return True

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """The smaller the product, the better."""
        wants = packing.asked(pod.request)
        products = [
            packing.SCALE * min(max(0, left), most) * min(want, most) // (2 * most * most)
            for left, want, most in zip(
                packing.left(node.load), wants, packing.LARGEST, strict=True
            )
        ]
        return packing.SCALE - sum(products)

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        """The same for many."""
        wants = packing.asked(pod.request)
        total: Integers = np.full(len(table.valid[rows]), packing.SCALE, np.int64)
        for left, want, most in zip(
            packing.left_rows(table, rows), wants, packing.LARGEST, strict=True
        ):
            product = packing.SCALE * np.clip(left, 0, most) * min(want, most)
            total -= product // (2 * most * most)
        return total


def _signature(pod: PodInfo) -> Hashable:
    return packing.asked(pod.request)


PLUGIN = Plugin("DotProduct", score=_DotProduct(), scale=packing.SCALE, signature=_signature)
