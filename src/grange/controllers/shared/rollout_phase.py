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


class Phase(Enum):
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
    def _missing_(cls, value: object) -> "Phase":
        """A phase that this version does not know has failed: it goes on when pods advance."""
        return cls.FAILED


class Event(Enum):
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


ROLLOUT: Mapping[tuple[Phase, Event], Phase] = {
    (Phase.PENDING, Event.BEGAN): Phase.PROGRESSING,
    (Phase.PENDING, Event.REFUSED): Phase.REFUSED,
    (Phase.PROGRESSING, Event.CHANGED): Phase.PROGRESSING,
    (Phase.PROGRESSING, Event.PAUSED): Phase.PAUSED,
    (Phase.PROGRESSING, Event.REACHED): Phase.WAITING,
    (Phase.PROGRESSING, Event.COMPLETED): Phase.COMPLETE,
    (Phase.PROGRESSING, Event.LATE): Phase.FAILED,
    (Phase.PROGRESSING, Event.BACK): Phase.ROLLING_BACK,
    (Phase.PAUSED, Event.CHANGED): Phase.PROGRESSING,
    (Phase.PAUSED, Event.RESUMED): Phase.PROGRESSING,
    (Phase.PAUSED, Event.RESUMED_BACK): Phase.ROLLING_BACK,
    (Phase.PAUSED, Event.BACK): Phase.ROLLING_BACK,
    (Phase.WAITING, Event.CHANGED): Phase.PROGRESSING,
    (Phase.WAITING, Event.PROMOTED): Phase.PROGRESSING,
    (Phase.WAITING, Event.PAUSED): Phase.PAUSED,
    (Phase.WAITING, Event.COMPLETED): Phase.COMPLETE,
    (Phase.WAITING, Event.BACK): Phase.ROLLING_BACK,
    (Phase.FAILED, Event.CHANGED): Phase.PROGRESSING,
    (Phase.FAILED, Event.ADVANCED): Phase.PROGRESSING,
    (Phase.FAILED, Event.PAUSED): Phase.PAUSED,
    (Phase.FAILED, Event.COMPLETED): Phase.COMPLETE,
    (Phase.FAILED, Event.BACK): Phase.ROLLING_BACK,
    (Phase.ROLLING_BACK, Event.CHANGED): Phase.PROGRESSING,
    (Phase.ROLLING_BACK, Event.PAUSED): Phase.PAUSED,
    (Phase.ROLLING_BACK, Event.COMPLETED): Phase.ROLLED_BACK,
    (Phase.ROLLED_BACK, Event.CHANGED): Phase.PROGRESSING,
    (Phase.ROLLED_BACK, Event.OUTDATED): Phase.ROLLING_BACK,
    (Phase.COMPLETE, Event.CHANGED): Phase.PROGRESSING,
    (Phase.COMPLETE, Event.OUTDATED): Phase.PROGRESSING,
}
"""What follows in a phase when something happens; what is not here cannot happen."""

MOVING = frozenset({Phase.PROGRESSING, Phase.ROLLING_BACK, Phase.FAILED})
"""Phases in which replicas go from one side to the other."""


def diagrams() -> dict[str, str]:
    """The diagram by its name, for the documentation."""
    ends = frozenset({Phase.COMPLETE, Phase.ROLLED_BACK, Phase.REFUSED})
    return {"rollout": diagram(ROLLOUT, Phase.PENDING, ends)}
