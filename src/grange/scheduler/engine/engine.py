"""The engine: decides as ``reference`` does, without looking at every node again for every pod.

Pods of one signature form a *class*. For each class in use the engine keeps a key of every row of the node
table: -1 where the pod cannot run, otherwise ``total score · 2³² + tie``, the tie being larger for nodes
earlier in the tree. Keys order nodes as the reference does, so the largest is the decision.

A placement or an event changes a few rows; a class that is used again brings just those up to date from the
snapshot's log. Why that is exact, and what it costs, is in docs/explanation/engine.md.
"""

from collections import OrderedDict

import numpy as np

from grange.base.bounded import BoundedDict
from grange.placement.columns import Integers
from grange.scheduler.diagnosis import Diagnosis, pre_filter
from grange.scheduler.engine import reference
from grange.scheduler.engine.equivalence_class import EngineStatistics, EquivalenceClass
from grange.scheduler.engine.nominated_filter import NominatedFilter
from grange.scheduler.engine.reference import EVERY_NODE, Rotation
from grange.scheduler.engine.topology_class import TopologyClass
from grange.scheduler.framework import Concerns, CycleState, Profile
from grange.scheduler.nominator import Nominated
from grange.scheduler.podinfo import LabelSet, PodInfo
from grange.scheduler.snapshot import TIE_BITS, TIE_MAX, NodeInfoSnapshot

# Kept results: about 30 bytes a row and class, so at most some 120 MB.
_KEPT_ROWS = 4_000_000
# Terms that name more nodes than this are left to the kernels.
_FEW_NAMES = 32
_FEW_DOMAINS = 64
_KEYS_MAX = 20_000

# The number of a signature, for pods that no placed pod concerns; else with what concerns them.
_Key = int | tuple[int, Concerns]


