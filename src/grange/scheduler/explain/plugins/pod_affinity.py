"""InterPodAffinity in words: which company is missing, and whose is in the way."""

from collections.abc import Collection
from functools import partial

import msgspec
import numpy as np

from grange.placement.columns import Ids, Integers
from grange.placement.podaffinity import Kind, PodSelector, Term
from grange.scheduler.explain.explanation import ExplanationInputs, Remedy, altered
from grange.scheduler.framework import Rule
from grange.scheduler.nodeinfo import PodInfo


def pods_in_words(selector: PodSelector) -> str:
    """The pods that a selector is about."""
    if selector.labels is None:
        return "no pods at all"
    told = ", ".join(str(item) for item in selector.labels)
    return f"pods with {told}" if told else "any pods"


def _without(info: PodInfo, terms: Collection[Term]) -> PodInfo:
    """The pod without these refusals of company."""
    left = tuple(term for term in info.terms.apart if term not in terms)
    kept = msgspec.structs.replace(info.terms, apart=left)
    return altered(info, terms=kept, has_required_anti_affinity=bool(left))


class Company:
    """Some pods must be near and others must not, and placed pods have a say too."""

    def __init__(self, inputs: ExplanationInputs) -> None:
        self._inputs = inputs
        table, index, terms = inputs.snapshot.table, inputs.snapshot.index, inputs.pod.terms
        theirs = [index.term(number) for number in inputs.concerns]
        own = [*terms.near, *terms.apart]
        # In the order in which the plugin makes its rules.
        self._terms: list[tuple[Term, Rule, Ids, bool]] = [
            (term, rule, table.labels(rule.key).ids[table.all], at < len(own))
            for at, (term, rule) in enumerate(
                zip(
                    [*own, *(item for item in theirs if item.kind is Kind.APART)],
                    inputs.rules,
                    strict=True,
                )
            )
        ]
        self.lacks: Integers = np.zeros(len(inputs.refused), np.int64)
        for _, rule, ids, _ in self._terms:
            self.lacks += ~rule.verdicts()[ids] & inputs.refused
        self.severity = inputs.nothing()

    def missing(self, row: int) -> list[str]:
        """Each term that does not hold."""
        said = []
        for term, rule, ids, own in self._terms:
            domain = int(ids[row])
            if rule.opens(domain):
                continue
            told = pods_in_words(term.selector)
            if not own:
                said.append(f"{self._holder(term, row)} wants no such pod in its {term.key}")
            elif term.kind is Kind.APART:
                said.append(f"wants no {told} in its {term.key}: {self._met(term, row)}")
            elif domain < 0:
                said.append(f"wants {told} in its {term.key}: the node has no such label")
            else:
                said.append(f"wants {told} in its {term.key}: there are none")
        return said

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
            told = pods_in_words(term.selector)
            if term.kind is Kind.APART:
                given_up.append(term)
                dropped[f"it gives up refusing {told} in its {term.key}"] = None
            else:
                wanted[f"one of the {told} runs in their {term.key}"] = None
        if wanted and not dropped:
            return [Remedy(" and ".join(wanted), rows, 0.8, when=True)]
        if dropped and not wanted:
            cost, change = 0.7 + 0.3 * len(dropped), partial(_without, terms=given_up)
            return [Remedy(" and ".join(dropped), rows, cost, change=change)]
        return []

    def _met(self, term: Term, row: int) -> str:
        known = self._inputs.snapshot.index.namespaces

        def met(info: PodInfo) -> bool:
            meta = info.pod.metadata
            return term.selector.matches(meta.namespace, meta.labels, known)

        entry = self._inputs.snapshot.node_info_map[self._inputs.name(row)]
        found = next((info for info in entry.pods if met(info)), None)
        return f"{found.pod.key} is there" if found is not None else "there are some on other nodes"

    def _holder(self, term: Term, row: int) -> str:
        entry = self._inputs.snapshot.node_info_map[self._inputs.name(row)]
        for info in entry.pods_with_required_anti_affinity:
            if term in info.terms.apart:
                return f"{info.pod.key}, there,"
        return "a pod on another node"
