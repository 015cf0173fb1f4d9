"""A machine whose clock is wrong learns by how much when it joins."""

from datetime import UTC, datetime, timedelta

import pytest

from grange.app.clock_skew import clock_fault

SERVER = "https://10.0.0.1:6443"
DATE = "Mon, 23 Nov 2026 12:00:00 GMT"
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "measured"),
    [(-7200, "120m behind"), (301, "5m1s ahead of"), (90 * 86400, "90d ahead of")],
)
def test_difference_is_measured_and_has_a_remedy(seconds: int, measured: str) -> None:
    why = clock_fault(SERVER, DATE, NOON + timedelta(seconds=seconds))
    assert f"is {measured} that of {SERVER}: set it" in why


@pytest.mark.parametrize("seconds", [-300, 0, 300])
def test_small_differences_are_accepted(seconds: int) -> None:
    assert clock_fault(SERVER, DATE, NOON + timedelta(seconds=seconds)) == ""


@pytest.mark.parametrize("date", ["", "yesterday", "Mon, 99 Nov 2026 12:00:00 GMT"])
def test_a_server_without_a_date_is_accepted(date: str) -> None:
    assert clock_fault(SERVER, date, NOON) == ""
