"""PodTopologySpread: matching pods evenly over zones, hosts or any label of nodes, within ``maxSkew``."""

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from grange.api import names
from grange.api.kinds.pod import Pod
from grange.api.validation.scheduling import UNSATISFIABLE
from grange.placement import kernels, spread
from grange.placement.columns import ABSENT, Ids, Integers, Mask, NodeTable
from grange.placement.spread import HOSTNAME, SYSTEM_DEFAULTS, Constraint, DefaultConstraint
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.domains import DomainExplanation, DomainRule, Domains
from grange.scheduler.framework import (
    DomainScore,
    DomainsOf,
    Plugin,
)
from grange.scheduler.plugin_args import (
    ConfigSection,
    PluginArgs,
    configurable,
    one_of,
    refusal,
    within,
)
from grange.scheduler.plugin_explanation import PluginExplanation, Refusals, Remedy, altered
from grange.scheduler.podindex import Counter, PodIndex, Query
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

MISSING = "node(s) didn't match pod topology spread constraints (missing required label)"
SKEWED = "node(s) didn't match pod topology spread constraints"

Constraints = tuple[Constraint, ...]


def query_of(constraint: Constraint) -> Query:
    """The pods that count."""
    return Query((constraint.selector,), staying=True)


def by_value(ids: Ids, table: NodeTable, key: str) -> Ids:
    """Domains in which a node without the key counts for the empty value, where a node has it."""
    empty = table.labels(key).numbers.get("", ABSENT)
    return np.where(ids == ABSENT, empty, ids)


def eligible(table: NodeTable, pod: PodInfo, constraint: Constraint, together: Constraints) -> Mask:
    """The rows that count: in all domains, and included by the constraint's policies."""
    rows = table.all
    mask: Mask = table.valid[rows].copy()
    for item in together:
        if item.key != constraint.key and not item.lenient:
            mask &= table.domains(item.key) >= 0
    if constraint.honor_affinity and pod.affinity.demands:
        mask &= kernels.matches(table, rows, pod.affinity)
    if constraint.honor_taints:
        mask &= kernels.untainted(table, rows, pod.pod.spec.tolerations)
    return mask


class EligibleDomains(Domains):
    """Counts only nodes that are in all domains and that the constraint's policies include."""

    def __init__(
        self,
        snapshot: NodeInfoSnapshot,
        pod: PodInfo,
        constraint: Constraint,
        together: Constraints,
    ) -> None:
        super().__init__(snapshot, snapshot.index.counter(query_of(constraint)), constraint.key)
        self._table = snapshot.table
        self._pod = pod
        self._constraint, self._together = constraint, together

    def ids(self) -> Ids:
        ids = super().ids()
        return by_value(ids, self._table, self.key) if self._constraint.lenient else ids

    def eligible(self) -> Mask | None:
        return eligible(self._table, self._pod, self._constraint, self._together)


class MaxSkew(DomainRule):
    """No domain may exceed the emptiest one by more than the constraint allows.

    Attributes:
        least: the count of the emptiest domain.
    """

    by_count = False

    def __init__(self, domains: Domains, constraint: Constraint) -> None:
        super().__init__(domains)
        self.constraint = constraint
        self.least = 0
        self._most = 0

    def refresh(self) -> list[int] | None:
        domains, constraint = self.domains, self.constraint
        changed = domains.changes()
        if changed is None or changed:
            self.least = 0
            if len(domains.present) >= constraint.min_domains:
                self.least = domains.least()
            self._most = constraint.max_skew + self.least - constraint.of_itself
        return changed

    def accepts(self, count: Any) -> Any:
        return count <= self._most

    def reason(self, *, missing: bool) -> str:
        """A node without the label does not accept the pod once pods are gone."""
        return MISSING if missing else SKEWED


class PreferredSpread:
    """The emptier the domain, the better; several constraints add up."""

    def __init__(self, pod: PodInfo, snapshot: NodeInfoSnapshot, soft: Constraints) -> None:
        self.keys = tuple({item.key: None for item in soft})
        self.by_row = HOSTNAME in self.keys
        self._soft = soft
        self._domains = {
            at: EligibleDomains(snapshot, pod, item, soft)
            for at, item in enumerate(soft)
            if item.key != HOSTNAME
        }
        self._counters: dict[int, Counter] = {
            at: snapshot.index.counter(query_of(item))
            for at, item in enumerate(soft)
            if item.key == HOSTNAME
        }
        self._table = snapshot.table

    def refresh(self) -> None:
        for domains in self._domains.values():
            domains.update()

    def scores(self, domains: DomainsOf, feasible: Mask) -> Integers:
        """Counts by the weights of their constraints, scaled by ``spread.scaled``; 0 outside all domains."""
        ids = {key: domains(key) for key in self.keys}
        inside = feasible
        for item in self._soft:
            if not item.lenient:
                inside = inside & (ids[item.key] >= 0)
        places = int(np.count_nonzero(inside))
        if not places:
            return np.zeros(len(feasible), np.int64)
        total: Any = 0.0
        for at, item in enumerate(self._soft):
            mine = ids[item.key]
            if item.key == HOSTNAME:
                number = places
                counts = self._counters[at].rows(self._table.size)
            else:
                found = by_value(mine, self._table, item.key) if item.lenient else mine
                number = int(np.count_nonzero(np.bincount(found[inside] + 1)))
                counts = self._domains[at].counts[mine]
            part = counts * spread.weight(number) + float(item.max_skew - 1)
            total = total + (np.where(mine >= 0, part, 0.0) if item.lenient else part)
        raw: Integers = spread.rounded(total)
        most = kernels.most(raw, inside)
        least = most - kernels.most(most - raw, inside)
        return inside * spread.scaled(raw, least, most)


