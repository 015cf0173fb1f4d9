"""InterPodAffinity: affinity and anti-affinity to other pods, required or preferred, of both sides.

Required affinity that no pod meets yet does not apply to a pod that would meet it itself: otherwise
the first of such pods could not be scheduled.
"""

from collections.abc import Collection, Hashable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.placement import podaffinity
from grange.placement.columns import Integers, Mask
from grange.placement.podaffinity import Namespaces, PodSelector, Term, TermKind
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.domains import DomainExplanation, DomainRule, Domains
from grange.scheduler.framework import (
    DomainScore,
    DomainsOf,
    Plugin,
)
from grange.scheduler.plugin_args import PluginArgs, configurable, within
from grange.scheduler.plugin_explanation import PluginExplanation, Refusals, Remedy, altered
from grange.scheduler.podindex import PodIndex, Query
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

UNMET_AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


class NoPodsInDomain(DomainRule):
    """Anti-affinity: no pod that the term selects, or none that holds the term, in the domain.

    Args:
        existing: it is a term of existing pods, which select this one.
    """

    outside = True

    def __init__(self, domains: Domains, term: Term, *, existing: bool) -> None:
        super().__init__(domains)
        self.term, self.existing = term, existing

    def accepts(self, count: Any) -> Any:
        return count == 0

    def reason(self, *, missing: bool) -> str:
        return EXISTING_ANTI_AFFINITY if self.existing else ANTI_AFFINITY


class PodsInDomain(DomainRule):
    """Affinity: some pod that all terms select in the domain, unless this one is the first of them.

    Args:
        at: which of the terms it is.
        selects_itself: all terms select this pod.
    """

    resolvable = False
    existing = False

    def __init__(
        self, group: Sequence[Domains], term: Term, at: int, *, selects_itself: bool
    ) -> None:
        super().__init__(group[at])
        self.term = term
        self._group = group
        self._selects_itself = selects_itself
        self._first = False

    def refresh(self) -> list[int] | None:
        changed = self.domains.changes()
        total = self.domains.total
        if len(self._group) > 1:
            total = 0
            for domains in self._group:
                domains.update()
                total += domains.total
        first = self._selects_itself and not total
        if first is not self._first:
            self._first = first
            return None
        return changed

    def accepts(self, count: Any) -> Any:
        return (count > 0) | self._first

    def reason(self, *, missing: bool) -> str:
        return UNMET_AFFINITY


class PreferredTerms:
    """The sum of the weights of terms that hold, scaled between its least and its largest."""

    by_row = False

    def __init__(self, weighted: Sequence[tuple[Domains, int]]) -> None:
        self._weighted = weighted
        self.keys = tuple({domains.key: None for domains, _ in weighted})

    def refresh(self) -> None:
        for domains, _ in self._weighted:
            domains.update()

    def scores(self, domains: DomainsOf, feasible: Mask) -> Integers:
        raw: Integers = np.zeros(len(feasible), np.int64)
        for summed, weight in self._weighted:
            raw += weight * summed.counts[domains(summed.key)]
        candidates = raw[feasible]
        least, most = int(candidates.min()), int(candidates.max())
        if least == most:
            return np.zeros(len(feasible), np.int64)
        # Divided first, in floating point, as kube-scheduler does: 29 of 100 gives 28.
        parts = 100.0 * ((raw - least).astype(np.float64) / float(most - least))
        return parts.astype(np.int64)


_NAME = "InterPodAffinity"


def _selected_by_all(terms: tuple[Term, ...], info: PodInfo, known: Namespaces) -> bool:
    meta = info.pod.metadata
    return all(term.selector.matches(meta.namespace, meta.labels, known) for term in terms)


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
        within("hardPodAffinityWeight", self.hard_pod_affinity_weight, 0, 100)


def _weight(term: Term, required: int) -> int:
    """What an existing pod's term adds for each pod that it selects."""
    return {
        TermKind.AFFINITY: required,
        TermKind.PREFERRED: term.weight,
        TermKind.ANTI_AFFINITY: 0,
    }[term.kind]


