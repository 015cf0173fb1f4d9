"""The phases of a rollout, as a table of transitions.

Theory of operation. A rollout is *progressing* until every pod is of the wanted template and
available: *complete*. Before, it may be *paused*, or *waiting* at its canary (and, for ``OnDelete``, for
pods to be deleted). One without progress within the deadline has *failed*; it continues if it can, and
a change of the spec moves the deadline. By policy it is *rolling back* instead, a rollout to the last
completed template; it ends *rolled back* until ``spec.template`` changes.

Rollouts between two controllers have the same phases; they begin *pending*, until both controllers
exist and no other rollout moves their replicas, and end *refused* if they may not begin.
"""

from collections.abc import Mapping
from enum import Enum


class RolloutPhase(Enum):
    """Where a rollout is."""

    PENDING = "Pending"
    PROGRESSING = "Progressing"
    PAUSED = "Paused"
    WAITING = "Waiting"
    FAILED = "Failed"
    ROLLING_BACK = "RollingBack"
    ROLLED_BACK = "RolledBack"
    COMPLETE = "Complete"
    REFUSED = "Refused"

    @classmethod
    def _missing_(cls, value: object) -> "RolloutPhase":
        """An unknown phase is failed, which continues when pods advance."""
        return cls.FAILED


SETTLED = frozenset({RolloutPhase.COMPLETE, RolloutPhase.ROLLED_BACK})
"""Phases in which nothing is to be done until the template or the pods change."""


class RolloutEvent(Enum):
    """What happens to a rollout."""

    BEGAN = "both controllers are there"
    REFUSED = "may not begin"
    CHANGED = "another template or another goal"
    OUTDATED = "pods of another template appear"
    PAUSED = "paused"
    RESUMED = "resumed"
    RESUMED_BACK = "resumed while going back"
    REACHED = "canaries are there"
    PROMOTED = "more canaries are wanted"
    LATE = "deadline"
    BACK = "deadline, by policy / undo"
    ADVANCED = "got further"
    COMPLETED = "all pods available"


ROLLOUT: Mapping[tuple[RolloutPhase, RolloutEvent], RolloutPhase] = {
    (RolloutPhase.PENDING, RolloutEvent.BEGAN): RolloutPhase.PROGRESSING,
    (RolloutPhase.PENDING, RolloutEvent.REFUSED): RolloutPhase.REFUSED,
    (RolloutPhase.PROGRESSING, RolloutEvent.CHANGED): RolloutPhase.PROGRESSING,
    (RolloutPhase.PROGRESSING, RolloutEvent.PAUSED): RolloutPhase.PAUSED,
    (RolloutPhase.PROGRESSING, RolloutEvent.REACHED): RolloutPhase.WAITING,
    (RolloutPhase.PROGRESSING, RolloutEvent.COMPLETED): RolloutPhase.COMPLETE,
    (RolloutPhase.PROGRESSING, RolloutEvent.LATE): RolloutPhase.FAILED,
    (RolloutPhase.PROGRESSING, RolloutEvent.BACK): RolloutPhase.ROLLING_BACK,
    (RolloutPhase.PAUSED, RolloutEvent.CHANGED): RolloutPhase.PROGRESSING,
    (RolloutPhase.PAUSED, RolloutEvent.RESUMED): RolloutPhase.PROGRESSING,
    (RolloutPhase.PAUSED, RolloutEvent.RESUMED_BACK): RolloutPhase.ROLLING_BACK,
    (RolloutPhase.PAUSED, RolloutEvent.BACK): RolloutPhase.ROLLING_BACK,
    (RolloutPhase.WAITING, RolloutEvent.CHANGED): RolloutPhase.PROGRESSING,
    (RolloutPhase.WAITING, RolloutEvent.PROMOTED): RolloutPhase.PROGRESSING,
    (RolloutPhase.WAITING, RolloutEvent.PAUSED): RolloutPhase.PAUSED,
    (RolloutPhase.WAITING, RolloutEvent.COMPLETED): RolloutPhase.COMPLETE,
    (RolloutPhase.WAITING, RolloutEvent.BACK): RolloutPhase.ROLLING_BACK,
    (RolloutPhase.FAILED, RolloutEvent.CHANGED): RolloutPhase.PROGRESSING,
    (RolloutPhase.FAILED, RolloutEvent.ADVANCED): RolloutPhase.PROGRESSING,
    (RolloutPhase.FAILED, RolloutEvent.PAUSED): RolloutPhase.PAUSED,
    (RolloutPhase.FAILED, RolloutEvent.COMPLETED): RolloutPhase.COMPLETE,
    (RolloutPhase.FAILED, RolloutEvent.BACK): RolloutPhase.ROLLING_BACK,
    (RolloutPhase.ROLLING_BACK, RolloutEvent.CHANGED): RolloutPhase.PROGRESSING,
    (RolloutPhase.ROLLING_BACK, RolloutEvent.PAUSED): RolloutPhase.PAUSED,
    (RolloutPhase.ROLLING_BACK, RolloutEvent.COMPLETED): RolloutPhase.ROLLED_BACK,
    (RolloutPhase.ROLLED_BACK, RolloutEvent.CHANGED): RolloutPhase.PROGRESSING,
    (RolloutPhase.ROLLED_BACK, RolloutEvent.OUTDATED): RolloutPhase.ROLLING_BACK,
    (RolloutPhase.COMPLETE, RolloutEvent.CHANGED): RolloutPhase.PROGRESSING,
    (RolloutPhase.COMPLETE, RolloutEvent.OUTDATED): RolloutPhase.PROGRESSING,
}
"""The next phase by phase and event; other events cannot happen."""
