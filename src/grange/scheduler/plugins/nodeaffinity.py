"""NodeAffinity: node selector and required terms decide, preferred terms rank.

Terms that a profile adds count for every pod of it, besides the pod's own.
"""

from collections.abc import Hashable

import msgspec

from grange.api import codec
from grange.api.kinds.node import Node
from grange.api.kinds.pod import NodeAffinity
from grange.api.meta import Document
from grange.api.schema.checking import check_definition
from grange.api.validation.causes import Faults
from grange.api.validation.scheduling import check_scheduling
from grange.placement import kernels, nodeaffinity
from grange.placement.columns import Integers, Mask, NodeTable, Rows
from grange.placement.nodeaffinity import NONE, Affinity
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.framework import (
    PASS,
    SUCCESS,
    Code,
    CycleState,
    Normalise,
    Plugin,
    PreFilterResult,
    Scope,
    Status,
)
from grange.scheduler.nodeinfo import NodeInfo, PodInfo
from grange.scheduler.plugin_args import ConfigurationError, PluginArgs, read, refuse_causes
from grange.scheduler.snapshot import NodeInfoSnapshot

_NAME = "NodeAffinity"
_REASON = "node(s) didn't match Pod's node affinity/selector"
_ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
_CONFLICT = Status(Code.UNRESOLVABLE, ("pod affinity terms conflict",))
_REJECTED = Status(Code.UNRESOLVABLE, (_REASON,))
_REJECTED_BY_PROFILE = Status(Code.UNRESOLVABLE, (_ENFORCED,))


class _Names:
    def for_each(self, pod: PodInfo) -> bool:
        """Required terms may name nodes, and preferred ones may make no sense."""
        return pod.affinity.required is not None or bool(pod.affinity.fault)

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeInfoSnapshot
    ) -> PreFilterResult:
        """Terms that name their nodes spare the look at all others."""
        fault = pod.affinity.fault
        if fault:
            field = "spec.affinity.nodeAffinity"
            return PreFilterResult(Status(Code.ERROR, (f"{field}.{fault}",)))
        if pod.affinity.required is None:
            return PASS
        names = nodeaffinity.required_names(pod.affinity)
        if names is not None and not names:
            return PreFilterResult(_CONFLICT)
        return PreFilterResult(node_names=names)


class _Matches:
    scope = Scope.NODE

    def __init__(self, added: Affinity = NONE) -> None:
        self._added = added

    def applies(self, pod: PodInfo) -> bool:
        """To pods that demand anything, and to all if the profile does."""
        return pod.affinity.demands or self._added.demands

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """The profile's terms, then the selector and any of the required terms."""
        if node.node is None:
            return _REJECTED
        labels = node.node.metadata.labels
        if not nodeaffinity.matches(self._added, node.name, labels):
            return _REJECTED_BY_PROFILE
        return SUCCESS if nodeaffinity.matches(pod.affinity, node.name, labels) else _REJECTED

    def filter_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Mask:
        """Where they match."""
        mask = kernels.matches(table, rows, pod.affinity)
        return mask & kernels.matches(table, rows, self._added) if self._added.demands else mask

    def count_reasons(
        self, pod: PodInfo, table: NodeTable, rows: Integers
    ) -> list[tuple[str, int]]:
        """The profile's terms are looked at first."""
        if not self._added.demands:
            return [(_REASON, len(rows))]
        own = int(kernels.matches(table, rows, self._added).sum())
        counts = [(_REASON, own), (_ENFORCED, len(rows) - own)]
        return [pair for pair in counts if pair[1]]

    def may_help(self, pod: PodInfo, before: Object, after: Object) -> bool:
        """Whether a node came that matches, or began to."""
        if not isinstance(after, Node):
            return True
        if not self._allows(pod, after):
            return False
        return not (isinstance(before, Node) and self._allows(pod, before))

    def _allows(self, pod: PodInfo, node: Node) -> bool:
        name, labels = node.metadata.name, node.metadata.labels
        return nodeaffinity.matches(self._added, name, labels) and nodeaffinity.matches(
            pod.affinity, name, labels
        )


class _Prefers:
    scope = Scope.NODE
    normalise = Normalise.BY_MAX

    def __init__(self, added: Affinity = NONE) -> None:
        self._added = added

    def applies(self, pod: PodInfo) -> bool:
        """To pods that wish for anything, and to all if the profile does."""
        return bool(pod.affinity.preferred or self._added.preferred)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """The weights of the wishes that the node grants."""
        labels = node.node.metadata.labels if node.node is not None else {}
        own = nodeaffinity.preference(pod.affinity, node.name, labels)
        return own + nodeaffinity.preference(self._added, node.name, labels)

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        """The weights of the wishes that each grants."""
        own = kernels.preference(table, rows, pod.affinity)
        return own + kernels.preference(table, rows, self._added)


def _signature(pod: PodInfo) -> Hashable:
    return pod.affinity


class Args(PluginArgs, frozen=True, kw_only=True):
    """As NodeAffinityArgs; the affinity has the form of a pod's."""

    added_affinity: Document | None = None


def _configure(document: object, path: str) -> Plugin:
    arguments = read(document, Args, path)
    if arguments.kind not in ("", f"{_NAME}Args"):
        raise ConfigurationError(f"{path}.kind: must be {_NAME}Args")
    if arguments.added_affinity is None:
        return PLUGIN
    return make(_added(arguments.added_affinity, f"{path}.addedAffinity"))


def _added(document: Document, path: str) -> Affinity:
    causes = check_definition(document, "io.k8s.api.core.v1.NodeAffinity")
    faults = Faults()
    if not causes:
        check_scheduling({"affinity": {"nodeAffinity": document}}, "spec", faults)
        inside = "spec.affinity.nodeAffinity."
        causes = [
            msgspec.structs.replace(cause, field=cause.field.removeprefix(inside))
            for cause in faults.causes
        ]
    refuse_causes(causes, path)
    return nodeaffinity.of_terms(codec.convert(document, NodeAffinity))


def make(added: Affinity) -> Plugin:
    """The plugin with terms that every pod of the profile has besides its own."""
    filters = _Matches(added)
    return Plugin(
        _NAME,
        pre_filter=_Names(),
        filter=filters,
        score=_Prefers(added),
        weight=2,
        signature=_signature,
        events=(
            Registration(
                ClusterEvent(Subject.NODE, Action.ADD | Action.NODE_LABEL), filters.may_help
            ),
        ),
        configure=_configure,
    )


PLUGIN = make(NONE)
