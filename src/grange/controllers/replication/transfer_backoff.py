"""How long the nodes that pods could not leave are left alone: kept in the controller's status.

Whoever owns the controller next goes on with the same patience. What is kept is limited: an entry
lasts while a pod still has to leave its node.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from grange.api import timestamps
from grange.api.kinds.transfer_status import TransferBackoff
from grange.api.timestamps import TimestampError
from grange.base.backoff import Exponential

_AFTER_FAILURE = Exponential(initial_s=30.0, cap_s=600.0)
_NODES = 32  # entries of one controller; more pods than these hardly ever move at the same time
_AVOIDED = 8  # nodes that one entry tells to avoid


def of(known: Sequence[TransferBackoff], node: str) -> TransferBackoff:
    """What is known of a node to leave; an entry without attempts for nothing."""
    return next((item for item in known if item.node == node), TransferBackoff(node))


def failed(
    known: Sequence[TransferBackoff], node: str, new: str, now: datetime
) -> tuple[TransferBackoff, ...]:
    """What is known once a transfer has failed again.

    Args:
        known: so far.
        node: which was to be left.
        new: where the pod was to go; empty if that was not known.
        now: wall time.
    """
    before = of(known, node)
    attempts = before.attempts + 1
    avoid = [name for name in before.avoid if name != new]
    after = replace(
        before,
        attempts=attempts,
        until=timestamps.rfc3339(now + timedelta(seconds=_AFTER_FAILURE.delay(attempts))),
        avoid=tuple([*avoid, new][-_AVOIDED:] if new else avoid),
    )
    return (*without(known, node), after)[-_NODES:]


def without(known: Sequence[TransferBackoff], node: str) -> tuple[TransferBackoff, ...]:
    """What is known but of this node: a transfer from it is complete."""
    return tuple(item for item in known if item.node != node)


def kept(
    known: Sequence[TransferBackoff], to_leave: Collection[str]
) -> tuple[TransferBackoff, ...]:
    """What is still of use.

    Args:
        known: so far.
        to_leave: nodes that pods of the controller are to leave, or are leaving.
    """
    return tuple(item for item in known if item.node in to_leave)


def left_s(item: TransferBackoff, now: datetime) -> float:
    """Seconds until the next attempt, by our clock; never more than any failure costs."""
    try:
        until = timestamps.parse(item.until)
    except TimestampError:
        return 0.0  # nothing has failed, or somebody's hand wrote it
    return min(_AFTER_FAILURE.cap_s, max(0.0, (until - now).total_seconds()))
