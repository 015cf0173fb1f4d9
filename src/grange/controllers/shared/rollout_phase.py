"""The life of a rollout, as a table; nothing else decides what may follow what.

Theory of operation. A rollout is *progressing* until every pod is of the wanted template and
available: *complete*. On the way it may be *paused*, or *waiting* at its canaries (and, for
``OnDelete``, for somebody to delete pods). One that gets no further within the deadline has
*failed*; it goes on if it can after all, and a change of the spec gives it a new deadline. By policy
it is *rolling back* instead, which is a rollout to the last template that was completed; it ends
*rolled back*, where the template that failed stays refused until ``spec.template`` changes.

Rollouts between two controllers have the same life; they begin *pending*, until both controllers
are there and nobody else moves their replicas, and end *refused* if they may not begin.
"""

from collections.abc import Mapping
from enum import Enum

from grange.base.statemachine import diagram


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
        """A phase that this version does not know has failed: it goes on when pods advance."""
        return cls.FAILED


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
"""What follows in a phase when something happens; what is not here cannot happen."""

MOVING = frozenset({RolloutPhase.PROGRESSING, RolloutPhase.ROLLING_BACK, RolloutPhase.FAILED})
"""Phases in which replicas go from one side to the other."""


def diagrams() -> dict[str, str]:
    """The diagram by its name, for the documentation."""
    ends = frozenset({RolloutPhase.COMPLETE, RolloutPhase.ROLLED_BACK, RolloutPhase.REFUSED})
    return {"rollout": diagram(ROLLOUT, RolloutPhase.PENDING, ends)}
