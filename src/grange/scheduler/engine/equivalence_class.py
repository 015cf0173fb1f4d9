"""What every node is worth to pods of one signature, as far as it depends on the node alone.

A class keeps for each row whether its node is feasible and what it is worth, and from these a key:
see ``engine`` for what keys are and why they are exact. What depends on other nodes is added by
``topology_class``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grange.base.bounded import BoundedDict
from grange.placement import kernels, resource_fit
from grange.placement.columns import Integers, Mask, NodeTable
from grange.placement.loads import Load
from grange.placement.resource_fit import MAX_SCORE, N
from grange.scheduler.diagnosis import Diagnosis, Tally
from grange.scheduler.engine.largest_keys import Blocks, LargestKeys, one_cell
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
from grange.scheduler.snapshot import TIE_BITS, NodeInfoSnapshot

_LOADS_MAX = 10_000
# Above so many rows and this share of all, the vectorised forms over all rows are cheaper than the scalar
# forms on each that changed, of which most have a load that was judged before.
_FEW_ROWS = 64
_MANY_ROWS = 0.03


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
    """One normalised score of a class: raw by row, and the maximum over feasible rows.

    Attributes:
        value: the raw scores, for single elements.
        by_node: whether they change with the node object only.
        nought: what a raw score of 0 comes to.
    """

    __slots__ = ("by_node", "most", "nought", "plugin", "raw", "reverse", "value", "weight")

    def __init__(self, plugin: Score, weight: int, raw: Integers) -> None:
        self.plugin = plugin
        self.weight = weight
        self.reverse = plugin.normalise is Normalise.BY_MAX_REVERSED
        self.by_node = plugin.scope is Scope.NODE
        self.nought = self.weight * MAX_SCORE if self.reverse else 0
        self.raw = raw
        self.value = raw.data
        self.most = 0

    def scaled(self, raw: N, most: int) -> N:
        return self.weight * resource_fit.normalised(raw, most, reverse=self.reverse)


class EquivalenceClass:
    """What every row is worth to pods of one signature.

    Attributes:
        each: PreFilter plugins run for each of its pods.
        diagnosis: why no node is feasible, as long as that is current.
    """

    def __init__(self, profile: Profile, pod: PodInfo, statistics: EngineStatistics) -> None:
        self.pod = pod
        self._statistics = statistics
        self._state = CycleState()
        filters = [plugin for _, plugin in profile.filters if plugin.applies(pod)]
        self._by_node: list[Filter] = [item for item in filters if item.scope is Scope.NODE]
        self._by_load: list[Filter] = [item for item in filters if item.scope is Scope.LOAD]
        scores = [(item, weight) for _, item, weight in profile.scores if item.applies(pod)]
        plain = [pair for pair in scores if pair[0].normalise is Normalise.NONE]
        self._plain = [pair for pair in plain if pair[0].scope is Scope.LOAD]
        self._fixed = [pair for pair in plain if pair[0].scope is not Scope.LOAD]
        self._scaled = [pair for pair in scores if pair[0].normalise is not Normalise.NONE]
        self._profile = profile
        self._of_nodes = any(item.scope is Scope.NODES for item, _ in scores)
        self._judged: BoundedDict[Load, int] = BoundedDict(_LOADS_MAX)
        self._nodes = -1
        self._layout = -1
        self._position = -1
        self._allowed: Mask = np.zeros(0, np.bool_)
        self._feasible: Mask = np.zeros(0, np.bool_)
        self._worth: Integers = np.zeros(0, np.int64)
        self._elements = self._allowed.data, self._feasible.data, self._worth.data
        self._extra: Integers | None = None  # what the fixed scores add
        self._normalised: list[_Normalised] = []
        self._flat = True
        self._largest = LargestKeys(np.zeros(0, np.int64), one_cell(0))
        self._barred: Integers | None = None  # rows where this is not 0 are not feasible
        self.each = False
        self.diagnosis: Diagnosis | None = None

    def best(self, snapshot: NodeInfoSnapshot) -> int:
        """The largest key, -1 when no node is feasible."""
        self._catch_up(snapshot)
        return self._largest.best()

    def open_rows(self, snapshot: NodeInfoSnapshot) -> Mask:
        """Where the pod may go, by row."""
        self._catch_up(snapshot)
        return self._open_now(snapshot)

    def _open_now(self, snapshot: NodeInfoSnapshot) -> Mask:
        return self._feasible[snapshot.table.all].copy()

    def allows(self, snapshot: NodeInfoSnapshot, row: int) -> bool:
        """Whether the row's node object lets the pod in."""
        self._catch_up(snapshot)
        return bool(self._allowed[row])

    @property
    def flat(self) -> bool:
        """Whether scores that are scaled by what is feasible are equal there, as of the last look."""
        return self._flat

    def totals(self, snapshot: NodeInfoSnapshot, feasible: Mask) -> Integers:
        """The score of every row if just these of the feasible ones were; anything for the others."""
        rows = snapshot.table.all
        total = self._worth[rows].copy()
        for score in self._normalised:
            most = kernels.most(score.raw[rows], feasible) if score.most else 0
            total += score.scaled(score.raw[rows], most) if most else score.nought
        return total

    def best_of(self, snapshot: NodeInfoSnapshot, feasible: Mask) -> int:
        """The largest key if just these of the feasible rows were, at least one."""
        keys = (self.totals(snapshot, feasible) << TIE_BITS) + snapshot.ties[snapshot.table.all]
        return kernels.most(keys, feasible)

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
        filters = [pair for pair in self._profile.filters if pair[1].applies(self.pod)]
        return tally.add_refusals(filters, self.pod, snapshot.table, rows)

    def _catch_up(self, snapshot: NodeInfoSnapshot, also: Sequence[int] = ()) -> None:
        """Bring the rows that changed up to date, and these too."""
        changes, entries = snapshot.changes, None
        if self._layout == snapshot.layout and not (
            self._of_nodes and self._nodes != snapshot.node_version
        ):
            entries = changes.since(self._position)
        self._position = changes.position
        if entries is None:
            self._build(snapshot)
            return
        rows = dict.fromkeys(also, 0)  # by row: whether its node object changed
        for entry in entries:
            rows[entry >> 1] = rows.get(entry >> 1, 0) | entry & 1
        if len(rows) > _MANY_ROWS * snapshot.table.size + _FEW_ROWS:
            self._build(snapshot)
        elif rows:
            self._patch(snapshot, rows)

    # --- from scratch ------------------------------------------------------------------------

    def _build(self, snapshot: NodeInfoSnapshot) -> None:
        self._statistics.built += 1
        self._layout = snapshot.layout
        self._nodes = snapshot.node_version
        for _, before in self._profile.pre_filter:
            before.pre_filter(self._state, self.pod, snapshot)
        pod, table = self.pod, snapshot.table
        rows = table.all
        allowed = table.valid[rows].copy()
        for plugin in self._by_node:
            allowed &= plugin.filter_rows(pod, table, rows)
        feasible = allowed.copy()
        for plugin in self._by_load:
            feasible &= plugin.filter_rows(pod, table, rows)
        if self._barred is not None:
            feasible &= self._barred[rows] == 0
        self._allowed, self._feasible = allowed, feasible
        self._worth = self._scores(self._plain, table)
        self._extra = None
        if self._fixed:
            self._extra = self._scores(self._fixed, table)
            self._worth += self._extra
        # Single elements of an array take three times as long as those of a view.
        self._elements = self._allowed.data, self._feasible.data, self._worth.data
        # Copied, because rows that change are written to them.
        self._normalised = [
            _Normalised(plugin, weight, np.array(plugin.score_rows(pod, table, rows), np.int64))
            for plugin, weight in self._scaled
        ]
        self.diagnosis = None
        self._find_maxima()
        self._rekey(snapshot)

    def _scores(self, scores: list[tuple[Score, int]], table: NodeTable) -> Integers:
        total: Integers = np.zeros(table.size, np.int64)
        for plugin, weight in scores:
            total += weight * plugin.score_rows(self.pod, table, table.all)
        return total

    def _find_maxima(self) -> None:
        for score in self._normalised:
            score.most = kernels.most(score.raw, self._feasible)
        self._flat = not any(score.most for score in self._normalised)

    def _rekey(self, snapshot: NodeInfoSnapshot) -> None:
        """Compute all keys from what they are made of."""
        total = self._worth.copy()
        for score in self._normalised:
            total += score.scaled(score.raw, score.most) if score.most else score.nought
        keys: Integers = (total << TIE_BITS) + snapshot.ties[snapshot.table.all]
        keys[~self._feasible] = -1
        self._largest = LargestKeys(keys, self._blocks(snapshot))

    def _blocks(self, snapshot: NodeInfoSnapshot) -> Blocks:
        return one_cell(snapshot.table.size)

    # --- what changed ------------------------------------------------------------------------

    def _judge(self, info: NodeInfo) -> int:
        """What the node's load is worth; -1 where the pod does not fit."""
        self._statistics.judged += 1
        pod, state, worth = self.pod, self._state, -1
        if _passes(self._by_load, state, pod, info):
            worth = sum(weight * plugin.score(state, pod, info) for plugin, weight in self._plain)
        self._judged[info.load] = worth
        return worth

    def _patch(self, snapshot: NodeInfoSnapshot, rows: dict[int, int]) -> None:
        """One row after another, with the scalar forms."""
        self._statistics.patched += len(rows)
        self.diagnosis = None
        allowed, feasible, worth = self._elements
        barred = None if self._barred is None else self._barred.data
        extra = None if self._extra is None else self._extra.data
        tie, by_row = snapshot.tie, snapshot.by_row
        judged, change = self._judged, self._largest.change
        normalised, maxima_moved = self._normalised, False
        for row, node_changed in rows.items():
            info = by_row[row]
            if node_changed:
                self._renew(row, info)
            total = -1
            if allowed[row] and (barred is None or not barred[row]):
                known = judged.get(info.load)
                total = self._judge(info) if known is None else known
            was_feasible, fits = feasible[row], total >= 0
            feasible[row] = fits
            if fits:
                if extra is not None:
                    total += extra[row]
                worth[row] = total
            for score in normalised:
                before = raw = score.value[row]
                if not (raw or score.most or node_changed) and score.by_node:
                    total += score.nought  # as a rule: no node has anything to be compared by
                    continue
                if node_changed or not score.by_node:
                    raw = score.value[row] = score.plugin.score(self._state, self.pod, info)
                then, now = before if was_feasible else 0, raw if fits else 0
                maxima_moved |= now != then and (now > score.most or then == score.most)
                total += score.scaled(raw, score.most)
            key = (total << TIE_BITS) + tie[row] if fits else -1
            change(row, key)
        if maxima_moved:
            self._statistics.rescaled += 1
            self._find_maxima()
            self._rekey(snapshot)

    def _renew(self, row: int, info: NodeInfo) -> None:
        """Bring what depends on the node object alone up to date."""
        pod, state = self.pod, self._state
        self._allowed[row] = _passes(self._by_node, state, pod, info)
        if self._extra is not None:
            self._extra[row] = sum(
                weight * plugin.score(state, pod, info) for plugin, weight in self._fixed
            )


def _passes(filters: list[Filter], state: CycleState, pod: PodInfo, info: NodeInfo) -> bool:
    for plugin in filters:
        status = plugin.filter(state, pod, info)
        if status is not SUCCESS and not status.ok:
            return False
    return True
