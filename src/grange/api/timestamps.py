"""Instants as the API reads and writes them, and ages as kubectl shows them.

Objects carry RFC 3339 in UTC: whole seconds for metav1.Time, microseconds for metav1.MicroTime.

What is valid is decided here and only here: the schema checks documents against ``TIME`` and
``MICRO_TIME``, and ``parse`` reads every text that one of them matches. Both are as strict as
Kubernetes' types, so that an object accepted here can be read by programs written in Go.
"""

import re
from datetime import UTC, datetime, timedelta, timezone

from grange.base.errors import GrangeError

# Years 1 to 9999: what ``datetime`` can hold. The 29th of February only in leap years.
_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    "(?!0000)(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP}-02-29)"
)
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_ZONE = "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"

TIME = rf"^{_DATE}T{_CLOCK}(?:\.[0-9]+)?{_ZONE}\Z"
"""metav1.Time: seconds, with or without a fraction."""

MICRO_TIME = rf"^{_DATE}T{_CLOCK}\.[0-9]{{6}}{_ZONE}\Z"
"""metav1.MicroTime: exactly six digits of a second, as Kubernetes asks for."""

_TIME = re.compile(TIME)
_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)

EPOCH = datetime.fromtimestamp(0, UTC)

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

    An instant that its zone moves out of years 1 to 9999 is the first or the last one of these.

    Raises:
        TimestampError: the text matches neither ``TIME`` nor ``MICRO_TIME``.
    """
    if _TIME.match(text) is None:
        raise TimestampError(f'"{text}" is not an RFC 3339 time like 2026-11-21T10:19:00Z')
    zone = UTC
    if text[-1] == "Z":
        fraction = text[20:-1]
    else:
        fraction = text[20:-6]
        offset = timedelta(hours=int(text[-5:-3]), minutes=int(text[-2:]))
        zone = timezone(offset if text[-6] == "+" else -offset)
    instant = datetime(
        int(text[0:4]),
        int(text[5:7]),
        int(text[8:10]),
        int(text[11:13]),
        int(text[14:16]),
        int(text[17:19]),
        int((fraction + "000000")[:6]),
        zone,
    )
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        return _EARLIEST if instant.year == 1 else _LATEST


def parse_or(text: str | None, default: datetime) -> datetime:
    """The instant; the default where the text is none (empty, or written by another program)."""
    try:
        return parse(text or "")
    except TimestampError:
        return default


def shift(instant: datetime, seconds: float) -> datetime:
    """The instant so many seconds later; the first or last one of the calendar beyond its ends."""
    try:
        return instant + timedelta(seconds=seconds)
    except OverflowError:
        return _LATEST if seconds > 0 else _EARLIEST


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
