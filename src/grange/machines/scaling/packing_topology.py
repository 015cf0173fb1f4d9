"""Which domains pods may be in, by the pods that are there and those that a plan puts there.

A group is what some rule counts: pods that selectors choose, by the value of a label of their nodes.
The groups of a plan are fixed before it begins: those of waiting pods' rules, and those of the
anti-affinity of pods that run.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from grange.api.pod_requests import Resources
from grange.machines.scaling.packing_pods import PackedPod, PodRules
from grange.placement.podaffinity import Namespaces, PodSelector, Term
from grange.placement.spread import HOSTNAME, Constraint


@dataclass(slots=True, eq=False)
class DomainGroup:
    """Counts of pods.

    Attributes:
        key: label of nodes.
        counts: pods by domain.
        expected: what pods request in all that wait to be near their like on one host.
        first: the order of the first of them, next to which the others are placed.
    """

    key: str
    counts: Counter[str] = field(default_factory=Counter)
    expected: Resources | None = None
    first: tuple[int, int, str, str] | None = None

    def add(self, domain: str | None, number: int) -> None:
        """Count pods in a domain; without one they are in none."""
        if domain is not None:
            self.counts[domain] += number

    @property
    def empty(self) -> bool:
        """Whether no pod is counted anywhere."""
        return not any(self.counts.values())


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """A spread constraint of a pod, with what it counts and the domains that matter to it."""

    constraint: Constraint
    group: DomainGroup
    domains: frozenset[str]


@dataclass(frozen=True, slots=True)
class TopologyRules:
    """What matters to pods of equal rules.

    Attributes:
        near: groups of which some pod must be there; True: the pod is of the group itself.
        far: groups of which no pod may be there, by its own rules and by those of others.
        spread: see there.
        counted: groups that count it.
        keys: labels of which a node must have one known value; the host is none of them.
    """

    near: tuple[tuple[DomainGroup, bool], ...] = ()
    far: tuple[DomainGroup, ...] = ()
    spread: tuple[SpreadRule, ...] = ()
    counted: tuple[DomainGroup, ...] = ()
    keys: tuple[str, ...] = ()

    @property
    def matters(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self.near or self.far or self.spread or self.counted)

    def allows(self, key: str, domain: str | None) -> bool:
        """Whether the pod may be in a domain, as far as rules about this label go."""
        for group, of_itself in self.near:
            if group.key == key and (
                domain is None or not (group.counts[domain] > 0 or (of_itself and group.empty))
            ):
                return False
        for group in self.far:
            if group.key == key and domain is not None and group.counts[domain] > 0:
                return False
        return all(_within_skew(rule, domain) for rule in self.spread if rule.constraint.key == key)

    def begun(self) -> Resources | None:
        """What all pods request that must be on the host of this one, as it is the first; or None."""
        for group, of_itself in self.near:
            if of_itself and group.key == HOSTNAME and group.empty:
                return group.expected
        return None

    def crowd(self, key: str, domain: str | None) -> int:
        """How many pods that it is to be spread from are in a domain."""
        if domain is None:
            return 0
        return sum(rule.group.counts[domain] for rule in self.spread if rule.constraint.key == key)

    def allows_host(self, domain_of: Callable[[str], str | None]) -> bool:
        """Whether the pod may be on a node whose labels are all known."""
        return self.allows(HOSTNAME, domain_of(HOSTNAME)) and all(
            self.allows(key, domain_of(key)) for key in self.keys
        )

    def count(self, domain_of: Callable[[str], str | None], number: int) -> None:
        """Count the pod on a node, or, with -1, no longer."""
        for group in self.counted:
            group.add(domain_of(group.key), number)


def _within_skew(rule: SpreadRule, domain: str | None) -> bool:
    if domain is None:
        return False
    constraint, counts = rule.constraint, rule.group.counts
    least = 0
    # There can always be another host without such pods.
    if constraint.key != HOSTNAME and len(rule.domains) >= constraint.min_domains:
        least = min((counts[each] for each in rule.domains), default=0)
    return counts[domain] + constraint.of_itself - least <= constraint.max_skew


_Selectors = tuple[PodSelector, ...]


class PackingTopology:
    """The groups of a plan.

    Args:
        namespaces: labels of each.
        domains: the values of a label among nodes, present and possible, that suit pods of given rules.
    """

    def __init__(
        self, namespaces: Namespaces, domains: Callable[[PodRules, str], frozenset[str]]
    ) -> None:
        self._namespaces = namespaces
        self._domains = domains
        self._selected: dict[tuple[_Selectors, str], DomainGroup] = {}
        self._avoided: dict[Term, DomainGroup] = {}  # pods that have the term themselves
        self._rules: dict[PodRules, TopologyRules] = {}
        self._memberships: dict[
            tuple[str, tuple[tuple[str, str], ...]], tuple[list[DomainGroup], list[DomainGroup]]
        ] = {}

    def prepare(self, rules: Iterable[PodRules], terms: Iterable[Term]) -> None:
        """Fix the groups: those of rules, and of the anti-affinity of pods that run."""
        for each in rules:
            for key, selectors in _near(each).items():
                self._group(selectors, key)
            for term in each.terms.anti_affinity:
                self._group((term.selector,), term.key)
                self._avoided.setdefault(term, DomainGroup(term.key))
            for constraint in each.spread:
                self._group((constraint.selector,), constraint.key)
        for term in terms:
            self._avoided.setdefault(term, DomainGroup(term.key))

    def expect(self, pods: Iterable[PackedPod]) -> None:
        """Sum up what waiting pods request that must be near their like on one host."""
        for pod in pods:
            groups = {
                id(group): group
                for rules in pod.steps
                for group, of_itself in self.rules_of(rules).near
                if of_itself and group.key == HOSTNAME
            }
            for group in groups.values():
                group.expected = _sum(group.expected, pod.request)
                group.first = min(group.first or pod.order, pod.order)

    def first_of(self, pod: PackedPod) -> tuple[int, int, str, str]:
        """The order of the first pod of those that must be on one host with this one."""
        for group, of_itself in self.rules_of(pod.steps[0]).near:
            if of_itself and group.key == HOSTNAME and group.first is not None:
                return group.first
        return pod.order

    def count(
        self,
        namespace: str,
        labels: tuple[tuple[str, str], ...],
        terms: Sequence[Term],
        domains: Mapping[str, str],
    ) -> None:
        """Count a pod that runs.

        Args:
            namespace: of the pod.
            labels: of the pod, sorted.
            terms: its anti-affinity.
            domains: labels of its node.
        """
        selected, _ = self._membership(namespace, labels)
        for group in selected:
            group.add(domains.get(group.key), 1)
        for term in terms:
            group = self._avoided[term]
            group.add(domains.get(group.key), 1)

    def rules_of(self, rules: PodRules) -> TopologyRules:
        """What matters to pods of these rules."""
        found = self._rules.get(rules)
        if found is None:
            found = self._rules[rules] = self._resolved(rules)
        return found

    def _resolved(self, rules: PodRules) -> TopologyRules:
        selected, avoiding = self._membership(rules.namespace, rules.labels)
        labels = dict(rules.labels)
        near = tuple(
            (
                self._group(selectors, key),
                self._selects(selectors, rules.namespace, labels),
            )
            for key, selectors in _near(rules).items()
        )
        far = [self._group((term.selector,), term.key) for term in rules.terms.anti_affinity]
        spread = tuple(
            SpreadRule(
                constraint,
                self._group((constraint.selector,), constraint.key),
                frozenset() if constraint.key == HOSTNAME else self._domains(rules, constraint.key),
            )
            for constraint in rules.spread
        )
        owned = [self._avoided[term] for term in rules.terms.anti_affinity]
        involved = [
            *(group for group, _ in near),
            *far,
            *avoiding,
            *(rule.group for rule in spread),
            *selected,
            *owned,
        ]
        keys = dict.fromkeys(group.key for group in involved if group.key != HOSTNAME)
        return TopologyRules(near, (*far, *avoiding), spread, (*selected, *owned), tuple(keys))

    def _group(self, selectors: _Selectors, key: str) -> DomainGroup:
        return self._selected.setdefault((selectors, key), DomainGroup(key))

    def _membership(
        self, namespace: str, labels: tuple[tuple[str, str], ...]
    ) -> tuple[list[DomainGroup], list[DomainGroup]]:
        """The groups that count a pod, and those of pods that avoid it."""
        found = self._memberships.get((namespace, labels))
        if found is None:
            given = dict(labels)
            found = self._memberships[namespace, labels] = (
                [
                    group
                    for (selectors, _), group in self._selected.items()
                    if self._selects(selectors, namespace, given)
                ],
                [
                    group
                    for term, group in self._avoided.items()
                    if self._selects((term.selector,), namespace, given)
                ],
            )
        return found

    def _selects(self, selectors: _Selectors, namespace: str, labels: Mapping[str, str]) -> bool:
        return all(each.matches(namespace, labels, self._namespaces) for each in selectors)


def _sum(before: Resources | None, more: Resources) -> Resources:
    """Requests of pods together, and how many pods they are."""
    have = before or Resources()
    return Resources(
        have.cpu_milli + more.cpu_milli,
        have.memory_bytes + more.memory_bytes,
        have.ephemeral_bytes + more.ephemeral_bytes,
        have.pods + 1,
        {
            name: have.scalars.get(name, 0) + more.scalars.get(name, 0)
            for name in {**have.scalars, **more.scalars}
        },
    )


def _near(rules: PodRules) -> dict[str, _Selectors]:
    """By label: what a pod must be near to. Only pods that all terms select count."""
    terms = rules.terms.affinity
    selectors = tuple(dict.fromkeys(term.selector for term in terms))
    return dict.fromkeys((term.key for term in terms), selectors)
