"""Which standby machines a pool keeps at a moment, summed by shape."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from grange.api.cron import CronSchedule, InvalidSchedule
from grange.api.kinds.nodepool import STOPPED, StandbyNodeSpec


@dataclass(frozen=True, slots=True, order=True)
class StandbyShape:
    """What standby machines have in common."""

    instance_type: str
    spot: bool = False
    stopped: bool = False


def wanted(entries: Iterable[StandbyNodeSpec], now: datetime) -> Mapping[StandbyShape, int]:
    """How many of each shape to keep now, in the order in which shapes are first named."""
    counts: dict[StandbyShape, int] = {}
    for entry in entries:
        if is_open(entry.schedule, entry.duration_seconds, now):
            shape = StandbyShape(entry.instance_type, entry.spot, entry.state == STOPPED)
            counts[shape] = counts.get(shape, 0) + max(0, entry.count)
    return counts


def is_open(schedule: str, duration_s: int, now: datetime) -> bool:
    """Whether a moment is in a window that a cron expression (UTC) begins; always without one.

    An expression that cannot be read has no windows: validation refuses it, and a stored one must not
    cost money.
    """
    if not schedule:
        return True
    try:
        begun = CronSchedule(schedule).latest_until(now)
    except InvalidSchedule:
        return False
    return begun is not None and now < begun + timedelta(seconds=duration_s)