_NAME = "PodTopologySpread"


def _hard(pod: PodInfo) -> Constraints:
    return tuple(item for item in pod.spread if item.hard)


def _soft(pod: PodInfo) -> Constraints:
    return tuple(item for item in pod.spread if not item.hard)


class PodTopologySpread:
    """Counts matching pods by domain."""

    def concerns(self, pod: PodInfo, index: PodIndex) -> tuple[int, ...]:
        """Placed pods are counted, not asked."""
        return ()

    def rules(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, concerns: tuple[int, ...]
    ) -> Sequence[DomainRule]:
        hard = _hard(pod)
        return [MaxSkew(EligibleDomains(snapshot, pod, item, hard), item) for item in hard]

    def ranking(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, concerns: tuple[int, ...]
    ) -> DomainScore | None:
        """The constraints that rank, all together. Domains count over feasible nodes only."""
        soft = _soft(pod)
        return PreferredSpread(pod, snapshot, soft) if soft else None

    def explain(self, refusals: Refusals, rules: Sequence[DomainRule]) -> PluginExplanation:
        return SpreadExplanation(refusals, rules)


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


class DefaultConstraintArgs(ConfigSection, frozen=True, kw_only=True):
    """One constraint for pods that state none; which pods count follows from their Services."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: str

    def __post_init__(self) -> None:
        fault = names.check_qualified_name(self.topology_key)
        if fault is not None:
            raise ValueError(refusal("topologyKey", fault))
        within("maxSkew", self.max_skew, 1, 2**31 - 1)
        one_of("whenUnsatisfiable", self.when_unsatisfiable, UNSATISFIABLE)


class PodTopologySpreadArgs(PluginArgs, frozen=True, kw_only=True):
    """As PodTopologySpreadArgs: System has Kubernetes' own defaults, List those that are listed."""

    defaulting_type: str = "System"
    default_constraints: tuple[DefaultConstraintArgs, ...] = ()

    def __post_init__(self) -> None:
        one_of("defaultingType", self.defaulting_type, ("System", "List"))
        if self.default_constraints and self.defaulting_type == "System":
            raise ValueError(refusal("defaultConstraints", "must be empty unless it is List"))
        seen = [(item.topology_key, item.when_unsatisfiable) for item in self.default_constraints]
        for at, pair in enumerate(seen):
            if pair in seen[:at]:
                raise ValueError(refusal(f"defaultConstraints[{at}]", "is there twice"))


def _defaults(args: PodTopologySpreadArgs) -> tuple[DefaultConstraint, ...]:
    if args.defaulting_type == "System":
        return SYSTEM_DEFAULTS
    return tuple(
        DefaultConstraint(
            item.topology_key, item.max_skew, hard=item.when_unsatisfiable == "DoNotSchedule"
        )
        for item in args.default_constraints
    )


def make(args: PodTopologySpreadArgs) -> Plugin:
    """The plugin with these arguments."""
    return Plugin(
        _NAME,
        topology=PodTopologySpread(),
        weight=2,
        signature=_signature,
        events=(
            Registration(ClusterEvent(Subject.ASSIGNED_POD, _POD), _counts),
            Registration(ClusterEvent(Subject.UNSCHEDULED_POD, Action.POD_LABEL)),
            Registration(ClusterEvent(Subject.NODE, _NODE)),
        ),
        spread=_defaults(args),
    )


# --- the explanation -----------------------------------------------------------------------------


class SpreadExplanation(DomainExplanation):
    """By constraint, the skew and what would be accepted."""

    def __init__(self, refusals: Refusals, rules: Sequence[DomainRule]) -> None:
        super().__init__(refusals, rules)
        self._rules = [rule for rule in rules if isinstance(rule, MaxSkew)]

    def missing(self, row: int) -> list[str]:
        found = []
        for rule, ids in zip(self._rules, self.ids, strict=True):
            domain, key = int(ids[row]), rule.key
            if domain < 0:
                found.append(f"no label {key}, by which the pod is spread")
            elif not rule.opens(domain):
                value = self.refusals.label(row, key)
                have, least = int(rule.domains.counts[domain]), rule.least
                found.append(
                    f"{key} {value} has {have} such pods, the emptiest domain {least}: "
                    f"maxSkew is {rule.constraint.max_skew}"
                )
        return found

    def changes(self, rows: Integers) -> list[Remedy]:
        """Allow as much more as the nearest domain needs."""
        limits: dict[str, int] = {}
        left = rows
        for rule, ids in zip(self._rules, self.ids, strict=True):
            mine = ids[left]
            inside = mine >= 0
            left, mine = left[inside], mine[inside]
            if not len(left):
                return []
            skews = rule.domains.counts[mine] + rule.constraint.of_itself - rule.least
            allowed = max(int(skews.min()), rule.constraint.max_skew)
            if allowed > rule.constraint.max_skew:
                limits[rule.key] = max(allowed, limits.get(rule.key, 0))
            left = left[skews <= allowed]
        if not limits or not len(left):
            return []
        text = " and ".join(f"maxSkew over {key} ≥ {limit}" for key, limit in limits.items())
        return [Remedy(text, left, 0.65, change=partial(_skewed, limits=limits))]


def _skewed(info: PodInfo, limits: Mapping[str, int]) -> PodInfo:
    """The pod with at least so large a skew over each of these keys."""
    spread = tuple(
        msgspec.structs.replace(item, max_skew=max(item.max_skew, limits.get(item.key, 0)))
        if item.hard
        else item
        for item in info.spread
    )
    return altered(info, spread=spread)


PLUGIN = configurable(PodTopologySpreadArgs, make)
