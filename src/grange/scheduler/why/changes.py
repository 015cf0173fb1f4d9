"""The cheapest changes after which a waiting pod would fit."""

import numpy as np

from grange.api.explanation import Change
from grange.placement.columns import Integers
from grange.scheduler.framework import CycleState, Profile
from grange.scheduler.why import endings
from grange.scheduler.why.demand import Clause
from grange.scheduler.why.survey import Survey

_SHOWN = 5
_EXAMPLES = 3
_NEAR = 32
_ENDINGS = 2


def cheapest(
    profile: Profile, state: CycleState, survey: Survey, limit: int = _SHOWN
) -> tuple[Change, ...]:
    """What would help, the cheapest first.

    First of what a single plugin demands; where no single demand is all that is in the way, the
    demands on the nearest nodes together.
    """
    near = survey.nearest(_NEAR)
    clauses = _single(survey)
    clauses += [
        Clause(item.text, _row(survey, item.node), item.cost, when=True)
        for item in endings.find(profile, state, survey, near, _ENDINGS)
    ]
    if not clauses:
        clauses = _joint(survey, near)
    clauses.sort(key=lambda item: (item.cost, -len(item.rows)))
    return tuple(_change(survey, item) for item in clauses[:limit] if len(item.rows))


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
                clause = Clause(clause.text, both, clause.cost, clause.when)
            found[clause.text] = clause
    return [*found.values()]


def _joined(parts: list[Clause], rows: Integers) -> Clause:
    text = " and ".join(item.text for item in sorted(parts, key=lambda item: item.when))
    cost = sum(item.cost for item in parts)
    return Clause(text, rows, cost, when=all(item.when for item in parts))


def _change(survey: Survey, clause: Clause) -> Change:
    names = survey.snapshot.table.names
    order = np.argsort(-survey.snapshot.ties[clause.rows], kind="stable")
    examples = tuple(names[row] for row in clause.rows[order[:_EXAMPLES]].tolist())
    word = "when" if clause.when else "if"
    return Change(text=f"{word} {clause.text}", nodes=len(clause.rows), examples=examples)
