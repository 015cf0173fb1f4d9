"""InterPodAffinity from counts that are kept current: what refuses, what ranks, and why."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from grange.placement.columns import Integers, Mask
from grange.placement.podaffinity import PodSelector, Term, TermKind
from grange.scheduler.domains import DomainExplanation, DomainRule, Domains
from grange.scheduler.framework import DomainsOf
from grange.scheduler.plugin_explanation import Refusals, Remedy, altered
from grange.scheduler.podinfo import PodInfo

UNMET_AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


class NoPodsInDomain(DomainRule):
    """Anti-affinity: no pod that the term selects, or none that holds the term, in the domain.

    Args:
        domains: counts those pods.
        term: the term.
        existing: it is a term of existing pods, which select this one.
    """

    outside = True

    def __init__(self, domains: Domains, term: Term, *, existing: bool) -> None:
        super().__init__(domains)
        self.term, self.existing = term, existing

    def accepts(self, count: Any) -> Any:
        """None of them."""
        return count == 0

    def reason(self, *, missing: bool) -> str:
        """By whose term it is."""
        return EXISTING_ANTI_AFFINITY if self.existing else ANTI_AFFINITY


class PodsInDomain(DomainRule):
    """Affinity: some pod that all terms select in the domain, unless this one is the first of them.

    Args:
        group: counts those pods, for each of the terms.
        term: the term.
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
        """Take in what changed."""
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
        """Any of them, or no pod anywhere."""
        return (count > 0) | self._first

    def reason(self, *, missing: bool) -> str:
        """One for all terms."""
        return UNMET_AFFINITY


class PreferredTerms:
    """The sum of the weights of terms that hold, scaled between its least and its largest."""

    by_row = False

    def __init__(self, weighted: Sequence[tuple[Domains, int]]) -> None:
        self._weighted = weighted
        self.keys = tuple({domains.key: None for domains, _ in weighted})

    def refresh(self) -> None:
        """Take in what changed."""
        for domains, _ in self._weighted:
            domains.update()

    def scores(self, domains: DomainsOf, feasible: Mask) -> Integers:
        """As ``podaffinity.scaled``."""
        raw: Integers = np.zeros(len(feasible), np.int64)
        for summed, weight in self._weighted:
            raw += weight * summed.counts[domains(summed.key)]
        candidates = raw[feasible]
        least, most = int(candidates.min()), int(candidates.max())
        if least == most:
            return np.zeros(len(feasible), np.int64)
        parts = 100.0 * ((raw - least).astype(np.float64) / float(most - least))
        return parts.astype(np.int64)


# --- the explanation -----------------------------------------------------------------------------


class PodAffinityExplanation(DomainExplanation):
    """By term, of the pod and of existing pods."""

    def __init__(self, refusals: Refusals, rules: Sequence[DomainRule]) -> None:
        super().__init__(refusals, rules)
        self._rules = [rule for rule in rules if isinstance(rule, (NoPodsInDomain, PodsInDomain))]

    def missing(self, row: int) -> list[str]:
        """Each term that does not hold."""
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
        """Pods come that affinity selects, or the pod drops anti-affinity."""
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