class Engine:
    """Chooses nodes for pods. Synchronous; belongs to one scheduling loop and its snapshot.

    Args:
        snapshot: what to decide on; its owner brings it up to date between decisions.
        kept_rows: how many rows of results to keep over all classes; at least eight classes stay.
        few_domains: up to so many values of a label, its domains are judged one by one.
        rotation: where searches start, for profiles that look at a share of the nodes.
    """

    def __init__(
        self,
        profile: Profile,
        snapshot: NodeInfoSnapshot,
        *,
        kept_rows: int = _KEPT_ROWS,
        few_domains: int = _FEW_DOMAINS,
        rotation: Rotation | None = None,
    ) -> None:
        self._kept_rows = kept_rows
        self._few_domains = few_domains
        self._epoch = snapshot.index.epoch
        self._profile = profile
        self._snapshot = snapshot
        self._rotation = None if profile.percentage == EVERY_NODE else rotation or Rotation()
        self._classes: OrderedDict[_Key, EquivalenceClass] = OrderedDict()
        self._keys: BoundedDict[tuple[int, LabelSet], _Key] = BoundedDict(_KEYS_MAX)
        self._known = 0
        self._unconcerned: Concerns = tuple([()] * len(profile.topology))
        self.statistics = EngineStatistics()
        self._nominated_filter = NominatedFilter(profile, snapshot, self.statistics)

    def decide(
        self,
        pod: PodInfo,
        state: CycleState | None = None,
        nominated: Nominated | None = None,
    ) -> str | Diagnosis:
        """The name of the node for a pod, or why there is none.

        The state is shared with the later extension points of the cycle.
        """
        self.statistics.decisions += 1
        snapshot = self._snapshot
        key = self._key(pod)
        one = self._classes.get(key)
        each = self._for_each(pod) if one is None else one.each
        sampled = nominated is not None and self._rotation is not None
        if each or sampled or not snapshot.node_info_list:
            state = state or CycleState()
            narrowed = pre_filter(self._profile, state, pod, snapshot)
            if isinstance(narrowed, Diagnosis):
                return narrowed
            names = narrowed.node_names
            few = names is not None and (self._rotation is not None or len(names) <= _FEW_NAMES)
            if few or sampled:
                self.statistics.serial += 1
                return reference.choose(
                    self._profile, state, pod, snapshot, narrowed, self._rotation, nominated
                )
        if one is None:
            one = self._make(pod, key)
        else:
            self._classes.move_to_end(key)
        if nominated is not None:
            return self._nominated_filter.decide(one, key, pod, nominated, state or CycleState())
        if self._rotation is not None:
            return self._sample(one, self._rotation, state) or one.diagnose(snapshot)
        best = one.best(snapshot)
        if best >= 0:
            if state is not None:
                state.score = best >> TIE_BITS
            return snapshot.node_info_list[TIE_MAX - (best & TIE_MAX)].name
        return one.diagnose(snapshot)

    def _sample(
        self, one: EquivalenceClass, rotation: Rotation, state: CycleState | None
    ) -> str | None:
        """The best of the first feasible nodes in rotated order; None when no node is feasible."""
        snapshot = self._snapshot
        order: Integers = np.asarray(snapshot.order)
        total = len(order)
        start = rotation.start % total
        turned = np.concatenate([order[start:], order[:start]])
        feasible = one.open_rows(snapshot)
        found = np.flatnonzero(feasible[turned])
        wanted = 1
        if self._profile.ranks:
            wanted = reference.num_feasible_nodes_to_find(total, self._profile.percentage)
        rotation.advance(int(found[wanted]) if len(found) > wanted else total, total)
        if not len(found):
            return None
        rows = turned[found[:wanted]]
        sampled = np.zeros(len(feasible), np.bool_)
        sampled[rows] = True
        worth = one.totals(snapshot, sampled)[rows]
        at = int(worth.argmax())
        if state is not None:
            state.score = int(worth[at])
        return snapshot.table.names[int(rows[at])]

    def forget(self) -> None:
        """Drop all results: a decision was interrupted, and some may be inconsistent."""
        self._classes.clear()
        self._keys.clear()
        self._nominated_filter.forget()

    @property
    def kept_classes(self) -> int:
        """How many classes there are results for."""
        return len(self._classes)

    def _for_each(self, pod: PodInfo) -> bool:
        return any(item.for_each(pod) for _, item in self._profile.pre_filter)

    def _key(self, pod: PodInfo) -> _Key:
        index = self._snapshot.index
        if index.full:
            index.restart()
        if index.epoch != self._epoch:
            self._epoch = index.epoch
            self._classes.clear()
            self._keys.clear()
        number = pod.signature
        if number is None:
            number = self._profile.sign(pod)
        if not index.known:
            return number
        if self._known != index.known:
            self._known = index.known
            self._keys.clear()
        # What concerns a pod follows from its label set and the terms that there are.
        of = (number, pod.label_set())
        key = self._keys.get(of)
        if key is None:
            concerns = self._profile.concerns(pod, index)
            key = (number, concerns) if any(concerns) else number
            self._keys[of] = key
        return key

    def _make(self, pod: PodInfo, key: _Key) -> EquivalenceClass:
        one = self._classes[key] = self._new(
            pod, self._unconcerned if isinstance(key, int) else key[1]
        )
        one.each = self._for_each(pod)
        limit = max(8, self._kept_rows // max(1, self._snapshot.table.size))
        while len(self._classes) > limit:
            self._classes.popitem(last=False)
        return one

    def _new(self, pod: PodInfo, concerns: Concerns) -> EquivalenceClass:
        snapshot = self._snapshot
        rules = self._profile.rules(pod, snapshot, concerns)
        rankings = self._profile.rankings(pod, snapshot, concerns)
        if not rules and not rankings:
            return EquivalenceClass(self._profile, pod, self.statistics)
        return TopologyClass(
            self._profile, pod, self.statistics, rules, rankings, few_domains=self._few_domains
        )
