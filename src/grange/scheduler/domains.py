"""How many pods there are in each domain, the values of one node label, and rules about that.

Counts are summed from a counter. A rule is stated once, for one count and for an array of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from grange.placement.columns import Ids, Integers, Mask
from grange.scheduler.plugin_explanation import Refusals
from grange.scheduler.podindex import Counter
from grange.scheduler.snapshot import NodeInfoSnapshot

_FEW = 32  # up to so many, a loop is quicker than the array
_UNKNOWN = -1


class Domains:
    """Sums by domain that follow a counter.

    Attributes:
        counts: the sum by domain number, and a last entry that is always 0.
        count: the same, for single elements.
        present: the domains that have a node that counts.
    """

    def __init__(self, snapshot: NodeInfoSnapshot, counter: Counter, key: str) -> None:
        self.key = key
        self.counts: Integers = np.zeros(1, np.int64)
        self.count = self.counts.data
        self.present: Integers = np.zeros(0, np.int64)
        self.total = 0
        self._least = _UNKNOWN
        self._few: list[int] = []
        self._snapshot = snapshot
        self._index = snapshot.index
        self._counter = counter
        self._position = -1
        self._nodes = -1
        self._domain = np.zeros(0, np.int64).data  # by row; -1 for those that do not count
        self._changed: list[int] | None = None

    def eligible(self) -> Mask | None:
        """The rows that count besides having the key; None for all."""
        return None

    def ids(self) -> Ids:
        """The domain of each row; -1 for those without the key."""
        return self._snapshot.table.domains(self.key)

    def update(self) -> None:
        """Take in what changed since the last time."""
        counter = self._counter
        if self._nodes != self._index.nodes:
            self._build()
        elif counter.position != self._position:
            changes = counter.since(self._position)
            if changes is None:
                self._build()
                return
            self._position = counter.position
            ids, changed = self._domain, self._changed
            for row, amount in changes:
                domain = ids[row]
                if domain >= 0:
                    self._add(domain, amount)
                    if changed is not None:
                        changed.append(domain)

    def _add(self, domain: int, amount: int) -> None:
        before = self.count[domain]
        self.count[domain] = now = before + amount
        self.total += amount
        if now < self._least:
            self._least = now
        elif before == self._least:
            self._least = _UNKNOWN  # unless another has as few

    def least(self) -> int:
        """The smallest sum of a domain that has a node that counts; there is one."""
        if self._least == _UNKNOWN:
            if len(self._few) == len(self.present):
                count = self.count
                self._least = min([count[domain] for domain in self._few])
            else:
                self._least = int(self.counts[self.present].min())
        return self._least

    def changes(self) -> list[int] | None:
        """Take in what changed, and return the domains whose sum did; None for all."""
        self.update()
        changed = self._changed
        if changed is None or changed:
            self._changed = []
        return changed

    def _build(self) -> None:
        table = self._snapshot.table
        size, column = table.size, table.labels(self.key)
        self._nodes = self._snapshot.index.nodes
        self._position = self._counter.position
        ids = self.ids()
        inside = table.valid[:size] & (ids >= 0)
        also = self.eligible()
        if also is not None:
            inside &= also
        self._domain = np.where(inside, ids, -1).data
        ids = ids[inside]
        length = len(column.values) + 1
        # Sums of counts below 2⁵³ are exact in floating point.
        sums = np.bincount(ids, self._counter.rows(size)[inside], length)
        self.counts = sums.astype(np.int64)
        self.count = self.counts.data
        self.present = np.flatnonzero(np.bincount(ids, minlength=length))
        self._few = self.present[:_FEW].tolist()
        self.total = int(self.counts.sum())
        self._least = _UNKNOWN
        self._changed = None


class DomainRule(ABC):
    """One rule about the domains of a label key, for pods of one class.

    Attributes:
        by_count: a verdict depends on the domain's own count alone, so that it seldom changes;
            otherwise one change may turn the verdict on every domain.
        resolvable: a refusal may end once pods are gone, except for a missing key.
        outside: the verdict on nodes without the key.
    """

    by_count: bool = True
    resolvable: bool = True
    outside: bool = False

    def __init__(self, domains: Domains) -> None:
        self.domains = domains
        self.key = domains.key

    @abstractmethod
    def accepts(self, count: Any) -> Any:
        """Whether a domain with so many pods is accepted; of one count, or of an array of them."""

    @abstractmethod
    def reason(self, *, missing: bool) -> str:
        """Why not, for a node without the key or in a refused domain."""

    def count_reasons(self, refused: Ids) -> list[tuple[str, int]]:
        """Of the domains of refused nodes: each reason and its number of nodes."""
        missing = int(np.count_nonzero(refused < 0))
        counts = ((missing, True), (len(refused) - missing, False))
        return [(self.reason(missing=without), count) for count, without in counts if count]

    def refresh(self) -> list[int] | None:
        """Take in what changed.

        Returns:
            The domains whose verdict may have changed; None for all of them.
        """
        return self.domains.changes()

    def verdicts(self) -> Mask:
        """By domain, and last for nodes without the key, whether it is accepted."""
        verdicts: Mask = self.accepts(self.domains.counts)
        verdicts[-1] = self.outside
        return verdicts

    def opens(self, domain: int) -> bool:
        """Whether one domain is accepted; -1 for nodes without the key."""
        return bool(self.accepts(self.domains.count[domain])) if domain >= 0 else self.outside


class DomainExplanation:
    """Base of explanations by rule about domains."""

    def __init__(self, refusals: Refusals, rules: Sequence[DomainRule]) -> None:
        self.refusals = refusals
        table = refusals.snapshot.table
        self.ids = [table.domains(rule.key) for rule in rules]
        self.lacks: Integers = np.zeros(len(refusals.refused), np.int64)
        for rule, ids in zip(rules, self.ids, strict=True):
            self.lacks += ~rule.verdicts()[ids] & refusals.refused
        self.severity = refusals.no_severity()
