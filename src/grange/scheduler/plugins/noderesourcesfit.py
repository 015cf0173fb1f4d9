"""NodeResourcesFit: excludes nodes with too little left; the emptier node first (LeastAllocated).

The strategies LeastAllocated, MostAllocated and RequestedToCapacityRatio are those of
``placement.allocation``.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np

from grange.api import names, quantity
from grange.api.kinds.node import Node
from grange.api.pod_requests import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    PodRequest,
    Resources,
    allocatable,
)
from grange.base.plurals import counted
from grange.placement import allocation, kernels, resource_fit
from grange.placement.allocation import CPU_AND_MEMORY, ResourceWeight, Strategy
from grange.placement.columns import Integers, Mask, NodeTable, Rows
from grange.placement.loads import Load
from grange.placement.node_usage import IDLE, amount_of, asked_amounts
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.framework import Code, Plugin, Status
from grange.scheduler.node_plugin import LOAD, NodeFilter, NodeScore
from grange.scheduler.plugin_args import (
    ConfigSection,
    PluginArgs,
    configurable,
    no_resource_twice,
    one_of,
    refusal,
    resource_name,
    within,
)
from grange.scheduler.plugin_explanation import PluginExplanation, Refusals, Remedy, altered
from grange.scheduler.podinfo import PodInfo

_STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
_SHAPE_SCALE = 10  # points of a shape score 0 to 10
_BYTES = frozenset({MEMORY, EPHEMERAL_STORAGE})
_GIB, _MIB = 2**30, 2**20


class NodeResourcesFit(NodeFilter[PodRequest, Load]):
    """Compares requests with what is left; kernels do so by resource, not by node.

    Args:
        ignored: resources that another scheduler component counts.
        groups: the same by the part of the name before the slash.
    """

    name = "NodeResourcesFit"
    attribute = LOAD

    def __init__(self, ignored: frozenset[str], groups: frozenset[str]) -> None:
        self._ignored, self._groups = ignored, groups

    def applies(self, pod: PodInfo) -> bool:
        """Always: at least the number of pods is limited."""
        return True

    def demand(self, pod: PodInfo) -> PodRequest:
        """The requests without ignored resources."""
        request = pod.request
        if not (self._ignored or self._groups):
            return request
        kept = {
            name: amount
            for name, amount in request.resources.scalars.items()
            if name not in self._ignored and name.partition("/")[0] not in self._groups
        }
        resources = msgspec.structs.replace(request.resources, scalars=kept)
        return msgspec.structs.replace(request, resources=resources)

    def signature(self, pod: PodInfo) -> Hashable:
        """All requests: the score counts ignored resources, too."""
        need = pod.request.resources
        return (
            need.cpu_milli,
            need.memory_bytes,
            need.ephemeral_bytes,
            tuple(sorted(need.scalars.items())) if need.scalars else (),
            pod.request.nonzero_cpu_milli,
            pod.request.nonzero_memory_bytes,
        )

    def amounts(self, pod: PodInfo) -> Resources:
        """What it counts against what nodes have left."""
        return self.demand(pod).resources

    def allows(self, demand: PodRequest, value: Load) -> bool:
        return resource_fit.fits(demand, value.allocatable, value.usage)

    def refusal(self, demand: PodRequest, value: Load) -> Status:
        offered, usage = value.allocatable, value.usage
        hopeless = resource_fit.exceeds_node(demand, offered)
        code = Code.UNRESOLVABLE if hopeless else Code.UNSCHEDULABLE
        return Status(code, tuple(resource_fit.fit_reasons(demand, offered, usage)))

    def filter_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Mask:
        return kernels.fits(table, rows, self.demand(pod))

    def count_reasons(
        self, pod: PodInfo, table: NodeTable, rows: Integers
    ) -> list[tuple[str, int]]:
        """A node may count under several shortages."""
        found = kernels.fit_reasons(table, rows, self.demand(pod))
        return [(reason, int(np.count_nonzero(mask))) for reason, mask in found]

    def explain(self, refusals: Refusals) -> PluginExplanation:
        return ResourcesExplanation(refusals, self.demand(refusals.pod))

    def events(self) -> tuple[Registration, ...]:
        gone = ClusterEvent(Subject.ASSIGNED_POD, Action.DELETE | Action.POD_SCALE_DOWN)
        grows = ClusterEvent(Subject.NODE, Action.ADD | Action.NODE_ALLOCATABLE)
        return (Registration(gone), Registration(grows, self._helped_by_capacity))

    def _helped_by_capacity(self, pod: PodInfo, before: Object, after: Object) -> bool:
        """Whether the node could run the pod alone, and offers more of what it asks for."""
        if not isinstance(after, Node):
            return True
        demand, offered = self.demand(pod), allocatable(after.status.allocatable)
        if not resource_fit.fits(demand, offered, IDLE):
            return False
        if not isinstance(before, Node):
            return True
        return _grew(demand.resources, allocatable(before.status.allocatable), offered)


def _grew(need: Resources, before: Resources, after: Resources) -> bool:
    return after.pods > before.pods or any(
        amount_of(after, name) > amount_of(before, name) for name, _ in asked_amounts(need)
    )


class _Utilisation(NodeScore[PodRequest, Load]):
    """Compares requests with what is in use, as a strategy ranks; ignored resources count, too."""

    name = NodeResourcesFit.name
    attribute = LOAD

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    def demand(self, pod: PodInfo) -> PodRequest:
        return pod.request

    def applies(self, pod: PodInfo) -> bool:
        return True

    def score_value(self, demand: PodRequest, value: Load) -> int:
        return self._strategy.score(demand, value.allocatable, value.usage)

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        return self._strategy.score_rows(pod.request, table, rows)


# --- the explanation -----------------------------------------------------------------------------


def format_amount(name: str, amount: int) -> str:
    """An amount as users write it, rounded down: rounded up it would not fit."""
    amount = max(0, amount)
    if name == CPU:
        return f"{amount / 1000:.3f}".rstrip("0").rstrip(".")
    if name in _BYTES or name.startswith("hugepages-"):
        for unit, suffix in ((_GIB, "Gi"), (_MIB, "Mi")):
            if amount >= unit:
                if amount % unit == 0:
                    return f"{amount // unit}{suffix}"
                hundredths = amount * 100 // unit
                return f"{hundredths / 100:.2f}".rstrip("0").rstrip(".") + suffix
        return quantity.format_binary(amount)
    return str(amount)


def with_requests(info: PodInfo, limits: Mapping[str, int]) -> PodInfo:
    """The pod with these requests."""
    need = info.request.resources
    resources = msgspec.structs.replace(
        need,
        cpu_milli=limits.get(CPU, need.cpu_milli),
        memory_bytes=limits.get(MEMORY, need.memory_bytes),
        ephemeral_bytes=limits.get(EPHEMERAL_STORAGE, need.ephemeral_bytes),
        scalars={name: limits.get(name, amount) for name, amount in need.scalars.items()},
    )
    return altered(info, request=msgspec.structs.replace(info.request, resources=resources))


class ResourcesExplanation:
    """By resource, what the pod needs and what is left."""

    def __init__(self, refusals: Refusals, request: PodRequest) -> None:
        table, refused = refusals.snapshot.table, refusals.refused
        self._need = {PODS: 1, **dict(asked_amounts(request.resources))}
        self._total: dict[str, Integers] = {}
        self._free: dict[str, Integers] = {}
        self.lacks: Integers = np.zeros(len(refused), np.int64)
        self.severity = refusals.no_severity()
        for name, amount in self._need.items():
            total, used = table.amounts(name, table.all)
            free = total - used
            self._total[name], self._free[name] = total, free
            short = (free < amount) & refused
            self.lacks += short
            self.severity[short] += (amount - np.maximum(free[short], 0)) / amount
        # A refusal without a shortage here still is one obstacle.
        self.lacks[refused & (self.lacks == 0)] = 1

    def missing(self, row: int) -> list[str]:
        found = []
        for name, amount in self._need.items():
            free, total = int(self._free[name][row]), int(self._total[name][row])
            if free >= amount:
                continue
            if name == PODS:
                found.append(f"no room for more than {counted(total, 'pod')}")
                continue
            if total == 0:
                have = "the node has none"
            elif amount > total:
                have = f"the whole node has {format_amount(name, total)}"
            else:
                have = f"{format_amount(name, free)} of {format_amount(name, total)} left"
            found.append(f"{name}: wants {format_amount(name, amount)}, {have}")
        return found or ["resources"]

    def covered(self, row: int, pods: Sequence[PodInfo]) -> bool:
        """Whether enough would be left without these pods of the node."""
        for name, need in self._need.items():
            freed = len(pods)
            if name != PODS:
                freed = sum(amount_of(info.request.resources, name) for info in pods)
            if int(self._free[name][row]) + freed < need:
                return False
        return True

    def changes(self, rows: Integers) -> list[Remedy]:
        """Lower requests: for each set of resources that are short together, the smallest cut."""
        names = [name for name in self._need if name != PODS]
        rows = rows[self._free[PODS][rows] > 0]
        short = np.stack([self._free[name][rows] < self._need[name] for name in names or [PODS]])
        found: dict[str, Remedy] = {}
        sets, of_row = np.unique(short, axis=1, return_inverse=True)
        of_row = of_row.reshape(-1)
        for at in range(sets.shape[1]):
            lacking = [name for name, lacks in zip(names, sets[:, at], strict=False) if lacks]
            mine = rows[of_row == at]
            remedy = self._less(lacking, mine, rows) if lacking else None
            if remedy is not None:
                found.setdefault(remedy.text, remedy)
        return sorted(found.values(), key=lambda item: (item.cost, -len(item.rows)))

    def _less(self, names: list[str], group: Integers, rows: Integers) -> Remedy | None:
        """The smallest cut after which a node of the group accepts the pod, and all that do then."""
        cut = np.zeros(len(group), np.float64)
        possible = np.ones(len(group), np.bool_)
        for name in names:
            free, need = self._free[name][group], self._need[name]
            cut += (need - free) / need
            possible &= free > 0
        if not possible.any():
            return None
        cut[~possible] = np.inf
        best = int(group[int(np.argmin(cut))])
        limits = {name: int(self._free[name][best]) for name in names}
        fits = np.ones(len(rows), np.bool_)
        for name, need in self._need.items():
            fits &= self._free[name][rows] >= limits.get(name, need)
        parts = [f"{name} ≤ {format_amount(name, limit)}" for name, limit in limits.items()]
        change = partial(with_requests, limits=limits)
        return Remedy(" and ".join(parts), rows[fits], float(cut.min()), change=change)


# --- arguments -----------------------------------------------------------------------------------


class ScoredResource(ConfigSection, frozen=True, kw_only=True):
    """A resource that counts in the score."""

    name: str
    weight: int = 1

    def __post_init__(self) -> None:
        resource_name(self.name)
        within("weight", self.weight, 1, 100)


class ShapePoint(ConfigSection, frozen=True, kw_only=True):
    """A point of a shape: utilisation in percent, score 0 to 10."""

    utilization: int
    score: int

    def __post_init__(self) -> None:
        within("utilization", self.utilization, 0, 100)
        within("score", self.score, 0, 10)


class RequestedToCapacityRatioArgs(ConfigSection, frozen=True, kw_only=True):
    """The shape of RequestedToCapacityRatio."""

    shape: tuple[ShapePoint, ...] = ()

    def __post_init__(self) -> None:
        if not self.shape:
            raise ValueError(refusal("shape", "needs at least one point"))
        for at in range(1, len(self.shape)):
            if self.shape[at].utilization <= self.shape[at - 1].utilization:
                field = f"shape[{at}].utilization"
                raise ValueError(refusal(field, "must be more than that of the point before"))


class ScoringStrategy(ConfigSection, frozen=True, kw_only=True):
    """How nodes are ranked."""

    type: str = "LeastAllocated"
    resources: tuple[ScoredResource, ...] = ()
    requested_to_capacity_ratio: RequestedToCapacityRatioArgs | None = None

    def __post_init__(self) -> None:
        one_of("type", self.type, _STRATEGIES)
        if (self.type == _STRATEGIES[2]) != (self.requested_to_capacity_ratio is not None):
            message = f"required with type {_STRATEGIES[2]} and only with that"
            raise ValueError(refusal("requestedToCapacityRatio", message))
        no_resource_twice([item.name for item in self.resources])


class NodeResourcesFitArgs(PluginArgs, frozen=True, kw_only=True):
    """As in Kubernetes."""

    scoring_strategy: ScoringStrategy = ScoringStrategy()
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for at, name in enumerate(self.ignored_resources):
            fault = names.check_qualified_name(name)
            if fault is not None:
                raise ValueError(refusal(f"ignoredResources[{at}]", fault))
        for at, group in enumerate(self.ignored_resource_groups):
            fault = names.check_dns_subdomain(group)
            if fault is not None:
                raise ValueError(refusal(f"ignoredResourceGroups[{at}]", fault))


def _strategy(given: ScoringStrategy) -> Strategy:
    resources = tuple(ResourceWeight(item.name, item.weight) for item in given.resources)
    resources = resources or CPU_AND_MEMORY
    if given.requested_to_capacity_ratio is not None:
        shape = given.requested_to_capacity_ratio.shape
        points = tuple((point.utilization, point.score * _SHAPE_SCALE) for point in shape)
        return allocation.RequestedToCapacityRatio(resources, points)
    if given.type == "MostAllocated":
        return allocation.MostAllocated(resources)
    return allocation.LeastAllocated(resources)


def make(args: NodeResourcesFitArgs) -> Plugin:
    """The plugin with these arguments."""
    fit = NodeResourcesFit(
        frozenset(args.ignored_resources), frozenset(args.ignored_resource_groups)
    )
    return replace(
        fit.plugin(),
        score=_Utilisation(_strategy(args.scoring_strategy)),
        amounts=fit.amounts,
    )


PLUGIN = configurable(NodeResourcesFitArgs, make)
