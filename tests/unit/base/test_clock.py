"""One loop, many clocks: the true one and every node's own."""

import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings, strategies as st

from grange.base.clock import Clock, LoopClock
from grange.sim.runner import run
from grange.sim.skewed_clock import SkewedClock

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


async def test_wall_time_counts_from_the_epoch(clock: Clock) -> None:
    await clock.sleep(90.5)
    assert clock.now() == EPOCH + timedelta(seconds=90.5)
    assert clock.monotonic() == 90.5


async def test_sleep_of_zero_or_less_returns_at_once(clock: Clock) -> None:
    await clock.sleep(0)
    await clock.sleep(-5)
    assert clock.monotonic() == 0.0


async def test_timeout_bounds_a_block(clock: Clock) -> None:
    with pytest.raises(TimeoutError):
        async with clock.timeout(2):
            await clock.sleep(3)
    assert clock.monotonic() == 2.0


async def test_timeout_of_none_never_ends_a_block(clock: Clock) -> None:
    async with clock.timeout(None):
        await clock.sleep(1e6)
    assert clock.monotonic() == 1e6


def test_clock_is_aware_utc_and_monotonic() -> None:
    clock = LoopClock()
    assert clock.now().tzinfo is UTC
    assert clock.now() > EPOCH - timedelta(days=365)
    assert clock.monotonic() <= clock.monotonic()


def test_elapsed_time_counts_at_least_what_monotonic_time_does() -> None:
    clock = LoopClock()
    elapsed, monotonic = clock.elapsed(), clock.monotonic()
    assert elapsed <= clock.elapsed()
    if sys.platform == "linux":
        assert elapsed >= monotonic - 1.0, "since boot, with every suspension"


async def test_virtual_time_elapses_as_the_loop_advances(clock: Clock) -> None:
    node = SkewedClock(clock, drift=0.5)
    await clock.sleep(100)
    assert clock.elapsed() == clock.monotonic() == 100.0
    assert node.elapsed() == node.monotonic() == pytest.approx(150.0)


async def test_skewed_clock_is_ahead_by_its_offset(clock: Clock) -> None:
    node = SkewedClock(clock, offset_s=30)
    assert node.now() - clock.now() == timedelta(seconds=30)
    assert node.monotonic() == clock.monotonic()


async def test_skewed_clock_drifts_in_wall_and_monotonic_time(clock: Clock) -> None:
    await clock.sleep(100)
    fast = SkewedClock(clock, offset_s=-5, drift=0.01)
    await clock.sleep(1000)
    assert fast.monotonic() == pytest.approx(1110)
    assert (fast.now() - clock.now()).total_seconds() == pytest.approx(5)


async def test_skewed_sleep_and_timeout_take_the_node_s_seconds(clock: Clock) -> None:
    fast = SkewedClock(clock, drift=1.0)
    await fast.sleep(10)
    assert clock.monotonic() == 5.0
    assert fast.monotonic() == 10.0
    with pytest.raises(TimeoutError):
        async with fast.timeout(10):
            await fast.sleep(11)
    assert clock.monotonic() == 10.0
    async with fast.timeout(None):
        await fast.sleep(-1)


async def test_drift_that_stops_time_is_refused(clock: Clock) -> None:
    with pytest.raises(ValueError, match="drift"):
        SkewedClock(clock, drift=-1.0)


@settings(max_examples=50, deadline=None)
@given(
    offset_s=st.floats(-1e5, 1e5),
    drift=st.floats(-0.5, 2.0),
    naps=st.lists(st.floats(0, 1000), max_size=10),
)
def test_skewed_monotonic_time_never_goes_back(
    offset_s: float, drift: float, naps: list[float]
) -> None:
    async def main() -> None:
        clock = LoopClock(EPOCH)
        node = SkewedClock(clock, offset_s=offset_s, drift=drift)
        before = node.monotonic()
        for nap in naps:
            await node.sleep(nap)
            assert node.monotonic() >= before
            assert node.monotonic() - before == pytest.approx(nap, abs=1e-5, rel=1e-5)
            before = node.monotonic()

    run(main())
