"""Nodes that are reserved for the first gang in line, so that small pods cannot starve it.

It is not known for how long pods run, so it cannot be foreseen when a gang that does not fit now
will. What can be done is what EASY backfilling does with its one reservation (Lifka, "The ANL/IBM SP
Scheduling System", JSSPP 1995), with nodes instead of times: choose nodes that would hold the whole
gang if they were empty, and let pods that come after it use all others. Whatever those do there does
not delay the gang; and when the pods on the chosen nodes have ended, it fits. So it waits at most
for the longest of those. Nodes with the most room are chosen first, so that few pods have to end;
the choice is repeated at each attempt, and what is free by then is among the first. The rules that
members have about each other hold for the choice: see ``_Conflicts`` and ``spread_check``.

A reserved node is tainted inside the scheduler; pods that come before the gang tolerate the taint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from grange.placement.columns import Ids, Integers, Mask
from grange.scheduler.cache import Cache
from grange.scheduler.clusterevents import Action, ClusterEvent, Subject
from grange.scheduler.framework import Profiles
from grange.scheduler.gangs.capacity import Capacity, Shape
from grange.scheduler.gangs.pod_overrides import past_reservations, reserved, unreserved
from grange.scheduler.gangs.spread_check import SpreadCheck
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.snapshot import NodeInfoSnapshot

_OPENED = ClusterEvent(Subject.NODE, Action.NODE_TAINT, "reservation ended")


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
    everywhere = np.ones(table.size, np.bool_)

    order = _roomiest_first(now, table.size)

    def pick(among: Mask) -> tuple[str, ...] | None:
        found = None
        # Pods on the nodes count now; where that rules out every choice, they have to end, too.
        for alone in (False, True):
            rows = order[among[order]].tolist()
            spread = SpreadCheck(profiles, snapshot, empty.shapes, rows, among, empty=alone)
            found = _pick(snapshot, empty, spread)
            if found is not None or not spread.binding:
                break
        return found

    if not domain_key:
        return pick(everywhere)
    column = table.labels(domain_key)
    ids = table.domains(domain_key)
    best: tuple[int, tuple[str, ...]] | None = None
    room = now.by_domain(table, domain_key)
    for value, number in sorted(column.numbers.items()):
        found = pick(ids == number)
        if found is not None and (best is None or room.get(value, 0) > best[0]):
            best = (room.get(value, 0), found)
    return None if best is None else best[1]


class _Conflicts:
    """Which of the pods may share a domain: anti-affinity among them, and host ports."""

    def __init__(self, snapshot: NodeInfoSnapshot, shapes: Sequence[Shape]) -> None:
        table, known = snapshot.table, snapshot.index.namespaces
        self._ports = [bool(shape.pod.ports) for shape in shapes]
        self._ports_used: set[tuple[int, int]] = set()
        # For each term: domains by row, holders, subjects, and the domains where each of them are.
        self._terms: list[tuple[Ids, set[int], set[int], set[int], set[int]]] = []
        for term in dict.fromkeys(
            term for shape in shapes for term in shape.pod.terms.anti_affinity
        ):
            holders = {
                at for at, shape in enumerate(shapes) if term in shape.pod.terms.anti_affinity
            }
            metas = [shape.pod.pod.metadata for shape in shapes]
            subjects = {
                at
                for at, meta in enumerate(metas)
                if term.selector.matches(meta.namespace, meta.labels, known)
            }
            ids = table.domains(term.key)
            self._terms.append((ids, holders, subjects, set(), set()))

    def limit(self, at: int, row: int, room: int) -> int:
        """How many pods of a shape may be on the row, of those for which there is room."""
        limit = room
        if self._ports[at]:
            limit = 0 if (at, row) in self._ports_used else min(room, 1)
        for ids, holders, subjects, held, subject_to in self._terms:
            domain = int(ids[row])
            if domain < 0:
                continue  # a node outside all domains shares none
            if (at in holders and domain in subject_to) or (at in subjects and domain in held):
                return 0
            if at in holders and at in subjects:
                limit = min(limit, 1)
        return limit

    def put(self, at: int, row: int) -> None:
        """Note that pods of the shape are put on the row."""
        if self._ports[at]:
            self._ports_used.add((at, row))
        for ids, holders, subjects, held, subject_to in self._terms:
            domain = int(ids[row])
            if at in holders:
                held.add(domain)
            if at in subjects:
                subject_to.add(domain)


def _roomiest_first(room: Capacity, size: int) -> Integers:
    """The rows by how many of the pods fit."""
    fitting: Integers = np.zeros(size, np.int64)
    for copies in room.copies:
        fitting += copies
    return np.argsort(-fitting, kind="stable")


def _pick(
    snapshot: NodeInfoSnapshot, empty: Capacity, spread: SpreadCheck
) -> tuple[str, ...] | None:
    """Nodes in order, until all shapes find room on them once they are empty."""
    names, conflicts = snapshot.table.names, _Conflicts(snapshot, empty.shapes)
    missing = [shape.count for shape in empty.shapes]
    left: dict[int, float] = {}  # the share of a row that is not taken yet
    while True:
        before, full = sum(missing), set()
        for row in spread.round(missing):
            share = left.get(row, 1.0)
            for at, fitting in enumerate(empty.copies):
                if not missing[at]:
                    continue
                room = int(fitting[row])
                free = min(missing[at], int(room * share + 1e-9))
                take = spread.limit(at, row, conflicts.limit(at, row, free)) if free else 0
                if take:
                    conflicts.put(at, row)
                    spread.put(at, row, take)
                    missing[at] -= take
                    share -= take / room
                    left[row] = share
            if not any(missing):
                return tuple(names[row] for row in left)
            if not any(int(fitting[row] * share + 1e-9) for fitting in empty.copies):
                full.add(row)
        if not spread.binding or sum(missing) == before:
            return None
        spread.leave_out(full)


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
