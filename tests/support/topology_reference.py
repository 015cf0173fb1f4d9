"""Rules about other pods as they are defined: counted from scratch, pod by pod, node by node.

The plugins state them over counts that are kept. ``assert_agrees`` compares both on every node.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from tests.support.snapshot_views import with_required_anti_affinity

from grange.placement import node_rules, spread, taint_toleration
from grange.placement.podaffinity import Namespaces, Term, TermKind
from grange.placement.spread import HOSTNAME, Constraint
from grange.scheduler.framework import (
    SUCCESS,
    Code,
    Profile,
    Status,
    TopologyPlugin,
    check_rules,
)
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.plugins.interpodaffinity import (
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    UNMET_AFFINITY,
    InterPodAffinity,
)
from grange.scheduler.plugins.podtopologyspread import (
    MISSING,
    SKEWED,
    PodTopologySpread,
    query_of,
)
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

Check = Callable[[NodeInfo], Status]
Score = Callable[[PodInfo, NodeInfoSnapshot, Sequence[NodeInfo]], list[int]]
Constraints = tuple[Constraint, ...]
_Domain = tuple[str, str]  # a label key and its value


def _scaled_affinity(raw: int, least: int, most: int) -> int:
    """A sum of weights scaled to 0 to 100 between the least and the largest; 0 if they are equal."""
    if most == least:
        return 0
    # Divided first, in floating point, as kube-scheduler does: 29 of 100 gives 28.
    return int(100.0 * (float(raw - least) / float(most - least)))


def _raw_spread(parts: Sequence[tuple[int, float, int]]) -> int:
    """What speaks against a node: of each constraint the count, its weight and its max skew."""
    total = 0.0
    for count, each, max_skew in parts:
        total += float(count) * each + float(max_skew - 1)
    return int(spread.rounded(total))


def assert_agrees(profile: Profile, pod: PodInfo, snapshot: NodeInfoSnapshot) -> None:
    """The profile's plugins about other nodes judge and rank every node as it is defined."""
    table, nodes = snapshot.table, snapshot.node_info_list
    score: Score
    for name, plugin, _ in profile.topology:
        if isinstance(plugin, InterPodAffinity):
            check, score = affinity_check(pod, snapshot), partial(affinity_score, plugin)
        elif isinstance(plugin, PodTopologySpread):
            check, score = spread_check(pod, snapshot), spread_score
        else:
            continue  # ranks only
        concerns = plugin.concerns(pod, snapshot.index)
        rules = [(name, rule) for rule in plugin.rules(pod, snapshot, concerns)]
        for _, rule in rules:
            rule.refresh()
        for node in nodes:
            status, wanted = check_rules(rules, table, table.rows[node.name]), check(node)
            assert (status.code, status.reasons) == (wanted.code, wanted.reasons), node.name
        for feasible in (nodes, [node for node in nodes if check(node).ok], nodes[::2]):
            if feasible:
                found = ranked(plugin, pod, snapshot, feasible) or [0] * len(feasible)
                assert found == score(pod, snapshot, feasible)


def ranked(
    plugin: TopologyPlugin, pod: PodInfo, snapshot: NodeInfoSnapshot, feasible: Sequence[NodeInfo]
) -> list[int] | None:
    """The plugin's scores where just these nodes are feasible; None when all are equal."""
    table, concerns = snapshot.table, plugin.concerns(pod, snapshot.index)
    ranking = plugin.ranking(pod, snapshot, concerns)
    if ranking is None:
        return None
    rows = [table.rows[node.name] for node in feasible]
    mask = np.zeros(table.size, np.bool_)
    mask[rows] = True
    ranking.refresh()
    scores: list[int] = ranking.scores(table.domains, mask)[rows].tolist()
    return scores


# --- affinity to pods ------------------------------------------------------------------------------


def _selected(term: Term, info: PodInfo, known: Namespaces) -> bool:
    meta = info.pod.metadata
    return term.selector.matches(meta.namespace, meta.labels, known)


def _selected_by_all(terms: tuple[Term, ...], info: PodInfo, known: Namespaces) -> bool:
    return all(_selected(term, info, known) for term in terms)


def affinity_check(pod: PodInfo, snapshot: NodeInfoSnapshot) -> Check:
    """The pod's own required terms, and anti-affinity of existing pods."""
    known = snapshot.index.namespaces
    excluded_by_others: set[_Domain] = set()
    for node in with_required_anti_affinity(snapshot):
        for other in node.pods_with_required_anti_affinity:
            excluded_by_others.update(
                (term.key, node.labels[term.key])
                for term in other.terms.anti_affinity
                if term.key in node.labels and _selected(term, pod, known)
            )
    with_affinity: set[_Domain] = set()
    excluded: set[_Domain] = set()
    for node in snapshot.node_info_list:
        for other in node.pods:
            if pod.terms.affinity and _selected_by_all(pod.terms.affinity, other, known):
                with_affinity.update(
                    (term.key, node.labels[term.key])
                    for term in pod.terms.affinity
                    if term.key in node.labels
                )
            excluded.update(
                (term.key, node.labels[term.key])
                for term in pod.terms.anti_affinity
                if term.key in node.labels and _selected(term, other, known)
            )
    first = not with_affinity and _selected_by_all(pod.terms.affinity, pod, known)

    def check(node: NodeInfo) -> Status:
        labels = node.labels
        for term in pod.terms.affinity:
            value = labels.get(term.key)
            if value is None or not (first or (term.key, value) in with_affinity):
                return Status(Code.UNRESOLVABLE, (UNMET_AFFINITY,))
        if any((term.key, labels.get(term.key)) in excluded for term in pod.terms.anti_affinity):
            return Status(Code.UNSCHEDULABLE, (ANTI_AFFINITY,))
        if any(labels.get(key) == value for key, value in excluded_by_others):
            return Status(Code.UNSCHEDULABLE, (EXISTING_ANTI_AFFINITY,))
        return SUCCESS

    return check


