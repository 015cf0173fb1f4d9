"""Room that is promised: pods that were nominated to a node and have not come yet."""

import numpy as np

from grange.placement.columns import Integers, Mask
from grange.scheduler.framework import CycleState, Profile, Status
from grange.scheduler.nominator import Nominated
from grange.scheduler.trial import Trial
from grange.scheduler.why.demand import Amounts, Clause
from grange.scheduler.why.survey import Survey

NAME = "nominations"


class Promised:
    """The pod must fit beside those that are nominated, too.

    Args:
        survey: of all else; what is refused here is taken into account there.
        nominated: the nominations that matter to the pod.
    """

    def __init__(self, survey: Survey, nominated: Nominated) -> None:
        self._names = survey.snapshot.table.names
        self._pods = nominated.on
        self.lacks: Integers = np.zeros(len(survey.valid), np.int64)
        self.severity: Amounts = np.zeros(len(survey.valid), np.float64)

    def missing(self, row: int) -> list[str]:
        """For whom the room is."""
        pods = ", ".join(str(info.pod.key) for info in self._pods(self._names[row]))
        return [f"room is kept for {pods}"]

    def changes(self, rows: Integers) -> list[Clause]:
        """Nothing that others should do."""
        return []


def heed(profile: Profile, state: CycleState, survey: Survey, nominated: Nominated | None) -> None:
    """Take nominations into account: only nodes that would do otherwise are looked at."""
    if nominated is None:
        return
    demand, table = Promised(survey, nominated), survey.snapshot.table
    trial = Trial(profile, state, survey.pod, survey.snapshot)
    found: list[Status] = []
    refused: Mask = np.zeros(len(survey.valid), np.bool_)
    for name in nominated.level:
        row, pods = table.rows.get(name), nominated.on(name)
        if row is None or not pods or not survey.feasible[row]:
            continue
        with trial.on(survey.snapshot.node_info_map[name]) as what_if:
            status = what_if.status(pods)
        if not status.ok:
            refused[row] = True
            found.append(status)
    for _, rule in trial.rules:
        rule.refresh()
    demand.lacks = refused.astype(np.int64)
    survey.take(NAME, demand, found)
