"""What every node is worth to pods of one signature, where that depends on other nodes too.

Rules and rankings look at nodes only by their domains, so all rows in the same domains share their
verdicts and the scores of the rankings. Such a group of rows is a *cell*: one for each combination
of zones, for example. A decision takes the best key of each cell that the rules leave open, adds the cell's
score, which all of its keys share, and takes the best of those.

Labels with a value for nearly every node (the hostname) make no useful cells. A rule that only asks
whether there are pods in the domain seldom changes its verdict, so it bars rows one by one instead.
Everything else about such labels, and classes whose other scores are normalised by a maximum over
the feasible nodes, takes the way over all rows: the same steps, with each row a separate place.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from grange.placement import kernels
from grange.placement.columns import Ids, Integers, Mask, NodeTable
from grange.scheduler.diagnosis import Tally
from grange.scheduler.domains import DomainRule
from grange.scheduler.engine.equivalence_class import EngineStatistics, EquivalenceClass
from grange.scheduler.engine.largest_keys import Blocks
from grange.scheduler.framework import DomainScore, DomainsOf, Profile
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import TIE_BITS, NodeInfoSnapshot

_CELLS_MAX = 256
# Up to so many cells a loop is cheaper than a dozen array operations: for three zones, twice as fast.
_FEW_CELLS = 16


class _Cells:
    """Groups of rows with equal domains."""

    def __init__(self, table: NodeTable, keys: Sequence[str]) -> None:
        rows = np.flatnonzero(table.valid[table.all])
        columns = {key: table.labels(key).ids[rows] for key in keys}
        # One number for each combination; few values a key keep it small.
        code: Integers = np.zeros(len(rows), np.int64)
        for key, ids in columns.items():
            code = code * (len(table.labels(key).values) + 1) + ids + 1
            code = np.unique(code, return_inverse=True)[1]
        first, of_row = np.unique(code, return_index=True, return_inverse=True)[1:]
        self.count = len(first)
        self.domains: dict[str, Ids] = {key: ids[first] for key, ids in columns.items()}
        self.lists = {key: found.tolist() for key, found in self.domains.items()}
        cells: Ids = np.full(table.size, self.count, np.int32)
        cells[rows] = of_row
        self.blocks = Blocks.of(cells, self.count)


class _Barrier:
    """The rows that one rule keeps out, followed change by change."""

    def __init__(self, rule: DomainRule) -> None:
        self.rule = rule
        self._verdicts: Mask = np.zeros(0, np.bool_)
        self._verdict = self._verdicts.data
        # Rows sorted by domain.
        self._rows = np.zeros(0, np.int64).data
        self._starts = np.zeros(1, np.int64).data

    def build(self, table: NodeTable) -> Mask:
        """Where it refuses."""
        self.rule.refresh()
        self._verdicts = self.rule.verdicts().copy()
        self._verdict = self._verdicts.data
        ids = table.domains(self.rule.key)
        rows = np.flatnonzero(table.valid[table.all] & (ids >= 0))
        rows = rows[np.argsort(ids[rows], kind="stable")]
        self._rows = rows.data
        self._starts = np.searchsorted(ids[rows], np.arange(len(self._verdicts))).data
        return ~self._verdicts[ids]

    def follow(self, barred: memoryview, rows: list[int]) -> bool:
        """Bar the rows whose verdict changed, and collect them; False to build it again."""
        rule = self.rule
        changed = rule.refresh()
        if changed is None:
            return False
        verdict, starts = self._verdict, self._starts
        for domain in changed:
            opens = rule.opens(domain)
            if opens != verdict[domain]:
                verdict[domain] = opens
                more = -1 if opens else 1
                for row in self._rows[starts[domain] : starts[domain + 1]]:
                    barred[row] += more
                    rows.append(row)
        return True


class TopologyClass(EquivalenceClass):
    """A class with rules or rankings.

    Args:
        rules: what rules nodes out, with the name of the plugin, in the order of their reasons.
        few_domains: up to so many values of a label, its domains make cells.
    """

    def __init__(
        self,
        profile: Profile,
        pod: PodInfo,
        statistics: EngineStatistics,
        rules: Sequence[tuple[str, DomainRule]],
        rankings: Sequence[tuple[DomainScore, int]],
        *,
        few_domains: int,
    ) -> None:
        super().__init__(profile, pod, statistics)
        self._rules = rules
        self._rankings = rankings
        self._few_domains = few_domains
        self._divided = -1
        self._cells: _Cells | None = None
        self._by_cell: list[DomainRule] = []
        self._barriers: list[_Barrier] = []
        self._checks: list[tuple[Callable[[int], bool], list[int]]] = []

    def best(self, snapshot: NodeInfoSnapshot) -> int:
        """The largest key, -1 when no node is feasible."""
        self._follow(snapshot)
        if self._cells is None or not self._flat:
            return self._best_row(snapshot)
        return self._best_cell(self._cells)

    def _follow(self, snapshot: NodeInfoSnapshot) -> None:
        """Bring rows and rules up to date."""
        if self._divided != snapshot.index.nodes:
            self._divided = snapshot.index.nodes
            self._divide(snapshot)
            self._layout = -1  # blocks are by cell
        if self._cells is None:
            self._refresh([rule for _, rule in self._rules])
            self._catch_up(snapshot)
            return
        self._catch_up(snapshot, self._turned(snapshot) if self._barriers else ())
        self._refresh(self._by_cell)

    def _refresh(self, rules: Sequence[DomainRule]) -> None:
        for rule in rules:
            changed = rule.refresh()
            if changed is None or changed:
                self.diagnosis = None

    # --- arrangement -------------------------------------------------------------------------

    def _divide(self, snapshot: NodeInfoSnapshot) -> None:
        """Decide what is judged by cell, by row, or all at once."""
        table = snapshot.table
        keys: dict[str, None] = {}
        self._cells, self._by_cell, self._barriers = None, [], []
        self._barred = None
        for _, rule in self._rules:
            if self._few(table, rule.key):
                keys[rule.key] = None
                self._by_cell.append(rule)
            elif rule.by_count:
                self._barriers.append(_Barrier(rule))
            else:
                return
        for ranking, _ in self._rankings:
            if ranking.by_row or not all(self._few(table, key) for key in ranking.keys):
                return
            keys.update(dict.fromkeys(ranking.keys))
        cells = _Cells(table, [*keys])
        if cells.count <= _CELLS_MAX:
            self._cells = cells
            self._checks = [(rule.opens, cells.lists[rule.key]) for rule in self._by_cell]

    def _few(self, table: NodeTable, key: str) -> bool:
        return len(table.labels(key).values) <= self._few_domains

    def _blocks(self, snapshot: NodeInfoSnapshot) -> Blocks:
        return super()._blocks(snapshot) if self._cells is None else self._cells.blocks

    def _turned(self, snapshot: NodeInfoSnapshot) -> list[int]:
        """Follow the rules that bar rows; the rows to look at again."""
        if self._barred is None:
            return self._bar(snapshot)
        rows: list[int] = []
        barred = self._barred.data
        for barrier in self._barriers:
            if not barrier.follow(barred, rows):
                return self._bar(snapshot)
        return rows

    def _bar(self, snapshot: NodeInfoSnapshot) -> list[int]:
        """Find the barred rows from scratch."""
        table = snapshot.table
        self._barred = np.zeros(table.capacity, np.int64)
        for barrier in self._barriers:
            self._barred[table.all] += barrier.build(table)
        self._layout = -1
        return []

    # --- deciding ----------------------------------------------------------------------------

    def _best_cell(self, cells: _Cells) -> int:
        tops = self._largest.by_cell()
        if cells.count <= _FEW_CELLS:
            found = self._open_cells(tops)
            if len(found) <= 1 or not self._rankings:
                # Where there is one cell, or nothing to rank them, scores decide nothing.
                return max(found, default=-1)
        best = np.array(tops, np.int64)
        feasible: Mask = best >= 0
        for rule in self._by_cell:
            feasible &= rule.verdicts()[cells.domains[rule.key]]
        if not feasible.any():
            return -1
        if self._rankings:
            best = best + (self._ranked(cells.domains.__getitem__, feasible) << TIE_BITS)
        return kernels.most(best, feasible)

    def _open_cells(self, tops: list[int]) -> list[int]:
        """The largest key of each cell that is open and has a feasible row."""
        found: Iterable[int] = range(len(tops))
        for opens, domains in self._checks:
            found = [at for at in found if opens(domains[at])]
        return [tops[at] for at in found if tops[at] >= 0]

    def _best_row(self, snapshot: NodeInfoSnapshot) -> int:
        self._statistics.by_row += 1
        feasible = self._opened(snapshot)
        return self.best_of(snapshot, feasible) if feasible.any() else -1

    def _opened(self, snapshot: NodeInfoSnapshot) -> Mask:
        feasible = self._open_now(snapshot)
        for _, rule in self._rules:
            feasible &= rule.verdicts()[snapshot.table.domains(rule.key)]
        return feasible

    def open_rows(self, snapshot: NodeInfoSnapshot) -> Mask:
        """Where the pod may go, by row."""
        self._follow(snapshot)
        return self._opened(snapshot)

    def totals(self, snapshot: NodeInfoSnapshot, feasible: Mask) -> Integers:
        """The score of every row if just these were feasible; anything for the others."""
        total = super().totals(snapshot, feasible)
        total += self._ranked(snapshot.table.domains, feasible)
        return total

    def _ranked(self, domains: DomainsOf, feasible: Mask) -> Integers:
        total: Integers = np.zeros(len(feasible), np.int64)
        for ranking, weight in self._rankings:
            ranking.refresh()
            total += weight * ranking.scores(domains, feasible)
        return total

    def _explain(self, snapshot: NodeInfoSnapshot, rows: Integers, tally: Tally) -> Integers:
        rows = super()._explain(snapshot, rows, tally)
        for name, rule in self._rules:
            rule.refresh()
            ids = snapshot.table.labels(rule.key).ids[rows]
            passed = rule.verdicts()[ids]
            refused = ids[~passed]
            if len(refused):
                tally.add(name, rule.count_reasons(refused))
            rows = rows[passed]
        return rows
