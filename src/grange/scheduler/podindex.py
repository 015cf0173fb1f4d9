"""How many pods of a kind are on each node, kept current instead of counted for every decision.

Two questions come up: how many pods on a node does a *query* choose (spread constraints, the terms of
the pod being placed), and how many pods on a node hold a *term* (the terms of pods that are already
placed, which may concern the pod being placed). Each gets a ``Counter``: a number by row and a log
of changes that readers follow at their own pace, as with ``snapshot.Changes``.

The snapshot reports every change of a node's pods as the tuple before and the tuple after. The
counters are a function of those tuples alone, so they cannot drift: whatever order events come in,
a row's count is that of the tuple last reported for it.

``epoch`` grows when counters are void: after a change of namespaces' labels that any of them depends
on, and when so many queries or terms were seen that the index is emptied. ``nodes`` grows when a
node object changed, so that sums over domains have to be made anew.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec
import numpy as np

from grange.api.selectors import IN
from grange.placement.columns import Integers, NodeTable
from grange.placement.podaffinity import Namespaces, PodSelector, Term
from grange.scheduler.nodeinfo import NodeInfo, PodInfo

_LOG_MAX = 8192
_QUERIES_MAX = 2_000  # of 8 bytes a row each
_TERMS_MAX = 10_000
_MATCHES_MAX = 20_000
_NONE: Namespaces = MappingProxyType({})


class Query(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Pods that all selectors choose.

    Attributes:
        selectors: at least one.
        staying: leave out pods that are being deleted.
    """

    selectors: tuple[PodSelector, ...]
    staying: bool = False

    def chooses(self, info: PodInfo, known: Namespaces) -> bool:
        """Whether the pod is one of them."""
        meta = info.pod.metadata
        if self.staying and meta.deletion_timestamp:
            return False
        return all(item.matches(meta.namespace, meta.labels, known) for item in self.selectors)


