"""InterPodAffinity: beside these pods and away from those, by demand or by wish, on both sides.

A demand for company that nobody meets yet is waived for a pod that would meet it itself: somebody
has to be first.
"""

from collections import Counter as Count
from collections.abc import Hashable, Sequence

from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.placement import podaffinity
from grange.placement.podaffinity import Kind, Namespaces, Term
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.domains import Domains
from grange.scheduler.explanation import PluginExplanation, Refusals
from grange.scheduler.framework import (
    SUCCESS,
    Check,
    Code,
    Plugin,
    Ranking,
    Rule,
    Status,
)
from grange.scheduler.nodeinfo import NodeInfo, PodInfo
from grange.scheduler.plugin_args import PluginArgs, configured, within
from grange.scheduler.plugins.interpodaffinity.counted import (
    UNMET_AFFINITY,
    NoPodsInDomain,
    PodAffinityExplanation,
    PodsInDomain,
    PreferredTerms,
)
from grange.scheduler.podindex import PodIndex, Query
from grange.scheduler.snapshot import NodeInfoSnapshot

_NAME = "InterPodAffinity"
_APART = "node(s) didn't match pod anti-affinity rules"
_THEIRS = "node(s) didn't satisfy existing pods anti-affinity rules"

_Place = tuple[str, str]


# --- the reference: counted from scratch -----------------------------------------------------------


def _about(term: Term, info: PodInfo, known: Namespaces) -> bool:
    meta = info.pod.metadata
    return term.selector.matches(meta.namespace, meta.labels, known)


def _all_about(terms: tuple[Term, ...], info: PodInfo, known: Namespaces) -> bool:
    return all(_about(term, info, known) for term in terms)


def _labels(node: NodeInfo) -> dict[str, str]:
    return node.node.metadata.labels if node.node is not None else {}


class InterPodAffinityArgs(PluginArgs, frozen=True, kw_only=True):
    """As in Kubernetes.

    Attributes:
        hard_pod_affinity_weight: what a placed pod's demand for company adds for each pod that it
            is about.
        ignore_preferred_terms_of_existing_pods: for pods without wishes of their own, what placed
            pods wish and demand does not rank nodes.
    """

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False

    def __post_init__(self) -> None:
        """Refuse what is out of bounds."""
        within("hardPodAffinityWeight", self.hard_pod_affinity_weight, 0, 100)


class _Survey:
    def __init__(self, pod: PodInfo, snapshot: NodeInfoSnapshot) -> None:
        self._pod = pod
        known = snapshot.index.namespaces
        self._theirs: set[_Place] = set()
        for node in snapshot.have_pods_with_required_anti_affinity:
            labels = _labels(node)
            for other in node.pods_with_required_anti_affinity:
                self._theirs.update(
                    (term.key, labels[term.key])
                    for term in other.terms.apart
                    if term.key in labels and _about(term, pod, known)
                )
        self._near: set[_Place] = set()
        self._apart: set[_Place] = set()
        near, apart = pod.terms.near, pod.terms.apart
        for node in snapshot.node_info_list if near or apart else ():
            labels = _labels(node)
            for other in node.pods:
                if near and _all_about(near, other, known):
                    self._near.update(
                        (term.key, labels[term.key]) for term in near if term.key in labels
                    )
                self._apart.update(
                    (term.key, labels[term.key])
                    for term in apart
                    if term.key in labels and _about(term, other, known)
                )
        self._first = not self._near and _all_about(near, pod, known)

    @property
    def needed(self) -> bool:
        return bool(self._theirs or self._pod.terms.near or self._pod.terms.apart)

    def check(self, node: NodeInfo) -> Status:
        labels = _labels(node)
        for term in self._pod.terms.near:
            value = labels.get(term.key)
            if value is None or not (self._first or (term.key, value) in self._near):
                return Status(Code.UNRESOLVABLE, (UNMET_AFFINITY,))
        if any((term.key, labels.get(term.key)) in self._apart for term in self._pod.terms.apart):
            return Status(Code.UNSCHEDULABLE, (_APART,))
        if any(labels.get(key) == value for key, value in self._theirs):
            return Status(Code.UNSCHEDULABLE, (_THEIRS,))
        return SUCCESS


def _weight(term: Term, demand: int) -> int:
    """What a placed pod's term adds for each pod that it is about."""
    return {Kind.NEAR: demand, Kind.WISH: term.weight, Kind.APART: 0}[term.kind]


def _sums(pod: PodInfo, snapshot: NodeInfoSnapshot, demand: int) -> Count[_Place]:
    """The wishes granted by being in each place."""
    known, sums = snapshot.index.namespaces, Count[_Place]()
    wishes = pod.terms.wishes
    for node in snapshot.node_info_list if wishes else snapshot.have_pods_with_affinity:
        labels = _labels(node)
        for other in node.pods if wishes else node.pods_with_affinity:
            for term in wishes:
                if term.key in labels and _about(term, other, known):
                    sums[term.key, labels[term.key]] += term.weight
            for term in other.terms.near + other.terms.wishes:
                weight = _weight(term, demand)
                if weight and term.key in labels and _about(term, pod, known):
                    sums[term.key, labels[term.key]] += weight
    return sums


