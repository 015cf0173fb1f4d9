"""Room that is promised: pods that were nominated to a node and have not come yet."""

import numpy as np

from grange.placement.columns import Integers, Mask
from grange.scheduler.dry_run import DryRun
from grange.scheduler.explain.evaluation import Evaluation
from grange.scheduler.explanation import Amounts, Remedy
from grange.scheduler.framework import CycleState, Profile, Status
from grange.scheduler.nominator import Nominated

NAME = "nominations"


class Nominations:
    """The pod must fit beside those that are nominated, too.

    Args:
        evaluation: of all else; what is refused here is taken into account there.
        nominated: the nominations that matter to the pod.
    """

    def __init__(self, evaluation: Evaluation, nominated: Nominated) -> None:
        self._names = evaluation.snapshot.table.names
        self._pods = nominated.on
        self.lacks: Integers = np.zeros(len(evaluation.valid), np.int64)
        self.severity: Amounts = np.zeros(len(evaluation.valid), np.float64)

    def missing(self, row: int) -> list[str]:
        """For whom the room is."""
        pods = ", ".join(str(info.pod.key) for info in self._pods(self._names[row]))
        return [f"room is kept for {pods}"]

    def changes(self, rows: Integers) -> list[Remedy]:
        """Nothing that others should do."""
        return []


def apply_nominations(
    profile: Profile, state: CycleState, evaluation: Evaluation, nominated: Nominated | None
) -> None:
    """Take nominations into account: only nodes that would do otherwise are looked at."""
    if nominated is None:
        return
    demand, table = Nominations(evaluation, nominated), evaluation.snapshot.table
    trial = DryRun(profile, state, evaluation.pod, evaluation.snapshot)
    found: list[Status] = []
    refused: Mask = np.zeros(len(evaluation.valid), np.bool_)
    for name in nominated.level:
        row, pods = table.rows.get(name), nominated.on(name)
        if row is None or not pods or not evaluation.feasible[row]:
            continue
        with trial.on(evaluation.snapshot.node_info_map[name]) as what_if:
            status = what_if.status(pods)
        if not status.ok:
            refused[row] = True
            found.append(status)
    for _, rule in trial.rules:
        rule.refresh()
    demand.lacks = refused.astype(np.int64)
    evaluation.take(NAME, demand, found)
