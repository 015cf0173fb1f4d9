"""Pod affinity and anti-affinity: terms about pods in one topology domain.

A pod's terms are compiled once into immutable values, hashed once, so that equal terms of a thousand
replicas are one key.
"""

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache

import msgspec

from grange.api.kinds.pod import Pod, PodAffinityTerm
from grange.api.meta import LabelSelector
from grange.api.selectors import IN, NOT_IN, Labels, Requirement

Namespaces = Mapping[str, Mapping[str, str]]
"""The labels of every namespace, by name."""

_NO_LABELS: Mapping[str, str] = {}


class PodSelector(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Chooses among pods.

    Attributes:
        namespaces: names of namespaces whose pods are meant.
        namespace_labels: requirements on other namespaces whose pods are meant too; empty for all
            of them, None for no others.
        labels: requirements on the pods; None chooses none.
    """

    namespaces: frozenset[str]
    namespace_labels: tuple[Requirement, ...] | None
    labels: tuple[Requirement, ...] | None

    def matches(self, namespace: str, labels: Mapping[str, str], known: Namespaces) -> bool:
        """Whether a pod of this namespace with these labels is chosen."""
        if self.labels is None:
            return False
        if namespace not in self.namespaces:
            if self.namespace_labels is None:
                return False
            of_namespace = known.get(namespace, _NO_LABELS)
            for item in self.namespace_labels:
                if not item.matches(of_namespace):
                    return False
        return all(item.matches(labels) for item in self.labels)


class TermKind(Enum):
    """What a term is: required affinity, required anti-affinity, or a preference."""

    AFFINITY = "Affinity"
    ANTI_AFFINITY = "AntiAffinity"
    PREFERRED = "Preferred"


class Term(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """One term.

    Attributes:
        key: the node label whose equal values make nodes one domain.
        weight: of a preference, negative for anti-affinity; 0 otherwise.
    """

    kind: TermKind
    selector: PodSelector
    key: str
    weight: int = 0


class Terms(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """All terms of a pod; equal values choose alike.

    Attributes:
        affinity: all of them must hold.
        anti_affinity: none of their pods may be in the node's domain.
        preferred: each adds its weight for every one of its pods in the domain.
    """

    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    preferred: tuple[Term, ...] = ()

    @property
    def all(self) -> tuple[Term, ...]:
        """Every term."""
        return self.affinity + self.anti_affinity + self.preferred


NO_TERMS = Terms()


def requirements(selector: LabelSelector | None) -> tuple[Requirement, ...] | None:
    """A selector's requirements; None for an absent one, which matches nothing.

    Raises:
        SelectorError: an expression has no key or an unknown operator.
    """
    return None if selector is None else Labels.of(selector).requirements


def by_keys(
    keys: tuple[str, ...], labels: Mapping[str, str], operator: str
) -> tuple[Requirement, ...]:
    """Of the keys that the pod itself has as labels: that other pods have its value, or have not."""
    return tuple(Requirement(key, operator, (labels[key],)) for key in keys if key in labels)


def _selector(term: PodAffinityTerm, pod: Pod) -> PodSelector:
    namespace, labels = pod.metadata.namespace, pod.metadata.labels
    wanted = requirements(term.label_selector)
    if wanted is not None:
        wanted += by_keys(term.match_label_keys, labels, IN)
        wanted += by_keys(term.mismatch_label_keys, labels, NOT_IN)
    names, others = frozenset(term.namespaces), requirements(term.namespace_selector)
    if not names and others is None:
        names = frozenset({namespace})
    return PodSelector(names, others, wanted)


def _term(kind: TermKind, term: PodAffinityTerm, pod: Pod, weight: int = 0) -> Term:
    return Term(kind, _selector(term, pod), term.topology_key, weight)


def of_pod(pod: Pod) -> Terms:
    """The pod's terms, compiled.

    Raises:
        SelectorError: a selector's expression has no key or an unknown operator.
    """
    affinity = pod.spec.affinity
    if affinity is None:
        return NO_TERMS
    required: list[Term] = []
    excluded: list[Term] = []
    preferred: list[Term] = []
    for rules, kind, sign, found in (
        (affinity.pod_affinity, TermKind.AFFINITY, 1, required),
        (affinity.pod_anti_affinity, TermKind.ANTI_AFFINITY, -1, excluded),
    ):
        if rules is None:
            continue
        must = rules.required_during_scheduling_ignored_during_execution
        found.extend(_term(kind, item, pod) for item in must)
        preferred.extend(
            _term(TermKind.PREFERRED, item.pod_affinity_term, pod, sign * item.weight)
            for item in rules.preferred_during_scheduling_ignored_during_execution
            if item.weight
        )
    return _shared(Terms(tuple(required), tuple(excluded), tuple(preferred)))


@lru_cache(maxsize=4096)
def _shared(terms: Terms) -> Terms:
    """One object for equal terms, so that comparing them is quick."""
    return terms
