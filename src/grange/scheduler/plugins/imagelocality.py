"""ImageLocality: prefers nodes that have the pod's images, if more than one node has them."""

from collections.abc import Hashable

import numpy as np

from grange.api.kinds.pod import PodSpec
from grange.placement.columns import Integers, NodeTable, Rows
from grange.placement.resource_fit import MAX_SCORE
from grange.scheduler.framework import CycleState, Normalise, Plugin, Scope
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.podinfo import PodInfo

_MEBIBYTE = 2**20
_LEAST_BYTES = 23 * _MEBIBYTE
_MOST_BYTES_EACH = 1000 * _MEBIBYTE


def _most(spec: PodSpec) -> int:
    """The bytes beyond which more count no more: by containers and image volumes."""
    volumes = sum(1 for item in spec.volumes if item.image)
    return _MOST_BYTES_EACH * (len(spec.containers) + len(spec.init_containers) + volumes)


class _ImageLocality:
    """By the sizes of what is there and the shares of nodes that have it, 0 to 100.

    As few nodes have an image as a rule, the form for rows goes from images to nodes.
    """

    scope = Scope.NODES
    normalise = Normalise.NONE

    def applies(self, pod: PodInfo) -> bool:
        return bool(pod.images)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        most = _most(pod.pod.spec)
        if most <= _LEAST_BYTES:
            return 0
        have = sum(
            node.image_states[name].share for name in pod.images if name in node.image_states
        )
        held = min(max(have, _LEAST_BYTES), most)
        return MAX_SCORE * (held - _LEAST_BYTES) // (most - _LEAST_BYTES)

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        most = _most(pod.pod.spec)
        held: Integers = np.zeros(table.size, np.int64)
        if most <= _LEAST_BYTES:
            return held[rows]
        for name in pod.images:
            if (image := table.images.get(name)) is not None:
                have = [table.rows[node] for node in image.nodes if node in table.rows]
                held[have] += image.share
        held = np.minimum(np.maximum(held, _LEAST_BYTES), most)
        scores: Integers = MAX_SCORE * (held - _LEAST_BYTES) // (most - _LEAST_BYTES)
        return scores[rows]


def _signature(pod: PodInfo) -> Hashable:
    return (pod.images, _most(pod.pod.spec)) if pod.images else ()


PLUGIN = Plugin("ImageLocality", score=_ImageLocality(), signature=_signature)
