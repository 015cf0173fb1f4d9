"""GpuClustering: pods that ask for devices alike go together.

Pods are of a kind by the number of whole devices that they ask for, shares being a kind of their own.
Four bands of a quarter of the scale each, from the top: nodes with pods of this kind alone, nodes with
this kind among others, idle nodes, nodes with other kinds alone. Within a band, the fuller the
better. After Gandiva (Xiao et al., OSDI 2018) as compared by Weng et al., USENIX ATC 2023, §6.1.
"""

from collections.abc import Hashable

import numpy as np

from grange.api import gpus
from grange.placement import devices
from grange.placement.columns import Integers, NodeTable, Rows
from grange.placement.packing import LARGEST, SCALE
from grange.scheduler.framework import CycleState, Normalise, Plugin, Scope
from grange.scheduler.nodeinfo import NodeInfo, PodInfo

_BAND = SCALE // 4
_MOST = LARGEST[1]
_Tenants = tuple[tuple[int, int], ...]


def _band(tenants: _Tenants, kind: int) -> int:
    if not tenants:
        return 1
    if all(item != kind for item, _ in tenants):
        return 0
    return 3 if len(tenants) == 1 else 2


class _Clustering:
    scope = Scope.LOAD
    normalise = Normalise.NONE

    def applies(self, pod: PodInfo) -> bool:
        """To pods that ask for devices."""
        return devices.asked(pod.request) > 0

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """By band, and within it by how full the node is."""
        held = node.usage.devices
        kind = gpus.tenant(devices.asked(pod.request))
        left = min(_MOST, sum(devices.free(node.allocatable, held)))
        return _BAND * _band(held.tenants, kind) + _BAND * (_MOST - left) // _MOST

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        """The same for many."""
        kind = gpus.tenant(devices.asked(pod.request))
        bands = np.asarray([_band(item, kind) for item in table.tenants(rows)], np.int64)
        left = np.minimum(_MOST, table.devices_left(rows).sum(axis=1))
        scores: Integers = _BAND * bands + _BAND * (_MOST - left) // _MOST
        return scores


def _signature(pod: PodInfo) -> Hashable:
    return devices.asked(pod.request)


PLUGIN = Plugin("GpuClustering", score=_Clustering(), scale=SCALE, signature=_signature)
