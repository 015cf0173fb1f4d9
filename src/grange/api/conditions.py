"""Conditions: the state of an object, one entry for each type.

``lastTransitionTime`` moves only when ``status`` changes, so that "since when" stays true while
reasons and messages are refined.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from grange.api import timestamps
from grange.api.meta import Condition, Document


def find(conditions: Sequence[Condition], kind: str) -> Condition | None:
    """The condition of a type, or None."""
    for item in conditions:
        if item.type == kind:
            return item
    return None


def is_true(conditions: Sequence[Condition], kind: str) -> bool:
    """Whether the condition of a type is there and True."""
    item = find(conditions, kind)
    return item is not None and item.status == "True"


def set_condition(
    conditions: Sequence[Condition], new: Condition, now: str
) -> tuple[Condition, ...]:
    """The conditions with one set, in place of the old of its type or at the end.

    Args:
        conditions: as they are; not changed.
        new: what shall be; its ``last_transition_time`` is ignored.
        now: RFC 3339, used when the status differs from before.

    Returns:
        A new tuple; equal to the old one when nothing changes.
    """
    old = find(conditions, new.type)
    since = now
    if old is not None and old.status == new.status and old.last_transition_time:
        since = old.last_transition_time
    stamped = replace(new, last_transition_time=since)
    if old is None:
        return (*conditions, stamped)
    return tuple(stamped if item.type == new.type else item for item in conditions)


def set_status(
    conditions: Sequence[Condition],
    kind: str,
    verdict: tuple[str, str, str],
    *,
    generation: int,
    now: datetime,
) -> tuple[Condition, ...]:
    """The conditions with a verdict set, as ``set_condition`` does.

    Args:
        conditions: as they are; not changed.
        kind: the condition's type.
        verdict: status, reason and message.
        generation: of the object that the verdict is about.
        now: wall time.
    """
    status, reason, message = verdict
    new = Condition(
        type=kind, status=status, reason=reason, message=message, observed_generation=generation
    )
    return set_condition(conditions, new, timestamps.rfc3339(now))


def patch_item(condition: Condition) -> Document:
    """The condition as an item of a strategic merge patch, which merges items by their type.

    An empty reason or message is removed from the stored condition, not left as it was.
    """
    return {"reason": None, "message": None, **msgspec.to_builtins(condition)}
