"""TaintToleration: no node whose taints the pod does not tolerate; rather few it dislikes."""

from collections import Counter
from collections.abc import Hashable

from grange.api.kinds.node import Node, Taint
from grange.placement import kernels, taints
from grange.placement.columns import Integers, Mask, NodeTable, Rows
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.framework import (
    SUCCESS,
    Code,
    CycleState,
    Normalise,
    Plugin,
    Scope,
    Status,
)
from grange.scheduler.nodeinfo import NodeInfo, PodInfo

_UNTOLERATED = "node(s) had untolerated taint(s)"
_OURS = "grange.dev/"


def _reason(taint: Taint) -> str:
    """One sum for all taints, as kube-scheduler has it; those of Grange itself are named."""
    if taint.key.startswith(_OURS):
        return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    return _UNTOLERATED


class _Tolerates:
    scope = Scope.NODE

    def applies(self, pod: PodInfo) -> bool:
        """Always: any node may be tainted."""
        return True

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """The first taint that is not tolerated is the reason."""
        if node.node is None or not node.node.spec.taints:
            return SUCCESS
        found = taints.first_untolerated(node.node.spec.taints, pod.pod.spec.tolerations)
        return SUCCESS if found is None else Status(Code.UNRESOLVABLE, (_reason(found),))

    def filter_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Mask:
        """Where every hard taint is tolerated."""
        return kernels.untainted(table, rows, pod.pod.spec.tolerations)

    def count_reasons(
        self, pod: PodInfo, table: NodeTable, rows: Integers
    ) -> list[tuple[str, int]]:
        """By taint."""
        found: Counter[str] = Counter()
        for number, count in Counter(table.taint_set[rows].tolist()).items():
            taint = taints.first_untolerated(table.taint_sets[number], pod.pod.spec.tolerations)
            if taint is not None:
                found[_reason(taint)] += count
        return [*found.items()]


class _Likes:
    scope = Scope.NODE
    normalise = Normalise.BY_MAX_REVERSED

    def applies(self, pod: PodInfo) -> bool:
        """Always: any node may have a taint that prefers no pods."""
        return True

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """How many such taints are not tolerated."""
        if node.node is None or not node.node.spec.taints:
            return 0
        return taints.count_intolerable_preferences(node.node.spec.taints, pod.pod.spec.tolerations)

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        """How many such taints are not tolerated."""
        return kernels.intolerable_preferences(table, rows, pod.pod.spec.tolerations)


def _signature(pod: PodInfo) -> Hashable:
    return tuple(
        (item.key, item.operator, item.value, item.effect) for item in pod.pod.spec.tolerations
    )


def _now_tolerated(pod: PodInfo, before: Object, after: Object) -> bool:
    if not isinstance(after, Node):
        return True
    tolerations = pod.pod.spec.tolerations
    if taints.first_untolerated(after.spec.taints, tolerations) is not None:
        return False
    return not (
        isinstance(before, Node)
        and taints.first_untolerated(before.spec.taints, tolerations) is None
    )


PLUGIN = Plugin(
    "TaintToleration",
    filter=_Tolerates(),
    score=_Likes(),
    weight=3,
    signature=_signature,
    events=(
        Registration(ClusterEvent(Subject.NODE, Action.ADD | Action.NODE_TAINT), _now_tolerated),
        Registration(ClusterEvent(Subject.UNSCHEDULED_POD, Action.POD_TOLERATION)),
    ),
)
