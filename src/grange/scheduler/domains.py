"""How many pods there are in each domain: the values of one node label, summed from a counter."""

import numpy as np

from grange.placement.columns import Ids, Integers, Mask
from grange.scheduler.podindex import Counter
from grange.scheduler.snapshot import NodeInfoSnapshot


class Domains:
    """Sums by domain that follow a counter.

    Args:
        snapshot: whose nodes.
        counter: a number by row.
        key: the label key.

    Attributes:
        key: the label key.
        counts: the sum by domain number, and a last entry that is always 0.
        present: the domains that have a node that counts.
        total: over all domains.
    """

    def __init__(self, snapshot: NodeInfoSnapshot, counter: Counter, key: str) -> None:
        self.key = key
        self.counts: Integers = np.zeros(1, np.int64)
        self.present: Integers = np.zeros(0, np.int64)
        self.total = 0
        self._snapshot = snapshot
        self._counter = counter
        self._position = -1
        self._nodes = -1
        self._ids: Ids = np.zeros(0, np.int32)
        self._inside: Mask = np.zeros(0, np.bool_)
        self._changed: list[int] | None = None

    def eligible(self) -> Mask | None:
        """The rows that count besides having the key; None for all."""
        return None

    def update(self) -> None:
        """Take in what changed since the last time."""
        counter = self._counter
        if self._nodes != self._snapshot.index.nodes:
            self._build()
        elif self._position != counter.position:
            changes = counter.since(self._position)
            if changes is None:
                self._build()
            else:
                self._apply(changes)
                self._position = counter.position

    def take_changed(self) -> list[int] | None:
        """The domains whose sum changed since they were last taken; None for all."""
        changed, self._changed = self._changed, []
        return changed

    def _apply(self, changes: list[tuple[int, int]]) -> None:
        ids, inside, counts = self._ids, self._inside, self.counts
        for row, amount in changes:
            if inside[row]:
                domain = int(ids[row])
                counts[domain] += amount
                self.total += amount
                if self._changed is not None:
                    self._changed.append(domain)

    def _build(self) -> None:
        table = self._snapshot.table
        size, column = table.size, table.labels(self.key)
        self._nodes = self._snapshot.index.nodes
        self._position = self._counter.position
        self._ids = column.ids[:size]
        inside = table.valid[:size] & (self._ids >= 0)
        also = self.eligible()
        if also is not None:
            inside &= also
        self._inside = inside
        ids = self._ids[inside]
        length = len(column.values) + 1
        # Sums of counts below 2⁵³ are exact in floating point.
        sums = np.bincount(ids, self._counter.rows(size)[inside], length)
        self.counts = sums.astype(np.int64)
        self.present = np.flatnonzero(np.bincount(ids, minlength=length))
        self.total = int(self.counts.sum())
        self._changed = None
