"""NodeAffinity: node selector and required terms decide, preferred terms rank.

Terms that a profile adds count for every pod of it, besides the pod's own.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from grange.api import codec
from grange.api.kinds.pod import NodeAffinity
from grange.api.meta import Document
from grange.api.schema.checking import check_definition
from grange.api.validation.causes import Faults
from grange.api.validation.scheduling import check_scheduling
from grange.placement import kernels, node_rules
from grange.placement.columns import Integers, Mask, NodeTable, Rows
from grange.placement.node_rules import NAME_FIELD, NONE, NodeRequirement, NodeRules, NodeTerm
from grange.scheduler.framework import (
    PASS,
    Code,
    CycleState,
    Normalise,
    Plugin,
    PreFilterResult,
    Status,
)
from grange.scheduler.node_plugin import NAME_AND_LABELS, NameAndLabels, NodeFilter, NodeScore
from grange.scheduler.plugin_args import PluginArgs, configurable, refusal
from grange.scheduler.plugin_explanation import PluginExplanation, Refusals, Remedy, altered
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

_ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
_CONFLICT = Status(Code.UNRESOLVABLE, ("pod affinity terms conflict",))
_SYMBOLS = {"Gt": ">", "Lt": "<"}
_SHOWN = 3


class _Names:
    def for_each(self, pod: PodInfo) -> bool:
        """Required terms may name nodes, and preferred ones may be malformed."""
        return bool(pod.affinity.fault) or node_rules.required_names(pod.affinity) is not None

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeInfoSnapshot
    ) -> PreFilterResult:
        """Terms that name their nodes make all others superfluous."""
        fault = pod.affinity.fault
        if fault:
            field = "spec.affinity.nodeAffinity"
            return PreFilterResult(Status(Code.ERROR, (f"{field}.{fault}",)))
        names = node_rules.required_names(pod.affinity)
        if names is None:
            return PASS
        return PreFilterResult(node_names=names) if names else PreFilterResult(_CONFLICT)


class NodeAffinityFilter(NodeFilter[NodeRules, NameAndLabels]):
    """Compares required terms with names and labels; kernels do so by label, not by node."""

    name = "NodeAffinity"
    attribute = NAME_AND_LABELS
    reason = "node(s) didn't match Pod's node affinity/selector"
    weight = 2

    def __init__(self, added: NodeRules) -> None:
        self._added = added

    def demand(self, pod: PodInfo) -> NodeRules:
        return pod.affinity

    def applies(self, pod: PodInfo) -> bool:
        return pod.affinity.demands or self._added.demands

    def allows(self, demand: NodeRules, value: NameAndLabels) -> bool:
        """The profile's terms, then the selector and any of the required terms."""
        return node_rules.matches(self._added, *value) and node_rules.matches(demand, *value)

    def refusal(self, demand: NodeRules, value: NameAndLabels) -> Status:
        own = node_rules.matches(self._added, *value)
        return Status(Code.UNRESOLVABLE, (self.reason if own else _ENFORCED,))

    def filter_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Mask:
        mask = kernels.matches(table, rows, pod.affinity)
        return mask & kernels.matches(table, rows, self._added) if self._added.demands else mask

    def count_reasons(
        self, pod: PodInfo, table: NodeTable, rows: Integers
    ) -> list[tuple[str, int]]:
        own = int(kernels.matches(table, rows, self._added).sum())
        counts = [(self.reason, own), (_ENFORCED, len(rows) - own)]
        return [pair for pair in counts if pair[1]]

    def explain(self, refusals: Refusals) -> PluginExplanation:
        return _Explanation(refusals)


class _Preferred(NodeScore[NodeRules, NameAndLabels]):
    name = NodeAffinityFilter.name
    attribute = NAME_AND_LABELS
    normalise = Normalise.BY_MAX

    def __init__(self, added: NodeRules) -> None:
        self._added = added

    def demand(self, pod: PodInfo) -> NodeRules:
        return pod.affinity

    def applies(self, pod: PodInfo) -> bool:
        return bool(pod.affinity.preferred or self._added.preferred)

    def score_value(self, demand: NodeRules, value: NameAndLabels) -> int:
        own = node_rules.preference(demand, *value)
        return own + node_rules.preference(self._added, *value)

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        own = kernels.preference(table, rows, pod.affinity)
        return own + kernels.preference(table, rows, self._added)


# --- the explanation -----------------------------------------------------------------------------


