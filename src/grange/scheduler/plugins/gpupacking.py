"""GpuPacking: devices in use first, then idle ones of nodes in use, idle nodes last.

Three bands of a third of the scale each, from the top:

1. The pod goes to a device that is in use: the less that device has left, the better.
2. It needs idle devices, on a node with some in use: the fewer devices are idle, the better.
3. All devices of the node are idle: the fewer there are, the better.

So whole devices and whole nodes stay free for large pods: Weng et al., USENIX ATC 2023, §6.1, after the
practice of cluster managers that consolidate. Pods without devices are of no concern here.
"""

from collections.abc import Hashable

import numpy as np

from grange.api.gpus import DEVICES_MAX, WHOLE
from grange.placement import devices
from grange.placement.columns import Integers, NodeTable, Rows
from grange.placement.packing import SCALE
from grange.scheduler.framework import CycleState, Normalise, Plugin, Scope
from grange.scheduler.nodeinfo import NodeInfo, PodInfo

_BAND = SCALE // 3


class _Packing:
    scope = Scope.LOAD
    normalise = Normalise.NONE

    def applies(self, pod: PodInfo) -> bool:
        """To pods that ask for devices."""
        return devices.asked(pod.request) > 0

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """By band, and within it."""
        want = devices.asked(pod.request)
        left = devices.free(node.allocatable, node.usage.devices)
        in_use = [item for item in left if want <= item < WHOLE]
        if in_use:
            return 3 * _BAND - _BAND * min(in_use) // WHOLE
        idle = left.count(WHOLE)
        band = 1 if idle == len(left) else 2
        return band * _BAND - _BAND * idle // (DEVICES_MAX + 1)

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        """The same for many."""
        want = devices.asked(pod.request)
        left = table.devices_left(rows)
        least = left.min(axis=1, initial=WHOLE, where=(left >= want) & (left < WHOLE))
        idle = (left == WHOLE).sum(axis=1)
        all_idle = idle == table.device_counts(rows)
        band = np.where(all_idle, 1, 2)
        unused: Integers = band * _BAND - _BAND * idle // (DEVICES_MAX + 1)
        return np.where(least < WHOLE, 3 * _BAND - _BAND * least // WHOLE, unused)


def _signature(pod: PodInfo) -> Hashable:
    return devices.asked(pod.request)


PLUGIN = Plugin("GpuPacking", score=_Packing(), scale=SCALE, signature=_signature)
