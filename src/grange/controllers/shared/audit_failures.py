"""What the audit lacks: records that the server refuses for good.

The change that such a record tells of is made already, and a service must not wait for its audit. So
the record is given up, and that is told: by an event that names it, and by a condition that stays
(and with it an alert) until a record is taken that says what is missing.
"""

from collections.abc import Sequence
from datetime import datetime

from grange.api import conditions
from grange.api.meta import Condition, Resource
from grange.base.clock import Clock

CONDITION = "AuditRefused"
"""Condition of a controller or a rollout; its message names the first record that is missing."""

PATIENCE_S = 300.0
"""Seconds between two tries to have it recorded what is missing."""


def told(refusal: str) -> str:
    """A refusal, as people and the audit are told of it."""
    return f"Not recorded: {refusal}"


def lacking(said: Sequence[Condition]) -> str:
    """What is missing, in words; empty if nothing is."""
    found = conditions.find(said, CONDITION)
    return found.message if found is not None and found.status == "True" else ""


def after(known: str, refused: Sequence[str], *, told_of: bool = False) -> str:
    """What is missing once records were written, in words; empty if nothing is.

    Args:
        known: what was missing before.
        refused: which of the records were refused.
        told_of: one of them tells of what was missing.
    """
    if known and (refused or not told_of):
        return known
    return told(refused[0]) if refused else ""


def verdict(missing: str) -> tuple[str, str, str]:
    """Status, reason and message of the condition."""
    if missing:
        return "True", "AuditWriteFailed", missing
    return "False", "NothingRefused", "the server takes the records of the audit"


def said_of(
    obj: Resource, said: Sequence[Condition], missing: str, now: datetime
) -> tuple[Condition, ...]:
    """An object's conditions with this one."""
    generation = obj.metadata.generation
    return conditions.judged(said, CONDITION, verdict(missing), generation=generation, now=now)


class Patience:
    """When to try again, by uid. A new owner tries at once.

    Args:
        clock: for patience.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}

    def refused(self, uid: str) -> None:
        """A record was refused just now."""
        self._due[uid] = self._clock.monotonic() + PATIENCE_S

    def left_s(self, uid: str) -> float:
        """Seconds until the next try is due."""
        return max(0.0, self._due.get(uid, 0.0) - self._clock.monotonic())

    def forget(self, uid: str) -> None:
        """Nothing is missing, or the object is gone."""
        self._due.pop(uid, None)
