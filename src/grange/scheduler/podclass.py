"""What every node is worth to pods of one signature, as far as a node alone can tell.

A class keeps for each row whether its node is feasible and what it is worth, and from these a key:
see ``engine`` for what keys are and why they are exact. What depends on other nodes is added by
``clusterclass``.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from grange.placement import kernels
from grange.placement.columns import Integers, Mask, NodeTable, Rows
from grange.scheduler.decision import Rejection, Tally
from grange.scheduler.framework import (
    SUCCESS,
    CycleState,
    Filter,
    Normalise,
    Profile,
    Scope,
    Score,
)
from grange.scheduler.nodeinfo import NodeInfo, PodInfo
from grange.scheduler.snapshot import TIE_BITS, NodeInfoSnapshot

BLOCK = 256
# Up to so many rows the scalar forms are cheaper than some forty small array operations.
_FEW_ROWS = 16
# Above this share of all rows, starting anew is cheaper than patching.
_MANY_ROWS = 0.25


@dataclass(slots=True)
class EngineStatistics:
    """Work counters.

    Attributes:
        decisions: pods decided.
        built: classes computed over all rows.
        patched: rows brought up to date one by one or in small arrays.
        rescaled: times a maximum moved and all keys of a class were computed again.
        serial: decisions left to the reference.
        by_row: decisions that had to look at every row.
        diagnosed: rejections computed (as opposed to remembered).
    """

    decisions: int = 0
    built: int = 0
    patched: int = 0
    rescaled: int = 0
    serial: int = 0
    by_row: int = 0
    diagnosed: int = 0


class _Normalised:
    """One normalised score of a class: raw by row, and the maximum over feasible rows."""

    __slots__ = ("flat", "most", "plugin", "raw", "reverse", "weight")

    def __init__(self, plugin: Score, weight: int, raw: Integers) -> None:
        self.plugin = plugin
        self.weight = weight
        self.reverse = plugin.normalise is Normalise.BY_MAX_REVERSED
        self.raw = raw
        self.most = 0
        self.flat = not raw.any()  # nothing but zeros: there is no maximum to follow

    def one(self, row: int) -> int:
        if self.most == 0:
            return 100 * self.weight if self.reverse else 0
        scaled = 100 * int(self.raw[row]) // self.most
        return self.weight * (100 - scaled if self.reverse else scaled)


class PodClass:
    """What every row is worth to pods of one signature.

    Args:
        profile: the plugins.
        pod: any pod of the class.
        statistics: counts the work.

    Attributes:
        pod: that pod.
        rejection: why no node would do, while that is known.
    """

    def __init__(self, profile: Profile, pod: PodInfo, statistics: EngineStatistics) -> None:
        self.pod = pod
        self._statistics = statistics
        self._state = CycleState()
        filters = [plugin for _, plugin in profile.filters if plugin.applies(pod)]
        self._by_node: list[Filter] = [item for item in filters if item.scope is Scope.NODE]
        self._by_usage: list[Filter] = [item for item in filters if item.scope is Scope.USAGE]
        scores = [(item, weight) for _, item, weight in profile.scores if item.applies(pod)]
        self._plain = [pair for pair in scores if pair[0].normalise is Normalise.NONE]
        self._scaled = [pair for pair in scores if pair[0].normalise is not Normalise.NONE]
        self._profile = profile
        self._of_nodes = any(item.scope is Scope.NODES for item, _ in scores)
        self._nodes = -1
        self._layout = -1
        self._position = -1
        self._allowed: Mask = np.zeros(0, np.bool_)
        self._feasible: Mask = np.zeros(0, np.bool_)
        self._worth: Integers = np.zeros(0, np.int64)
        self._normalised: list[_Normalised] = []
        self._keys: Integers = np.zeros(0, np.int64)
        self._blocks: Integers = np.zeros((0, BLOCK), np.int64)
        self._maxima: Integers = np.zeros(0, np.int64)
        self._slots: Integers | None = None  # where each row's key is; None: at the row itself
        self._barred: Integers | None = None  # rows where this is not 0 are not feasible
        self.rejection: Rejection | None = None

    def best(self, snapshot: NodeInfoSnapshot) -> int:
        """The largest key, -1 when no node is feasible."""
        self._catch_up(snapshot)
        return int(self._maxima.max())

    def diagnose(self, snapshot: NodeInfoSnapshot) -> Rejection:
        """Why each node refuses: the first plugin that does, as in the reference."""
        if self.rejection is None:
            self._statistics.diagnosed += 1
            tally = Tally()
            rows: Integers = np.flatnonzero(snapshot.table.valid[snapshot.table.all])
            self._explain(snapshot, rows, tally)
            self.rejection = tally.rejection(snapshot.num_nodes)
        return self.rejection

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

    def _catch_up(self, snapshot: NodeInfoSnapshot, also: Iterable[int] = ()) -> None:
        """Bring the rows that changed up to date, and these too."""
        changes = snapshot.changes
        if self._layout != snapshot.layout or (
            self._of_nodes and self._nodes != snapshot.index.nodes
        ):
            self._build(snapshot)
        elif self._position != changes.position or also:
            rows = changes.since(self._position)
            if rows is not None:
                for row in also:
                    rows.setdefault(row, False)
            if rows is None or len(rows) > _MANY_ROWS * snapshot.table.size + _FEW_ROWS:
                self._build(snapshot)
            elif len(rows) <= _FEW_ROWS:
                self._patch_few(snapshot, rows)
            elif rows:
                self._patch_many(snapshot, rows)
        self._position = changes.position

    # --- from scratch ------------------------------------------------------------------------

    def _build(self, snapshot: NodeInfoSnapshot) -> None:
        self._statistics.built += 1
        self._layout = snapshot.layout
        self._nodes = snapshot.index.nodes
        for _, before in self._profile.pre_filter:
            before.pre_filter(self._state, self.pod, snapshot)
        self.rejection = None
        table, pod, rows = snapshot.table, self.pod, snapshot.table.all
        self._allowed = table.valid[rows].copy()
        for plugin in self._by_node:
            self._allowed &= plugin.filter_rows(pod, table, rows)
        self._feasible = self._usable(table, rows, self._allowed)
        self._worth = self._plain_scores(table, rows)
        self._normalised = [
            _Normalised(plugin, weight, plugin.score_rows(pod, table, rows))
            for plugin, weight in self._scaled
        ]
        self._keys = np.full(self._arrange(table) * BLOCK, -1, np.int64)
        self._blocks = self._keys.reshape(-1, BLOCK)
        self._find_maxima()
        self._rekey(snapshot)

    def _arrange(self, table: NodeTable) -> int:
        """Decide where keys are kept; how many blocks that takes."""
        return -(-max(1, table.size) // BLOCK)

    def _usable(self, table: NodeTable, rows: Rows, allowed: Mask) -> Mask:
        mask = allowed.copy()
        for plugin in self._by_usage:
            mask &= plugin.filter_rows(self.pod, table, rows)
        if self._barred is not None:
            mask &= self._barred[rows] == 0
        return mask

    def _plain_scores(self, table: NodeTable, rows: Rows) -> Integers:
        total: Integers = np.zeros(kernels.count(table, rows), np.int64)
        for plugin, weight in self._plain:
            total += weight * plugin.score_rows(self.pod, table, rows)
        return total

    def _find_maxima(self) -> bool:
        """Find the maxima anew; True if any moved."""
        moved = False
        for score in self._normalised:
            if score.flat:
                continue
            most = int(score.raw.max(initial=0, where=self._feasible))
            moved |= most != score.most
            score.most = most
        return moved

    def _rekey(self, snapshot: NodeInfoSnapshot, rows: Rows | None = None) -> None:
        """Compute keys from what they are made of: of these rows, or of all."""
        rows = snapshot.table.all if rows is None else rows
        total = self._worth[rows].copy()
        for score in self._normalised:
            scaled = kernels.normalised(score.raw[rows], score.most, reverse=score.reverse)
            total += score.weight * scaled
        keys = (total << TIE_BITS) + snapshot.ties[rows]
        keys[~self._feasible[rows]] = -1
        self._keys[rows if self._slots is None else self._slots[rows]] = keys
        self._maxima = self._blocks.max(axis=1)

    # --- what changed ------------------------------------------------------------------------

    def _patch_few(self, snapshot: NodeInfoSnapshot, rows: dict[int, bool]) -> None:
        """One row after another, with the scalar forms."""
        self._statistics.patched += len(rows)
        moved = False
        for row, node_changed in rows.items():
            info = snapshot.node_info_map[snapshot.table.names[row]]
            moved |= self._patch_row(row, info, node_changed=node_changed)
        if rows:
            self.rejection = None
        if moved:
            self._statistics.rescaled += 1
            self._find_maxima()
            self._rekey(snapshot)
            return
        for row in rows:
            self._set_key(row, snapshot)

    def _set_key(self, row: int, snapshot: NodeInfoSnapshot) -> None:
        if self._feasible[row]:
            total = int(self._worth[row])
            for score in self._normalised:
                total += score.one(row)
            key = (total << TIE_BITS) + int(snapshot.ties[row])
        else:
            key = -1
        slot = row if self._slots is None else int(self._slots[row])
        block = slot // BLOCK
        before = self._keys[slot]
        self._keys[slot] = key
        if key >= self._maxima[block]:
            self._maxima[block] = key
        elif before == self._maxima[block]:
            # Only when its largest key shrinks does a block have to be searched.
            self._maxima[block] = self._blocks[block].max()

    def _patch_row(self, row: int, info: NodeInfo, *, node_changed: bool) -> bool:
        """Bring verdict and scores up to date; True if a maximum may have moved."""
        pod, state = self.pod, self._state
        was_feasible = bool(self._feasible[row])
        if node_changed:
            self._allowed[row] = _passes(self._by_node, state, pod, info)
        feasible = bool(self._allowed[row]) and _passes(self._by_usage, state, pod, info)
        if self._barred is not None and self._barred[row]:
            feasible = False
        self._feasible[row] = feasible
        if feasible:
            worth = 0
            for plugin, weight in self._plain:
                worth += weight * plugin.score(state, pod, info)
            self._worth[row] = worth
        moved = False
        for score in self._normalised:
            before = raw = int(score.raw[row])
            if node_changed or score.plugin.scope is not Scope.NODE:
                raw = score.plugin.score(state, pod, info)
                score.raw[row] = raw
                score.flat = score.flat and raw == 0
            now = raw if feasible else 0
            then = before if was_feasible else 0
            moved |= now != then and (now > score.most or then == score.most)
        return moved

    def _patch_many(self, snapshot: NodeInfoSnapshot, changed: dict[int, bool]) -> None:
        """All of them at once, with the vectorised forms."""
        self._statistics.patched += len(changed)
        self.rejection = None
        table, pod = snapshot.table, self.pod
        rows = np.fromiter(changed, np.int64, len(changed))
        anew = np.fromiter((row for row, node in changed.items() if node), np.int64)
        if len(anew):
            allowed = np.ones(len(anew), np.bool_)
            for plugin in self._by_node:
                allowed &= plugin.filter_rows(pod, table, anew)
            self._allowed[anew] = allowed
        self._feasible[rows] = self._usable(table, rows, self._allowed[rows])
        self._worth[rows] = self._plain_scores(table, rows)
        for score in self._normalised:
            again = anew if score.plugin.scope is Scope.NODE else rows
            if len(again):
                score.raw[again] = score.plugin.score_rows(pod, table, again)
                score.flat = score.flat and not score.raw[again].any()
        if self._find_maxima():
            self._statistics.rescaled += 1
            self._rekey(snapshot)
        else:
            self._rekey(snapshot, rows)


def _passes(filters: list[Filter], state: CycleState, pod: PodInfo, info: NodeInfo) -> bool:
    for plugin in filters:
        status = plugin.filter(state, pod, info)
        if status is not SUCCESS and not status.ok:
            return False
    return True
