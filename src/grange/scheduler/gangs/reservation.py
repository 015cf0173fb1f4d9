"""Nodes that are reserved for the first gang in line, so that small pods cannot starve it.

It is not known for how long pods run, so it cannot be foreseen when a gang that does not fit now
will. What can be done is what EASY backfilling does with its one reservation (Lifka, "The ANL/IBM SP
Scheduling System", JSSPP 1995), with nodes instead of times: choose nodes that would hold the whole
gang if they were empty, and let pods that come after it use all others. Whatever those do there does
not delay the gang; and when the pods on the chosen nodes have ended, it fits. So it waits at most
for the longest of those. Nodes with the most room are chosen first, so that few pods have to end;
the choice is repeated at each attempt, and what is free by then is among the first. The rules that
members have about each other hold for the choice: see ``_MemberRules``.

A reserved node is tainted inside the scheduler; pods that come before the gang tolerate the taint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grange.placement.columns import Ids, Integers, Mask
from grange.placement.spread import Constraint
from grange.scheduler.cache import Cache
from grange.scheduler.clusterevents import Action, ClusterEvent, Subject
from grange.scheduler.framework import Profiles
from grange.scheduler.gangs.capacity import Capacity, Shape
from grange.scheduler.gangs.pod_overrides import past_reservations, reserved, unreserved
from grange.scheduler.plugins.podtopologyspread import eligible, query_of
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.snapshot import NodeInfoSnapshot

_OPENED = ClusterEvent(Subject.NODE, Action.NODE_TAINT)
_SPREAD_PLUGIN = "PodTopologySpread"


def choose(
    profiles: Profiles, snapshot: NodeInfoSnapshot, shapes: Sequence[Shape], domain_key: str = ""
) -> tuple[str, ...] | None:
    """The nodes to reserve for pods of these shapes; None when all nodes, empty, would not do.

    Args:
        profiles: the plugins; those that look at node objects alone rule nodes out.
        snapshot: the cluster.
        shapes: the pods.
        domain_key: a label that all nodes must share a value of; empty for any nodes.
    """
    table = snapshot.table
    wanted = [Shape(past_reservations(shape.pod), shape.count) for shape in shapes]
    now = Capacity.of(profiles, table, wanted)
    empty = Capacity.of(profiles, table, wanted, empty=True)
    order = np.argsort(-np.sum(now.copies, axis=0), kind="stable")

    def pick(among: Mask) -> tuple[str, ...] | None:
        rows = order[among[order]]
        # Pods on the nodes count now; where that rules out every choice, they have to end, too.
        for alone in (False, True):
            rules = _MemberRules(profiles, snapshot, empty.shapes, rows, among, empty=alone)
            found = _pick(empty, rows, rules)
            if found is not None:
                return tuple(table.names[row] for row in found)
            if not rules.are_about_spread:
                break
        return None

    if not domain_key:
        return pick(np.ones(table.size, np.bool_))
    numbers, ids = table.labels(domain_key).numbers, table.domains(domain_key)
    room = now.by_domain(table, domain_key)
    for value in sorted(numbers, key=lambda value: (-room.get(value, 0), value)):
        found = pick(ids == numbers[value])
        if found is not None:
            return found
    return None


def _pick(empty: Capacity, rows: Integers, rules: "_MemberRules") -> list[int] | None:
    """The first rows on which all shapes find room once they are empty."""
    share = np.ones(len(rows))  # of each row, what is not taken yet
    for at, (shape, copies) in enumerate(zip(empty.shapes, empty.copies, strict=True)):
        room, missing, concerned = copies[rows], shape.count, rules.concern(at)
        while missing:
            fitting = (room * share + 1e-9).astype(np.int64)
            opened = np.flatnonzero((fitting > 0) & rules.allowed(at))
            if not len(opened):
                return None
            # What is put may open rows again to a spread; to pods that stay apart it only closes some.
            spread = rules.spreads(at)
            for position in opened[: 1 if spread else None].tolist():
                free = int(fitting[position])
                while missing and free and rules.satisfies_anti_affinity(at, position):
                    take = 1 if concerned else min(missing, free)
                    rules.put(at, position, take)
                    share[position] -= take / room[position]
                    missing -= take
                    free = 0 if spread else free - take
                if not missing:
                    break
    taken: list[int] = rows[share < 1].tolist()
    return taken


class _MemberRules:
    """Where rules about other pods let members go that are not placed yet, counted as they are put.

    Hard spread constraints, anti-affinity among the members, and host ports.

    Args:
        rows: where to put them; elsewhere a row is named by its position here.
        among: the nodes that they may have.
        empty: as if no other pods were there.
    """

    def __init__(
        self,
        profiles: Profiles,
        snapshot: NodeInfoSnapshot,
        shapes: Sequence[Shape],
        rows: Integers,
        among: Mask,
        *,
        empty: bool,
    ) -> None:
        table, known = snapshot.table, snapshot.index.namespaces
        metas = [shape.pod.pod.metadata for shape in shapes]
        self._anti_affinity = [
            _AntiAffinity(
                table.domains(term.key)[rows],
                {at for at, shape in enumerate(shapes) if term in shape.pod.terms.anti_affinity},
                {
                    at
                    for at, meta in enumerate(metas)
                    if term.selector.matches(meta.namespace, meta.labels, known)
                },
            )
            for term in dict.fromkeys(
                term for shape in shapes for term in shape.pod.terms.anti_affinity
            )
        ]
        self._anti_affinity += [
            _AntiAffinity(np.arange(len(rows), dtype=np.int32), {at}, {at})
            for at, shape in enumerate(shapes)
            if shape.pod.ports
        ]
        self._spread: list[list[_DomainCounts]] = []
        counts: dict[tuple[object, ...], list[_DomainCounts]] = {}
        for shape in shapes:
            pod = shape.pod
            hard = tuple(item for item in pod.spread if item.hard)
            if hard and not _spreads(profiles, snapshot, pod):
                hard = ()
            # Members differ by their labels often, by which nodes count for them hardly ever.
            key = (hard, pod.affinity, pod.pod.spec.tolerations)
            if key not in counts:
                counts[key] = []
                for item in hard:
                    counted = {
                        at
                        for at, meta in enumerate(metas)
                        if item.selector.matches(meta.namespace, meta.labels, known)
                    }
                    mask = eligible(table, pod, item, hard)
                    mask = mask & among if item.honor_affinity else mask
                    counts[key].append(
                        _DomainCounts(snapshot, item, counted, mask, rows, empty=empty)
                    )
            self._spread.append(counts[key])
        self._all = [item for items in counts.values() for item in items]
        self.are_about_spread = bool(self._all)

    def spreads(self, at: int) -> bool:
        """Whether pods of the shape are spread."""
        return bool(self._spread[at])

    def concern(self, at: int) -> bool:
        """Whether a pod of the shape may close rows for the next one."""
        return self.spreads(at) or any(item.concerns(at) for item in self._anti_affinity)

    def satisfies_anti_affinity(self, at: int, position: int) -> bool:
        """Whether one more pod of a shape may be there, as far as pods that stay apart are concerned."""
        return all(item.allowed(at, position) for item in self._anti_affinity if item.concerns(at))

    def allowed(self, at: int) -> Mask | bool:
        """By position, whether one more pod of a shape may be there."""
        found: Mask | bool = True
        for counts in self._spread[at]:
            found = found & counts.allowed()
        for item in self._anti_affinity:
            if item.concerns(at):
                found = found & item.allowed(at, slice(None))
        return found

    def put(self, at: int, position: int, count: int) -> None:
        """Count pods of a shape that are put there."""
        for item in self._anti_affinity:
            item.put(at, position)
        for counts in self._all:
            counts.put(at, position, count)


class _AntiAffinity:
    """Pods that must not share a domain: those of some shapes (holders) with those of others."""

    def __init__(self, ids: Ids, holders: set[int], subjects: set[int]) -> None:
        self._ids, self._holders, self._subjects = ids, holders, subjects
        # By domain; the last is for nodes outside all domains, which share none.
        size = int(ids.max(initial=-1)) + 2
        self._has_holder, self._has_subject = np.zeros(size, np.bool_), np.zeros(size, np.bool_)

    def concerns(self, at: int) -> bool:
        return at in self._holders or at in self._subjects

    def allowed(self, at: int, where: Any) -> Any:
        domains = self._ids[where]
        closed = (at in self._holders) & self._has_subject[domains]
        return ~(closed | ((at in self._subjects) & self._has_holder[domains]))

    def put(self, at: int, position: int) -> None:
        domain = self._ids[position]
        if domain >= 0:
            self._has_holder[domain] |= at in self._holders
            self._has_subject[domain] |= at in self._subjects


class _DomainCounts:
    """The pods that one spread constraint counts, by domain; as the filter counts them."""

    def __init__(
        self,
        snapshot: NodeInfoSnapshot,
        constraint: Constraint,
        counted: set[int],
        eligible: Mask,
        rows: Integers,
        *,
        empty: bool,
    ) -> None:
        table, self._constraint, self._counted = snapshot.table, constraint, counted
        ids = table.domains(constraint.key)
        eligible = eligible & (ids >= 0)
        length = len(table.labels(constraint.key).values)
        self._domains = np.flatnonzero(np.bincount(ids[eligible], minlength=length))
        self._counts = np.zeros(length + 1, np.int64)  # the last is for nodes outside all domains
        if not empty:
            found = snapshot.index.counter(query_of(constraint)).rows(table.size)
            np.add.at(self._counts, ids[eligible], found[eligible])
        self._ids, self._eligible = ids[rows], eligible[rows]

    def allowed(self) -> Mask:
        constraint, counts = self._constraint, self._counts[self._domains]
        least = counts.min() if len(counts) and len(counts) >= constraint.min_domains else 0
        fits = self._counts + constraint.of_itself - least <= constraint.max_skew
        fits[-1] = False
        found: Mask = fits[self._ids]
        return found

    def put(self, at: int, position: int, count: int) -> None:
        if at in self._counted and self._eligible[position]:
            self._counts[self._ids[position]] += count


def _spreads(profiles: Profiles, snapshot: NodeInfoSnapshot, pod: PodInfo) -> bool:
    """Whether the pod's profile has the plugin, and the plugin rules nodes out."""
    return any(
        name == _SPREAD_PLUGIN and plugin.rules(pod, snapshot, ())
        for name, plugin, _ in profiles.of(pod).topology
    )


