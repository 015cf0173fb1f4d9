"""Which placed pod's end would make room for a waiting one: tried out, one pod at a time.

Only near nodes are looked at where nothing but their pods is in the way, and only so many pods: the
answer need not be complete to be useful, and it must not hold up decisions.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from grange.api.kinds.podgroup import GROUP_LABEL
from grange.scheduler.dry_run import DryRun
from grange.scheduler.explain.evaluation import Evaluation
from grange.scheduler.framework import CycleState, Profile
from grange.scheduler.nodeinfo import NodeInfo, PodInfo
from grange.scheduler.plugins.noderesourcesfit.explanation import ResourcesExplanation

_NODES = 32
_PODS_EACH = 64
_TRIALS = 256
_DEAR = 16  # a trial that moves counts of other nodes costs as much as so many others


@dataclass(frozen=True, slots=True)
class BlockingPod:
    """A pod whose end would do, or all of a gang's pods on a node.

    Attributes:
        pod: that pod, or one of them.
        node: where it is.
        gang: the gang; empty for a single pod.
    """

    pod: PodInfo
    node: str
    gang: str = ""

    @property
    def cost(self) -> float:
        """Nothing for one that is blocking anyway; the more important, the dearer."""
        if self.pod.pod.metadata.deletion_timestamp:
            return 0.05
        return 0.7 + min(max(self.pod.pod.spec.priority or 0, 0), 1_000_000) / 4_000_000

    @property
    def text(self) -> str:
        """Completes "fits when …"."""
        if self.gang:
            return f"gang {self.gang} ends"
        if self.pod.pod.metadata.deletion_timestamp:
            return f"pod {self.pod.pod.key} on {self.node}, which is being deleted, has ended"
        return f"pod {self.pod.pod.key} on {self.node} ends"


def find(
    profile: Profile, state: CycleState, evaluation: Evaluation, near: Iterable[int], limit: int
) -> list[BlockingPod]:
    """Pods whose end alone would do, at most one a node, the least important first.

    Args:
        profile: the plugins.
        state: what PreFilter left for the waiting pod.
        evaluation: what the plugins say now.
        near: rows worth trying, the nearest first.
        limit: how many to find.
    """
    trial = DryRun(profile, state, evaluation.pod, evaluation.snapshot)
    fit = evaluation.explanations.get("NodeResourcesFit")
    budget, each = _TRIALS, _DEAR if trial.rules else 1
    found: list[BlockingPod] = []
    for row in islice((row for row in near if not evaluation.fixed[row]), _NODES):
        entry = evaluation.snapshot.node_info_map[evaluation.snapshot.table.names[row]]
        for gang, others in _candidates(entry):
            if isinstance(fit, ResourcesExplanation) and not fit.covered(row, others):
                continue  # known without a trial
            budget -= each * len(others)
            if budget < 0:
                break
            with trial.on(entry) as what_if:
                for other in others:
                    what_if.remove(other)
                helps = what_if.status().ok
            if helps:
                blocking = BlockingPod(others[0], entry.name, gang)
                if not any(gang and item.gang == gang for item in found):
                    found.append(blocking)
                break
    for _, rule in trial.rules:
        rule.refresh()
    found.sort(key=lambda item: item.cost)
    return found[:limit]


def _candidates(entry: NodeInfo) -> list[tuple[str, list[PodInfo]]]:
    """Who might end: single pods (blocking ones, the least important, the youngest), then gangs."""
    ordered = sorted(
        entry.pods, key=lambda info: info.pod.metadata.creation_timestamp or "", reverse=True
    )
    ordered.sort(
        key=lambda info: (
            not info.pod.metadata.deletion_timestamp,
            info.pod.spec.priority or 0,
        )
    )
    gangs: dict[str, list[PodInfo]] = {}
    for info in ordered:
        meta = info.pod.metadata
        if GROUP_LABEL in meta.labels:
            gangs.setdefault(f"{meta.namespace}/{meta.labels[GROUP_LABEL]}", []).append(info)
    several = [(name, found) for name, found in gangs.items() if len(found) > 1]
    return [*(("", [info]) for info in ordered[:_PODS_EACH]), *several]