def affinity_score(
    plugin: InterPodAffinity, pod: PodInfo, snapshot: NodeInfoSnapshot, feasible: Sequence[NodeInfo]
) -> list[int]:
    """The pod's own preferred terms, and those of existing pods; their required affinity counts, too."""
    preferred = pod.terms.preferred
    if plugin._only_own and not preferred:
        return [0] * len(feasible)
    known, sums = snapshot.index.namespaces, Counter[_Domain]()
    weights = {TermKind.AFFINITY: plugin._required_weight, TermKind.ANTI_AFFINITY: 0}
    for node in snapshot.node_info_list:
        labels = node.labels
        for other in node.pods:
            for term in preferred:
                if term.key in labels and _selected(term, other, known):
                    sums[term.key, labels[term.key]] += term.weight
            for term in other.terms.all:
                weight = weights.get(term.kind, term.weight)
                if term.key in labels and _selected(term, pod, known):
                    sums[term.key, labels[term.key]] += weight
    raw = [
        sum(sum_ for (key, value), sum_ in sums.items() if node.labels.get(key) == value)
        for node in feasible
    ]
    return [_scaled_affinity(item, min(raw), max(raw)) for item in raw]


# --- spread ------------------------------------------------------------------------------------------


def _in_all_domains(node: NodeInfo, constraints: Constraints) -> bool:
    return all(item.lenient or item.key in node.labels for item in constraints)


def _included(pod: PodInfo, node: NodeInfo, constraint: Constraint) -> bool:
    """Whether the constraint's policies let the node count."""
    if node.node is None:
        return False
    if constraint.honor_affinity and not node_rules.matches(
        pod.affinity, node.name, node.node.metadata.labels
    ):
        return False
    tolerations = pod.pod.spec.tolerations
    return not (
        constraint.honor_taints
        and taint_toleration.first_untolerated(node.node.spec.taints, tolerations) is not None
    )


def _chosen(node: NodeInfo, constraint: Constraint, snapshot: NodeInfoSnapshot) -> int:
    query, known = query_of(constraint), snapshot.index.namespaces
    return sum(1 for other in node.pods if query.chooses(other, known))


def _by_domain(
    pod: PodInfo, snapshot: NodeInfoSnapshot, constraints: Constraints
) -> list[Counter[str]]:
    """Of each constraint, the pods in each domain that has a node that counts."""
    found = [Counter[str]() for _ in constraints]
    for node in snapshot.node_info_list:
        if _in_all_domains(node, constraints):
            for constraint, counts in zip(constraints, found, strict=True):
                if _included(pod, node, constraint):
                    chosen = _chosen(node, constraint, snapshot)
                    counts[node.labels.get(constraint.key, "")] += chosen
    return found


def spread_check(pod: PodInfo, snapshot: NodeInfoSnapshot) -> Check:
    """The constraints that rule out."""
    hard = tuple(item for item in pod.spread if item.hard)
    limits = [
        (item, counts, min(counts.values()) if len(counts) >= item.min_domains else 0)
        for item, counts in zip(hard, _by_domain(pod, snapshot, hard), strict=True)
    ]

    def check(node: NodeInfo) -> Status:
        for item, counts, least in limits:
            value = node.labels.get(item.key)
            if value is None:
                return Status(Code.UNRESOLVABLE, (MISSING,))
            if counts[value] + item.of_itself - least > item.max_skew:
                return Status(Code.UNSCHEDULABLE, (SKEWED,))
        return SUCCESS

    return check


def spread_score(
    pod: PodInfo, snapshot: NodeInfoSnapshot, feasible: Sequence[NodeInfo]
) -> list[int]:
    """The constraints that rank. How many domains there are counts over feasible nodes only."""
    soft = tuple(item for item in pod.spread if not item.hard)
    if not soft:
        return [0] * len(feasible)
    inside = [node for node in feasible if _in_all_domains(node, soft)]
    by_domain = _by_domain(pod, snapshot, soft)
    weights = [
        spread.weight(
            len(inside)
            if item.key == HOSTNAME
            else len({node.labels.get(item.key, "") for node in inside})
        )
        for item in soft
    ]
    raw: dict[str, int] = {}
    for node in inside:
        parts = []
        for item, counts, weight in zip(soft, by_domain, weights, strict=True):
            value = node.labels.get(item.key)
            if value is None:
                continue  # of a lenient constraint
            count = _chosen(node, item, snapshot) if item.key == HOSTNAME else counts[value]
            parts.append((count, weight, item.max_skew))
        raw[node.name] = _raw_spread(parts)
    least, most = min(raw.values(), default=0), max(raw.values(), default=0)
    return [
        spread.scaled(raw[node.name], least, most) if node.name in raw else 0 for node in feasible
    ]
