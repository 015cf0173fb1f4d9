"""Instants on the wire, and ages as kubectl shows them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings, strategies as st

from grange.api import timestamps


def test_rfc3339_is_utc_with_whole_seconds() -> None:
    instant = datetime(2026, 11, 21, 11, 19, 0, 999_999, timezone(timedelta(hours=1)))
    assert timestamps.rfc3339(instant) == "2026-11-21T10:19:00Z"
    assert timestamps.rfc3339_micro(instant) == "2026-11-21T10:19:00.999999Z"


def test_from_seconds_is_aware() -> None:
    assert timestamps.rfc3339(timestamps.from_seconds(0)) == "1970-01-01T00:00:00Z"


@settings(max_examples=100, deadline=None)
@given(st.datetimes(timezones=st.just(UTC), min_value=datetime(1900, 1, 1)))  # noqa: DTZ001 - hypothesis adds the zone
def test_micro_time_reads_back_as_it_was(instant: datetime) -> None:
    assert timestamps.parse(timestamps.rfc3339_micro(instant)) == instant


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00.500000Z"),
        ("2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00.123456Z"),
        ("2026-01-01T02:30:00+02:30", "2026-01-01T00:00:00.000000Z"),
        ("2025-12-31T19:00:00-05:00", "2026-01-01T00:00:00.000000Z"),
        ("2024-02-29T00:00:00-00:00", "2024-02-29T00:00:00.000000Z"),
        ("0001-01-01T00:00:00+23:00", "0001-01-01T00:00:00.000000Z"),
        ("9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_parse_understands_fractions_and_zones(text: str, expected: str) -> None:
    assert timestamps.rfc3339_micro(timestamps.parse(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-13-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:60Z",
        "2026-11-22T15:00:00+0000",
        "2026-11-22T15:00:00+00",
        "2026-11-22T15:00:00,5Z",
        "2026-11-22T15:00:00.Z",
        "2026-11-22 15:00:00Z",
        "2026-11-22t15:00:00Z",
        "2026-11-22T15:00:00z",
        "2026-11-22T15:00:00Z\n",
        " 2026-11-22T15:00:00Z",
        "2026-01-01T00:00:00+25:00",
        "\u0662026-01-01T00:00:00Z",
    ],
)
def test_parse_refuses_what_is_no_instant(text: str) -> None:
    with pytest.raises(timestamps.TimestampError):
        timestamps.parse(text)


@settings(max_examples=300, deadline=None)
@given(st.from_regex(timestamps.TIME) | st.from_regex(timestamps.MICRO_TIME))
def test_parse_reads_whatever_validation_accepts(text: str) -> None:
    assert timestamps.parse(text).tzinfo is UTC


@settings(max_examples=300, deadline=None)
@given(st.datetimes(timezones=st.just(UTC)), st.integers(0, 9))
def test_every_instant_of_the_calendar_is_valid(instant: datetime, digits: int) -> None:
    fraction = f"{instant.microsecond:06d}000"[:digits]
    text = instant.strftime("%m-%dT%H:%M:%S") + (f".{fraction}" if fraction else "") + "Z"
    found = timestamps.parse(f"{instant.year:04d}-{text}")
    assert found.replace(microsecond=0) == instant.replace(microsecond=0)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (-1.5, "0s"),
        (0, "0s"),
        (5.9, "5s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (5 * 3600 + 60, "5h1m"),
        (8 * 3600 + 60, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400 + 3600, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (800 * 86400, "2y70d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_age_is_what_kubectl_shows(seconds: float, shown: str) -> None:
    assert timestamps.age(seconds) == shown
