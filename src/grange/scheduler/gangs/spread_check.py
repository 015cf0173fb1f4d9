"""Where hard spread constraints let pods go that are not placed yet, counted as they are put on rows.

Pods are put in *rounds*: during one the emptiest domain is taken to have what it had when the round
began, so that all domains rise together and none waits for another that comes later in the order.
"""

from collections.abc import Collection, Iterator, Sequence
from heapq import heapify, heappop, heapreplace

import numpy as np

from grange.placement.columns import Mask
from grange.placement.spread import Constraint
from grange.scheduler.framework import Profiles
from grange.scheduler.gangs.capacity import Shape
from grange.scheduler.plugins.podtopologyspread import eligible, query_of
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

_PLUGIN = "PodTopologySpread"


class _DomainCounts:
    """The pods that one constraint counts, by domain; as the filter counts them."""

    def __init__(
        self,
        snapshot: NodeInfoSnapshot,
        constraint: Constraint,
        eligible: Mask,
        counted: frozenset[int],
        *,
        empty: bool,
    ) -> None:
        table, self.constraint, self.counted = snapshot.table, constraint, counted
        column = table.labels(constraint.key)
        self.ids = table.domains(constraint.key)
        self.eligible = eligible & (self.ids >= 0)
        ids, length = self.ids[self.eligible], len(column.values)
        self.domains = np.flatnonzero(np.bincount(ids, minlength=length))
        self.counts = np.zeros(length, np.int64)
        if not empty:
            found = snapshot.index.counter(query_of(constraint)).rows(table.size)
            np.add.at(self.counts, ids, found[self.eligible])
        self.least = 0

    def begin_round(self) -> None:
        """Compare with the emptiest domain as it is now."""
        counts = self.counts[self.domains]
        enough = len(counts) and len(counts) >= self.constraint.min_domains
        self.least = int(counts.min()) if enough else 0

    def limit(self, row: int, at: int) -> int | None:
        """How many pods of a shape the row's domain takes in this round; None for any number."""
        domain = int(self.ids[row])
        if domain < 0:
            return 0
        most = self.constraint.max_skew + self.least - self.constraint.of_itself
        left = most - int(self.counts[domain]) + 1
        return None if left > 0 and at not in self.counted else max(left, 0)

    def put(self, row: int, at: int, count: int) -> None:
        """Count pods of a shape that are put on the row."""
        if at in self.counted and self.eligible[row]:
            self.counts[self.ids[row]] += count


class SpreadCheck:
    """The hard constraints of some pods together.

    Args:
        profiles: whether the constraints apply.
        rows: where to put them, the best first.
        among: the nodes that they may have.
        empty: as if no other pods were there.

    Attributes:
        binding: whether there is any constraint.
    """

    def __init__(
        self,
        profiles: Profiles,
        snapshot: NodeInfoSnapshot,
        shapes: Sequence[Shape],
        rows: Sequence[int],
        among: Mask,
        *,
        empty: bool,
    ) -> None:
        known: dict[tuple[object, ...], list[_DomainCounts]] = {}
        self._of: list[list[_DomainCounts]] = []
        for shape in shapes:
            pod = shape.pod
            hard = tuple(item for item in pod.spread if item.hard)
            if hard and not _applies(profiles, snapshot, pod):
                hard = ()
            # Members differ by their labels often, by which nodes count for them hardly ever.
            key = (hard, pod.affinity, pod.pod.spec.tolerations)
            if key not in known:
                known[key] = [
                    _DomainCounts(
                        snapshot,
                        item,
                        _eligible(snapshot, pod, item, hard, among),
                        _counted(snapshot, item, shapes),
                        empty=empty,
                    )
                    for item in hard
                ]
            self._of.append(known[key])
        self._all = [counts for group in known.values() for counts in group]
        self.binding = bool(self._all)
        # A domain that takes no more is passed over as a whole: they may have thousands of nodes.
        self._widest = min(self._all, key=lambda counts: len(counts.domains), default=None)
        lanes: dict[int, list[tuple[int, int]]] = {}
        for position, row in enumerate(rows):
            domain = 0 if self._widest is None else int(self._widest.ids[row])
            lanes.setdefault(domain, []).append((position, row))
        self._lanes = [*lanes.values()]

    def round(self, missing: Sequence[int]) -> Iterator[int]:
        """The rows in order, as long as their domains take any of the missing pods.

        Args:
            missing: of each shape, how many are not put anywhere; may change on the way.
        """
        for counts in self._all:
            counts.begin_round()
        heads = [(lane[0][0], number, 0) for number, lane in enumerate(self._lanes) if lane]
        heapify(heads)
        while heads:
            _, number, at = heads[0]
            lane = self._lanes[number]
            row = lane[at][1]
            yield row
            if at + 1 < len(lane) and self._takes(row, missing):
                heapreplace(heads, (lane[at + 1][0], number, at + 1))
            else:
                heappop(heads)

    def leave_out(self, rows: Collection[int]) -> None:
        """Leave out rows that are full."""
        if rows:
            self._lanes = [[item for item in lane if item[1] not in rows] for lane in self._lanes]

    def _takes(self, row: int, missing: Sequence[int]) -> bool:
        widest = self._widest
        return widest is None or any(
            number and (widest not in self._of[at] or widest.limit(row, at) != 0)
            for at, number in enumerate(missing)
        )

    def limit(self, at: int, row: int, room: int) -> int:
        """How many pods of a shape may be on the row, of those for which there is room."""
        for counts in self._of[at]:
            limit = counts.limit(row, at)
            if limit is not None:
                room = min(room, limit)
        return room

    def put(self, at: int, row: int, count: int) -> None:
        """Count pods of a shape that are put on the row."""
        for counts in self._all:
            counts.put(row, at, count)


def _applies(profiles: Profiles, snapshot: NodeInfoSnapshot, pod: PodInfo) -> bool:
    """Whether the pod's profile has the plugin, and the plugin rules nodes out."""
    return any(
        name == _PLUGIN and plugin.rules(pod, snapshot, ())
        for name, plugin, _ in profiles.of(pod).topology
    )


def _eligible(
    snapshot: NodeInfoSnapshot,
    pod: PodInfo,
    constraint: Constraint,
    together: tuple[Constraint, ...],
    among: Mask,
) -> Mask:
    """The rows whose domains are compared."""
    mask = eligible(snapshot.table, pod, constraint, together)
    return mask & among if constraint.honor_affinity else mask


def _counted(
    snapshot: NodeInfoSnapshot, constraint: Constraint, shapes: Sequence[Shape]
) -> frozenset[int]:
    """The shapes whose pods the constraint counts."""
    known = snapshot.index.namespaces
    metas = [shape.pod.pod.metadata for shape in shapes]
    return frozenset(
        at
        for at, meta in enumerate(metas)
        if constraint.selector.matches(meta.namespace, meta.labels, known)
    )
