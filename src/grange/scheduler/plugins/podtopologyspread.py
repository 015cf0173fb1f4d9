"""PodTopologySpread: alike pods evenly over zones, hosts, or whatever a node label names."""

from collections import Counter as Count
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from grange.api import names
from grange.api.kinds.pod import Pod
from grange.api.validation.scheduling import UNSATISFIABLE
from grange.placement import kernels, nodeaffinity, spread, taints
from grange.placement.columns import ABSENT, Ids, Integers, Mask, NodeTable
from grange.placement.spread import HOSTNAME, SYSTEM_DEFAULTS, Constraint, DefaultConstraint
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.domains import Domains
from grange.scheduler.framework import (
    SUCCESS,
    Check,
    Code,
    Plugin,
    Points,
    Ranking,
    Rule,
    Status,
)
from grange.scheduler.nodeinfo import NodeInfo, PodInfo
from grange.scheduler.plugin_args import (
    ConfigSection,
    PluginArgs,
    configured,
    one_of,
    refusal,
    within,
)
from grange.scheduler.podindex import Counter, PodIndex, Query
from grange.scheduler.snapshot import NodeInfoSnapshot

_NAME = "PodTopologySpread"
_SKEWED = "node(s) didn't match pod topology spread constraints"
_MISSING = "node(s) didn't match pod topology spread constraints (missing required label)"

_COUNTS_MAX = 4096  # of pods in a domain; up to here scores come from a table

_Constraints = tuple[Constraint, ...]


def _hard(pod: PodInfo) -> _Constraints:
    return tuple(item for item in pod.spread if item.hard)


def _soft(pod: PodInfo) -> _Constraints:
    return tuple(item for item in pod.spread if not item.hard)


def _query(constraint: Constraint) -> Query:
    return Query((constraint.selector,), staying=True)


# --- counted from scratch ----------------------------------------------------------------------


def _labels(node: NodeInfo) -> dict[str, str]:
    return node.node.metadata.labels if node.node is not None else {}


def _in_all_domains(node: NodeInfo, constraints: _Constraints) -> bool:
    labels = _labels(node)
    return all(item.lenient or item.key in labels for item in constraints)


def _included(pod: PodInfo, node: NodeInfo, constraint: Constraint) -> bool:
    """Whether the constraint's policies let the node count."""
    if node.node is None:
        return False
    if constraint.honor_affinity and not nodeaffinity.matches(
        pod.affinity, node.name, node.node.metadata.labels
    ):
        return False
    tolerations = pod.pod.spec.tolerations
    return not (
        constraint.honor_taints
        and taints.first_untolerated(node.node.spec.taints, tolerations) is not None
    )


def _chosen(node: NodeInfo, constraint: Constraint, snapshot: NodeInfoSnapshot) -> int:
    query, known = _query(constraint), snapshot.index.namespaces
    return sum(1 for other in node.pods if query.chooses(other, known))


def _by_domain(
    pod: PodInfo, snapshot: NodeInfoSnapshot, constraints: _Constraints
) -> list[Count[str]]:
    """Of each constraint, the pods in each domain that has a node that counts."""
    found = [Count[str]() for _ in constraints]
    for node in snapshot.node_info_list:
        if _in_all_domains(node, constraints):
            for constraint, counts in zip(constraints, found, strict=True):
                if _included(pod, node, constraint):
                    chosen = _chosen(node, constraint, snapshot)
                    counts[_labels(node).get(constraint.key, "")] += chosen
    return found


class _Survey:
    def __init__(self, pod: PodInfo, snapshot: NodeInfoSnapshot, hard: _Constraints) -> None:
        self._limits = [
            (
                constraint,
                counts,
                min(counts.values()) if len(counts) >= constraint.min_domains else 0,
            )
            for constraint, counts in zip(hard, _by_domain(pod, snapshot, hard), strict=True)
        ]

    def check(self, node: NodeInfo) -> Status:
        labels = _labels(node)
        for constraint, counts, least in self._limits:
            value = labels.get(constraint.key)
            if value is None:
                return Status(Code.UNRESOLVABLE, (_MISSING,))
            if counts[value] + constraint.of_itself - least > constraint.max_skew:
                return Status(Code.UNSCHEDULABLE, (_SKEWED,))
        return SUCCESS


# --- from counts that are kept -----------------------------------------------------------------


def by_value(ids: Ids, table: NodeTable, key: str) -> Ids:
    """Domains in which a node without the key counts for the empty value, where a node has it."""
    empty = table.labels(key).numbers.get("", ABSENT)
    return np.where(ids == ABSENT, empty, ids)


