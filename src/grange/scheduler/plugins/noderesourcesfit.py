"""NodeResourcesFit: enough of everything left, and the emptier node first, or as configured.

The strategies LeastAllocated, MostAllocated and RequestedToCapacityRatio are those of
``placement.allocation``.
"""

from collections.abc import Hashable
from dataclasses import replace

import msgspec
import numpy as np

from grange.api import names
from grange.api.kinds.node import Node
from grange.api.pod_requests import Resources, allocatable
from grange.placement import allocation, kernels, reference
from grange.placement.allocation import CPU_AND_MEMORY, Strategy, Weighted
from grange.placement.columns import Integers, Mask, NodeTable, Rows
from grange.placement.node_usage import IDLE
from grange.scheduler.clusterevents import Action, ClusterEvent, Hint, Object, Registration, Subject
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
from grange.scheduler.plugin_args import (
    ConfigSection,
    PluginArgs,
    configured,
    no_resource_twice,
    one_of,
    refusal,
    resource_name,
    within,
)

_NAME = "NodeResourcesFit"
_STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
_SHAPE_SCALE = 10  # points of a shape score 0 to 10


# --- arguments -----------------------------------------------------------------------------------


class Resource(ConfigSection, frozen=True, kw_only=True):
    """A resource that counts in the score."""

    name: str
    weight: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        resource_name(self.name)
        within("weight", self.weight, 1, 100)


class Point(ConfigSection, frozen=True, kw_only=True):
    """A point of a shape: utilisation in percent, score 0 to 10."""

    utilization: int
    score: int

    def __post_init__(self) -> None:
        """Refuse what is out of bounds."""
        within("utilization", self.utilization, 0, 100)
        within("score", self.score, 0, 10)


