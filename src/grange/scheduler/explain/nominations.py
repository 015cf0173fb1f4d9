"""Nominated pods: resources of a node that are kept for pods which preempted others there."""

import numpy as np

from grange.placement.columns import Integers, Mask
from grange.scheduler.dry_run import DryRun
from grange.scheduler.explain.evaluation import Evaluation
from grange.scheduler.framework import CycleState, Profile, Status
from grange.scheduler.nominator import Nominated
from grange.scheduler.plugin_explanation import Amounts, Remedy

NAME = "nominations"


class NominationExplanation:
    """Explains nodes that refuse the pod only together with the pods nominated to them.

    Args:
        evaluation: of the plugins.
        nominated: the nominations that matter to the pod.
    """

    def __init__(self, evaluation: Evaluation, nominated: Nominated) -> None:
        self._names = evaluation.snapshot.table.names
        self._pods = nominated.on
        self.lacks: Integers = np.zeros(len(evaluation.valid), np.int64)
        self.severity: Amounts = np.zeros(len(evaluation.valid), np.float64)

    def missing(self, row: int) -> list[str]:
        """The nominated pods."""
        pods = ", ".join(str(info.pod.key) for info in self._pods(self._names[row]))
        return [f"room is kept for {pods}"]

    def changes(self, rows: Integers) -> list[Remedy]:
        """Nothing is to be changed: the nominated pods come first."""
        return []


def apply_nominations(
    profile: Profile, state: CycleState, evaluation: Evaluation, nominated: Nominated | None
) -> None:
    """Refuse the feasible nodes that do not accept the pod together with their nominated pods."""
    if nominated is None:
        return
    explanation, table = NominationExplanation(evaluation, nominated), evaluation.snapshot.table
    dry_run = DryRun(profile, state, evaluation.pod, evaluation.snapshot)
    found: list[Status] = []
    refused: Mask = np.zeros(len(evaluation.valid), np.bool_)
    for name in nominated.level:
        row, pods = table.rows.get(name), nominated.on(name)
        if row is None or not pods or not evaluation.feasible[row]:
            continue
        with dry_run.on(evaluation.snapshot.node_info_map[name]) as what_if:
            status = what_if.status(pods)
        if not status.ok:
            refused[row] = True
            found.append(status)
    for _, rule in dry_run.rules:
        rule.refresh()
    explanation.lacks = refused.astype(np.int64)
    evaluation.refuse(NAME, explanation, found)
