"""Cron schedules: what is understood, and when they are due."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from grange.api.cron import CronSchedule, IntervalSchedule, InvalidSchedule, parse_schedule

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

moments = st.datetimes(
    datetime(2020, 1, 1),  # noqa: DTZ001  hypothesis adds the zone
    datetime(2030, 1, 1),  # noqa: DTZ001  the same
    timezones=st.just(UTC),
)
texts = st.builds(
    lambda minute, step, hour: f"{minute}/{step} {hour} * * *",
    st.integers(0, 29),
    st.integers(1, 30),
    st.sampled_from(["*", "3", "*/2", "1-4"]),
)
zones = st.sampled_from(["", "Europe/Berlin", "America/New_York", "Asia/Kolkata"])


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("*/15 * * * *", datetime(2026, 3, 1, 12, 15, tzinfo=UTC)),
        ("@hourly", datetime(2026, 3, 1, 13, 0, tzinfo=UTC)),
        ("@daily", datetime(2026, 3, 2, 0, 0, tzinfo=UTC)),
        ("@midnight", datetime(2026, 3, 2, 0, 0, tzinfo=UTC)),
        ("@weekly", datetime(2026, 3, 8, 0, 0, tzinfo=UTC)),
        ("@monthly", datetime(2026, 4, 1, 0, 0, tzinfo=UTC)),
        ("@yearly", datetime(2027, 1, 1, 0, 0, tzinfo=UTC)),
        ("@annually", datetime(2027, 1, 1, 0, 0, tzinfo=UTC)),
        ("30 6 ? jun-AUG tue-Thu", datetime(2026, 6, 2, 6, 30, tzinfo=UTC)),
        ("0 0 1 Feb,Dec ?", datetime(2026, 12, 1, 0, 0, tzinfo=UTC)),
        ("0 0 ?/2 * WED", datetime(2026, 3, 3, 0, 0, tzinfo=UTC)),
        ("7/20 * * * *", datetime(2026, 3, 1, 12, 7, tzinfo=UTC)),
        ("0 9 ? * MON", datetime(2026, 3, 2, 9, 0, tzinfo=UTC)),
        # Of two restricted days one is enough, and a step restricts; the 1st of March is a Sunday.
        ("0 0 */2 * WED", datetime(2026, 3, 3, 0, 0, tzinfo=UTC)),
        ("0 0 */1 * WED", datetime(2026, 3, 4, 0, 0, tzinfo=UTC)),
        ("0 0 */10,4 * FRI", datetime(2026, 3, 4, 0, 0, tzinfo=UTC)),
        ("0 0 ? * 0,6", datetime(2026, 3, 7, 0, 0, tzinfo=UTC)),
        ("0 0 ? jul/2 5/1", datetime(2026, 7, 3, 0, 0, tzinfo=UTC)),
        ("0 0 ? * sat,fri/2", datetime(2026, 3, 6, 0, 0, tzinfo=UTC)),
        ("0-0/10 * * * *", datetime(2026, 3, 1, 13, 0, tzinfo=UTC)),
        # A step goes to the last day of the week, Saturday; the 7th of March is one.
        ("30 12 ? * 6/1", datetime(2026, 3, 7, 12, 30, tzinfo=UTC)),
        ("0 0 15 * */3", datetime(2026, 3, 4, 0, 0, tzinfo=UTC)),
    ],
)
def test_next_time(text: str, due: datetime) -> None:
    assert CronSchedule(text).next_after(NOON) == due


def test_times_follow_the_zone() -> None:
    schedule = CronSchedule("0 9 * * *", "Europe/Berlin")
    assert schedule.next_after(datetime(2026, 1, 10, tzinfo=UTC)) == datetime(
        2026, 1, 10, 8, 0, tzinfo=UTC
    )
    assert schedule.next_after(datetime(2026, 7, 10, tzinfo=UTC)) == datetime(
        2026, 7, 10, 7, 0, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("text", "zone", "message"),
    [
        ("* * * *", "", "five fields"),
        ("* * * * * *", "", "five fields"),
        ("61 * * * *", "", "bad minute"),
        ("0 0 30 2 *", "", "bad day-of-month"),
        ("@every 5m", "", "five fields"),
        ("@Hourly", "", "or be one of .*, @hourly"),
        (" @daily", "", "or be one of .*, @daily"),
        ("@weekly\n", "", "or be one of .*, @weekly"),
        ("* * * * *", "Mars/Base", "unknown time zone"),
        ("* * * * *", "../etc/passwd", "unknown time zone"),
        ("* * * * *", "Local", "Local is not allowed"),
        ("," * 300, "", "at most 200"),
        ("0 0 L * *", "", "bad day-of-month 'L': write numbers"),
        ("0 0 1,LW * *", "", "bad day-of-month 'LW': write numbers"),
        ("0 0 * * 5L", "", "bad day-of-week '5L': write numbers"),
        ("0 0 * * MON#2", "", "bad day-of-week 'MON#2': write numbers"),
        ("0 0 * * 1#2", "", "bad day-of-week '1#2': write numbers"),
        ("0 0 1?5 * *", "", "bad day-of-month '1.5': write numbers"),
        ("0 0 * * 7", "", "bad day-of-week '7': days are 0 to 6; write 0 for Sunday"),
        ("0 0 * * 1,5-07", "", "bad day-of-week '5-07': days are 0 to 6"),
        ("0 0 * * FRI-MON", "", "bad day-of-week"),
        ("*/0 * * * *", "", "bad minute"),
    ],
)
def test_refused_schedules(text: str, zone: str, message: str) -> None:
    with pytest.raises(InvalidSchedule, match=message):
        CronSchedule(text, zone)


def test_a_time_that_is_now_is_the_latest() -> None:
    assert CronSchedule("0 12 * * *").latest_until(NOON) == NOON
    just_before = NOON - timedelta(microseconds=1)
    assert CronSchedule("0 12 * * *").latest_until(just_before) == NOON - timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "every_s"),
    [
        ("@every 1h30m", 5400),
        ("@every 1.5h", 5400),
        ("@every 1m0.9s", 60),  # whole seconds
        ("@every 90000ms", 90),
        ("@every 5ms", 1),  # a second at least
        ("@every 0", 1),
        ("@every -2m", 1),
    ],
)
def test_intervals_begin_at_the_time_before(text: str, every_s: int) -> None:
    """As Kubernetes reads them: time.ParseDuration of Go, and the constant delay of robfig/cron."""
    since, every = NOON + timedelta(milliseconds=250), timedelta(seconds=every_s)
    schedule = parse_schedule(text, since=since)
    assert schedule.next_after(NOON) == NOON + every
    assert schedule.next_after(NOON + every) == NOON + 2 * every
    assert schedule.latest_until(NOON + 3 * every) == NOON + 3 * every
    just_before = NOON + 3 * every - timedelta(microseconds=1)
    assert schedule.latest_until(just_before) == NOON + 2 * every


@pytest.mark.parametrize(
    "text",
    [
        *("@every", "@every 5", "@every 1d", "@every h", "@every 1h 5m", "@every 2562048h"),
        *("@every 1h ", "@every  1h"),
    ],
)
def test_refused_intervals(text: str) -> None:
    with pytest.raises(InvalidSchedule, match="@every 1h30m"):
        parse_schedule(text, since=NOON)


@pytest.mark.parametrize("text", ["1" * 5000, "1" * 5000 + "s", "1s" * 5000])
def test_long_interval_is_refused_unread(text: str) -> None:
    """A user must not occupy the API server with one number."""
    with pytest.raises(InvalidSchedule, match="at most 200"):
        parse_schedule(f"@every {text}", since=NOON)


@given(st.integers(1, 10**6), moments, st.integers(0, 10**8))
def test_interval_times_enclose_a_moment(every_s: int, since: datetime, later_s: int) -> None:
    schedule = IntervalSchedule(timedelta(seconds=every_s), since)
    moment = since + timedelta(seconds=later_s)
    latest = schedule.latest_until(moment)
    assert latest <= moment < schedule.next_after(moment)
    assert schedule.next_after(latest) - latest == timedelta(seconds=every_s)
    assert (latest - since.replace(microsecond=0)) % timedelta(seconds=every_s) == timedelta(0)


@given(texts, zones, moments)
def test_latest_and_next_enclose_a_moment(text: str, zone: str, moment: datetime) -> None:
    schedule = CronSchedule(text, zone)
    latest, following = schedule.latest_until(moment), schedule.next_after(moment)
    assert latest is not None
    assert following is not None
    assert latest <= moment < following
    assert schedule.next_after(latest) == following
