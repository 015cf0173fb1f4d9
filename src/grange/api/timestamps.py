"""Instants as the API writes them, and ages as kubectl shows them.

Objects carry RFC 3339 in UTC: whole seconds for metav1.Time, microseconds for metav1.MicroTime.
"""

import re
from datetime import UTC, datetime, timedelta, timezone

from grange.base.errors import GrangeError

_FORM = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2}):(\d{2})(?:\.(\d+))?(?:([Zz])|([+-])(\d{2}):(\d{2}))",
    re.ASCII,
)

_MINUTE = 60
_HOUR = 3600
_DAY = 86400


class TimestampError(GrangeError):
    """Not an RFC 3339 instant: correct the value."""


def from_seconds(seconds: float) -> datetime:
    """The aware UTC instant so many seconds after the epoch."""
    return datetime.fromtimestamp(seconds, UTC)


def rfc3339(instant: datetime) -> str:
    """An aware instant in UTC with whole seconds: ``2026-11-21T10:19:00Z``."""
    return instant.astimezone(UTC).isoformat(timespec="seconds")[: -len("+00:00")] + "Z"


def rfc3339_micro(instant: datetime) -> str:
    """An aware instant in UTC with microseconds: ``2026-11-21T10:19:00.000000Z``."""
    return instant.astimezone(UTC).isoformat(timespec="microseconds")[: -len("+00:00")] + "Z"


def parse(text: str) -> datetime:
    """The instant, aware and in UTC; fractions beyond microseconds are cut off.

    Raises:
        TimestampError: the text is no RFC 3339 instant with a zone.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise TimestampError(f'"{text}" is not an RFC 3339 time like 2026-11-21T10:19:00Z')
    year, month, day, hour, minute, second = (int(part) for part in match.group(1, 2, 3, 4, 5, 6))
    fraction = int(((match.group(7) or "") + "000000")[:6])
    zone: timezone = UTC
    try:
        if match.group(9):
            offset = timedelta(hours=int(match.group(10)), minutes=int(match.group(11)))
            zone = timezone(offset if match.group(9) == "+" else -offset)
        return datetime(year, month, day, hour, minute, second, fraction, zone).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise TimestampError(f'"{text}" is not a time: {error}') from error


def age(seconds: float) -> str:
    """A duration in kubectl's short form: ``5s``, ``3m20s``, ``5h``, ``2d``, ``3y40d``."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    total = max(total, 0)
    minutes, hours, days = total // _MINUTE, total // _HOUR, total // _DAY
    years, rest_days = divmod(days, 365)
    # The steps at which kubectl drops the smaller unit: (below, big unit, small unit).
    steps = (
        (2 * _MINUTE, f"{total}s", 0, ""),
        (10 * _MINUTE, f"{minutes}m", total % _MINUTE, "s"),
        (3 * _HOUR, f"{minutes}m", 0, ""),
        (8 * _HOUR, f"{hours}h", minutes % 60, "m"),
        (2 * _DAY, f"{hours}h", 0, ""),
        (8 * _DAY, f"{days}d", hours % 24, "h"),
        (2 * 365 * _DAY, f"{days}d", 0, ""),
        (8 * 365 * _DAY, f"{years}y", rest_days, "d"),
    )
    for below, big, small, unit in steps:
        if total < below:
            return f"{big}{small}{unit}" if small else big
    return f"{years}y"