@dataclass(slots=True)
class Reservation:
    """The nodes that are reserved, if any.

    Attributes:
        cache: whose nodes are tainted.
        queue: whose pods are moved when nodes are free for all again.
        owner: the key of the gang; empty for none.
        nodes: their names.
    """

    cache: Cache
    queue: SchedulingQueue
    owner: str = ""
    nodes: dict[str, None] = field(default_factory=dict)

    def hold(self, owner: str, names: Sequence[str], now: float) -> None:
        """Reserve these nodes and no others."""
        wanted = dict.fromkeys(names)
        for name in [name for name in self.nodes if name not in wanted or owner != self.owner]:
            self._open(name, now)
        self.owner = owner
        for name in wanted:
            if name in self.nodes:
                continue
            entry = self.cache.node_info(name)
            if entry is not None and entry.node is not None:
                self.nodes[name] = None
                self.cache.update_node(None, reserved(entry.node, owner))

    def release(self, now: float) -> None:
        """Reserve nothing."""
        for name in [*self.nodes]:
            self._open(name, now)
        self.owner = ""

    def _open(self, name: str, now: float) -> None:
        del self.nodes[name]
        entry = self.cache.node_info(name)
        if entry is None or entry.node is None:
            return
        before = entry.node
        after = unreserved(before)
        self.cache.update_node(None, after)
        self.queue.move(_OPENED, now, before, after)
