"""InterPodAffinity: affinity and anti-affinity to other pods, required or preferred, of both sides.

Required affinity that no pod meets yet does not apply to a pod that would meet it itself: otherwise
the first of such pods could not be scheduled. ``filter`` and ``score``, here, define what is right;
``affinity_counts`` gives the same from counts.
"""

from collections import Counter as Count
from collections.abc import Hashable, Sequence

from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.placement import podaffinity
from grange.placement.podaffinity import Namespaces, Term, TermKind
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.domains import DomainRule, Domains
from grange.scheduler.framework import (
    SUCCESS,
    Code,
    DomainScore,
    NodeCheck,
    Plugin,
    Status,
)
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.plugin_args import PluginArgs, configurable, within
from grange.scheduler.plugin_explanation import PluginExplanation, Refusals
from grange.scheduler.plugins.interpodaffinity.affinity_counts import (
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    UNMET_AFFINITY,
    NoPodsInDomain,
    PodAffinityExplanation,
    PodsInDomain,
    PreferredTerms,
)
from grange.scheduler.podindex import PodIndex, Query
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

_NAME = "InterPodAffinity"

_Domain = tuple[str, str]  # a label key and its value


# --- the reference: counted from scratch -----------------------------------------------------------


def _selected(term: Term, info: PodInfo, known: Namespaces) -> bool:
    meta = info.pod.metadata
    return term.selector.matches(meta.namespace, meta.labels, known)


def _selected_by_all(terms: tuple[Term, ...], info: PodInfo, known: Namespaces) -> bool:
    return all(_selected(term, info, known) for term in terms)


class InterPodAffinityArgs(PluginArgs, frozen=True, kw_only=True):
    """As in Kubernetes.

    Attributes:
        hard_pod_affinity_weight: what required affinity of an existing pod adds to the score of a
            node for each pod that it selects.
        ignore_preferred_terms_of_existing_pods: for pods without preferred terms, the terms of
            existing pods do not rank nodes.
    """

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False

    def __post_init__(self) -> None:
        """Refuse what is out of bounds."""
        within("hardPodAffinityWeight", self.hard_pod_affinity_weight, 0, 100)


class _Counts:
    def __init__(self, pod: PodInfo, snapshot: NodeInfoSnapshot) -> None:
        self._pod = pod
        known = snapshot.index.namespaces
        self._excluded_by_others: set[_Domain] = set()
        for node in snapshot.have_pods_with_required_anti_affinity:
            labels = node.labels
            for other in node.pods_with_required_anti_affinity:
                self._excluded_by_others.update(
                    (term.key, labels[term.key])
                    for term in other.terms.anti_affinity
                    if term.key in labels and _selected(term, pod, known)
                )
        self._with_affinity: set[_Domain] = set()
        self._excluded: set[_Domain] = set()
        required, excluded = pod.terms.affinity, pod.terms.anti_affinity
        for node in snapshot.node_info_list if required or excluded else ():
            labels = node.labels
            for other in node.pods:
                if required and _selected_by_all(required, other, known):
                    self._with_affinity.update(
                        (term.key, labels[term.key]) for term in required if term.key in labels
                    )
                self._excluded.update(
                    (term.key, labels[term.key])
                    for term in excluded
                    if term.key in labels and _selected(term, other, known)
                )
        self._first = not self._with_affinity and _selected_by_all(required, pod, known)

    @property
    def needed(self) -> bool:
        return bool(
            self._excluded_by_others or self._pod.terms.affinity or self._pod.terms.anti_affinity
        )

    def check(self, node: NodeInfo) -> Status:
        labels = node.labels
        for term in self._pod.terms.affinity:
            value = labels.get(term.key)
            if value is None or not (self._first or (term.key, value) in self._with_affinity):
                return Status(Code.UNRESOLVABLE, (UNMET_AFFINITY,))
        if any(
            (term.key, labels.get(term.key)) in self._excluded
            for term in self._pod.terms.anti_affinity
        ):
            return Status(Code.UNSCHEDULABLE, (ANTI_AFFINITY,))
        if any(labels.get(key) == value for key, value in self._excluded_by_others):
            return Status(Code.UNSCHEDULABLE, (EXISTING_ANTI_AFFINITY,))
        return SUCCESS


def _weight(term: Term, required: int) -> int:
    """What an existing pod's term adds for each pod that it selects."""
    return {
        TermKind.AFFINITY: required,
        TermKind.PREFERRED: term.weight,
        TermKind.ANTI_AFFINITY: 0,
    }[term.kind]


def _sums(pod: PodInfo, snapshot: NodeInfoSnapshot, required: int) -> Count[_Domain]:
    """By domain, the sum of the weights of terms that hold there."""
    known, sums = snapshot.index.namespaces, Count[_Domain]()
    preferred = pod.terms.preferred
    for node in snapshot.node_info_list if preferred else snapshot.have_pods_with_affinity:
        labels = node.labels
        for other in node.pods if preferred else node.pods_with_affinity:
            for term in preferred:
                if term.key in labels and _selected(term, other, known):
                    sums[term.key, labels[term.key]] += term.weight
            for term in other.terms.affinity + other.terms.preferred:
                weight = _weight(term, required)
                if weight and term.key in labels and _selected(term, pod, known):
                    sums[term.key, labels[term.key]] += weight
    return sums


