"""NodeAffinity: node selector and required terms decide, preferred terms rank."""

from collections.abc import Hashable

from grange.api.kinds.node import Node
from grange.placement import kernels, nodeaffinity
from grange.placement.columns import Integers, Mask, NodeTable, Rows
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
from grange.scheduler.snapshot import NodeInfoSnapshot

_REASON = "node(s) didn't match Pod's node affinity/selector"
_CONFLICT = Status(
    Code.UNRESOLVABLE, ("pod affinity terms conflict: no node can have all the names",)
)
_REJECTED = Status(Code.UNRESOLVABLE, (_REASON,))


class _Names:
    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeInfoSnapshot
    ) -> PreFilterResult:
        """Terms that name their nodes spare the look at all others."""
        if pod.affinity.required is None:
            return PASS
        names = nodeaffinity.required_names(pod.affinity)
        if names is not None and not names:
            return PreFilterResult(_CONFLICT)
        return PreFilterResult(node_names=names)


class _Matches:
    scope = Scope.NODE

    def applies(self, pod: PodInfo) -> bool:
        """To pods that demand anything."""
        return pod.affinity.demands

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """The selector and any of the required terms."""
        if node.node is None:
            return _REJECTED
        labels = node.node.metadata.labels
        return SUCCESS if nodeaffinity.matches(pod.affinity, node.name, labels) else _REJECTED

    def filter_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Mask:
        """Where they match."""
        return kernels.matches(table, rows, pod.affinity)

    def count_reasons(
        self, pod: PodInfo, table: NodeTable, rows: Integers
    ) -> list[tuple[str, int]]:
        """One reason for all."""
        return [(_REASON, len(rows))]


class _Prefers:
    scope = Scope.NODE
    normalise = Normalise.BY_MAX

    def applies(self, pod: PodInfo) -> bool:
        """To pods that wish for anything."""
        return bool(pod.affinity.preferred)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """The weights of the wishes that the node grants."""
        labels = node.node.metadata.labels if node.node is not None else {}
        return nodeaffinity.preference(pod.affinity, node.name, labels)

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        """The weights of the wishes that each grants."""
        return kernels.preference(table, rows, pod.affinity)


def _signature(pod: PodInfo) -> Hashable:
    return pod.affinity


def _now_matches(pod: PodInfo, before: Object, after: Object) -> bool:
    if not isinstance(after, Node):
        return True
    if not _allows(pod, after):
        return False
    return not (isinstance(before, Node) and _allows(pod, before))


def _allows(pod: PodInfo, node: Node) -> bool:
    return nodeaffinity.matches(pod.affinity, node.metadata.name, node.metadata.labels)


PLUGIN = Plugin(
    "NodeAffinity",
    pre_filter=_Names(),
    filter=_Matches(),
    score=_Prefers(),
    weight=2,
    signature=_signature,
    events=(
        Registration(ClusterEvent(Subject.NODE, Action.ADD | Action.NODE_LABEL), _now_matches),
    ),
)
