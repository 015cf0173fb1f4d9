"""What every node is worth to pods of one signature, where that depends on other nodes too.

Rules and rankings look at nodes only by their domains, so all rows in the same domains share their
verdicts and the scores of the rankings. Such a group of rows is a *cell*: one for each combination
of zones, say. Keys are arranged by cell, each in blocks of its own, and a decision takes the best
key of each cell that the rules leave open, adds the cell's score, and takes the best of those.

That is exact, as a cell's score is added to all of its keys alike and therefore does not change
which is the largest. Rankings are scaled over the cells that are open and have a feasible row, which
are those that hold the feasible nodes.

Labels with a value for nearly every node (the hostname) make no useful cells. A rule that only asks
whether there are pods in the domain seldom changes its mind, so it bars rows one by one instead.
Everything else about such labels, and classes whose other scores are normalised by a maximum over
the feasible nodes, takes the way over all rows: the same steps, with each row a place of its own.
"""

from collections.abc import Sequence

import numpy as np

from grange.base.errors import InvariantError
from grange.placement import kernels
from grange.placement.columns import Ids, Integers, Mask, NodeTable, Rows
from grange.scheduler.decision import Tally
from grange.scheduler.framework import Points, Profile, Ranking, Rule
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.podclass import BLOCK, EngineStatistics, PodClass
from grange.scheduler.snapshot import TIE_BITS, NodeInfoSnapshot

_CELLS_MAX = 256
# Up to so many blocks a loop is cheaper than a dozen array operations.
_FEW_BLOCKS = 64


class _Rows:
    """Every row is a place."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table

    def domains(self, key: str) -> Ids:
        ids: Ids = self._table.labels(key).ids[self._table.all]
        return ids

    def rows(self) -> Rows:
        return self._table.all


class _Cells:
    """Groups of rows with equal domains."""

    def __init__(self, table: NodeTable, keys: Sequence[str]) -> None:
        rows = np.flatnonzero(table.valid[table.all])
        columns = [table.labels(key).ids[rows] for key in keys]
        stacked = np.stack(columns) if columns else np.zeros((1, len(rows)), np.int32)
        points, of_row = np.unique(stacked, axis=1, return_inverse=True)
        self.count = points.shape[1]
        self._domains = {key: points[at].astype(np.int32) for at, key in enumerate(keys)}
        self.lists: dict[str, list[int]] = {
            key: found.tolist() for key, found in self._domains.items()
        }
        of_row = of_row.reshape(-1)
        sizes = np.bincount(of_row, minlength=self.count)
        blocks = np.maximum(1, -(-sizes // BLOCK))
        self.starts = np.concatenate([[0], np.cumsum(blocks)[:-1]]).astype(np.int64)
        self.blocks = int(blocks.sum())
        ends = np.cumsum(blocks).tolist()
        self.spans: list[tuple[int, int]] = [*zip(self.starts.tolist(), ends, strict=True)]
        order: Integers = np.argsort(of_row, kind="stable")
        rank = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        self.slots: Integers = np.full(table.size, self.blocks * BLOCK, np.int64)
        self.slots[rows[order]] = self.starts[of_row[order]] * BLOCK + rank

    def domains(self, key: str) -> Ids:
        ids: Ids = self._domains[key]
        return ids

    def rows(self) -> Rows:
        raise InvariantError("a cell is no row")


class _Barrier:
    """The rows that one rule keeps out, followed change by change."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._verdicts: Mask = np.zeros(0, np.bool_)
        self._of_domain: dict[int, list[int]] = {}

    def build(self, table: NodeTable) -> Mask:
        """Where it refuses."""
        self.rule.refresh()
        self._verdicts = self.rule.verdicts().copy()
        ids = table.labels(self.rule.key).ids[table.all]
        self._of_domain = {}
        for row in np.flatnonzero(table.valid[table.all]).tolist():
            self._of_domain.setdefault(int(ids[row]), []).append(row)
        return ~self._verdicts[ids]

    def turned(self, changed: Sequence[int]) -> list[tuple[int, int]]:
        """Rows whose verdict turned, each with how much more it is barred."""
        found: list[tuple[int, int]] = []
        for domain in changed:
            opens = self.rule.opens(domain)
            if opens != self._verdicts[domain]:
                self._verdicts[domain] = opens
                more = -1 if opens else 1
                found.extend((row, more) for row in self._of_domain.get(domain, ()))
        return found