class _EligibleDomains(Domains):
    """Counts only nodes that are in all domains and that the constraint's policies include."""

    def __init__(
        self,
        snapshot: NodeInfoSnapshot,
        pod: PodInfo,
        constraint: Constraint,
        together: _Constraints,
    ) -> None:
        super().__init__(snapshot, snapshot.index.counter(_query(constraint)), constraint.key)
        self._table = snapshot.table
        self._pod = pod
        self._constraint = constraint
        self._others = [
            item.key for item in together if item.key != constraint.key and not item.lenient
        ]

    def ids(self) -> Ids:
        ids = super().ids()
        return by_value(ids, self._table, self.key) if self._constraint.lenient else ids

    def eligible(self) -> Mask | None:
        table, rows = self._table, self._table.all
        mask: Mask = np.ones(table.size, np.bool_)
        for key in self._others:
            mask &= table.labels(key).ids[rows] >= 0
        if self._constraint.honor_affinity and self._pod.affinity.demands:
            mask &= kernels.matches(table, rows, self._pod.affinity)
        if self._constraint.honor_taints:
            mask &= kernels.untainted(table, rows, self._pod.pod.spec.tolerations)
        return mask


class Skew:
    """No domain may exceed the emptiest one by more than the constraint allows.

    Attributes:
        constraint: what is asked.
        domains: how many such pods there are in each domain.
        least: how many in the emptiest one.
    """

    by_count = False
    resolvable = True

    def __init__(self, domains: _EligibleDomains, constraint: Constraint) -> None:
        self.key = constraint.key
        self.domains = domains
        self.constraint = constraint
        self.least = 0
        self._most = 0

    def refresh(self) -> list[int] | None:
        """Take in what changed."""
        domains, constraint = self.domains, self.constraint
        changed = domains.changes()
        if changed is None or changed:
            self.least = 0
            if len(domains.present) >= constraint.min_domains:
                self.least = domains.least()
            self._most = constraint.max_skew + self.least - constraint.of_itself
        return changed

    def verdicts(self) -> Mask:
        """Where one more pod keeps the skew."""
        verdicts: Mask = self.domains.counts <= self._most
        verdicts[-1] = False
        return verdicts

    def opens(self, domain: int) -> bool:
        """The same for one."""
        return domain >= 0 and self.domains.count[domain] <= self._most

    def count(self, domain: int) -> int:
        """How many such pods there are in a domain."""
        return int(self.domains.counts[domain])

    def reason(self, *, missing: bool) -> str:
        """A node without the label cannot be helped by removing pods."""
        return _MISSING if missing else _SKEWED


class _Evenness:
    """The emptier the domain, the better; several constraints add up."""

    def __init__(self, pod: PodInfo, snapshot: NodeInfoSnapshot, soft: _Constraints) -> None:
        self.keys = tuple({item.key: None for item in soft})
        self.by_row = HOSTNAME in self.keys
        self._soft = soft
        self._domains = {
            at: _EligibleDomains(snapshot, pod, item, soft)
            for at, item in enumerate(soft)
            if item.key != HOSTNAME
        }
        self._counters: dict[int, Counter] = {
            at: snapshot.index.counter(_query(item))
            for at, item in enumerate(soft)
            if item.key == HOSTNAME
        }
        self._table = snapshot.table

    def refresh(self) -> None:
        """Take in what changed."""
        for domains in self._domains.values():
            domains.update()

    def scores(self, points: Points, feasible: Mask) -> Integers:
        """As ``spread.raw_score`` and ``spread.scaled``; 0 outside all domains."""
        ids = {key: points.domains(key) for key in self.keys}
        inside = feasible.copy()
        for item in self._soft:
            if not item.lenient:
                inside &= ids[item.key] >= 0
        places = int(np.count_nonzero(inside))
        result: Integers = np.zeros(len(feasible), np.int64)
        if not places:
            return result
        total = np.zeros(len(feasible), np.float64)
        for at, item in enumerate(self._soft):
            mine = ids[item.key]
            if item.key == HOSTNAME:
                number = places
                counts = self._counters[at].rows(self._table.size)[points.rows()]
            else:
                domains = self._domains[at]
                found = by_value(mine, self._table, item.key) if item.lenient else mine
                number = int(np.count_nonzero(np.bincount(found[inside] + 1)))
                counts = domains.counts[mine]
            weight, extra = spread.weight(number), float(item.max_skew - 1)
            if len(self._soft) == 1 and not item.lenient:
                chosen = counts if places == len(inside) else counts[inside]
                most = int(chosen.max())
                if most < _COUNTS_MAX:
                    scores = _by_count(weight, extra, int(chosen.min()), most)[chosen]
                    if places == len(inside):
                        return scores
                    result[inside] = scores
                    return result
            part = counts.astype(np.float64) * weight + extra
            total += np.where(mine >= 0, part, 0.0) if item.lenient else part
        raw = _rounded(total[inside])
        result[inside] = _scaled(raw, int(raw.min()), int(raw.max()))
        return result


def _by_count(weight: float, extra: float, least: int, most: int) -> Integers:
    """The scores under one constraint, by the number of pods: few numbers, and many nodes."""
    raw = _rounded(np.arange(most + 1, dtype=np.float64) * weight + extra)
    return _scaled(raw, int(raw[least]), int(raw[most]))


def _rounded(total: NDArray[np.float64]) -> Integers:
    """As ``spread.rounded``."""
    whole = np.floor(total)
    return (whole + (total - whole >= 0.5)).astype(np.int64)