class Ratio(ConfigSection, frozen=True, kw_only=True):
    """The shape of RequestedToCapacityRatio."""

    shape: tuple[Point, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a shape that is no function."""
        if not self.shape:
            raise ValueError(refusal("shape", "needs at least one point"))
        for at in range(1, len(self.shape)):
            if self.shape[at].utilization <= self.shape[at - 1].utilization:
                field = f"shape[{at}].utilization"
                raise ValueError(refusal(field, "must be more than that of the point before"))


class ScoringStrategy(ConfigSection, frozen=True, kw_only=True):
    """How nodes are ranked."""

    type: str = "LeastAllocated"
    resources: tuple[Resource, ...] = ()
    requested_to_capacity_ratio: Ratio | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown strategy, or one without what it needs."""
        one_of("type", self.type, _STRATEGIES)
        if (self.type == _STRATEGIES[2]) != (self.requested_to_capacity_ratio is not None):
            message = f"required with type {_STRATEGIES[2]} and only with that"
            raise ValueError(refusal("requestedToCapacityRatio", message))
        no_resource_twice([item.name for item in self.resources])


class Args(PluginArgs, frozen=True, kw_only=True):
    """As NodeResourcesFitArgs."""

    scoring_strategy: ScoringStrategy = ScoringStrategy()
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse names that no resource has."""
        for at, name in enumerate(self.ignored_resources):
            fault = names.check_qualified_name(name)
            if fault is not None:
                raise ValueError(refusal(f"ignoredResources[{at}]", fault))
        for at, group in enumerate(self.ignored_resource_groups):
            fault = names.check_dns_subdomain(group)
            if fault is not None:
                raise ValueError(refusal(f"ignoredResourceGroups[{at}]", fault))


# --- fitting -------------------------------------------------------------------------------------


class _Fit:
    scope = Scope.LOAD

    def applies(self, pod: PodInfo) -> bool:
        """Always: at least the number of pods is limited."""
        return True

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Every shortage is a reason."""
        need, offered, usage = pod.request, node.allocatable, node.usage
        if reference.fits(need, offered, usage):
            return SUCCESS
        hopeless = reference.exceeds_node(need, offered)
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

    def amounts(self, pod: PodInfo) -> Resources:
        """All that the pod asks for."""
        return pod.request.resources


class _FitButFor(_Fit):
    """Leaves out resources that somebody else counts."""

    def __init__(self, ignored: tuple[str, ...], groups: tuple[str, ...]) -> None:
        self._ignored = frozenset(ignored)
        self._groups = frozenset(groups)

    def _relevant(self, pod: PodInfo) -> PodInfo:
        need = pod.request.resources
        kept = {
            name: amount
            for name, amount in need.scalars.items()
            if name not in self._ignored and name.partition("/")[0] not in self._groups
        }
        if len(kept) == len(need.scalars):
            return pod
        need = msgspec.structs.replace(need, scalars=kept)
        request = msgspec.structs.replace(pod.request, resources=need)
        return msgspec.structs.replace(pod, request=request)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Every shortage of what counts is a reason."""
        return super().filter(state, self._relevant(pod), node)

    def filter_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Mask:
        """Where it fits."""
        return super().filter_rows(self._relevant(pod), table, rows)

    def count_reasons(
        self, pod: PodInfo, table: NodeTable, rows: Integers
    ) -> list[tuple[str, int]]:
        """A node may count under several shortages."""
        return super().count_reasons(self._relevant(pod), table, rows)

    def amounts(self, pod: PodInfo) -> Resources:
        """What counts of that."""
        return self._relevant(pod).request.resources

    def may_help(self, pod: PodInfo, before: Object, after: Object) -> bool:
        """Whether a node came that the pod fits, or grew by what it needs."""
        return _fits_when_empty(self._relevant(pod), before, after)


# --- ranking -------------------------------------------------------------------------------------


class _ByStrategy:
    scope = Scope.LOAD
    normalise = Normalise.NONE

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    def applies(self, pod: PodInfo) -> bool:
        """Always."""
        return True

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """As the strategy says."""
        return self._strategy.score(pod.request, node.allocatable, node.usage)

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        """As the strategy says."""
        return self._strategy.score_rows(pod.request, table, rows)


def _strategy(given: ScoringStrategy) -> Strategy:
    resources = tuple(Weighted(item.name, item.weight) for item in given.resources)
    resources = resources or CPU_AND_MEMORY
    if given.requested_to_capacity_ratio is not None:
        shape = given.requested_to_capacity_ratio.shape
        points = tuple((point.utilization, point.score * _SHAPE_SCALE) for point in shape)
        return allocation.RequestedToCapacityRatio(resources, points)
    if given.type == "MostAllocated":
        return allocation.MostAllocated(resources)
    return allocation.LeastAllocated(resources)


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
    offered = allocatable(after.status.allocatable)
    if not reference.fits(pod.request, offered, IDLE):
        return False
    if not isinstance(before, Node):
        return True
    return _raised(pod, allocatable(before.status.allocatable), offered)


def _raised(pod: PodInfo, before: Resources, after: Resources) -> bool:
    need = pod.request.resources
    return (
        after.pods > before.pods
        or (need.cpu_milli > 0 and after.cpu_milli > before.cpu_milli)
        or (need.memory_bytes > 0 and after.memory_bytes > before.memory_bytes)
        or (need.ephemeral_bytes > 0 and after.ephemeral_bytes > before.ephemeral_bytes)
        or any(after.scalars.get(name, 0) > before.scalars.get(name, 0) for name in need.scalars)
    )


def _events(hint: Hint) -> tuple[Registration, ...]:
    return (
        Registration(ClusterEvent(Subject.ASSIGNED_POD, Action.DELETE | Action.POD_SCALE_DOWN)),
        Registration(ClusterEvent(Subject.NODE, Action.ADD | Action.NODE_ALLOCATABLE), hint),
    )


_FIT = _Fit()

_DEFAULT = Plugin(
    _NAME,
    filter=_FIT,
    amounts=_FIT.amounts,
    score=_ByStrategy(allocation.LeastAllocated(CPU_AND_MEMORY)),
    weight=1,
    signature=_signature,
    events=_events(_fits_when_empty),
)


def make(args: Args) -> Plugin:
    """The plugin with these arguments."""
    ignored, groups = args.ignored_resources, args.ignored_resource_groups
    butfor = _FitButFor(ignored, groups) if ignored or groups else None
    return replace(
        _DEFAULT,
        filter=butfor or _DEFAULT.filter,
        amounts=butfor.amounts if butfor else _DEFAULT.amounts,
        events=_events(butfor.may_help) if butfor else _DEFAULT.events,
        score=_ByStrategy(_strategy(args.scoring_strategy)),
        configure=configured(_NAME, Args, make),
    )


PLUGIN = make(Args())
