"""How far the clock of a machine that joins may be from that of its control plane."""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from grange.api import timestamps

SKEW_MAX = timedelta(minutes=5)
"""Certificates begin so long before they are signed."""


def clock_fault(server: str, date: str, now: datetime) -> str:
    """Why a clock is too far from that of a server, and the remedy; empty if it is not.

    Args:
        server: URL of the server.
        date: the field ``Date`` of its answer; a text that is none is taken as fitting.
        now: the time of this machine.
    """
    try:
        theirs = parsedate_to_datetime(date)
    except (ValueError, TypeError):
        return ""
    if theirs.tzinfo is None:
        theirs = theirs.replace(tzinfo=UTC)
    skew = now - theirs
    if abs(skew) <= SKEW_MAX:
        return ""
    side = "ahead of" if skew > timedelta() else "behind"
    return (
        f"the clock of this machine is {timestamps.age(abs(skew).total_seconds())} {side} that of "
        f"{server}: set it, e.g. with timedatectl set-ntp true, and join again"
    )
