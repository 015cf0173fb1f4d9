"""NodeResourcesFit: enough of everything left, and the emptier node first (LeastAllocated)."""

from collections.abc import Hashable

import numpy as np

from grange.api.kinds.node import Node
from grange.placement import kernels, reference, requests
from grange.placement.columns import Integers, Mask, NodeTable, Rows
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.framework import (
    SUCCESS,
    Code,
    CycleState,
    Normalise,
    Plugin,
    Scope,
    Status,
)
from grange.scheduler.nodeinfo import NodeInfo, PodInfo


class _Fit:
    scope = Scope.USAGE

    def applies(self, pod: PodInfo) -> bool:
        """Always: at least the number of pods is limited."""
        return True

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Every shortage is a reason."""
        need, offered, usage = pod.request, node.allocatable, node.usage
        if reference.fits(need, offered, usage):
            return SUCCESS
        hopeless = reference.exceeds_node(need, offered, usage)
        code = Code.UNRESOLVABLE if hopeless else Code.UNSCHEDULABLE
        return Status(code, tuple(reference.fit_reasons(need, offered, usage)))

    def filter_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Mask:
        """Where it fits."""
        return kernels.fits(table, rows, pod.request)

    def count_reasons(
        self, pod: PodInfo, table: NodeTable, rows: Integers
    ) -> list[tuple[str, int]]:
        """A node may count under several shortages."""
        found = kernels.fit_reasons(table, rows, pod.request)
        return [(reason, int(np.count_nonzero(mask))) for reason, mask in found]


class _LeastAllocated:
    scope = Scope.USAGE
    normalise = Normalise.NONE

    def applies(self, pod: PodInfo) -> bool:
        """Always."""
        return True

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """How empty the node would be."""
        return reference.least_allocated(pod.request, node.allocatable, node.usage)

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        """How empty each would be."""
        return kernels.least_allocated(table, rows, pod.request)


def _signature(pod: PodInfo) -> Hashable:
    need = pod.request.resources
    return (
        need.cpu_milli,
        need.memory_bytes,
        need.ephemeral_bytes,
        tuple(sorted(need.scalars.items())) if need.scalars else (),
        pod.request.nonzero_cpu_milli,
        pod.request.nonzero_memory_bytes,
    )


def _fits_when_empty(pod: PodInfo, before: Object, after: Object) -> bool:
    if not isinstance(after, Node):
        return True
    offered = requests.allocatable(after.status.allocatable)
    if not reference.fits(pod.request, offered, requests.IDLE):
        return False
    if not isinstance(before, Node):
        return True
    return _raised(pod, requests.allocatable(before.status.allocatable), offered)


def _raised(pod: PodInfo, before: requests.Resources, after: requests.Resources) -> bool:
    need = pod.request.resources
    return (
        after.pods > before.pods
        or (need.cpu_milli > 0 and after.cpu_milli > before.cpu_milli)
        or (need.memory_bytes > 0 and after.memory_bytes > before.memory_bytes)
        or (need.ephemeral_bytes > 0 and after.ephemeral_bytes > before.ephemeral_bytes)
        or any(after.scalars.get(name, 0) > before.scalars.get(name, 0) for name in need.scalars)
    )


PLUGIN = Plugin(
    "NodeResourcesFit",
    filter=_Fit(),
    score=_LeastAllocated(),
    weight=1,
    signature=_signature,
    events=(
        Registration(
            ClusterEvent(Subject.ASSIGNED_POD, Action.DELETE | Action.POD_SCALE_DOWN),
        ),
        Registration(
            ClusterEvent(Subject.NODE, Action.ADD | Action.NODE_ALLOCATABLE), _fits_when_empty
        ),
    ),
)
