"""What every node is worth to pods of one signature, as far as it depends on the node alone.

A class keeps for each row whether its node is feasible and what it is worth, and from these a key:
see ``engine`` for what keys are and why they are exact. What depends on other nodes is added by
``topology_class``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grange.base.bounded import BoundedDict
from grange.placement import kernels
from grange.placement.columns import Ids, Integers, Mask, NodeTable
from grange.placement.loads import Load
from grange.scheduler.diagnosis import Diagnosis, Tally
from grange.scheduler.engine.top_keys import TopKeys
from grange.scheduler.framework import (
    SUCCESS,
    CycleState,
    Filter,
    Normalise,
    Profile,
    Scope,
    Score,
    Status,
)
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import TIE_BITS, NodeInfoSnapshot, merged

# Up to so many rows, and to one in so many, the scalar forms are cheaper than starting from scratch.
_FEW_ROWS = 64
_SHARE = 32
_LOADS_MAX = 10_000


@dataclass(slots=True)
class EngineStatistics:
    """Work counters.

    Attributes:
        decisions: pods decided.
        built: classes computed over all rows.
        patched: rows brought up to date one by one.
        judged: loads judged for a class (as opposed to remembered).
        rescaled: times a maximum moved and all keys of a class were computed again.
        serial: decisions left to the reference.
        by_row: decisions that had to look at every row.
        diagnosed: rejections computed over all rows (as opposed to remembered).
        with_nominated: rows looked at for the pods that are nominated to them.
    """

    decisions: int = 0
    built: int = 0
    patched: int = 0
    judged: int = 0
    rescaled: int = 0
    serial: int = 0
    by_row: int = 0
    diagnosed: int = 0
    with_nominated: int = 0


class _Normalised:
    """One normalised score of a class: raw by row, and the maximum over feasible rows."""

    __slots__ = ("flat", "most", "plugin", "raw", "reverse", "weight")

    def __init__(self, plugin: Score, weight: int, raw: Integers) -> None:
        self.plugin = plugin
        self.weight = weight
        self.reverse = plugin.normalise is Normalise.BY_MAX_REVERSED
        self.raw = raw
        self.most = 0
        self.flat = not raw.any()  # nothing but zeros so far: there is no maximum to follow

    def most_of(self, feasible: Mask) -> int:
        return 0 if self.flat else int(self.raw.max(initial=0, where=feasible))

    def scaled(self, most: int) -> Integers:
        scaled: Integers = kernels.normalised(self.raw, most, reverse=self.reverse)
        return self.weight * scaled

    def one(self, row: int) -> int:
        if self.most == 0:
            return 100 * self.weight if self.reverse else 0
        scaled = 100 * int(self.raw[row]) // self.most
        return self.weight * (100 - scaled if self.reverse else scaled)


class EquivalenceClass:
    """What every row is worth to pods of one signature.

    Attributes:
        pod: any pod of the class.
        each: PreFilter plugins run for each of its pods.
        diagnosis: why no node is feasible, as long as that is current.
    """

    def __init__(self, profile: Profile, pod: PodInfo, statistics: EngineStatistics) -> None:
        self.pod = pod
        self._statistics = statistics
        self._state = CycleState()
        filters = [plugin for _, plugin in profile.filters if plugin.applies(pod)]
        self._by_node: list[Filter] = [item for item in filters if item.scope is Scope.NODE]
        self._by_usage: list[Filter] = [item for item in filters if item.scope is not Scope.NODE]
        scores = [(item, weight) for _, item, weight in profile.scores if item.applies(pod)]
        plain = [pair for pair in scores if pair[0].normalise is Normalise.NONE]
        fixed = (Scope.NODE, Scope.NODES)
        self._plain = [pair for pair in plain if pair[0].scope not in fixed]
        self._fixed = [pair for pair in plain if pair[0].scope in fixed]
        self._scaled = [pair for pair in scores if pair[0].normalise is not Normalise.NONE]
        self._profile = profile
        self._of_nodes = any(item.scope is Scope.NODES for item, _ in scores)
        # Whether what is not fixed by the node is a function of its load.
        self._of_load = all(item.scope is Scope.LOAD for item in self._by_usage) and all(
            item.scope is Scope.LOAD for item, _ in self._plain
        )
        self._judged: BoundedDict[Load, int] = BoundedDict(_LOADS_MAX)
        self._nodes = -1
        self._layout = -1
        self._position = -1
        self._allowed: Mask = np.zeros(0, np.bool_)
        self._feasible: Mask = np.zeros(0, np.bool_)
        self._worth: Integers = np.zeros(0, np.int64)
        self._extra: Integers = np.zeros(0, np.int64)  # what the fixed scores add
        self._normalised: list[_Normalised] = []
        self._flat = True
        self._tops = TopKeys(np.zeros(1, np.int32))
        self._barred: Integers | None = None  # rows where this is not 0 are not feasible
        self.each = False
        self.diagnosis: Diagnosis | None = None

    def best(self, snapshot: NodeInfoSnapshot) -> int:
        """The largest key, -1 when no node is feasible."""
        self._catch_up(snapshot)
        return self._tops.largest()

    def open_rows(self, snapshot: NodeInfoSnapshot) -> Mask:
        """Where the pod may go, by row."""
        self._catch_up(snapshot)
        return self._feasible.copy()

    def allows(self, snapshot: NodeInfoSnapshot, row: int) -> bool:
        """Whether the row's node object lets the pod in."""
        self._catch_up(snapshot)
        return bool(self._allowed[row])

    @property
    def flat(self) -> bool:
        """Whether no score is scaled by what is feasible, as of the last look."""
        return self._flat

    def totals(self, snapshot: NodeInfoSnapshot, feasible: Mask) -> Integers:
        """The score of every row if just these were feasible; anything for the others."""
        total = self._worth.copy()
        for score in self._normalised:
            total += score.scaled(score.most_of(feasible))
        return total

    def diagnose(self, snapshot: NodeInfoSnapshot) -> Diagnosis:
        """Why each node refuses: the first plugin that does, as in the reference."""
        if self.diagnosis is None:
            self._statistics.diagnosed += 1
            tally = Tally()
            rows: Integers = np.flatnonzero(snapshot.table.valid[snapshot.table.all])
            self._explain(snapshot, rows, tally)
            self.diagnosis = tally.diagnosis(snapshot.num_nodes)
        return self.diagnosis

    def diagnose_with_nominated(
        self, snapshot: NodeInfoSnapshot, statuses: Mapping[int, Status]
    ) -> Diagnosis:
        """The same where some rows are refused for what their nominated pods need."""
        self._statistics.diagnosed += 1
        tally = Tally()
        others = snapshot.table.valid[snapshot.table.all].copy()
        others[[*statuses]] = False
        self._explain(snapshot, np.flatnonzero(others), tally)
        for status in statuses.values():
            tally.add(status.plugin, [(reason, 1) for reason in status.reasons])
        return tally.diagnosis(snapshot.num_nodes)

    def _explain(self, snapshot: NodeInfoSnapshot, rows: Integers, tally: Tally) -> Integers:
        """Tally the filters' refusals of these rows; the rows that are left."""
        table = snapshot.table
        for name, plugin in self._profile.filters:
            if not plugin.applies(self.pod) or not len(rows):
                continue
            passed = plugin.filter_rows(self.pod, table, rows)
            refused = rows[~passed]
            if len(refused):
                tally.add(name, plugin.count_reasons(self.pod, table, refused))
            rows = rows[passed]
        return rows

    def _catch_up(self, snapshot: NodeInfoSnapshot, also: Sequence[int] = ()) -> None:
        """Bring the rows that changed up to date, and these too."""
        changes = snapshot.changes
        entries = changes.since(self._position)
        void = self._of_nodes and self._nodes != snapshot.index.nodes
        if self._layout != snapshot.layout or entries is None or void:
            self._build(snapshot)
        elif entries or also:
            rows = merged(entries)
            for row in also:
                rows.setdefault(row, False)
            if len(rows) > _FEW_ROWS + snapshot.table.size // _SHARE:
                self._build(snapshot)
            else:
                self._patch(snapshot, rows)
        self._position = changes.position

    # --- from scratch ------------------------------------------------------------------------

    def _build(self, snapshot: NodeInfoSnapshot) -> None:
        """Compute everything with the vectorised forms."""
        self._statistics.built += 1
        self._layout = snapshot.layout
        self._nodes = snapshot.index.nodes
        for _, before in self._profile.pre_filter:
            before.pre_filter(self._state, self.pod, snapshot)
        pod, table, rows = self.pod, snapshot.table, snapshot.table.all
        self._allowed = table.valid[rows].copy()
        for plugin in self._by_node:
            self._allowed &= plugin.filter_rows(pod, table, rows)
        self._feasible = self._allowed.copy()
        for plugin in self._by_usage:
            self._feasible &= plugin.filter_rows(pod, table, rows)
        if self._barred is not None:
            self._feasible &= self._barred[rows] == 0
        self._extra = self._scores(self._fixed, table)
        self._worth = self._scores(self._plain, table) + self._extra
        self._normalised = [
            _Normalised(plugin, weight, np.array(plugin.score_rows(pod, table, rows), np.int64))
            for plugin, weight in self._scaled
        ]
        self._flat = all(score.flat for score in self._normalised)
        self._tops = TopKeys(self._groups(table))
        self._rekey(snapshot)

    def _groups(self, table: NodeTable) -> Ids:
        """By row, the number of the group of rows whose largest key is asked for: one for all."""
        return np.zeros(table.size, np.int32)

    def _scores(self, scores: list[tuple[Score, int]], table: NodeTable) -> Integers:
        total: Integers = np.zeros(table.size, np.int64)
        for plugin, weight in scores:
            total += weight * plugin.score_rows(self.pod, table, table.all)
        return total

    def _rekey(self, snapshot: NodeInfoSnapshot) -> None:
        """Find the maxima, and compute all keys from what they are made of."""
        self.diagnosis = None
        total = self._worth.copy()
        for score in self._normalised:
            score.most = score.most_of(self._feasible)
            total += score.scaled(score.most)
        keys: Integers = (total << TIE_BITS) + snapshot.ties[snapshot.table.all]
        keys[~self._feasible] = -1
        self._tops.put_all(keys)

    # --- what changed ------------------------------------------------------------------------

    def _judge(self, info: NodeInfo) -> int:
        """What the node's load is worth; -1 where the pod does not fit."""
        judged, pod, state = self._judged, self.pod, self._state
        if self._of_load:
            known = judged.get(info.load)
            if known is not None:
                return known
        self._statistics.judged += 1
        worth = -1
        if _passes(self._by_usage, state, pod, info):
            worth = sum(weight * plugin.score(state, pod, info) for plugin, weight in self._plain)
        if self._of_load:
            judged[info.load] = worth
        return worth

    def _patch(self, snapshot: NodeInfoSnapshot, rows: Mapping[int, bool]) -> None:
        """One row after another, with the scalar forms."""
        self._statistics.patched += len(rows)
        self.diagnosis = None
        moved = False
        for row, node_changed in rows.items():
            moved |= self._patch_row(row, snapshot.by_row[row], node_changed=node_changed)
        if moved:
            self._statistics.rescaled += 1
            self._rekey(snapshot)
            return
        for row in rows:
            key = -1
            if self._feasible[row]:
                total = int(self._worth[row])
                for score in self._normalised:
                    total += score.one(row)
                key = (total << TIE_BITS) + snapshot.tie[row]
            self._tops.put(row, key)

    def _patch_row(self, row: int, info: NodeInfo, *, node_changed: bool) -> bool:
        """Bring verdict and scores up to date; True if a maximum may have moved."""
        pod, state = self.pod, self._state
        was_feasible = bool(self._feasible[row])
        if node_changed:
            self._allowed[row] = _passes(self._by_node, state, pod, info)
            self._extra[row] = sum(
                weight * plugin.score(state, pod, info) for plugin, weight in self._fixed
            )
        worth = self._judge(info) if self._allowed[row] else -1
        if self._barred is not None and self._barred[row]:
            worth = -1
        self._feasible[row] = feasible = worth >= 0
        if feasible:
            self._worth[row] = worth + int(self._extra[row])
        moved = False
        for score in self._normalised:
            before = raw = int(score.raw[row])
            if node_changed or score.plugin.scope is not Scope.NODE:
                raw = score.plugin.score(state, pod, info)
                score.raw[row] = raw
                if raw and score.flat:
                    score.flat = self._flat = False
            now = raw if feasible else 0
            then = before if was_feasible else 0
            moved |= now != then and (now > score.most or then == score.most)
        return moved


def _passes(filters: list[Filter], state: CycleState, pod: PodInfo, info: NodeInfo) -> bool:
    for plugin in filters:
        status = plugin.filter(state, pod, info)
        if status is not SUCCESS and not status.ok:
            return False
    return True