class InterPodAffinity:
    """Counts the pods that terms select, by domain."""

    def __init__(self, args: InterPodAffinityArgs) -> None:
        self._required_weight = args.hard_pod_affinity_weight
        self._only_own = args.ignore_preferred_terms_of_existing_pods

    def concerns(self, pod: PodInfo, index: PodIndex) -> tuple[int, ...]:
        return index.concerning(pod)

    def rules(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, concerns: tuple[int, ...]
    ) -> Sequence[DomainRule]:
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
        """Its own preferred terms, and those of existing pods; their required affinity counts, too."""
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


# --- the explanation -----------------------------------------------------------------------------


class PodAffinityExplanation(DomainExplanation):
    """By term, of the pod and of existing pods."""

    def __init__(self, refusals: Refusals, rules: Sequence[DomainRule]) -> None:
        super().__init__(refusals, rules)
        self._rules = [rule for rule in rules if isinstance(rule, (NoPodsInDomain, PodsInDomain))]

    def missing(self, row: int) -> list[str]:
        found = []
        for rule, ids in zip(self._rules, self.ids, strict=True):
            domain, term = int(ids[row]), rule.term
            if rule.opens(domain):
                continue
            pods = format_pods(term.selector)
            if rule.existing:
                found.append(f"{self._holder(term, row)} wants no such pod in its {term.key}")
            elif term.kind is TermKind.ANTI_AFFINITY:
                found.append(f"wants no {pods} in its {term.key}: {self._selected(term, row)}")
            elif domain < 0:
                found.append(f"wants {pods} in its {term.key}: the node has no such label")
            else:
                found.append(f"wants {pods} in its {term.key}: there are none")
        return found

    def changes(self, rows: Integers) -> list[Remedy]:
        dropped: dict[str, None] = {}
        given_up: list[Term] = []
        wanted: dict[str, None] = {}
        for rule, ids in zip(self._rules, self.ids, strict=True):
            if rule.verdicts()[ids[rows]].all():
                continue
            if rule.existing:
                return []  # the end of those pods is found elsewhere
            term = rule.term
            pods = format_pods(term.selector)
            if term.kind is TermKind.ANTI_AFFINITY:
                given_up.append(term)
                dropped[f"it gives up refusing {pods} in its {term.key}"] = None
            else:
                wanted[f"one of the {pods} runs in their {term.key}"] = None
        if wanted and not dropped:
            return [Remedy(" and ".join(wanted), rows, 0.8, when=True)]
        if dropped and not wanted:
            change = partial(_without, terms=given_up)
            return [Remedy(" and ".join(dropped), rows, 0.7 + 0.3 * len(dropped), change=change)]
        return []

    def _selected(self, term: Term, row: int) -> str:
        known = self.refusals.snapshot.index.namespaces
        for info in self.refusals.node(row).pods:
            meta = info.pod.metadata
            if term.selector.matches(meta.namespace, meta.labels, known):
                return f"{info.pod.key} is there"
        return "there are some on other nodes"

    def _holder(self, term: Term, row: int) -> str:
        entry = self.refusals.node(row)
        for info in entry.pods_with_required_anti_affinity:
            if term in info.terms.anti_affinity:
                return f"{info.pod.key}, there,"
        return "a pod on another node"


def format_pods(selector: PodSelector) -> str:
    """The pods that a selector matches."""
    if selector.labels is None:
        return "no pods at all"
    shown = ", ".join(str(item) for item in selector.labels)
    return f"pods with {shown}" if shown else "any pods"


def _without(info: PodInfo, terms: Collection[Term]) -> PodInfo:
    """The pod without these anti-affinity terms."""
    left = tuple(term for term in info.terms.anti_affinity if term not in terms)
    kept = msgspec.structs.replace(info.terms, anti_affinity=left)
    return altered(info, terms=kept)


PLUGIN = configurable(InterPodAffinityArgs, make)
