"""The cheapest changes after which a node would accept a waiting pod.

A plugin's remedy satisfies that plugin in the present state; but a changed pod may change the verdicts
of others: a pod that tolerates a taint may be spread over more domains. So a change of the pod is shown
only after the changed pod was evaluated.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice

import numpy as np

from grange.api.explanation import Change
from grange.api.kinds.podgroup import GROUP_LABEL
from grange.placement.columns import Integers, Mask
from grange.scheduler import diagnosis
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.explain.evaluation import Evaluation
from grange.scheduler.framework import CycleState
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.plugin_explanation import Remedy
from grange.scheduler.plugins.noderesourcesfit import ResourcesExplanation
from grange.scheduler.podinfo import PodInfo

_SHOWN = 5
_EXAMPLES = 3
_NEAR = 32
_BLOCKING_PODS = 2
_TRIED = 10
_NODES_TRIED = 32
_PODS_TRIED = 64  # of one node
_DRY_RUNS = 256
_RULES_COST = 16  # a dry run that changes counts of other nodes costs as much as so many others


def cheapest(evaluation: Evaluation) -> tuple[Change, ...]:
    """What would help, the cheapest first."""
    return tuple(_change(evaluation, item) for item in remedies(evaluation))


def remedies(evaluation: Evaluation) -> list[Remedy]:
    """What would help, the cheapest first; all rows of a remedy accept the pod after the change.

    First the remedies of single plugins; where no node has a single plugin that refuses, those of the
    nearest nodes together.
    """
    near = evaluation.nearest(_NEAR)
    single = _single(evaluation)
    rows = evaluation.snapshot.table.rows
    single += [
        Remedy(item.text, np.array([rows[item.node]], np.int64), item.cost, when=True)
        for item in find_blocking_pods(evaluation, near, _BLOCKING_PODS)
    ]
    return _tried(evaluation, single) or _tried(evaluation, _joint(evaluation, near))


def _tried(evaluation: Evaluation, candidates: Iterable[Remedy]) -> list[Remedy]:
    """The cheapest that prove right; only some are tried."""
    ordered = sorted(candidates, key=lambda item: (item.cost, -len(item.rows)))
    shown: list[Remedy] = []
    for remedy in ordered[:_TRIED]:
        if len(shown) == _SHOWN:
            break
        rows = remedy.rows
        if remedy.change is not None:
            rows = rows[_fits(evaluation, remedy.change(evaluation.pod))[rows]]
        if len(rows):
            shown.append(replace(remedy, rows=rows))
    return shown


def _fits(evaluation: Evaluation, pod: PodInfo) -> Mask:
    """By row, whether the node accepts a changed pod."""
    state, snapshot, profile = CycleState(), evaluation.snapshot, evaluation.profile
    narrowed = diagnosis.pre_filter(profile, state, pod, snapshot)
    if isinstance(narrowed, Diagnosis):
        return np.zeros(len(evaluation.valid), np.bool_)
    changed = Evaluation(profile, pod, snapshot, state, evaluation.nominated)
    if narrowed.node_names is None:
        return changed.feasible
    rows = snapshot.table.rows
    left = [rows[name] for name in narrowed.node_names if name in rows]
    fits: Mask = np.zeros(len(evaluation.valid), np.bool_)
    fits[left] = changed.feasible[left]
    return fits


def _single(evaluation: Evaluation) -> list[Remedy]:
    explanations = evaluation.explanations.values()
    refusals = sum(((item.lacks > 0).astype(np.int64) for item in explanations), np.int64(0))
    found = []
    for item in explanations:
        rows = np.flatnonzero(evaluation.valid & (refusals == 1) & (item.lacks > 0))
        if len(rows):
            found += item.changes(rows)
    return found


def _joint(evaluation: Evaluation, near: list[int]) -> list[Remedy]:
    """Of each near node, a remedy of every plugin that refuses; equal texts together."""
    found: dict[str, Remedy] = {}
    for row in near:
        rows = np.array([row], np.int64)
        parts = []
        for item in evaluation.explanations.values():
            if item.lacks[row]:
                helps = item.changes(rows)
                if not helps:
                    break
                parts.append(helps[0])
        else:
            remedy = _joined(parts, rows)
            before = found.get(remedy.text)
            if before is not None:
                both = np.concatenate([before.rows, rows])
                remedy = replace(remedy, rows=both)
            found[remedy.text] = remedy
    return [*found.values()]


def _joined(parts: list[Remedy], rows: Integers) -> Remedy:
    text = " and ".join(item.text for item in sorted(parts, key=lambda item: item.when))
    cost = sum(item.cost for item in parts)
    steps = [item.change for item in parts if item.change is not None]

    def change(pod: PodInfo) -> PodInfo:
        return reduce(lambda changed, step: step(changed), steps, pod)

    alone = len(steps) == len(parts)  # the cluster need not change
    when = all(item.when for item in parts)
    return Remedy(text, rows, cost, when=when, change=change if alone else None)


def _change(evaluation: Evaluation, remedy: Remedy) -> Change:
    names = evaluation.snapshot.table.names
    order = np.argsort(-evaluation.snapshot.ties[remedy.rows], kind="stable")
    examples = tuple(names[row] for row in remedy.rows[order[:_EXAMPLES]].tolist())
    word = "when" if remedy.when else "if"
    return Change(text=f"{word} {remedy.text}", nodes=len(remedy.rows), examples=examples)


# --- pods whose end would help -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlockingPod:
    """A pod whose end would make a node accept the waiting pod, or all pods of a gang there.

    Attributes:
        pod: that pod, or one of them.
        node: its node.
        gang: the gang; empty for a single pod.
    """

    pod: PodInfo
    node: str
    gang: str = ""

    @property
    def cost(self) -> float:
        """Little for a terminating pod; more with a higher priority."""
        if self.pod.pod.metadata.deletion_timestamp:
            return 0.05
        return 0.7 + min(max(self.pod.priority, 0), 1_000_000) / 4_000_000

    @property
    def text(self) -> str:
        """Completes "fits when …"."""
        if self.gang:
            return f"gang {self.gang} ends"
        if self.pod.pod.metadata.deletion_timestamp:
            return f"pod {self.pod.pod.key} on {self.node}, which is being deleted, has ended"
        return f"pod {self.pod.pod.key} on {self.node} ends"


def find_blocking_pods(
    evaluation: Evaluation, near: Iterable[int], limit: int
) -> list[BlockingPod]:
    """Pods whose end alone would suffice, at most one a node, those of low priority first.

    Of ``near`` rows only those are tried that nothing but pods blocks, and only some of their pods: the
    answer need not be complete to be useful, and it delays decisions.
    """
    dry_run = evaluation.dry_run()
    fit = evaluation.explanations.get("NodeResourcesFit")
    budget, each = _DRY_RUNS, _RULES_COST if dry_run.rules else 1
    found: list[BlockingPod] = []
    for row in islice((row for row in near if not evaluation.fixed[row]), _NODES_TRIED):
        entry = evaluation.snapshot.node_info_map[evaluation.snapshot.table.names[row]]
        for gang, others in _candidates(entry):
            if isinstance(fit, ResourcesExplanation) and not fit.covered(row, others):
                continue  # known without a dry run
            budget -= each * len(others)
            if budget < 0:
                break
            with dry_run.on(entry) as what_if:
                for other in others:
                    what_if.remove(other)
                helps = what_if.status().ok
            if helps:
                blocking = BlockingPod(others[0], entry.name, gang)
                if not any(gang and item.gang == gang for item in found):
                    found.append(blocking)
                break
    found.sort(key=lambda item: item.cost)
    return found[:limit]


def _candidates(entry: NodeInfo) -> list[tuple[str, list[PodInfo]]]:
    """Single pods (terminating ones, low priority, young ones first), then gangs."""
    ordered = sorted(
        entry.pods, key=lambda info: info.pod.metadata.creation_timestamp or "", reverse=True
    )
    ordered.sort(
        key=lambda info: (
            not info.pod.metadata.deletion_timestamp,
            info.priority,
        )
    )
    gangs: dict[str, list[PodInfo]] = {}
    for info in ordered:
        meta = info.pod.metadata
        if GROUP_LABEL in meta.labels:
            gangs.setdefault(f"{meta.namespace}/{meta.labels[GROUP_LABEL]}", []).append(info)
    several = [(name, found) for name, found in gangs.items() if len(found) > 1]
    return [*(("", [info]) for info in ordered[:_PODS_TRIED]), *several]
