"""What is known of every node for pods of one class and priority: the victims there, kept by place.

Where node objects and loads decide alone, the victims on a node follow from its pods, the pods
nominated to it and the budgets that are about any of them. So a node is judged when a search first
comes by, and again only when one of these changed: the snapshot, the nominator and the budgets each
keep a log of that. Nodes stand in the order in which searches go; what is known of them lies side by
side, and a search is a look at one stretch of it.
"""

from collections.abc import Callable

import numpy as np

from grange.api.pod_requests import Request
from grange.placement.columns import Integers
from grange.placement.loads import Load
from grange.scheduler.framework import SUCCESS, Handle, Status
from grange.scheduler.load_dry_run import LoadDryRun
from grange.scheduler.nodeinfo import NodeInfo, PodInfo, charged, discharged
from grange.scheduler.nominator import Nominated
from grange.scheduler.preemption.candidates import (
    BREAKING,
    HARMLESS,
    NOBODY,
    UNKNOWN,
    first_candidates,
)
from grange.scheduler.preemption.rank_index import RankIndex
from grange.scheduler.preemption.victims import Standing, Victims, rank_of, standings

_PATTERNS_MAX = 4096

_Pods = tuple[PodInfo, ...]
_NOBODY: tuple[_Pods, int] = (), 0
_PatternKey = tuple[Load, tuple[int, ...], tuple[int, ...]]


