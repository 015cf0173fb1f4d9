"""Cron schedules: what is understood, and when they are due."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from grange.api.cron import CronSchedule, InvalidSchedule

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
        ("0 9 ? * MON", datetime(2026, 3, 2, 9, 0, tzinfo=UTC)),
        # Of two restricted days one is enough, and a step restricts; the 1st of March is a Sunday.
        ("0 0 */2 * WED", datetime(2026, 3, 3, 0, 0, tzinfo=UTC)),
        ("0 0 */1 * WED", datetime(2026, 3, 4, 0, 0, tzinfo=UTC)),
        ("0 0 */10,4 * FRI", datetime(2026, 3, 4, 0, 0, tzinfo=UTC)),
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
        ("* * * * *", "Mars/Base", "unknown time zone"),
        ("* * * * *", "../etc/passwd", "unknown time zone"),
        ("* * * * *", "Local", "Local is not allowed"),
        ("," * 300, "", "at most 200"),
    ],
)
def test_refused_schedules(text: str, zone: str, message: str) -> None:
    with pytest.raises(InvalidSchedule, match=message):
        CronSchedule(text, zone)


def test_a_time_that_is_now_is_the_latest() -> None:
    assert CronSchedule("0 12 * * *").latest_until(NOON) == NOON
    just_before = NOON - timedelta(microseconds=1)
    assert CronSchedule("0 12 * * *").latest_until(just_before) == NOON - timedelta(days=1)


@given(texts, zones, moments)
def test_latest_and_next_enclose_a_moment(text: str, zone: str, moment: datetime) -> None:
    schedule = CronSchedule(text, zone)
    latest, following = schedule.latest_until(moment), schedule.next_after(moment)
    assert latest is not None
    assert following is not None
    assert latest <= moment < following
    assert schedule.next_after(latest) == following