class Counter:
    """A number by row, and its changes.

    Attributes:
        by_row: the number; at least as long as the table.
    """

    __slots__ = ("_first", "_log", "by_row")

    def __init__(self, capacity: int) -> None:
        self.by_row: Integers = np.zeros(capacity, np.int64)
        self._log: list[tuple[int, int]] = []
        self._first = 0

    @property
    def position(self) -> int:
        """After the newest change."""
        return self._first + len(self._log)

    def add(self, row: int, amount: int) -> None:
        """Change a row's number."""
        if row >= len(self.by_row):
            extra = np.zeros(max(row + 1 - len(self.by_row), len(self.by_row)), np.int64)
            self.by_row = np.concatenate([self.by_row, extra])
        self.by_row[row] += amount
        self._log.append((row, amount))
        if len(self._log) > _LOG_MAX:
            del self._log[: _LOG_MAX // 2]
            self._first += _LOG_MAX // 2

    def rows(self, size: int) -> Integers:
        """The numbers of the first ``size`` rows."""
        if len(self.by_row) < size:
            extra = np.zeros(size - len(self.by_row), np.int64)
            self.by_row = np.concatenate([self.by_row, extra])
        return self.by_row[:size]

    def since(self, position: int) -> list[tuple[int, int]] | None:
        """The changes after a position; None when it is too long ago."""
        if position < self._first:
            return None
        return self._log[position - self._first :]


class PodIndex:
    """The counters of one snapshot.

    Args:
        table: the snapshot's rows.
        entries: the snapshot's entries by name.
    """

    def __init__(self, table: NodeTable, entries: Mapping[str, NodeInfo]) -> None:
        self._table = table
        self._entries = entries
        self.namespaces: Namespaces = _NONE
        self.epoch = 0
        self.nodes = 0
        self._by_namespace = False
        self._queries: dict[Query, Counter] = {}
        # A query is looked up by one label that it demands, if it demands any.
        self._by_label: dict[tuple[str, str], list[tuple[Query, Counter]]] = {}
        self._by_rest: list[tuple[Query, Counter]] = []
        self._numbers: dict[Term, int] = {}
        self._terms: list[Term] = []
        self._holders: list[Counter] = []
        self._matches: dict[tuple[str, frozenset[tuple[str, str]]], tuple[int, list[int]]] = {}

    # --- asking ------------------------------------------------------------------------------

    def counter(self, query: Query) -> Counter:
        """The pods that a query chooses, by row; counted now if nobody asked before.

        Valid until ``epoch`` grows.
        """
        found = self._queries.get(query)
        if found is None:
            found = self._queries[query] = Counter(self._table.capacity)
            self._note_namespaces(query.selectors)
            label = _demanded(query.selectors)
            where = self._by_rest if label is None else self._by_label.setdefault(label, [])
            where.append((query, found))
            for name, entry in self._entries.items():
                chosen = sum(1 for info in entry.pods if query.chooses(info, self.namespaces))
                if chosen:
                    found.add(self._table.rows[name], chosen)
        return found

    def concerning(self, info: PodInfo) -> tuple[int, ...]:
        """The numbers of those terms of placed pods that are about this pod, in order.

        Terms whose holders have all left may be among them. Valid until ``epoch`` grows.
        """
        if not self._terms:
            return ()
        meta = info.pod.metadata
        key = (meta.namespace, frozenset(meta.labels.items()))
        seen, found = self._matches.get(key) or (0, [])
        if seen < len(self._terms):
            for number in range(seen, len(self._terms)):
                selector = self._terms[number].selector
                if selector.matches(meta.namespace, meta.labels, self.namespaces):
                    found.append(number)
            if len(self._matches) >= _MATCHES_MAX:
                self._matches.clear()
            self._matches[key] = (len(self._terms), found)
        return tuple(found)

    def term(self, number: int) -> Term:
        """A term by its number."""
        return self._terms[number]

    def holders(self, number: int) -> Counter:
        """How many pods on each row hold the term."""
        return self._holders[number]

    def tidy(self) -> None:
        """Start anew if too much was asked; between decisions only."""
        if len(self._queries) > _QUERIES_MAX or len(self._terms) > _TERMS_MAX:
            self._restart()

    # --- the snapshot reports ----------------------------------------------------------------

    def set_namespaces(self, namespaces: Namespaces) -> None:
        """The labels of namespaces, now."""
        if namespaces is not self.namespaces:
            changed = namespaces != self.namespaces
            self.namespaces = namespaces
            if changed and self._by_namespace:
                self._restart()

    def change(self, row: int, before: tuple[PodInfo, ...], after: tuple[PodInfo, ...]) -> None:
        """A node's pods changed."""
        had = len(before)
        if len(after) == had + 1 and after[:had] == before:
            self._count(row, after[-1], 1)
            return
        if len(after) == had:
            for old, new in zip(before, after, strict=True):
                if old is not new and not _alike(old, new):
                    self._count(row, old, -1)
                    self._count(row, new, 1)
            return
        stay = {info.uid: info for info in after}
        for old in before:
            now = stay.pop(old.uid, None)
            if now is old or (now is not None and _alike(old, now)):
                continue
            self._count(row, old, -1)
            if now is not None:
                self._count(row, now, 1)
        for info in stay.values():
            self._count(row, info, 1)

    def node_changed(self) -> None:
        """A node object came, changed or went."""
        self.nodes += 1

    # --- inside ------------------------------------------------------------------------------

    def _count(self, row: int, info: PodInfo, amount: int) -> None:
        if self._by_label:
            for label in info.pod.metadata.labels.items():
                for query, counter in self._by_label.get(label, ()):
                    if query.chooses(info, self.namespaces):
                        counter.add(row, amount)
        for query, counter in self._by_rest:
            if query.chooses(info, self.namespaces):
                counter.add(row, amount)
        if info.has_affinity:
            terms = info.terms
            for group in (terms.near, terms.apart, terms.wishes):
                for term in group:
                    self._holder(term).add(row, amount)

    def _holder(self, term: Term) -> Counter:
        number = self._numbers.get(term)
        if number is None:
            number = self._numbers[term] = len(self._terms)
            self._terms.append(term)
            self._holders.append(Counter(self._table.capacity))
            self._note_namespaces((term.selector,))
        return self._holders[number]

    def _note_namespaces(self, selectors: Sequence[PodSelector]) -> None:
        self._by_namespace |= any(item.namespace_labels for item in selectors)

    def _restart(self) -> None:
        self.epoch += 1
        self._by_namespace = False
        self._queries.clear()
        self._by_label.clear()
        self._by_rest.clear()
        self._numbers.clear()
        self._terms.clear()
        self._holders.clear()
        self._matches.clear()
        for name, entry in self._entries.items():
            for info in entry.pods_with_affinity:
                self._count(self._table.rows[name], info, 1)


def _demanded(selectors: Sequence[PodSelector]) -> tuple[str, str] | None:
    for selector in selectors:
        for item in selector.labels or ():
            if item.operator == IN and len(item.values) == 1:
                return item.key, item.values[0]
    return None


def _alike(one: PodInfo, other: PodInfo) -> bool:
    """Whether two versions of a pod count the same everywhere."""
    mine, its = one.pod.metadata, other.pod.metadata
    return (
        mine.labels == its.labels
        and mine.namespace == its.namespace
        and bool(mine.deletion_timestamp) == bool(its.deletion_timestamp)
        and one.terms == other.terms
    )