class InterPodAffinity:
    """Counts the pods that terms select, by domain.

    Args:
        args: weights.
    """

    def __init__(self, args: InterPodAffinityArgs) -> None:
        self._demand = args.hard_pod_affinity_weight
        self._only_own = args.ignore_preferred_terms_of_existing_pods

    def concerns(self, pod: PodInfo, index: PodIndex) -> tuple[int, ...]:
        """The terms of placed pods that are about this one."""
        return index.concerning(pod)

    def survey(self, pod: PodInfo, snapshot: NodeInfoSnapshot) -> Check | None:
        """Its own demands, and the refusals of placed pods."""
        survey = _Survey(pod, snapshot)
        return survey.check if survey.needed else None

    def rank(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, feasible: Sequence[NodeInfo]
    ) -> list[int] | None:
        """Its own wishes, and those of placed pods; their demands are wishes once they are met."""
        if self._only_own and not pod.terms.wishes:
            return None
        sums = _sums(pod, snapshot, self._demand)
        if not sums:
            return None
        raw = []
        for node in feasible:
            labels = _labels(node)
            raw.append(sum(sum_ for (key, value), sum_ in sums.items() if labels.get(key) == value))
        least, most = min(raw), max(raw)
        return [podaffinity.scaled(item, least, most) for item in raw]

    def rules(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, concerns: tuple[int, ...]
    ) -> Sequence[Rule]:
        """In the order of the survey."""
        index, terms = snapshot.index, pod.terms
        rules: list[Rule] = []
        if terms.near:
            together = index.counter(Query(tuple(term.selector for term in terms.near)))
            group = [Domains(snapshot, together, term.key) for term in terms.near]
            alone = _all_about(terms.near, pod, index.namespaces)
            rules.extend(PodsInDomain(at, group, meets_itself=alone) for at in range(len(group)))
        for term in terms.apart:
            counter = index.counter(Query((term.selector,)))
            rules.append(NoPodsInDomain(Domains(snapshot, counter, term.key), _APART))
        for number in concerns:
            theirs = index.term(number)
            if theirs.kind is Kind.APART:
                domains = Domains(snapshot, index.holders(number), theirs.key)
                rules.append(NoPodsInDomain(domains, _THEIRS))
        return rules

    def ranking(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, concerns: tuple[int, ...]
    ) -> Ranking | None:
        """Its own wishes and theirs."""
        if self._only_own and not pod.terms.wishes:
            return None
        index = snapshot.index
        weighted = [
            (Domains(snapshot, index.counter(Query((term.selector,))), term.key), term.weight)
            for term in pod.terms.wishes
        ]
        for number in concerns:
            theirs = index.term(number)
            if weight := _weight(theirs, self._demand):
                domains = Domains(snapshot, index.holders(number), theirs.key)
                weighted.append((domains, weight))
        return PreferredTerms(weighted) if weighted else None

    def explain(
        self, refusals: Refusals, rules: Sequence[Rule], concerns: tuple[int, ...]
    ) -> PluginExplanation:
        """By term."""
        return PodAffinityExplanation(refusals, rules, concerns)


def _signature(pod: PodInfo) -> Hashable:
    meta, terms = pod.pod.metadata, pod.terms
    if not terms.near:
        return terms
    # Whether it may be the first depends on its labels, and by a selector on its namespace's.
    return terms, meta.namespace, frozenset(meta.labels.items())


# --- what may help a pod that was turned down ----------------------------------------------------


def _of_interest(pod: PodInfo, before: Object, after: Object) -> bool:
    """A pod came, changed its labels, or went: did company arrive, or a reason to stay away leave?

    Namespaces' labels are not at hand here, so a selector over namespaces counts as met.
    """
    came = after if isinstance(after, Pod) else None
    went = before if isinstance(before, Pod) else None
    terms = pod.terms
    if came is not None and terms.near and _may_be_about(terms.near, came):
        return True
    if went is None:
        return False
    if came is None and terms.near and _may_be_about(terms.near, went):
        return True  # without it this pod may be the first
    if any(_may_be_about((term,), went) for term in terms.apart):
        return True
    return any(_may_be_about((term,), pod.pod) for term in podaffinity.of_pod(went).apart)


def _may_be_about(terms: tuple[Term, ...], pod: Pod) -> bool:
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


def _moves_domains(pod: PodInfo, before: Object, after: Object) -> bool:
    """A node came, or changed domain. Terms of others are not at hand, so any label may matter."""
    if not (isinstance(before, Node) and isinstance(after, Node)):
        return True
    return before.metadata.labels != after.metadata.labels


_POD = Action.ADD | Action.POD_LABEL | Action.DELETE


def make(args: InterPodAffinityArgs) -> Plugin:
    """The plugin with these arguments."""
    return Plugin(
        _NAME,
        cluster=InterPodAffinity(args),
        weight=2,
        signature=_signature,
        hints_differ=True,
        events=(
            Registration(ClusterEvent(Subject.ASSIGNED_POD, _POD), _of_interest),
            Registration(ClusterEvent(Subject.UNSCHEDULED_POD, Action.POD_LABEL)),
            Registration(
                ClusterEvent(Subject.NODE, Action.ADD | Action.NODE_LABEL), _moves_domains
            ),
            Registration(ClusterEvent(Subject.NAMESPACE, Action.ADD | Action.UPDATE)),
        ),
        configure=configured(_NAME, InterPodAffinityArgs, make),
    )


PLUGIN = make(InterPodAffinityArgs())
