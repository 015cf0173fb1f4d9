"""How many pods of a kind are on each node, kept current instead of counted for every decision.

Two questions come up: how many pods on a node does a *query* choose (spread constraints, the terms of
the pod being placed), and how many pods on a node hold a *term* (the terms of pods that are already
placed, which may concern the pod being placed). Each gets a ``Counter``: a number by row and a log
of its changes.

The snapshot reports every change of a node's pods as the tuple before and the tuple after. The
counters are a function of those tuples alone, so they cannot drift: whatever order events come in,
a row's count is that of the tuple last reported for it.

``epoch`` grows when counters are void: after a change of namespaces' labels that any of them depends
on, and when so many queries or terms were seen that the index is emptied. ``nodes`` grows when a
node came or went or has other labels or taints, so that sums over domains have to be computed again.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec
import numpy as np

from grange.api.selectors import IN
from grange.base.bounded import BoundedDict
from grange.placement.columns import Integers, NodeTable
from grange.placement.podaffinity import Namespaces, PodSelector, Term, Terms
from grange.scheduler.changelog import ChangeLog
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.podinfo import LabelSet, PodInfo

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


class Counter(ChangeLog[tuple[int, int]]):
    """A number by row, and a log of its changes: row and amount.

    The numbers are written when they are read, or when the log is trimmed.
    """

    __slots__ = ("_by_row", "_written")

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._by_row: Integers = np.zeros(capacity, np.int64)
        self._written = 0

    def rows(self, size: int) -> Integers:
        """The numbers of the first ``size`` rows."""
        self._write()
        self._reach(size)
        return self._by_row[:size]

    def _trim(self) -> None:
        self._write()
        super()._trim()

    def _write(self) -> None:
        changes, self._written = self.since(self._written), self.position
        if changes:
            rows, amounts = zip(*changes, strict=True)
            self._reach(max(rows) + 1)
            np.add.at(self._by_row, [*rows], amounts)

    def _reach(self, size: int) -> None:
        have = len(self._by_row)
        if have < size:
            extra = np.zeros(max(size, 2 * have) - have, np.int64)
            self._by_row = np.concatenate([self._by_row, extra])


class PodIndex:
    """The counters of one snapshot.

    Attributes:
        counting: a query was asked for.
        known: how many terms about others it has seen, of assigned pods.
        full: so much was asked that it is time to ``restart``.
    """

    def __init__(self, table: NodeTable, entries: Mapping[str, NodeInfo]) -> None:
        self._table = table
        self._entries = entries
        self.namespaces: Namespaces = _NONE
        self.epoch = 0
        self.nodes = 0
        self.counting = False
        self.known = 0
        self.full = False
        self._by_namespace = False
        self._queries: dict[Query, Counter] = {}
        # A query is looked up by one label that it demands, if it demands any.
        self._by_label: dict[tuple[str, str], list[tuple[Query, Counter]]] = {}
        self._by_rest: list[tuple[Query, Counter]] = []
        self._numbers: dict[Term, int] = {}
        self._terms: list[Term] = []
        self._holders: list[Counter] = []
        # By label set: which terms are about it, of how many; which queries choose it while it stays.
        self._matches: BoundedDict[LabelSet, tuple[int, tuple[int, ...]]] = BoundedDict(
            _MATCHES_MAX
        )
        self._chosen_by: BoundedDict[LabelSet, list[Counter]] = BoundedDict(_MATCHES_MAX)
        self._held: BoundedDict[Terms, list[Counter]] = BoundedDict(_MATCHES_MAX)

    # --- asking ------------------------------------------------------------------------------

    def counter(self, query: Query) -> Counter:
        """The pods that a query chooses, by row; counted now if this is the first time.

        Valid until ``epoch`` grows.
        """
        found = self._queries.get(query)
        if found is None:
            found = self._queries[query] = Counter(self._table.capacity)
            self.counting = True
            self.full |= len(self._queries) > _QUERIES_MAX
            self._chosen_by.clear()
            self._note_namespaces(query.selectors)
            label = _demanded(query.selectors)
            where = self._by_rest if label is None else self._by_label.setdefault(label, [])
            where.append((query, found))
            alike: dict[LabelSet, bool] = {}
            for name, entry in self._entries.items():
                chosen = 0
                for info in entry.pods:
                    # One label rules most pods out, without computing their label sets.
                    if label is None or info.pod.metadata.labels.get(label[0]) == label[1]:
                        chosen += self._chosen(query, info, alike)
                if chosen:
                    found.note((self._table.rows[name], chosen))
        return found

    def concerning(self, info: PodInfo) -> tuple[int, ...]:
        """The numbers of those terms of placed pods that are about this pod, in order.

        Terms whose holders have all left may be among them. Valid until ``epoch`` grows.
        """
        known = len(self._terms)
        if not known:
            return ()
        labels = info.label_set()
        seen, found = self._matches.get(labels) or (0, ())
        if seen < known:
            found += tuple(
                number
                for number in range(seen, known)
                if self._terms[number].selector.matches(
                    labels.namespace, labels.labels, self.namespaces
                )
            )
            self._matches[labels] = (known, found)
        return found

    def term(self, number: int) -> Term:
        """A term by its number."""
        return self._terms[number]

    def holders(self, number: int) -> Counter:
        """How many pods on each row hold the term."""
        return self._holders[number]

    # --- the snapshot reports ----------------------------------------------------------------

    def set_namespaces(self, namespaces: Namespaces) -> None:
        """The labels of namespaces, now."""
        if namespaces is not self.namespaces:
            changed = namespaces != self.namespaces
            self.namespaces = namespaces
            if changed and self._by_namespace:
                self.restart()

    def change(self, row: int, before: tuple[PodInfo, ...], after: tuple[PodInfo, ...]) -> None:
        """A node's pods changed."""
        had = len(before)
        if len(after) == had + 1 and after[:had] == before:
            self.count(row, after[-1], 1)
            return
        if len(after) == had:
            for old, new in zip(before, after, strict=True):
                if old is not new and not _alike(old, new):
                    self.count(row, old, -1)
                    self.count(row, new, 1)
            return
        stay = {info.uid: info for info in after}
        for old in before:
            now = stay.pop(old.uid, None)
            if now is old or (now is not None and _alike(old, now)):
                continue
            self.count(row, old, -1)
            if now is not None:
                self.count(row, now, 1)
        for info in stay.values():
            self.count(row, info, 1)

    def count(self, row: int, info: PodInfo, amount: int) -> None:
        """A pod joined those of a row (1), or left them (-1)."""
        if self.counting:
            if info.pod.metadata.deletion_timestamp:
                chosen = self._choosing(info)
            else:
                labels = info.label_set()
                known = self._chosen_by.get(labels)
                if known is None:
                    known = self._chosen_by[labels] = self._choosing(info)
                chosen = known
            for counter in chosen:
                counter.note((row, amount))
        if info.has_affinity:
            terms = info.terms
            for counter in self._held.get(terms) or self._holding(terms):
                counter.note((row, amount))

    # --- inside ------------------------------------------------------------------------------

    def _holding(self, terms: Terms) -> list[Counter]:
        """The counters of a pod's own terms, one for each."""
        held = self._held[terms] = [self._holder(term) for term in terms.all]
        return held

    def _chosen(self, query: Query, info: PodInfo, alike: dict[LabelSet, bool]) -> bool:
        if info.pod.metadata.deletion_timestamp:
            return query.chooses(info, self.namespaces)
        labels = info.label_set()
        known = alike.get(labels)
        if known is None:
            known = alike[labels] = query.chooses(info, self.namespaces)
        return known

    def _choosing(self, info: PodInfo) -> list[Counter]:
        """The counters of the queries that choose the pod."""
        likely = [*self._by_rest]
        for label in info.pod.metadata.labels.items():
            likely += self._by_label.get(label, ())
        return [counter for query, counter in likely if query.chooses(info, self.namespaces)]

    def _holder(self, term: Term) -> Counter:
        number = self._numbers.get(term)
        if number is None:
            number = self._numbers[term] = len(self._terms)
            self._terms.append(term)
            self.known = number + 1
            self.full |= number >= _TERMS_MAX
            self._holders.append(Counter(self._table.capacity))
            self._note_namespaces((term.selector,))
        return self._holders[number]

    def _note_namespaces(self, selectors: Sequence[PodSelector]) -> None:
        self._by_namespace |= any(item.namespace_labels for item in selectors)

    def restart(self) -> None:
        """Count from scratch what is asked for from now on; between decisions only."""
        self.epoch += 1
        self.counting = self.full = False
        self.known = 0
        self._by_namespace = False
        self._queries.clear()
        self._by_label.clear()
        self._by_rest.clear()
        self._numbers.clear()
        self._terms.clear()
        self._holders.clear()
        self._matches.clear()
        self._chosen_by.clear()
        self._held.clear()
        for name, entry in self._entries.items():
            for info in entry.pods_with_affinity:
                self.count(self._table.rows[name], info, 1)


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
