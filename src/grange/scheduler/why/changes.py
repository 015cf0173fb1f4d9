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
from grange.scheduler import decision
from grange.scheduler.decision import Rejection
from grange.scheduler.framework import CycleState, Profile
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.nominator import Nominated
from grange.scheduler.why import endings
from grange.scheduler.why.demand import Clause
from grange.scheduler.why.promised import heed
from grange.scheduler.why.survey import Survey

_SHOWN = 5
_EXAMPLES = 3
_NEAR = 32
_ENDINGS = 2
_TRIED = 10


def cheapest(
    profile: Profile, state: CycleState, survey: Survey, nominated: Nominated | None = None
) -> tuple[Change, ...]:
    """What would help, the cheapest first.

    First of what a single plugin demands; where no single demand is all that is in the way, the
    demands on the nearest nodes together.

    Args:
        profile: the plugins.
        state: what PreFilter left for the pod.
        survey: what the plugins say now.
        nominated: the nominations that matter to the pod.
    """
    return tuple(_change(survey, item) for item in found(profile, state, survey, nominated))


def found(
    profile: Profile, state: CycleState, survey: Survey, nominated: Nominated | None = None
) -> list[Clause]:
    """The same as clauses; the pod fits on all their rows once it is changed as they say."""
    near = survey.nearest(_NEAR)
    clauses = _single(survey)
    clauses += [
        Clause(item.text, _row(survey, item.node), item.cost, when=True)
        for item in endings.find(profile, state, survey, near, _ENDINGS)
    ]
    shown = _tried(profile, survey, nominated, clauses)
    return shown or _tried(profile, survey, nominated, _joint(survey, near))


def _tried(
    profile: Profile, survey: Survey, nominated: Nominated | None, clauses: Iterable[Clause]
) -> list[Clause]:
    """The cheapest that hold; only so many are tried."""
    ordered = sorted(clauses, key=lambda item: (item.cost, -len(item.rows)))
    shown: list[Clause] = []
    for clause in ordered[:_TRIED]:
        if len(shown) == _SHOWN:
            break
        rows = clause.rows
        if clause.change is not None:
            rows = rows[_fits(profile, survey, nominated, clause.change(survey.pod))[rows]]
        if len(rows):
            shown.append(replace(clause, rows=rows))
    return shown


def _fits(profile: Profile, survey: Survey, nominated: Nominated | None, pod: PodInfo) -> Mask:
    """By row, whether a changed pod would fit."""
    state, snapshot = CycleState(), survey.snapshot
    narrowed = decision.pre_filter(profile, state, pod, snapshot)
    if isinstance(narrowed, Rejection):
        return np.zeros(len(survey.valid), np.bool_)
    changed = Survey(profile, pod, snapshot)
    heed(profile, state, changed, nominated)
    if narrowed.node_names is None:
        return changed.feasible
    rows = snapshot.table.rows
    left = [rows[name] for name in narrowed.node_names if name in rows]
    fits: Mask = np.zeros(len(survey.valid), np.bool_)
    fits[left] = changed.feasible[left]
    return fits


def _row(survey: Survey, name: str) -> Integers:
    return np.array([survey.snapshot.table.rows[name]], np.int64)


def _single(survey: Survey) -> list[Clause]:
    refusals = np.zeros(len(survey.valid), np.int64)
    for demand in survey.demands.values():
        refusals += demand.lacks > 0
    alone = survey.valid & (refusals == 1)
    found = []
    for demand in survey.demands.values():
        rows = np.flatnonzero(alone & (demand.lacks > 0))
        if len(rows):
            found += demand.changes(rows)
    return found


def _joint(survey: Survey, near: list[int]) -> list[Clause]:
    """Per near node, what each of its refusals needs; equal texts together."""
    found: dict[str, Clause] = {}
    for row in near:
        rows = np.array([row], np.int64)
        parts = []
        for demand in survey.demands.values():
            if demand.lacks[row]:
                helps = demand.changes(rows)
                if not helps:
                    break
                parts.append(helps[0])
        else:
            clause = _joined(parts, rows)
            before = found.get(clause.text)
            if before is not None:
                both = np.concatenate([before.rows, rows])
                clause = replace(clause, rows=both)
            found[clause.text] = clause
    return [*found.values()]


def _joined(parts: list[Clause], rows: Integers) -> Clause:
    text = " and ".join(item.text for item in sorted(parts, key=lambda item: item.when))
    cost = sum(item.cost for item in parts)
    steps = [item.change for item in parts if item.change is not None]

    def change(pod: PodInfo) -> PodInfo:
        return reduce(lambda changed, step: step(changed), steps, pod)

    alone = len(steps) == len(parts)  # nothing has to happen to the cluster as well
    when = all(item.when for item in parts)
    return Clause(text, rows, cost, when=when, change=change if alone else None)


def _change(survey: Survey, clause: Clause) -> Change:
    names = survey.snapshot.table.names
    order = np.argsort(-survey.snapshot.ties[clause.rows], kind="stable")
    examples = tuple(names[row] for row in clause.rows[order[:_EXAMPLES]].tolist())
    word = "when" if clause.when else "if"
    return Change(text=f"{word} {clause.text}", nodes=len(clause.rows), examples=examples)
