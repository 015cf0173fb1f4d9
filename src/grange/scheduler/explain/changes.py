"""The cheapest changes after which a waiting pod would fit.

What a plugin says would help is what would satisfy that plugin, as things are; but a changed pod may
change what others say: a pod that tolerates a taint may be spread over more domains. So a change of
the pod is shown only after the changed pod was tried.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce

import numpy as np

from grange.api.explanation import Change
from grange.placement.columns import Integers, Mask
from grange.scheduler import diagnosis
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.explain import blocking_pods
from grange.scheduler.explain.evaluation import Evaluation
from grange.scheduler.explain.nominations import apply_nominations
from grange.scheduler.explanation import Remedy
from grange.scheduler.framework import CycleState, Profile
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.nominator import Nominated

_SHOWN = 5
_EXAMPLES = 3
_NEAR = 32
_BLOCKING_PODS = 2
_TRIED = 10


def cheapest(
    profile: Profile, state: CycleState, evaluation: Evaluation, nominated: Nominated | None = None
) -> tuple[Change, ...]:
    """What would help, the cheapest first.

    First of what a single plugin demands; where no single demand is all that is in the way, the
    demands on the nearest nodes together.

    Args:
        profile: the plugins.
        state: what PreFilter left for the pod.
        evaluation: what the plugins say now.
        nominated: the nominations that matter to the pod.
    """
    return tuple(_change(evaluation, item) for item in found(profile, state, evaluation, nominated))


def found(
    profile: Profile, state: CycleState, evaluation: Evaluation, nominated: Nominated | None = None
) -> list[Remedy]:
    """The same as remedies; the pod fits on all their rows once it is changed as they say."""
    near = evaluation.nearest(_NEAR)
    remedies = _single(evaluation)
    remedies += [
        Remedy(item.text, _row(evaluation, item.node), item.cost, when=True)
        for item in blocking_pods.find(profile, state, evaluation, near, _BLOCKING_PODS)
    ]
    shown = _tried(profile, evaluation, nominated, remedies)
    return shown or _tried(profile, evaluation, nominated, _joint(evaluation, near))


def _tried(
    profile: Profile,
    evaluation: Evaluation,
    nominated: Nominated | None,
    remedies: Iterable[Remedy],
) -> list[Remedy]:
    """The cheapest that hold; only so many are tried."""
    ordered = sorted(remedies, key=lambda item: (item.cost, -len(item.rows)))
    shown: list[Remedy] = []
    for remedy in ordered[:_TRIED]:
        if len(shown) == _SHOWN:
            break
        rows = remedy.rows
        if remedy.change is not None:
            rows = rows[_fits(profile, evaluation, nominated, remedy.change(evaluation.pod))[rows]]
        if len(rows):
            shown.append(replace(remedy, rows=rows))
    return shown


def _fits(
    profile: Profile, evaluation: Evaluation, nominated: Nominated | None, pod: PodInfo
) -> Mask:
    """By row, whether a changed pod would fit."""
    state, snapshot = CycleState(), evaluation.snapshot
    narrowed = diagnosis.pre_filter(profile, state, pod, snapshot)
    if isinstance(narrowed, Diagnosis):
        return np.zeros(len(evaluation.valid), np.bool_)
    changed = Evaluation(profile, pod, snapshot)
    apply_nominations(profile, state, changed, nominated)
    if narrowed.node_names is None:
        return changed.feasible
    rows = snapshot.table.rows
    left = [rows[name] for name in narrowed.node_names if name in rows]
    fits: Mask = np.zeros(len(evaluation.valid), np.bool_)
    fits[left] = changed.feasible[left]
    return fits


def _row(evaluation: Evaluation, name: str) -> Integers:
    return np.array([evaluation.snapshot.table.rows[name]], np.int64)


def _single(evaluation: Evaluation) -> list[Remedy]:
    refusals = np.zeros(len(evaluation.valid), np.int64)
    for item in evaluation.explanations.values():
        refusals += item.lacks > 0
    alone = evaluation.valid & (refusals == 1)
    found = []
    for item in evaluation.explanations.values():
        rows = np.flatnonzero(alone & (item.lacks > 0))
        if len(rows):
            found += item.changes(rows)
    return found


def _joint(evaluation: Evaluation, near: list[int]) -> list[Remedy]:
    """Per near node, what each of its refusals needs; equal texts together."""
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

    alone = len(steps) == len(parts)  # nothing has to happen to the cluster as well
    when = all(item.when for item in parts)
    return Remedy(text, rows, cost, when=when, change=change if alone else None)


def _change(evaluation: Evaluation, remedy: Remedy) -> Change:
    names = evaluation.snapshot.table.names
    order = np.argsort(-evaluation.snapshot.ties[remedy.rows], kind="stable")
    examples = tuple(names[row] for row in remedy.rows[order[:_EXAMPLES]].tolist())
    word = "when" if remedy.when else "if"
    return Change(text=f"{word} {remedy.text}", nodes=len(remedy.rows), examples=examples)
