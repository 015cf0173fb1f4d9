"""The reference: one pod, one node after another, one plugin after another.

This is the definition of a right decision. Every node is scored; the highest total wins, and among
equals the first in the order of the node tree, which alternates between zones. The engine must give
the same answer for every pod, and the property tests hold it to that.
"""

from collections.abc import Iterable

from grange.placement import reference
from grange.scheduler.decision import Narrowed, Rejection, Tally, pre_filter
from grange.scheduler.framework import SUCCESS, Check, CycleState, Normalise, Profile, Status
from grange.scheduler.nodeinfo import NodeInfo, PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot


def decide(
    profile: Profile, state: CycleState, pod: PodInfo, snapshot: NodeInfoSnapshot
) -> str | Rejection:
    """The node for a pod, or why there is none."""
    narrowed = pre_filter(profile, state, pod, snapshot)
    if isinstance(narrowed, Rejection):
        return narrowed
    return choose(profile, state, pod, snapshot, narrowed)


def choose(
    profile: Profile,
    state: CycleState,
    pod: PodInfo,
    snapshot: NodeInfoSnapshot,
    narrowed: Narrowed,
) -> str | Rejection:
    """Filter and score the nodes that PreFilter left."""
    tally = Tally()
    nodes: Iterable[NodeInfo] = snapshot.node_info_list
    if narrowed.node_names is not None:
        known = [snapshot.node_info_map.get(name) for name in narrowed.node_names]
        candidates = [info for info in known if info is not None]
        # The first in the order of the tree wins a tie, so that order has to be kept.
        candidates.sort(key=lambda info: -int(snapshot.ties[snapshot.table.rows[info.name]]))
        nodes = candidates
        excluded = snapshot.num_nodes - len(candidates)
        if excluded:
            who = ", ".join(narrowed.plugins)
            reason = f"node(s) didn't satisfy plugin(s) [{who}]"
            for plugin in narrowed.plugins:
                tally.add(plugin, ())
            tally.add(narrowed.plugins[0], [(reason, excluded)])
    feasible = []
    surveys = [(name, item.survey(pod, snapshot)) for name, item, _ in profile.cluster]
    checks = [(name, check) for name, check in surveys if check is not None]
    for info in nodes:
        status = _filter(profile, state, pod, info)
        if status.ok:
            status = _check(checks, info)
        if status.ok:
            feasible.append(info)
        elif status.rejected:
            tally.add(status.plugin, [(reason, 1) for reason in status.reasons])
        else:
            reason = ", ".join(status.reasons)
            return Rejection(snapshot.num_nodes, pre_filter=reason, error=True)
    if not feasible:
        return tally.rejection(snapshot.num_nodes)
    totals = _score(profile, state, pod, feasible)
    for _, item, weight in profile.cluster:
        for at, score in enumerate(item.rank(pod, snapshot, feasible) or ()):
            totals[at] += weight * score
    return feasible[totals.index(max(totals))].name


def _filter(profile: Profile, state: CycleState, pod: PodInfo, info: NodeInfo) -> Status:
    for name, plugin in profile.filters:
        if plugin.applies(pod):
            status = plugin.filter(state, pod, info)
            if not status.ok:
                return Status(status.code, status.reasons, name)
    return SUCCESS


def _check(checks: list[tuple[str, Check]], info: NodeInfo) -> Status:
    for name, check in checks:
        status = check(info)
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
            reverse = plugin.normalise is Normalise.BY_MAX_REVERSED
            scores = reference.normalised(scores, reverse=reverse)
        for at, score in enumerate(scores):
            totals[at] += weight * score
    return totals
