"""What would make a whole gang fit, rather than one of its pods.

Known by columns alone: all pods that are needed have one shape, and nothing but amounts and node objects
decides about them. Then the room of each node is exact, and so is the sum. For other gangs
(rules between pods, host ports, several shapes) nothing is stated: a change that lets each
pod fit alone may not let all fit together.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from grange.api.explanation import Change, GangRoom, ReasonCount
from grange.api.kinds.podgroup import GROUP_LABEL
from grange.api.pod_requests import PODS, Resources
from grange.base.plurals import be, counted
from grange.placement.columns import Integers
from grange.placement.node_usage import amount_of, asked_amounts
from grange.placement.resource_fit import insufficient
from grange.scheduler.diagnosis import EVERY_NODE, pre_filter
from grange.scheduler.explain.changes import BlockingPod
from grange.scheduler.explain.evaluation import Evaluation
from grange.scheduler.framework import CycleState, Profile, Profiles, Scope
from grange.scheduler.gangs.capacity import (
    Capacity,
    GangDemand,
    Shape,
    copies,
    count_reasons,
    room_when_empty,
    shapes,
)
from grange.scheduler.plugins.noderesourcesfit import (
    format_amount,
    with_requests,
)
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

_SHOWN = 5
_PODS_READ = 20_000  # on all nodes, to find those whose end helps
_GANGS_TRIED = 16
_PODS_TRIED = 256  # of those that are in no gang
_LEAST_SHARE = 10  # a request is not cut below this part of it
_RESOURCES_FILTER = "NodeResourcesFit"


@dataclass(frozen=True, slots=True)
class GangExplanation:
    """Why a gang does not fit, and after which changes all of it does; without content where that is not known."""

    room: GangRoom | None = None
    reasons: tuple[ReasonCount, ...] = ()
    changes: tuple[Change, ...] = ()


def explain_gang(
    profiles: Profiles, snapshot: NodeInfoSnapshot, demand: GangDemand
) -> GangExplanation:
    """Explain a gang on a snapshot that is up to date; without content where it is not known cheaply."""
    found = shapes(profiles, demand.pods)
    if demand.has_nominations or len(found) != 1:
        return GangExplanation()
    shape, profile = found[0], profiles.of(found[0].pod)
    if not _decided_by_columns(profile, shape.pod, snapshot):
        return GangExplanation()
    fit = _GangFit(profile, snapshot, shape, demand.domain_key)
    counts = count_reasons(profiles, snapshot.table, demand.pods)
    reasons = sorted(counts, key=lambda item: (-item[1], item[0]))
    when_empty = room_when_empty(profiles, snapshot.table, demand.pods, demand.domain_key)
    return GangExplanation(
        GangRoom(pods=shape.count, room=fit.room(), when_empty=when_empty),
        tuple(ReasonCount(reason=reason, nodes=count) for reason, count in reasons),
        fit.changes({reason for reason, _ in counts}),
    )


def _decided_by_columns(profile: Profile, pod: PodInfo, snapshot: NodeInfoSnapshot) -> bool:
    others = any(
        plugin.scope is not Scope.NODE and name != _RESOURCES_FILTER and plugin.applies(pod)
        for name, plugin in profile.filters
    )
    return (
        profile.amounts is not None
        and not others
        and not profile.rules(pod, snapshot, profile.concerns(pod, snapshot.index))
        and pre_filter(profile, CycleState(), pod, snapshot) is EVERY_NODE
    )


class _GangFit:
    """Whether pods of one shape fit, after changes of the pods or of the cluster."""

    def __init__(
        self, profile: Profile, snapshot: NodeInfoSnapshot, shape: Shape, domain_key: str
    ) -> None:
        self._profile, self._snapshot, self._shape = profile, snapshot, shape
        self._table, self._domain_key = snapshot.table, domain_key
        self._allowed = profile.allowed_rows(shape.pod, self._table)
        self._need = self._counted(shape.pod)
        self._copies = np.where(self._allowed, copies(self._table, self._need), 0)

    def _counted(self, pod: PodInfo) -> Resources:
        counted = self._profile.amounts
        return pod.request.resources if counted is None else counted(pod)

    def room(self, fitting: Integers | None = None) -> int:
        """For how many of the pods there is room, where so many fit on each row."""
        fitting = self._copies if fitting is None else fitting
        return Capacity((self._shape,), (fitting,)).most(self._table, self._domain_key)

    def _holds(self, fitting: Integers) -> bool:
        return self.room(fitting) >= self._shape.count

    def _holds_changed(self, pod: PodInfo) -> bool:
        """Whether all pods fit when they are like this one."""
        allowed = self._profile.allowed_rows(pod, self._table)
        return self._holds(np.where(allowed, copies(self._table, self._counted(pod)), 0))

    def changes(self, reasons: set[str]) -> tuple[Change, ...]:
        """The cheapest changes after which all pods fit."""
        if self.room() >= self._shape.count:
            return ()
        asked = [name for name, _ in asked_amounts(self._need)]
        short = [name for name in asked if insufficient(name) in reasons]
        found = [
            *self._smaller_requests(short or asked),
            *self._fewer_pods(),
            *self._remedies(),
            *self._ends(),
            *self._more_nodes(),
        ]
        found.sort(key=lambda item: item[0])
        return tuple(Change(text=text, nodes=0) for _, text in found[:_SHOWN])

    # --- changes of the pods -----------------------------------------------------------------

    def _smaller_requests(self, short: list[str]) -> Iterator[tuple[float, str]]:
        found = [limits for name in short if (limits := self._limits([name]))]
        if not found and len(short) > 1:
            found = [limits for limits in [self._limits(short)] if limits]
        for limits in found:
            amounts = {name: amount_of(self._need, name) for name in limits}
            cut = sum(1 - limits[name] / amounts[name] for name in limits)
            parts = [f"{name} ≤ {format_amount(name, limit)}" for name, limit in limits.items()]
            yield cut, f"if {' and '.join(parts)} in each pod"

    def _limits(self, names: list[str]) -> Mapping[str, int]:
        """The largest requests of these resources with which all fit, cut in proportion; empty for none."""
        whole = {name: amount_of(self._need, name) for name in names}
        steps = min(whole.values())
        # In so many parts: the least that is worth a try, and all, which is known not to fit.
        low, high = max(1, steps // _LEAST_SHARE), steps

        def limits(part: int) -> dict[str, int]:
            return {name: amount * part // steps for name, amount in whole.items()}

        if low == high or not self._fits_with(limits(low)):
            return {}
        while high - low > 1:
            middle = (low + high) // 2
            if self._fits_with(limits(middle)):
                low = middle
            else:
                high = middle
        return limits(low)

    def _fits_with(self, limits: Mapping[str, int]) -> bool:
        return self._holds_changed(with_requests(self._shape.pod, limits))

    def _fewer_pods(self) -> Iterator[tuple[float, str]]:
        room, wanted = self.room(), self._shape.count
        if room:
            text = (
                f"if {room} of its {wanted} pods are enough (minMember, or minAvailable of a job)"
            )
            yield 1 - room / wanted, text

    def _remedies(self) -> Iterator[tuple[float, str]]:
        """Remedies of filters that look at node objects, for all pods."""
        evaluation = Evaluation(self._profile, self._shape.pod, self._snapshot)
        for name, explanation in evaluation.explanations.items():
            if name == _RESOURCES_FILTER:
                continue
            for remedy in explanation.changes(np.flatnonzero(explanation.lacks > 0)):
                change = remedy.change
                if change is not None and self._holds_changed(change(self._shape.pod)):
                    yield remedy.cost, f"if {remedy.text}"

    # --- changes of the cluster --------------------------------------------------------------

    def _ends(self) -> Iterator[tuple[float, str]]:
        """Other gangs, or single pods, whose end alone would do; the cheapest of each."""
        gangs: dict[str, list[tuple[PodInfo, str]]] = {}
        singles: list[BlockingPod] = []
        missing, read = self._shape.count - self.room(), 0
        tries = 0 if self._domain_key else _PODS_TRIED
        for entry in self._snapshot.node_info_list:
            row = self._table.rows[entry.name]
            read += len(entry.pods)
            if read > _PODS_READ:
                return
            if not self._allowed[row]:
                continue
            for info in entry.pods:
                meta = info.pod.metadata
                group = meta.labels.get(GROUP_LABEL)
                if group:
                    gangs.setdefault(f"{meta.namespace}/{group}", []).append((info, entry.name))
                elif tries:
                    tries -= 1
                    if self._gain(row, info) >= missing:
                        singles.append(BlockingPod(info, entry.name))
        found = [min(singles, key=lambda item: item.cost)] if singles else []
        blocking = [BlockingPod(pods[0][0], pods[0][1], name) for name, pods in gangs.items()]
        blocking.sort(key=lambda item: item.cost)
        for item in blocking[:_GANGS_TRIED]:
            if self._holds(self._copies_without(gangs[item.gang])):
                found.append(item)
                break
        mine = self._shape.pod.pod.metadata
        for item in found:
            own = item.gang == f"{mine.namespace}/{mine.labels.get(GROUP_LABEL)}"
            text = "its pods that are being deleted have ended" if own else item.text
            yield item.cost, f"when {text}"

    def _gain(self, row: int, info: PodInfo) -> int:
        """How many more pods fit on a row without one that is there."""
        limits = []
        for name, amount in self._asked():
            total, used = self._table.amounts(name, slice(row, row + 1))
            freed = 1 if name == PODS else amount_of(info.request.resources, name)
            limits.append(int((total[0] - used[0] + freed) // amount))
        return min(limits) - int(self._copies[row])

    def _copies_without(self, pods: list[tuple[PodInfo, str]]) -> Integers:
        freed = {name: np.zeros(self._table.size, np.int64) for name, _ in self._asked()}
        for info, node in pods:
            row = self._table.rows[node]
            for name, amounts in freed.items():
                amounts[row] += 1 if name == PODS else amount_of(info.request.resources, name)
        return np.where(self._allowed, copies(self._table, self._need, freed=freed), 0)

    def _asked(self) -> list[tuple[str, int]]:
        return [(PODS, 1), *asked_amounts(self._need)]

    def _more_nodes(self) -> Iterator[tuple[float, str]]:
        if self._domain_key:
            return
        empty = np.where(self._allowed, copies(self._table, self._need, empty=True), 0)
        if not empty.any():
            return
        best = int(np.lexsort((-self._snapshot.ties[: len(empty)], -empty))[0])
        more = -((self.room() - self._shape.count) // int(empty[best]))
        nodes = counted(more, "more node")
        yield 1.0 + more, f"when {nodes} like {self._table.names[best]} {be(more)} added"