class ClusterClass(PodClass):
    """A class with rules or rankings.

    Args:
        profile: the plugins.
        pod: any pod of the class.
        statistics: counts the work.
        rules: what rules nodes out, with the name of the plugin, in the order of their reasons.
        rankings: what ranks them, with weights.
        few_domains: up to so many values of a label, its domains make cells.
    """

    def __init__(
        self,
        profile: Profile,
        pod: PodInfo,
        statistics: EngineStatistics,
        rules: Sequence[tuple[str, Rule]],
        rankings: Sequence[tuple[Ranking, int]],
        *,
        few_domains: int,
    ) -> None:
        super().__init__(profile, pod, statistics)
        self._rules = rules
        self._rankings = rankings
        self._few_domains = few_domains
        self._divided = -1
        self._cells: _Cells | None = None
        self._by_cell: list[Rule] = []
        self._barriers: list[_Barrier] = []

    def best(self, snapshot: NodeInfoSnapshot) -> int:
        """The largest key, -1 when no node is feasible."""
        if self._divided != snapshot.index.nodes:
            self._divided = snapshot.index.nodes
            self._divide(snapshot)
            self._layout = -1  # keys are arranged by cell
        if self._cells is None:
            self._refresh([rule for _, rule in self._rules])
            self._catch_up(snapshot)
            return self._best_row(snapshot)
        self._catch_up(snapshot, self._turned(snapshot))
        self._refresh(self._by_cell)
        if not all(score.flat for score in self._normalised):
            return self._best_row(snapshot)
        return self._best_cell(self._cells)

    def _refresh(self, rules: Sequence[Rule]) -> None:
        for rule in rules:
            if rule.refresh() != []:
                self.rejection = None

    # --- arrangement -------------------------------------------------------------------------

    def _divide(self, snapshot: NodeInfoSnapshot) -> None:
        """Decide what is judged by cell, by row, or all at once."""
        table = snapshot.table
        keys: dict[str, None] = {}
        self._cells, self._by_cell, self._barriers = None, [], []
        self._slots = self._barred = None
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

    def _few(self, table: NodeTable, key: str) -> bool:
        return len(table.labels(key).values) <= self._few_domains

    def _arrange(self, table: NodeTable) -> int:
        if self._cells is None:
            return super()._arrange(table)
        self._slots = self._cells.slots
        return self._cells.blocks + 1  # the last is for rows without a node

    def _turned(self, snapshot: NodeInfoSnapshot) -> list[int]:
        """Follow the rules that bar rows; the rows to look at again."""
        if not self._barriers:
            return []
        table = snapshot.table
        changes = [barrier.rule.refresh() for barrier in self._barriers]
        if self._barred is None or any(item is None for item in changes):
            self._barred = np.zeros(table.capacity, np.int64)
            for barrier in self._barriers:
                self._barred[table.all] += barrier.build(table)
            self._layout = -1
            return []
        rows: list[int] = []
        for barrier, changed in zip(self._barriers, changes, strict=True):
            for row, more in barrier.turned(changed) if changed else ():
                self._barred[row] += more
                rows.append(row)
        return rows

    # --- deciding ----------------------------------------------------------------------------

    def _best_cell(self, cells: _Cells) -> int:
        if cells.blocks <= _FEW_BLOCKS:
            best_keys = self._open_cells(cells)
            if len(best_keys) <= 1 or not self._rankings:
                # Where there is one cell, or nothing to rank them, scores decide nothing.
                return max(best_keys, default=-1)
        best = np.maximum.reduceat(self._maxima[: cells.blocks], cells.starts)
        feasible: Mask = best >= 0
        for rule in self._by_cell:
            feasible &= rule.verdicts()[cells.domains(rule.key)]
        if not feasible.any():
            return -1
        if self._rankings:
            best = best + (self._ranked(cells, feasible) << TIE_BITS)
        return int(best[feasible].max())

    def _open_cells(self, cells: _Cells) -> list[int]:
        """The largest key of each cell that is open and has a feasible row."""
        maxima: list[int] = self._maxima.tolist()
        found = []
        for at, (first, end) in enumerate(cells.spans):
            key = max(maxima[first:end])
            if key < 0:
                continue
            for rule in self._by_cell:
                if not rule.opens(cells.lists[rule.key][at]):
                    break
            else:
                found.append(key)
        return found

    def _best_row(self, snapshot: NodeInfoSnapshot) -> int:
        self._statistics.by_row += 1
        table, points = snapshot.table, _Rows(snapshot.table)
        rows = table.all
        feasible = self._feasible[rows].copy()
        for _, rule in self._rules:
            feasible &= rule.verdicts()[points.domains(rule.key)]
        if not feasible.any():
            return -1
        total = self._worth[rows].copy()
        for score in self._normalised:
            most = 0 if score.flat else int(score.raw[rows].max(initial=0, where=feasible))
            scaled = kernels.normalised(score.raw[rows], most, reverse=score.reverse)
            total += score.weight * scaled
        total += self._ranked(points, feasible)
        keys = (total << TIE_BITS) + snapshot.ties[rows]
        return int(keys[feasible].max())

    def _ranked(self, points: Points, feasible: Mask) -> Integers:
        total: Integers = np.zeros(len(feasible), np.int64)
        for ranking, weight in self._rankings:
            ranking.refresh()
            total += weight * ranking.scores(points, feasible)
        return total

    def _explain(self, snapshot: NodeInfoSnapshot, rows: Integers, tally: Tally) -> Integers:
        rows = super()._explain(snapshot, rows, tally)
        for name, rule in self._rules:
            rule.refresh()
            ids = snapshot.table.labels(rule.key).ids[rows]
            passed = rule.verdicts()[ids]
            refused = ids[~passed]
            if len(refused):
                missing = int(np.count_nonzero(refused < 0))
                for count, without in ((missing, True), (len(refused) - missing, False)):
                    if count:
                        tally.add(name, [(rule.reason(missing=without), count)])
            rows = rows[passed]
        return rows
