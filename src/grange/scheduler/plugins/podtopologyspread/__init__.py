"""PodTopologySpread: matching pods evenly over zones, hosts, or any label of nodes.

``filter`` and ``score``, here, define what is right; ``spread_counts`` gives the same from counts.
"""

from collections import Counter as Count
from collections.abc import Hashable, Sequence

from grange.api import names
from grange.api.kinds.pod import Pod
from grange.api.validation.scheduling import UNSATISFIABLE
from grange.placement import node_rules, spread, taint_toleration
from grange.placement.spread import HOSTNAME, SYSTEM_DEFAULTS, Constraint, DefaultConstraint
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.domains import DomainRule
from grange.scheduler.framework import (
    SUCCESS,
    Code,
    DomainScore,
    NodeCheck,
    Plugin,
    Status,
)
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.plugin_args import (
    ConfigSection,
    PluginArgs,
    configurable,
    one_of,
    refusal,
    within,
)
from grange.scheduler.plugin_explanation import PluginExplanation, Refusals
from grange.scheduler.plugins.podtopologyspread.spread_counts import (
    MISSING,
    SKEWED,
    Constraints,
    EligibleDomains,
    MaxSkew,
    PreferredSpread,
    SpreadExplanation,
    query_of,
)
from grange.scheduler.podindex import PodIndex
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

_NAME = "PodTopologySpread"


def _hard(pod: PodInfo) -> Constraints:
    return tuple(item for item in pod.spread if item.hard)


def _soft(pod: PodInfo) -> Constraints:
    return tuple(item for item in pod.spread if not item.hard)


# --- the reference: counted from scratch -----------------------------------------------------------


def _in_all_domains(node: NodeInfo, constraints: Constraints) -> bool:
    labels = node.labels
    return all(item.lenient or item.key in labels for item in constraints)


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
) -> list[Count[str]]:
    """Of each constraint, the pods in each domain that has a node that counts."""
    found = [Count[str]() for _ in constraints]
    for node in snapshot.node_info_list:
        if _in_all_domains(node, constraints):
            for constraint, counts in zip(constraints, found, strict=True):
                if _included(pod, node, constraint):
                    chosen = _chosen(node, constraint, snapshot)
                    counts[node.labels.get(constraint.key, "")] += chosen
    return found


class _Counts:
    def __init__(self, pod: PodInfo, snapshot: NodeInfoSnapshot, hard: Constraints) -> None:
        self._limits = [
            (
                constraint,
                counts,
                min(counts.values()) if len(counts) >= constraint.min_domains else 0,
            )
            for constraint, counts in zip(hard, _by_domain(pod, snapshot, hard), strict=True)
        ]

    def check(self, node: NodeInfo) -> Status:
        labels = node.labels
        for constraint, counts, least in self._limits:
            value = labels.get(constraint.key)
            if value is None:
                return Status(Code.UNRESOLVABLE, (MISSING,))
            if counts[value] + constraint.of_itself - least > constraint.max_skew:
                return Status(Code.UNSCHEDULABLE, (SKEWED,))
        return SUCCESS


class PodTopologySpread:
    """Counts matching pods by domain."""

    def concerns(self, pod: PodInfo, index: PodIndex) -> tuple[int, ...]:
        """Placed pods are counted, not asked."""
        return ()

    def filter(self, pod: PodInfo, snapshot: NodeInfoSnapshot) -> NodeCheck | None:
        """The constraints that rule out."""
        hard = _hard(pod)
        return _Counts(pod, snapshot, hard).check if hard else None

    def score(
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
            raw[node.name] = spread.raw_score(parts)
        least, most = min(raw.values(), default=0), max(raw.values(), default=0)
        return [
            spread.scaled(raw[node.name], least, most) if node.name in raw else 0
            for node in feasible
        ]

    def rules(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, concerns: tuple[int, ...]
    ) -> Sequence[DomainRule]:
        """One a constraint."""
        hard = _hard(pod)
        return [MaxSkew(EligibleDomains(snapshot, pod, item, hard), item) for item in hard]

    def ranking(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, concerns: tuple[int, ...]
    ) -> DomainScore | None:
        """All of them together."""
        soft = _soft(pod)
        return PreferredSpread(pod, snapshot, soft) if soft else None

    def explain(self, refusals: Refusals, rules: Sequence[DomainRule]) -> PluginExplanation:
        """By constraint."""
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
        """Refuse what no pod could state."""
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
        """Refuse a list without effect, and duplicates."""
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


PLUGIN = configurable(PodTopologySpreadArgs, make)