class InterPodAffinity:
    """Counts the pods that terms select, by domain."""

    def __init__(self, args: InterPodAffinityArgs) -> None:
        self._required_weight = args.hard_pod_affinity_weight
        self._only_own = args.ignore_preferred_terms_of_existing_pods

    def concerns(self, pod: PodInfo, index: PodIndex) -> tuple[int, ...]:
        """The terms of existing pods that select this one."""
        return index.concerning(pod)

    def filter(self, pod: PodInfo, snapshot: NodeInfoSnapshot) -> NodeCheck | None:
        """Its own required terms, and anti-affinity of existing pods."""
        counted = _Counts(pod, snapshot)
        return counted.check if counted.needed else None

    def score(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, feasible: Sequence[NodeInfo]
    ) -> list[int] | None:
        """Its own preferred terms, and those of existing pods; their required affinity counts, too."""
        if self._only_own and not pod.terms.preferred:
            return None
        sums = _sums(pod, snapshot, self._required_weight)
        if not sums:
            return None
        raw = []
        for node in feasible:
            labels = node.labels
            raw.append(sum(sum_ for (key, value), sum_ in sums.items() if labels.get(key) == value))
        least, most = min(raw), max(raw)
        return [podaffinity.scaled(item, least, most) for item in raw]

    def rules(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, concerns: tuple[int, ...]
    ) -> Sequence[DomainRule]:
        """In the order of ``filter``."""
        index, required = snapshot.index, pod.terms.affinity
        rules: list[DomainRule] = []
        if required:
            counter = index.counter(Query(tuple(term.selector for term in required)))
            group = [Domains(snapshot, counter, term.key) for term in required]
            itself = _selected_by_all(required, pod, index.namespaces)
            rules += [
                PodsInDomain(group, term, at, selects_itself=itself)
                for at, term in enumerate(required)
            ]
        for term in pod.terms.anti_affinity:
            counter = index.counter(Query((term.selector,)))
            rules.append(NoPodsInDomain(Domains(snapshot, counter, term.key), term, existing=False))
        for number in concerns:
            term = index.term(number)
            if term.kind is TermKind.ANTI_AFFINITY:
                domains = Domains(snapshot, index.holders(number), term.key)
                rules.append(NoPodsInDomain(domains, term, existing=True))
        return rules

    def ranking(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, concerns: tuple[int, ...]
    ) -> DomainScore | None:
        """As ``score``."""
        if self._only_own and not pod.terms.preferred:
            return None
        index = snapshot.index
        weighted = [
            (Domains(snapshot, index.counter(Query((term.selector,))), term.key), term.weight)
            for term in pod.terms.preferred
        ]
        for number in concerns:
            other = index.term(number)
            if weight := _weight(other, self._required_weight):
                domains = Domains(snapshot, index.holders(number), other.key)
                weighted.append((domains, weight))
        return PreferredTerms(weighted) if weighted else None

    def explain(self, refusals: Refusals, rules: Sequence[DomainRule]) -> PluginExplanation:
        """By term."""
        return PodAffinityExplanation(refusals, rules)


def _signature(pod: PodInfo) -> Hashable:
    meta, terms = pod.pod.metadata, pod.terms
    if not terms.affinity:
        return terms
    # Whether it may be the first depends on its labels, and by a selector on its namespace's.
    return terms, meta.namespace, frozenset(meta.labels.items())


# --- queueing hints ------------------------------------------------------------------------------


def _helped_by_pod(pod: PodInfo, before: Object, after: Object) -> bool:
    """Whether a pod came that required affinity selects, or one went that anti-affinity selects.

    The labels of namespaces are not known here, so a namespace selector counts as met.
    """
    came = after if isinstance(after, Pod) else None
    went = before if isinstance(before, Pod) else None
    terms = pod.terms
    if came is not None and terms.affinity and _may_select(terms.affinity, came):
        return True
    if went is None:
        return False
    if came is None and terms.affinity and _may_select(terms.affinity, went):
        return True  # without it this pod may be the first
    if any(_may_select((term,), went) for term in terms.anti_affinity):
        return True
    return any(_may_select((term,), pod.pod) for term in podaffinity.of_pod(went).anti_affinity)


def _may_select(terms: tuple[Term, ...], pod: Pod) -> bool:
    meta = pod.metadata
    for term in terms:
        selector = term.selector
        if selector.labels is None or not all(
            item.matches(meta.labels) for item in selector.labels
        ):
            return False
        if selector.namespace_labels is None and meta.namespace not in selector.namespaces:
            return False
    return True


def _helped_by_node(pod: PodInfo, before: Object, after: Object) -> bool:
    """A node came or changed its labels; terms of others are not known, so any label may matter."""
    if not (isinstance(before, Node) and isinstance(after, Node)):
        return True
    return before.metadata.labels != after.metadata.labels


_POD = Action.ADD | Action.POD_LABEL | Action.DELETE


def make(args: InterPodAffinityArgs) -> Plugin:
    """The plugin with these arguments."""
    return Plugin(
        _NAME,
        topology=InterPodAffinity(args),
        weight=2,
        signature=_signature,
        hints_differ=True,
        events=(
            Registration(ClusterEvent(Subject.ASSIGNED_POD, _POD), _helped_by_pod),
            Registration(ClusterEvent(Subject.UNSCHEDULED_POD, Action.POD_LABEL)),
            Registration(
                ClusterEvent(Subject.NODE, Action.ADD | Action.NODE_LABEL), _helped_by_node
            ),
            Registration(ClusterEvent(Subject.NAMESPACE, Action.ADD | Action.UPDATE)),
        ),
    )


PLUGIN = configurable(InterPodAffinityArgs, make)
