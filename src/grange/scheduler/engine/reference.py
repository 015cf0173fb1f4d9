"""The reference: one pod, one node after another, one plugin after another.

This is the definition of a right decision. Every node is scored; the highest total wins, and among
equals the first in the order of the node tree, which alternates between zones. A profile may be
content with a share of the nodes: then the search ends when enough are feasible, the next one starts
where it ended, and among equals the first that was found wins (in large clusters that bounds the work of this
loop, and the engine needs no such bound, so by default every node counts). The engine must give the same answer
for every pod, and the property tests hold it to that. Rules about other nodes are asked one node
after another, too; the tests hold them to counts from scratch.
"""

import numpy as np

from grange.placement import resource_fit
from grange.placement.columns import Mask
from grange.scheduler.diagnosis import Diagnosis, Narrowed, Tally, pre_filter
from grange.scheduler.domains import DomainRule
from grange.scheduler.framework import (
    SUCCESS,
    CycleState,
    Normalise,
    Profile,
    Status,
    check_rules,
)
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.nominator import Nominated
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

_NOTHING = Nominated()
EVERY_NODE = 100  # percent
_FEW_NODES = 100  # so many feasible nodes are always looked for
_ADAPTIVE = 0
_ADAPTIVE_LEAST = 5  # percent


def num_feasible_nodes_to_find(nodes: int, percentage: int) -> int:
    """How many feasible nodes are enough.

    Args:
        nodes: how many there are to look at.
        percentage: 1 to 100; 0 takes 50 less one for every 125 nodes, and 5 at least.
    """
    if nodes < _FEW_NODES or percentage >= EVERY_NODE:
        return nodes
    if percentage == _ADAPTIVE:
        percentage = max(_ADAPTIVE_LEAST, 50 - nodes // 125)
    return max(_FEW_NODES, nodes * percentage // 100)


class Rotation:
    """Where the next search starts; one for all profiles of a scheduler.

    Attributes:
        start: a place in the list of nodes.
    """

    def __init__(self) -> None:
        self.start = 0

    def advance(self, processed: int, nodes: int) -> None:
        """A search looked at so many of the nodes in the cluster."""
        self.start = (self.start + processed) % nodes


def decide(
    profile: Profile,
    state: CycleState,
    pod: PodInfo,
    snapshot: NodeInfoSnapshot,
    rotation: Rotation | None = None,
    nominated: Nominated | None = None,
) -> str | Diagnosis:
    """The node for a pod, or why there is none.

    A search starts at the rotation, which is moved on, or with the first node; that does not matter to
    profiles that look at every node. On nodes with nominated pods that matter, the pod has to pass the filters
    with them added, and without them; they do not count for scores.
    """
    narrowed = pre_filter(profile, state, pod, snapshot)
    if isinstance(narrowed, Diagnosis):
        return narrowed
    return choose(profile, state, pod, snapshot, narrowed, rotation, nominated)


def choose(
    profile: Profile,
    state: CycleState,
    pod: PodInfo,
    snapshot: NodeInfoSnapshot,
    narrowed: Narrowed,
    rotation: Rotation | None = None,
    nominated: Nominated | None = None,
) -> str | Diagnosis:
    """Filter and score the nodes that PreFilter left."""
    tally = Tally()
    nodes = _candidates(snapshot, narrowed, tally)
    enough = len(nodes)
    if profile.percentage != EVERY_NODE:
        rotation = rotation or Rotation()
        nodes, enough = _rotated(profile, nodes, rotation)
    judge = _Judge(profile, state, pod, snapshot, nominated or _NOTHING)
    first = judge.first(nodes)
    if first is not None and judge.status(first).ok:
        return first.name
    feasible: list[NodeInfo] = []
    processed = len(nodes)
    for at, info in enumerate(nodes):
        status = judge.status(info)
        if status.ok:
            if len(feasible) == enough:
                processed = at
                break
            feasible.append(info)
        elif status.rejected:
            tally.add(status.plugin, [(reason, 1) for reason in status.reasons])
        else:
            reason = ", ".join(status.reasons)
            return Diagnosis(snapshot.num_nodes, pre_filter=reason, error=True)
    if first is not None and first not in nodes[:processed]:
        processed += 1  # it was looked at, too
    if rotation is not None and profile.percentage != EVERY_NODE:
        rotation.advance(processed, snapshot.num_nodes)
    if not feasible:
        return tally.diagnosis(snapshot.num_nodes)
    totals = _score(profile, state, pod, feasible)
    for ranking, weight in profile.rankings(pod, snapshot, profile.concerns(pod, snapshot.index)):
        ranking.refresh()
        rows = [snapshot.table.rows[info.name] for info in feasible]
        mask: Mask = np.zeros(snapshot.table.size, np.bool_)
        mask[rows] = True
        scores = ranking.scores(snapshot.table.domains, mask)[rows].tolist()
        totals = [total + weight * score for total, score in zip(totals, scores, strict=True)]
    state.score = max(totals)
    return feasible[totals.index(state.score)].name


def _rules(
    profile: Profile, pod: PodInfo, snapshot: NodeInfoSnapshot
) -> list[tuple[str, DomainRule]]:
    found = profile.rules(pod, snapshot, profile.concerns(pod, snapshot.index))
    for _, rule in found:
        rule.refresh()
    return found


class _Judge:
    """The verdicts on nodes, with the pods that are nominated to them and without."""

    def __init__(
        self,
        profile: Profile,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeInfoSnapshot,
        nominated: Nominated,
    ) -> None:
        self._profile, self._state, self._pod = profile, state, pod
        self._snapshot = snapshot
        self._nominated = nominated
        self._rules = _rules(profile, pod, snapshot)

    def first(self, nodes: list[NodeInfo]) -> NodeInfo | None:
        """The node that the pod itself is nominated to, if it is one of these."""
        info = self._snapshot.node_info_map.get(self._nominated.first)
        return info if info is not None and info in nodes else None

    def status(self, info: NodeInfo) -> Status:
        """Whether the node is feasible."""
        pods = self._nominated.on(info.name)
        if pods:
            for other in pods:
                self._snapshot.assume_pod(other.on(info.name))
            status = self._pass(info, _rules(self._profile, self._pod, self._snapshot))
            for other in pods:
                self._snapshot.forget_pod(other)
            if not status.ok:
                return status
        return self._pass(info, self._rules)

    def _pass(self, info: NodeInfo, rules: list[tuple[str, DomainRule]]) -> Status:
        status = _filter(self._profile, self._state, self._pod, info)
        table = self._snapshot.table
        return check_rules(rules, table, table.rows[info.name]) if status.ok else status


def _candidates(snapshot: NodeInfoSnapshot, narrowed: Narrowed, tally: Tally) -> list[NodeInfo]:
    if narrowed.node_names is None:
        return snapshot.node_info_list
    known = [snapshot.node_info_map.get(name) for name in narrowed.node_names]
    candidates = [info for info in known if info is not None]
    # The first in the order of the tree wins a tie, so that order has to be kept.
    candidates.sort(key=lambda info: -int(snapshot.ties[snapshot.table.rows[info.name]]))
    excluded = snapshot.num_nodes - len(candidates)
    if excluded:
        who = " ".join(sorted(narrowed.plugins))
        reason = f"node(s) didn't satisfy plugin(s) [{who}]"
        for plugin in narrowed.plugins:
            tally.add(plugin, ())
        tally.add(narrowed.plugins[0], [(reason, excluded)])
    return candidates


def _rotated(
    profile: Profile, nodes: list[NodeInfo], rotation: Rotation
) -> tuple[list[NodeInfo], int]:
    """The nodes in the order in which they are looked at, and how many feasible ones are enough."""
    start = rotation.start % max(1, len(nodes))
    enough = 1
    if profile.ranks:
        enough = num_feasible_nodes_to_find(len(nodes), profile.percentage)
    return nodes[start:] + nodes[:start], enough


def _filter(profile: Profile, state: CycleState, pod: PodInfo, info: NodeInfo) -> Status:
    for name, plugin in profile.filters:
        if plugin.applies(pod):
            status = plugin.filter(state, pod, info)
            if not status.ok:
                return Status(status.code, status.reasons, name)
    return SUCCESS


def _score(
    profile: Profile, state: CycleState, pod: PodInfo, feasible: list[NodeInfo]
) -> list[int]:
    totals = [0] * len(feasible)
    for _, plugin, weight in profile.scores:
        if not plugin.applies(pod):
            continue
        scores = [plugin.score(state, pod, info) for info in feasible]
        if plugin.normalise is not Normalise.NONE:
            most, reverse = max(scores), plugin.normalise is Normalise.BY_MAX_REVERSED
            scores = [resource_fit.normalised(raw, most, reverse=reverse) for raw in scores]
        for at, score in enumerate(scores):
            totals[at] += weight * score
    return totals
