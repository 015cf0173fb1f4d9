"""GpuShare: pods share GPUs; a share fits on one device, more are whole devices.

What nodes offer and pods ask for is in ``placement.devices``; the total is the business of
NodeResourcesFit. The filter looks at single devices. Of several that fit, the pod gets the one that
has least left, and a plugin that ranks nodes by devices may choose otherwise (the last plugin of the
profile that chooses decides). The choice is part of the assumption and is written to the pod's
annotation together with its binding. The score prefers nodes where the device that the pod would
get has least left after it.
"""

from collections.abc import Hashable

import numpy as np

from grange.api import gpus
from grange.api.gpus import GPU_MILLI, WHOLE
from grange.placement import devices
from grange.placement.columns import Integers, Mask, NodeTable, Rows
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.framework import (
    PASS,
    SUCCESS,
    Code,
    CycleState,
    Normalise,
    Plugin,
    PreFilterResult,
    Scope,
    Status,
)
from grange.scheduler.nodeinfo import NodeInfo, PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

_REASON = "node(s) had no GPU with enough left"
_IMPOSSIBLE = f"{GPU_MILLI} must be less than {WHOLE} or a multiple of it"


class _Amounts:
    def for_each(self, pod: PodInfo) -> bool:
        """Amounts that cannot be; of the others nothing is to be said."""
        return not devices.is_possible(devices.asked(pod.request))

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeInfoSnapshot
    ) -> PreFilterResult:
        """Before any node says that it has not enough: more would be of no use."""
        if devices.is_possible(devices.asked(pod.request)):
            return PASS
        return PreFilterResult(Status(Code.UNRESOLVABLE, (_IMPOSSIBLE,)))


class _Devices:
    scope = Scope.LOAD
    normalise = Normalise.NONE

    def applies(self, pod: PodInfo) -> bool:
        """To pods that ask for any of it."""
        return devices.asked(pod.request) > 0

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """A device with enough left, or so many untouched ones."""
        want, offered = devices.asked(pod.request), node.allocatable
        if devices.fits(devices.free(offered, node.usage.devices), want):
            return SUCCESS
        possible = devices.is_possible(want)
        hopeless = not possible or gpus.count(offered) < max(1, gpus.tenant(want))
        code = Code.UNRESOLVABLE if hopeless else Code.UNSCHEDULABLE
        return Status(code, (_REASON if possible else _IMPOSSIBLE,))

    def filter_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Mask:
        """Where it fits."""
        return devices.fits_rows(table.devices_left(rows), devices.asked(pod.request))

    def count_reasons(
        self, pod: PodInfo, table: NodeTable, rows: Integers
    ) -> list[tuple[str, int]]:
        """One reason for all."""
        possible = devices.is_possible(devices.asked(pod.request))
        return [(_REASON if possible else _IMPOSSIBLE, len(rows))]

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """100 where nothing is left of the device; whole devices are alike everywhere."""
        want = devices.asked(pod.request)
        if want >= WHOLE:
            return 0
        able = [left for left in devices.free(node.allocatable, node.usage.devices) if left >= want]
        return 100 - (min(able) - want) * 100 // WHOLE if able else 0

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        """The same for many."""
        want = devices.asked(pod.request)
        left = table.devices_left(rows)
        if want >= WHOLE:
            return np.zeros(len(left), np.int64)
        least = left.min(axis=1, initial=2 * WHOLE, where=left >= want)
        scores: Integers = 100 - (least - want) * 100 // WHOLE
        scores[least > WHOLE] = 0
        return scores

    def allocate(self, pod: PodInfo, node: NodeInfo) -> tuple[int, ...]:
        """What has least left."""
        left = devices.free(node.allocatable, node.usage.devices)
        return devices.best_fit(left, devices.asked(pod.request))


def _signature(pod: PodInfo) -> Hashable:
    return devices.asked(pod.request)


def _hopes(pod: PodInfo, before: Object, after: Object) -> bool:
    """Nothing helps an amount that cannot be."""
    return devices.is_possible(devices.asked(pod.request))


_DEVICES = _Devices()

PLUGIN = Plugin(
    "GpuShare",
    pre_filter=_Amounts(),
    filter=_DEVICES,
    score=_DEVICES,
    weight=1,
    device_allocator=_DEVICES,
    signature=_signature,
    events=(
        Registration(ClusterEvent(Subject.ASSIGNED_POD, Action.DELETE), _hopes),
        Registration(ClusterEvent(Subject.NODE, Action.ADD | Action.NODE_ALLOCATABLE), _hopes),
    ),
)
