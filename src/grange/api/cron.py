"""Cron schedules of CronJobs: five fields or a macro, in a time zone.

The fields and their behaviour at changes of daylight saving time are those of Debian's cron (cronsim
implements them). Kubernetes documents the same fields, macros and ``?``:
https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#schedule-syntax
In one rule they differ, and it is Kubernetes' that holds: ``*/2`` restricts days, as ``1-31/2`` does, so that
with a day of the week as well one of the two is enough.
"""

import re
from datetime import UTC, datetime, tzinfo

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
_DAYS = {2: "1-31", 4: "0-6"}  # of the month and of the week, by position
_STEP = re.compile(r"(^|,)\*/(?!0*1(?:,|$))")
_LONGEST = 200  # characters; a list of every minute has fewer


class InvalidSchedule(ValueError):
    """The text is no schedule, or the zone does not exist."""


class CronSchedule:
    """When a CronJob is due.

    Args:
        text: five fields, or a macro such as ``@hourly``.
        zone: name of a time zone; empty: UTC.

    Raises:
        InvalidSchedule: either cannot be understood; the message gives the reason.
    """

    def __init__(self, text: str, zone: str = "") -> None:
        from cronsim import CronSimError  # every command imports the kinds, few need schedules

        if len(text) > _LONGEST:
            raise InvalidSchedule(f"must have at most {_LONGEST} characters")
        self._zone = time_zone(zone)
        fields = _MACROS.get(text.strip().lower(), text).split()
        if len(fields) != _FIELDS:
            raise InvalidSchedule(
                "must have five fields (minute, hour, day of month, month, day of week) or be one of "
                + ", ".join(_MACROS)
            )
        fields = ["*" if field == "?" else field for field in fields]
        for at, whole in _DAYS.items():
            fields[at] = _STEP.sub(rf"\g<1>{whole}/", fields[at])
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
