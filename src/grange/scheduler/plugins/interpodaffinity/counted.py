"""InterPodAffinity from counts that are kept current: what refuses, what ranks, and why."""

from collections.abc import Collection, Sequence
from functools import partial

import msgspec
import numpy as np

from grange.placement.columns import Ids, Integers, Mask
from grange.placement.podaffinity import PodSelector, Term, TermKind
from grange.scheduler.domains import Domains
from grange.scheduler.explanation import Refusals, Remedy, altered
from grange.scheduler.framework import Points, Rule
from grange.scheduler.nodeinfo import PodInfo

UNMET_AFFINITY = "node(s) didn't match pod affinity rules"


class NoPodsInDomain:
    """None of these pods in the domain."""

    by_count = True
    resolvable = True

    def __init__(self, domains: Domains, reason: str) -> None:
        self.key = domains.key
        self._domains = domains
        self._reason = reason

    def refresh(self) -> list[int] | None:
        """Take in what changed."""
        return self._domains.changes()

    def verdicts(self) -> Mask:
        """Where there are none; a node outside all domains is near nobody."""
        verdicts: Mask = self._domains.counts == 0
        return verdicts

    def opens(self, domain: int) -> bool:
        """The same for one."""
        return not self._domains.count[domain]

    def reason(self, *, missing: bool) -> str:
        """The same for all."""
        return self._reason


class PodsInDomain:
    """Some of these pods in the domain, unless the pod is the first of its kind."""

    by_count = True
    resolvable = False

    def __init__(self, at: int, group: Sequence[Domains], *, selects_itself: bool) -> None:
        self._domains = group[at]
        self.key = self._domains.key
        self._group = group
        self._selects_itself = selects_itself
        self._first = False

    def refresh(self) -> list[int] | None:
        """Take in what changed."""
        changed = self._domains.changes()
        total = self._domains.total
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

    def verdicts(self) -> Mask:
        """Where there are some; a node outside all domains is near nobody."""
        if not self._first:
            return self._domains.counts > 0
        everywhere: Mask = np.ones(len(self._domains.counts), np.bool_)
        everywhere[-1] = False
        return everywhere

    def opens(self, domain: int) -> bool:
        """The same for one."""
        return domain >= 0 if self._first else self._domains.count[domain] > 0

    def reason(self, *, missing: bool) -> str:
        """The same for all."""
        return UNMET_AFFINITY


class PreferredTerms:
    """The sum of granted wishes, scaled between its least and its largest."""

    by_row = False

    def __init__(self, weighted: Sequence[tuple[Domains, int]]) -> None:
        self._weighted = weighted
        self.keys = tuple({domains.key: None for domains, _ in weighted})

    def refresh(self) -> None:
        """Take in what changed."""
        for domains, _ in self._weighted:
            domains.update()

    def scores(self, points: Points, feasible: Mask) -> Integers:
        """As ``podaffinity.scaled``."""
        raw: Integers = np.zeros(len(feasible), np.int64)
        for domains, weight in self._weighted:
            raw += weight * domains.counts[points.domains(domains.key)]
        candidates = raw[feasible]
        least, most = int(candidates.min()), int(candidates.max())
        if least == most:
            return np.zeros(len(feasible), np.int64)
        parts = 100.0 * ((raw - least).astype(np.float64) / float(most - least))
        return parts.astype(np.int64)


# --- the explanation -----------------------------------------------------------------------------


class PodAffinityExplanation:
    """By term, of the pod and of pods on nodes."""

    def __init__(
        self, refusals: Refusals, rules: Sequence[Rule], concerns: tuple[int, ...]
    ) -> None:
        self._refusals = refusals
        snapshot, terms = refusals.snapshot, refusals.pod.terms
        table, index = snapshot.table, snapshot.index
        theirs = [index.term(number) for number in concerns]
        own = [*terms.affinity, *terms.anti_affinity]
        # In the order in which the plugin makes its rules.
        self._terms: list[tuple[Term, Rule, Ids, bool]] = [
            (term, rule, table.labels(rule.key).ids[table.all], at < len(own))
            for at, (term, rule) in enumerate(
                zip(
                    [*own, *(item for item in theirs if item.kind is TermKind.ANTI_AFFINITY)],
                    rules,
                    strict=True,
                )
            )
        ]
        self.lacks: Integers = np.zeros(len(refusals.refused), np.int64)
        for _, rule, ids, _ in self._terms:
            self.lacks += ~rule.verdicts()[ids] & refusals.refused
        self.severity = refusals.no_severity()

    def missing(self, row: int) -> list[str]:
        """Each term that does not hold."""
        found = []
        for term, rule, ids, own in self._terms:
            domain = int(ids[row])
            if rule.opens(domain):
                continue
            pods = format_pods(term.selector)
            if not own:
                found.append(f"{self._holder(term, row)} wants no such pod in its {term.key}")
            elif term.kind is TermKind.ANTI_AFFINITY:
                found.append(f"wants no {pods} in its {term.key}: {self._met(term, row)}")
            elif domain < 0:
                found.append(f"wants {pods} in its {term.key}: the node has no such label")
            else:
                found.append(f"wants {pods} in its {term.key}: there are none")
        return found

    def changes(self, rows: Integers) -> list[Remedy]:
        """Company comes; or the pod gives up refusing it."""
        dropped: dict[str, None] = {}
        wanted: dict[str, None] = {}
        given_up: list[Term] = []
        for term, rule, ids, own in self._terms:
            if rule.verdicts()[ids[rows]].all():
                continue
            if not own:
                return []  # that those pods end is found elsewhere
            pods = format_pods(term.selector)
            if term.kind is TermKind.ANTI_AFFINITY:
                given_up.append(term)
                dropped[f"it gives up refusing {pods} in its {term.key}"] = None
            else:
                wanted[f"one of the {pods} runs in their {term.key}"] = None
        if wanted and not dropped:
            return [Remedy(" and ".join(wanted), rows, 0.8, when=True)]
        if dropped and not wanted:
            cost, change = 0.7 + 0.3 * len(dropped), partial(_without, terms=given_up)
            return [Remedy(" and ".join(dropped), rows, cost, change=change)]
        return []

    def _met(self, term: Term, row: int) -> str:
        known = self._refusals.snapshot.index.namespaces

        def met(info: PodInfo) -> bool:
            meta = info.pod.metadata
            return term.selector.matches(meta.namespace, meta.labels, known)

        entry = self._refusals.node(row)
        other = next((info for info in entry.pods if met(info)), None)
        return f"{other.pod.key} is there" if other is not None else "there are some on other nodes"

    def _holder(self, term: Term, row: int) -> str:
        entry = self._refusals.node(row)
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
    return altered(info, terms=kept, has_required_anti_affinity=bool(left))
