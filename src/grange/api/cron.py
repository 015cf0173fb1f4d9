"""Schedules of CronJobs: five fields or a macro, in a time zone, or ``@every`` with a duration.

Behaviour at changes of daylight saving time is that of Debian's cron (cronsim implements it). The fields
are those of Kubernetes, which reads them with the standard parser of robfig/cron; what cronsim takes
beyond them (``L``, ``LW``, ``MON#2``, the day 7 of the week) is refused:
https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#schedule-syntax
In one rule they differ, and it is Kubernetes' that holds: ``*/2`` restricts days, as ``1-31/2`` does, so that
with a day of the week as well one of the two is enough.
"""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction
from typing import Protocol

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS = 5
_SUNDAY_OF_CRON = 7  # some versions of cron take it besides 0
_DAYS = {2: "1-31", 4: "0-6"}  # of the month and of the week, by position
_NAMES = ("minute", "hour", "day-of-month", "month", "day-of-week")
_VALUE = r"(\d+|[A-Za-z]{3})"  # a number, or the name of a month or day
_ITEM = re.compile(rf"(?:[*?]|{_VALUE}(?:-{_VALUE})?)(?:/\d+)?", re.ASCII)
_STEP = re.compile(r"(^|,)\*/(?!0*1(?:,|$))")
_FROM = re.compile(r"((?:^|,)\w+)/")  # a step without an end, which for cronsim is the day 7
_SINGLE = re.compile(r"\b(\w+)-\1/\d+")  # one value, which cronsim takes for a range without an end
_LONGEST = 200  # characters; a list of every minute has fewer
_EVERY = "@every"
_DURATION = re.compile(r"([+-]?)((?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+|0)")
_PART = re.compile(r"([\d.]+)(\D+)")
_UNIT_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_MOST_NS = 2**63 - 1  # what a duration of Go holds


class InvalidSchedule(ValueError):
    """The text is no schedule, or the zone does not exist."""


class Schedule(Protocol):
    """When a CronJob is due."""

    def next_after(self, moment: datetime) -> datetime | None:
        """The first time after a moment, in UTC; None if there is none."""
        ...

    def latest_until(self, moment: datetime) -> datetime | None:
        """The last time at or before a moment, in UTC; None if there is none."""
        ...


class IntervalSchedule:
    """Due again and again after the same duration.

    Args:
        every: whole seconds, one at least.
        since: the time that the first duration begins with; a fraction of a second is left out.
    """

    def __init__(self, every: timedelta, since: datetime) -> None:
        self._every = every
        self._since = since.replace(microsecond=0)

    def next_after(self, moment: datetime) -> datetime:
        """The first time after a moment."""
        return self.latest_until(moment) + self._every

    def latest_until(self, moment: datetime) -> datetime:
        """The last time at or before a moment, or the time that the first duration begins with."""
        return self._since + max(0, (moment - self._since) // self._every) * self._every


class CronSchedule:
    """Due at minutes of the clock.

    Args:
        text: five fields, or a macro such as ``@hourly``.
        zone: name of a time zone; empty: UTC.

    Raises:
        InvalidSchedule: either cannot be understood; the message gives the reason.
    """

    def __init__(self, text: str, zone: str = "") -> None:
        from cronsim import CronSimError  # every command imports the kinds, few need schedules

        _check_length(text)
        self._zone = time_zone(zone)
        fields = _MACROS.get(text, text).split()
        if len(fields) != _FIELDS:
            raise InvalidSchedule(
                "must have five fields (minute, hour, day of month, month, day of week) or be one of "
                + ", ".join(_MACROS)
            )
        _check_fields(fields)
        fields = [field.replace("?", "*") for field in fields]
        for at, whole in _DAYS.items():
            fields[at] = _STEP.sub(rf"\g<1>{whole}/", fields[at])
        fields[4] = _FROM.sub(r"\g<1>-6/", fields[4].upper().replace("SAT", "6"))
        fields = [_SINGLE.sub(r"\g<1>", field) for field in fields]
        self._fields = " ".join(fields)
        try:
            self.next_after(datetime(2000, 1, 1, tzinfo=UTC))
        except CronSimError as error:
            raise InvalidSchedule(str(error).lower()) from error

    def next_after(self, moment: datetime) -> datetime | None:
        """The first time after a moment, in UTC; None if there is none within 50 years."""
        return self._found(moment, reverse=False)

    def latest_until(self, moment: datetime) -> datetime | None:
        """The last time at or before a moment, in UTC; None if there is none within 50 years."""
        local = moment.astimezone(self._zone)
        minute = local.replace(second=0, microsecond=0).astimezone(UTC)
        following = self._found(minute, reverse=True)
        # The search begins before the minute itself, which is due, too.
        before = None if following is None else self.next_after(following)
        return before if before is not None and before <= moment else following

    def _found(self, moment: datetime, *, reverse: bool) -> datetime | None:
        from cronsim import CronSim

        search = CronSim(self._fields, moment.astimezone(self._zone), reverse=reverse)
        found = next(search, None)
        return None if found is None else found.astimezone(UTC)


def parse_schedule(text: str, zone: str = "", *, since: datetime) -> Schedule:
    """The schedule of a CronJob.

    Args:
        text: as ``CronSchedule`` takes it, or ``@every`` with a duration such as ``1h30m``.
        zone: name of a time zone; empty: UTC.
        since: the time of the schedule that was handled last, or the creation: durations begin with it.

    Raises:
        InvalidSchedule: either cannot be understood; the message gives the reason.
    """
    _check_length(text)
    macro, _, duration = text.partition(" ")
    if macro != _EVERY:
        return CronSchedule(text, zone)
    time_zone(zone)
    return IntervalSchedule(_duration(duration), since)


def _check_length(text: str) -> None:
    # The time that it takes to parse a duration grows with the square of its length.
    if len(text) > _LONGEST:
        raise InvalidSchedule(f"must have at most {_LONGEST} characters")


def _check_fields(fields: list[str]) -> None:
    """Refuse what cronsim takes and Kubernetes does not; cronsim checks the rest."""
    for name, field in zip(_NAMES, fields, strict=True):
        for item in field.split(","):
            found = _ITEM.fullmatch(item)
            if found is None:
                raise InvalidSchedule(
                    f"bad {name} {item!r}: write numbers, names, ranges or steps, like 1-5 or */2"
                )
            if name == "day-of-week" and any(
                part and part.isdigit() and int(part) == _SUNDAY_OF_CRON for part in found.groups()
            ):
                raise InvalidSchedule(f"bad {name} {item!r}: days are 0 to 6; write 0 for Sunday")


def _duration(text: str) -> timedelta:
    """Whole seconds of a duration of Go, one at least, as Kubernetes takes them."""
    found = _DURATION.fullmatch(text)
    parts = _PART.findall(found[2]) if found else ()
    nanoseconds = sum((Fraction(number) * _UNIT_NS[unit] for number, unit in parts), Fraction(0))
    if found is None or nanoseconds > _MOST_NS:
        raise InvalidSchedule(f"bad duration {text!r}: write it like @every 1h30m")
    sign = -1 if found[1] == "-" else 1
    return timedelta(seconds=max(1, sign * int(nanoseconds // 10**9)))


def time_zone(name: str) -> tzinfo:
    """The time zone of a name; UTC for an empty one.

    Raises:
        InvalidSchedule: there is none, or it is ``Local``, which would differ between machines.
    """
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    if name.lower() == "local":
        raise InvalidSchedule("time zone Local is not allowed: name one, such as Europe/Berlin")
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidSchedule(f"unknown time zone {name!r}") from error