class VictimCache:
    """The victims on each node, for one class and priority, as long as nodes stay what they are.

    Args:
        handle: the parts of the scheduling loop; its snapshot follows versions.
        loads: what loads say to the class.
        priority: pods below it may be victims.
        order: the rows whose nodes do not refuse the class, in the order in which they are tried.

    Attributes:
        judged: how many nodes with pods of lower priority were judged (a work counter).
    """

    def __init__(self, handle: Handle, loads: LoadDryRun, priority: int, order: Integers) -> None:
        self._handle = handle
        self._loads = loads
        self._priority = priority
        self.judged = 0
        self._rows: list[int] = []
        self._places: list[int] = []  # by row; -1 for those that are not tried
        self._lay_out(order)
        self._states = bytearray(len(order))
        self._ranking = RankIndex(len(order))
        # Who has to go and how many of them break a budget.
        self._victims: list[tuple[_Pods, int]] = [_NOBODY] * len(order)
        # By load, what the candidates ask and what the nominated ask: who has to go.
        self._patterns: dict[_PatternKey, tuple[tuple[int, ...], list[Request]]] = {}
        self._about: dict[tuple[str, str], dict[int, None]] = {}  # rows by budget
        self._changes = handle.snapshot.changes
        self._versions = handle.snapshot.follow_versions()
        self._moves = handle.nominator.moves
        self._allowances = handle.budgets.moves
        self._note_positions()

    def follow(self, order: Integers) -> None:
        """There are other rows, or those that are tried stand otherwise; what is known goes along."""
        known, states, victims = self._places, self._states, self._victims
        sources = [known[row] if row < len(known) else -1 for row in order.tolist()]
        self._states = bytearray([states[at] if at >= 0 else UNKNOWN for at in sources])
        self._victims = [victims[at] if at >= 0 else _NOBODY for at in sources]
        self._ranking.move(sources)
        self._lay_out(order)

    def _lay_out(self, order: Integers) -> None:
        self._rows = order.tolist()
        places = np.full(self._handle.snapshot.table.size, -1)
        places[order] = np.arange(len(order))
        self._places = places.tolist()

    def best(
        self,
        start: int,
        wanted: int,
        nominated: Nominated,
        fallback: Callable[[int], Victims | Status],
    ) -> Victims | None:
        """The best of the first candidates; None when there are none.

        Args:
            start: the place where the search starts.
            wanted: how many candidates are enough, if one of them breaks no budget.
            nominated: what a pod of the class has to know of nominations.
            fallback: the victims on a row where loads do not decide alone.
        """
        self._catch_up()
        snapshot, states, level = self._handle.snapshot, self._states, nominated.level
        passing: list[int] = []  # places whose verdict is good for this pod alone
        own = -1
        if nominated.first in snapshot.table.rows:
            own = self._places[snapshot.table.rows[nominated.first]]
            if own >= 0:
                states[own] = UNKNOWN
                passing.append(own)

        def judge(place: int) -> None:
            row = self._rows[place]
            node = snapshot.by_row[row]
            beside = level.get(node.name, ()) if place != own else nominated.on(node.name)
            for info in beside:
                if info.has_required_anti_affinity:
                    passing.append(place)
                    found = fallback(row)
                    if isinstance(found, Victims):
                        self._keep(place, found)
                    else:
                        self._clear(place)
                    return
            self._judge(place, node, beside)

        count = first_candidates(states, start, wanted, judge)
        place = self._ranking.least(start, count)
        for at in passing:
            states[at] = UNKNOWN
        if place < 0:
            return None
        gone, violations = self._victims[place]
        return Victims(snapshot.by_row[self._rows[place]].name, gone, violations)

    # --- one node ----------------------------------------------------------------------------

    def _keep(self, place: int, victims: Victims) -> None:
        self._victims[place] = victims.pods, victims.violations
        self._states[place] = BREAKING if victims.violations else HARMLESS
        self._ranking.put(place, victims.rank)

    def _clear(self, place: int) -> None:
        self._victims[place] = _NOBODY
        self._states[place] = NOBODY
        self._ranking.drop(place)

    def _judge(self, place: int, node: NodeInfo, nominated: _Pods) -> None:
        candidates = standings(node.pods, self._priority)
        if not candidates:
            self._clear(place)
            return
        self.judged += 1
        if len(candidates) > 1:
            candidates.sort()
        if self._handle.budgets:
            self._judge_by_budgets(place, node.load, candidates, nominated)
            return
        at = self._pattern(node.load, candidates, nominated)
        if not at:
            self._clear(place)
            return
        gone = [candidates[number] for number in at]
        self._victims[place] = tuple([one[3] for one in gone]), 0
        self._states[place] = HARMLESS
        self._ranking.put(place, rank_of(gone, 0))

    def _judge_by_budgets(
        self, place: int, load: Load, candidates: list[Standing], nominated: _Pods
    ) -> None:
        budgets = self._handle.budgets
        pods = [one[3] for one in candidates]
        for key in budgets.covering(pods):
            self._about.setdefault(key, {})[self._rows[place]] = None
        breaking, others = budgets.split(pods)
        standing = {one[2]: one for one in candidates}
        ordered = [standing[info.uid] for info in (*breaking, *others)]
        at = self._pattern(load, ordered, nominated)
        if not at:
            self._clear(place)
            return
        gone = sorted([ordered[number] for number in at])
        violations = sum(number < len(breaking) for number in at)
        self._victims[place] = tuple([one[3] for one in gone]), violations
        self._states[place] = BREAKING if violations else HARMLESS
        self._ranking.put(place, rank_of(gone, violations))

    def _pattern(self, load: Load, ordered: list[Standing], nominated: _Pods) -> tuple[int, ...]:
        """Who has to go, by number in the order in which they are spared; nobody if it is no use."""
        held = load.usage
        if held.ports or held.devices.tenants:  # perhaps of one of these pods
            return self._spare(load, ordered, nominated)
        for info in nominated:
            if info.ports or info.disks or info.devices:
                return self._spare(load, ordered, nominated)
        # Pods that ask the same mostly share one object, which is kept along with its number.
        key = (
            load,
            tuple([id(one[3].request) for one in ordered]),
            tuple([id(info.request) for info in nominated]) if nominated else (),
        )
        known = self._patterns.get(key)
        if known is None:
            if len(self._patterns) >= _PATTERNS_MAX:
                self._patterns.clear()
            at = self._spare(load, ordered, nominated)
            requests = [one[3].request for one in ordered] + [info.request for info in nominated]
            known = self._patterns[key] = (at, requests)
        return known[0]

    def _spare(self, load: Load, ordered: list[Standing], nominated: _Pods) -> tuple[int, ...]:
        loads = self._loads
        for one in ordered:
            load = discharged(load, one[3])
        if loads.beside(load, nominated) is not SUCCESS:
            return ()
        gone = []
        for number, one in enumerate(ordered):
            more = charged(load, one[3])
            if loads.beside(more, nominated) is SUCCESS:
                load = more
            else:
                gone.append(number)
        return tuple(gone)

    # --- what changed ------------------------------------------------------------------------

    def _note_positions(self) -> None:
        self._seen = (
            self._changes.position,
            self._versions.position,
            self._moves.position,
            self._allowances.position,
        )

    def _catch_up(self) -> None:
        """Forget what is known of nodes where something changed."""
        changes, versions, moves, allowances = self._seen
        self._note_positions()
        changed, exchanged = self._changes.tail(changes), self._versions.tail(versions)
        moved, allowed = self._moves.since(moves), self._allowances.since(allowances)
        states, places = self._states, self._places
        if changed is None or exchanged is None or moved is None or allowed is None:
            states[:] = bytes(len(states))
            self._about.clear()
            return
        rows = [entry >> 1 for entry in (*changed, *exchanged)]
        known = self._handle.snapshot.table.rows
        rows += [known[name] for name in moved if name in known]
        for key in allowed:
            rows += self._about.pop(key, ())
        for row in rows:
            place = places[row]
            if place >= 0:
                states[place] = UNKNOWN