class _Explanation:
    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals
        table, affinity = refusals.snapshot.table, refusals.pod.affinity
        rows = table.all
        self._pairs, self._required = affinity.selector, affinity.required
        parts = [~kernels.matches(table, rows, NodeRules((pair,))) for pair in self._pairs]
        if self._required is not None:
            parts.append(~kernels.matches(table, rows, NodeRules((), self._required)))
        self._unmet: Mask = np.stack(parts) if parts else np.zeros((1, table.size), np.bool_)
        lacks = np.where(refusals.refused, self._unmet.sum(axis=0), 0)
        self.lacks: Integers = lacks.astype(np.int64)
        self.severity = refusals.no_severity()

    def missing(self, row: int) -> list[str]:
        found = []
        for at, (key, value) in enumerate(self._pairs):
            if self._unmet[at, row]:
                have = self._refusals.label(row, key)
                found.append(
                    f"no label {key}={value}" if have is None else f"{key} is {have}, not {value}"
                )
        if self._required is not None and self._unmet[-1, row]:
            found.append(f"not {format_terms(self._required)}")
        return found

    def changes(self, rows: Integers) -> list[Remedy]:
        """The pod requires less: for each set of unmet terms, without them."""
        found = []
        for unmet in np.unique(self._unmet[:, rows], axis=1).T:
            lacking = np.flatnonzero(unmet).tolist()
            pairs = [self._pairs[part] for part in lacking if part < len(self._pairs)]
            shown = ", ".join(f"{key}={value}" for key, value in pairs)
            dropped = [f"its nodeSelector does without {shown}"] if shown else []
            required = len(self._pairs) in lacking
            if required:
                dropped.append("it drops its required node affinity")
            # Fewer terms also accept whatever meets the rest.
            mine = rows[~np.delete(self._unmet[:, rows], lacking, axis=0).any(axis=0)]
            change = partial(_without, pairs=pairs, required=required)
            cost = 0.5 + 0.3 * len(lacking)
            found.append(Remedy(" and ".join(dropped), mine, cost, change=change))
        return sorted(found, key=lambda item: (item.cost, -len(item.rows)))


def _without(info: PodInfo, pairs: Collection[tuple[str, str]], *, required: bool) -> PodInfo:
    had = info.affinity
    left = tuple(pair for pair in had.selector if pair not in pairs)
    terms = None if required else had.required
    return altered(info, affinity=replace(had, selector=left, required=terms))


def format_terms(terms: Sequence[NodeTerm]) -> str:
    """Required terms as users read them."""
    some = " or ".join(_format_term(term) for term in terms[:_SHOWN])
    return some + (" or …" if len(terms) > _SHOWN else "")


def _format_term(term: NodeTerm) -> str:
    found = [_format_requirement(item) for item in (*term.labels, *term.names)]
    return " and ".join(found) or "nothing"


def _format_requirement(item: NodeRequirement) -> str:
    if item.key == NAME_FIELD and item.operator == "In" and len(item.values) == 1:
        return f"node {item.values[0]}"
    match item.operator:
        case "Exists":
            return f"label {item.key}"
        case "DoesNotExist":
            return f"no label {item.key}"
        case "In" if len(item.values) == 1:
            return f"{item.key}={item.values[0]}"
        case "In" | "NotIn":
            some = ", ".join(item.values[:_SHOWN]) + (", …" if len(item.values) > _SHOWN else "")
            return f"{item.key} {'not ' if item.operator == 'NotIn' else ''}in ({some})"
        case _:
            return f"{item.key} {_SYMBOLS.get(item.operator, item.operator)} {item.values[0]}"


# --- arguments -----------------------------------------------------------------------------------


class NodeAffinityArgs(PluginArgs, frozen=True, kw_only=True):
    """As in Kubernetes; the affinity has the form of a pod's."""

    added_affinity: Document | None = None


def _added(document: Document) -> NodeRules:
    """Checked as those of a pod are."""
    causes = check_definition(document, "io.k8s.api.core.v1.NodeAffinity")
    if not causes:
        faults = Faults()
        check_scheduling({"affinity": {"nodeAffinity": document}}, "spec", faults)
        causes = faults.causes
    for cause in causes:
        field = cause.field.removeprefix("spec.affinity.nodeAffinity.")
        raise ValueError(refusal(f"addedAffinity.{field}".rstrip("."), cause.message))
    return node_rules.of_terms(codec.convert(document, NodeAffinity))


def make(args: NodeAffinityArgs) -> Plugin:
    """The plugin with terms that every pod of the profile has besides its own."""
    added = NONE if args.added_affinity is None else _added(args.added_affinity)
    return replace(NodeAffinityFilter(added).plugin(), pre_filter=_Names(), score=_Preferred(added))


PLUGIN = configurable(NodeAffinityArgs, make)
