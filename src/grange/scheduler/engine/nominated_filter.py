"""How nominated pods change a decision.

A node with nominated pods that matter takes a pod only if the filters pass with them added, and
without. Where node objects and loads decide alone, the refusals are kept by row
(``nominator_cache``). Otherwise such nodes, which are few, are judged one by one in trials.

The rows that refuse are then taken out of the class's feasible rows. If the best row is not among
them, and no score is scaled by what is feasible, it stays the best. Otherwise the best of the rest is
found by a look at all rows, which scales scores over exactly the rows that are left. Scores do not
count nominated pods. This is the way of the reference, so the decision is the same.
"""

from collections import OrderedDict
from collections.abc import Hashable

import numpy as np

from grange.placement.columns import Mask
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.dry_run import DryRun, LoadDryRun
from grange.scheduler.engine.equivalence_class import EngineStatistics, EquivalenceClass
from grange.scheduler.engine.nominator_cache import NominatorCache
from grange.scheduler.framework import CycleState, Profile, Status
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.nominator import Nominated
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import TIE_BITS, TIE_MAX, NodeInfoSnapshot

_KEPT_CLASSES = 64

_Pods = tuple[PodInfo, ...]


class NominatedFilter:
    """Judges nodes with their nominated pods added.

    Args:
        profile: the plugins.
        snapshot: the nodes.
        statistics: counts the work.
    """

    def __init__(
        self, profile: Profile, snapshot: NodeInfoSnapshot, statistics: EngineStatistics
    ) -> None:
        self._profile = profile
        self._snapshot = snapshot
        self._statistics = statistics
        self._known: OrderedDict[Hashable, NominatorCache] = OrderedDict()

    def forget(self) -> None:
        """Drop all results."""
        self._known.clear()

    def decide(
        self,
        one: EquivalenceClass,
        key: Hashable,
        pod: PodInfo,
        nominated: Nominated,
        state: CycleState,
    ) -> str | Diagnosis:
        """The node for a pod of a class, or why there is none."""
        # A class of this very type has no rules about other nodes.
        if type(one) is EquivalenceClass:
            known = self._of((key, pod.pod.spec.priority), pod, state)
            if known is not None:
                return self._by_row(known, one, pod, nominated, state)
        return self._one_by_one(one, pod, nominated, state)

    def _by_row(
        self,
        known: NominatorCache,
        one: EquivalenceClass,
        pod: PodInfo,
        nominated: Nominated,
        state: CycleState,
    ) -> str | Diagnosis:
        snapshot = self._snapshot
        names, by_row = snapshot.table.names, snapshot.by_row

        def judge(row: int) -> Status:
            trial = DryRun(self._profile, state, pod, snapshot)
            return _judge(trial, by_row[row], nominated.on(names[row]))

        row = snapshot.table.rows.get(nominated.first)
        if row is not None and one.allows(snapshot, row):
            passes = known.passes(row, nominated)
            if judge(row).ok if passes is None else passes:
                return names[row]
        own = known.catch_up(nominated, judge)
        try:
            best = one.best(snapshot)
            if best >= 0:
                row = snapshot.order[TIE_MAX - (best & TIE_MAX)]
                if one.flat and not known.barred[row]:
                    state.score = best >> TIE_BITS
                    return names[row]
                feasible = one.open_rows(snapshot)
                np.greater(feasible, known.barred, out=feasible)
                if np.count_nonzero(feasible):
                    return self._best(one, feasible, state)
            return known.diagnosis(nominated, judge)
        finally:
            if own is not None:
                known.release(own, nominated)

    def _best(self, one: EquivalenceClass, feasible: Mask, state: CycleState) -> str:
        """The best of these rows, with scores scaled over them."""
        snapshot = self._snapshot
        totals = one.totals(snapshot, feasible)
        keys = (totals << TIE_BITS) + snapshot.ties[snapshot.table.all]
        keys[~feasible] = -1
        row = int(np.argmax(keys))
        state.score = int(totals[row])
        return snapshot.table.names[row]

    def _one_by_one(
        self, one: EquivalenceClass, pod: PodInfo, nominated: Nominated, state: CycleState
    ) -> str | Diagnosis:
        snapshot = self._snapshot
        nodes, rows = snapshot.node_info_map, snapshot.table.rows
        trial = DryRun(self._profile, state, pod, snapshot)
        first = nodes.get(nominated.first)
        if first is not None and _judge(trial, first, nominated.on(first.name)).ok:
            return first.name
        statuses: dict[int, Status] = {}
        for name in nominated.level:
            pods = nominated.on(name)
            if pods and name in nodes:
                statuses[rows[name]] = _judge(trial, nodes[name], pods)
        feasible = one.open_rows(snapshot)
        feasible[[row for row, status in statuses.items() if not status.ok]] = False
        if not feasible.any():
            return one.diagnose_with_nominated(snapshot, statuses)
        return self._best(one, feasible, state)

    def _of(self, key: Hashable, pod: PodInfo, state: CycleState) -> NominatorCache | None:
        """What is known for pods of a class and priority; None where nothing can be kept."""
        known = self._known.get(key)
        if known is None:
            trial = DryRun(self._profile, state, pod, self._snapshot)
            if not LoadDryRun.suits(trial):
                return None
            known = self._known[key] = NominatorCache(self._snapshot, trial, self._statistics)
            while len(self._known) > _KEPT_CLASSES:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return known


def _judge(trial: DryRun, info: NodeInfo, pods: _Pods) -> Status:
    with trial.on(info) as what_if:
        return what_if.status(pods)