def _scaled(raw: Integers, least: int, most: int) -> Integers:
    """As ``spread.scaled``."""
    return np.full(len(raw), 100, np.int64) if most == 0 else 100 * (most + least - raw) // most


class _Spread:
    def concerns(self, pod: PodInfo, index: PodIndex) -> tuple[int, ...]:
        """Assumed pods are counted, not asked."""
        return ()

    def survey(self, pod: PodInfo, snapshot: NodeInfoSnapshot) -> Check | None:
        """The constraints that rule out."""
        hard = _hard(pod)
        return _Survey(pod, snapshot, hard).check if hard else None

    def rank(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, feasible: Sequence[NodeInfo]
    ) -> list[int] | None:
        """The constraints that rank. How many domains there are counts over feasible nodes only."""
        soft = _soft(pod)
        if not soft:
            return None
        inside = [node for node in feasible if _in_all_domains(node, soft)]
        by_domain = _by_domain(pod, snapshot, soft)
        weights = [
            spread.weight(
                len(inside)
                if item.key == HOSTNAME
                else len({_labels(node).get(item.key, "") for node in inside})
            )
            for item in soft
        ]
        raw: dict[str, int] = {}
        for node in inside:
            parts = []
            for item, counts, weight in zip(soft, by_domain, weights, strict=True):
                value = _labels(node).get(item.key)
                if value is None:
                    continue  # of a lenient constraint
                count = _chosen(node, item, snapshot) if item.key == HOSTNAME else counts[value]
                parts.append((count, weight, item.max_skew))
            raw[node.name] = spread.raw_score(parts)
        least, most = min(raw.values(), default=0), max(raw.values(), default=0)
        return [
            spread.scaled(raw[node.name], least, most) if node.name in raw else 0
            for node in feasible
        ]

    def rules(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, concerns: tuple[int, ...]
    ) -> Sequence[Rule]:
        """One a constraint."""
        hard = _hard(pod)
        return [Skew(_EligibleDomains(snapshot, pod, item, hard), item) for item in hard]

    def ranking(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, concerns: tuple[int, ...]
    ) -> Ranking | None:
        """All of them together."""
        soft = _soft(pod)
        return _Evenness(pod, snapshot, soft) if soft else None


def _signature(pod: PodInfo) -> Hashable:
    return pod.spread


def _counts(pod: PodInfo, before: Object, after: Object) -> bool:
    """A pod came, changed its labels or went, and it counts for some constraint before or after."""
    return any(
        constraint.selector.matches(item.metadata.namespace, item.metadata.labels, {})
        for constraint in _hard(pod)
        for item in (before, after)
        if isinstance(item, Pod)
    )


_POD = Action.ADD | Action.POD_LABEL | Action.DELETE
_NODE = Action.ADD | Action.DELETE | Action.NODE_LABEL | Action.NODE_TAINT


class DefaultConstraints(ConfigSection, frozen=True, kw_only=True):
    """One constraint for pods that state none; which pods count follows from their Services."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: str

    def __post_init__(self) -> None:
        """Refuse what no pod could state."""
        fault = names.check_qualified_name(self.topology_key)
        if fault is not None:
            raise ValueError(refusal("topologyKey", fault))
        within("maxSkew", self.max_skew, 1, 2**31 - 1)
        one_of("whenUnsatisfiable", self.when_unsatisfiable, UNSATISFIABLE)


class Args(PluginArgs, frozen=True, kw_only=True):
    """As PodTopologySpreadArgs: System has Kubernetes' own defaults, List those that are listed."""

    defaulting_type: str = "System"
    default_constraints: tuple[DefaultConstraints, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a list that would not count, or that says a thing twice."""
        one_of("defaultingType", self.defaulting_type, ("System", "List"))
        if self.default_constraints and self.defaulting_type == "System":
            raise ValueError(refusal("defaultConstraints", "must be empty unless it is List"))
        seen = [(item.topology_key, item.when_unsatisfiable) for item in self.default_constraints]
        for at, pair in enumerate(seen):
            if pair in seen[:at]:
                raise ValueError(refusal(f"defaultConstraints[{at}]", "is there twice"))


def _defaults(args: Args) -> tuple[DefaultConstraint, ...]:
    if args.defaulting_type == "System":
        return SYSTEM_DEFAULTS
    return tuple(
        DefaultConstraint(
            item.topology_key, item.max_skew, hard=item.when_unsatisfiable == "DoNotSchedule"
        )
        for item in args.default_constraints
    )


def make(args: Args) -> Plugin:
    """The plugin with these arguments."""
    return Plugin(
        _NAME,
        cluster=_Spread(),
        weight=2,
        signature=_signature,
        events=(
            Registration(ClusterEvent(Subject.ASSIGNED_POD, _POD), _counts),
            Registration(ClusterEvent(Subject.UNSCHEDULED_POD, Action.POD_LABEL)),
            Registration(ClusterEvent(Subject.NODE, _NODE)),
        ),
        spread=_defaults(args),
        configure=configured(_NAME, Args, make),
    )


PLUGIN = make(Args())
