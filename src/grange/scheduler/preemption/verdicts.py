"""What is known of every node for pods of one class and priority: the victims there, kept by row.

Where node objects and loads decide alone, the victims on a node follow from its pods, the pods
nominated to it and the budgets that are about any of them. So a row is judged when a search first
comes by, and again only when one of these changed: the snapshot, the nominator and the budgets each
keep a log of that. The search itself is then a look at arrays.
"""

from collections.abc import Callable, Sequence

import numpy as np

from grange.placement.columns import Integers, Mask
from grange.placement.loads import Load
from grange.placement.requests import Request
from grange.scheduler.framework import SUCCESS, Handle, Status
from grange.scheduler.loadtrial import LoadTrial
from grange.scheduler.nodeinfo import NodeInfo, PodInfo, charged, discharged
from grange.scheduler.nominator import Nominated
from grange.scheduler.preemption.candidates import (
    BREAKING,
    HARMLESS,
    NOBODY,
    UNKNOWN,
    first_candidates,
)
from grange.scheduler.preemption.ranking import Ranking
from grange.scheduler.preemption.victims import Victims, importance, rank_of

_PATTERNS_MAX = 4096

_Pods = tuple[PodInfo, ...]
_PatternKey = tuple[Load, tuple[int, ...], tuple[int, ...]]


class Verdicts:
    """The victims on each node, for one class and priority, as long as rows stay what they are.

    Args:
        handle: the parts of the scheduling loop; its snapshot follows versions.
        loads: what loads say to the class.
        priority: pods below it may be victims.
        hopeless: rows that are known to hold no candidate now.

    Attributes:
        judged: how many rows were judged (a work counter).
    """

    def __init__(self, handle: Handle, loads: LoadTrial, priority: int, hopeless: Mask) -> None:
        self._handle = handle
        self._loads = loads
        self._priority = priority
        self.judged = 0
        size = handle.snapshot.table.size
        self._states = np.zeros(size, np.int8)
        self._states[hopeless] = NOBODY
        self._state = self._states.data
        self._ranking = Ranking(size)
        # By row, who has to go and how many of them break a budget.
        self._victims: list[tuple[Sequence[PodInfo], int]] = [((), 0)] * size
        # By load, what the candidates ask and what the nominated ask: who has to go.
        self._patterns: dict[_PatternKey, tuple[tuple[int, ...], list[Request]]] = {}
        self._about: dict[tuple[str, str], dict[int, None]] = {}  # rows by budget
        self._note_positions()

    def best(
        self,
        order: Integers,
        wanted: int,
        nominated: Nominated,
        fallback: Callable[[int], Victims | Status],
    ) -> Victims | None:
        """The best of the first candidates; None when there are none.

        Args:
            order: rows in the order in which they are tried.
            wanted: how many candidates are enough, if one of them breaks no budget.
            nominated: what a pod of the class has to know of nominations.
            fallback: the victims on a row where loads do not decide alone.
        """
        self._catch_up()
        snapshot = self._handle.snapshot
        passing: list[int] = []  # rows whose verdict is good for this pod alone

        def judge(row: int) -> None:
            node = snapshot.by_row[row]
            beside = nominated.on(node.name)
            if beside and any(info.has_required_anti_affinity for info in beside):
                found = fallback(row)
                if isinstance(found, Victims):
                    self._keep(row, found.pods, found.violations)
                else:
                    self._state[row] = NOBODY
                passing.append(row)
            else:
                self._judge(node, row, beside)
            if node.name == nominated.first:
                passing.append(row)

        own = snapshot.table.rows.get(nominated.first)
        if own is not None:
            self._state[own] = UNKNOWN
        found = first_candidates(self._states, order, wanted, judge)
        best = None
        if len(found):
            row = self._ranking.least(found)
            gone, violations = self._victims[row]
            best = Victims(snapshot.by_row[row].name, tuple(gone), violations)
        for row in passing:
            self._state[row] = UNKNOWN
        return best

    # --- one row -----------------------------------------------------------------------------

    def _keep(self, row: int, gone: Sequence[PodInfo], violations: int) -> None:
        self._victims[row] = gone, violations
        self._state[row] = BREAKING if violations else HARMLESS
        self._ranking.put(row, rank_of(gone, violations))

    def _judge(self, node: NodeInfo, row: int, nominated: _Pods) -> None:
        self.judged += 1
        self._state[row] = NOBODY
        limit = self._priority
        candidates = [info for info in node.pods if info.pod.spec.priority < limit]
        if not candidates:
            return
        if len(candidates) > 1:
            candidates.sort(key=importance)
        budgets, breaking = self._handle.budgets, 0
        ordered = candidates
        if budgets:
            for key in budgets.about(candidates):
                self._about.setdefault(key, {})[row] = None
            first, others = budgets.split(candidates)
            breaking = len(first)
            ordered = first + others
        places = self._pattern(node.load, ordered, nominated)
        if not places:
            return
        gone = tuple([ordered[at] for at in places])
        violations = 0
        if breaking:
            gone = tuple(sorted(gone, key=importance))
            violations = sum(at < breaking for at in places)
        self._keep(row, gone, violations)

    def _pattern(self, load: Load, ordered: list[PodInfo], nominated: _Pods) -> tuple[int, ...]:
        """Who has to go, by place in the order in which they are spared; nobody if it is no use."""
        pods = (*ordered, *nominated)
        for info in pods:
            if info.ports or info.devices:
                return self._spare(load, ordered, nominated)
        # Pods that ask the same mostly share one object, which is kept along with its number.
        key = (
            load,
            tuple([id(info.request) for info in ordered]),
            tuple([id(info.request) for info in nominated]),
        )
        known = self._patterns.get(key)
        if known is None:
            if len(self._patterns) >= _PATTERNS_MAX:
                self._patterns.clear()
            places = self._spare(load, ordered, nominated)
            known = self._patterns[key] = (places, [info.request for info in pods])
        return known[0]

    def _spare(self, load: Load, ordered: list[PodInfo], nominated: _Pods) -> tuple[int, ...]:
        loads = self._loads
        for info in ordered:
            load = discharged(load, info)
        if loads.beside(load, nominated) is not SUCCESS:
            return ()
        gone = []
        for at, info in enumerate(ordered):
            more = charged(load, info)
            if loads.beside(more, nominated) is SUCCESS:
                load = more
            else:
                gone.append(at)
        return tuple(gone)

    # --- what changed ------------------------------------------------------------------------

    def _note_positions(self) -> None:
        handle, snapshot = self._handle, self._handle.snapshot
        self._changes = snapshot.changes.position
        self._versions = snapshot.follow_versions().position
        self._moves = handle.nominator.moves.position
        self._budgets = handle.budgets.moves.position

    def _catch_up(self) -> None:
        """Forget what is known of rows where something changed."""
        handle, snapshot, state = self._handle, self._handle.snapshot, self._state
        changed = snapshot.changes.tail(self._changes)
        exchanged = snapshot.follow_versions().tail(self._versions)
        moved = handle.nominator.moves.since(self._moves)
        budgets = handle.budgets.moves.since(self._budgets)
        if changed is None or exchanged is None or moved is None or budgets is None:
            self._states[:] = UNKNOWN
            self._about.clear()
        else:
            for entry in changed:
                state[entry >> 1] = UNKNOWN
            for entry in exchanged:
                state[entry >> 1] = UNKNOWN
            for name in moved:
                row = snapshot.table.rows.get(name)
                if row is not None:
                    state[row] = UNKNOWN
            for key in budgets:
                for row in self._about.pop(key, ()):
                    state[row] = UNKNOWN
        self._note_positions()
