"""Cleanup runs to its end or its limit, whatever happens to the caller."""

import asyncio

import pytest

from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.tasks import Nursery, cleanup
from grange.sim.pytest_plugin import Records


class Boom(Exception):
    pass


async def test_cleanup_runs_to_its_end(clock: Clock, log: Logger, records: Records) -> None:
    await cleanup(clock.sleep(4), limit_s=5, clock=clock, log=log)
    assert clock.monotonic() == 4.0
    assert records == []


async def test_cleanup_survives_the_cancellation_of_its_caller(clock: Clock, log: Logger) -> None:
    trace: list[str] = []

    async def release() -> None:
        await clock.sleep(4)
        trace.append(f"released at {clock.monotonic():g}")

    async def caller() -> None:
        try:
            await clock.sleep(3600)
        finally:
            await cleanup(release(), limit_s=5, clock=clock, log=log)

    async with Nursery() as nursery:
        child = nursery.start(caller())
        await clock.sleep(1)
        child.cancel()
        await clock.sleep(1)
        child.cancel()  # impatient: the second one must not break the cleanup either
    assert child.cancelled()
    assert trace == ["released at 5"]


async def test_cancellation_during_cleanup_is_passed_on_after_it(clock: Clock, log: Logger) -> None:
    trace: list[str] = []

    async def caller() -> None:
        await cleanup(clock.sleep(4), limit_s=5, clock=clock, log=log)
        trace.append("not reached")

    async with Nursery() as nursery:
        child = nursery.start(caller())
        await clock.sleep(1)
        child.cancel()
    assert child.cancelled()
    assert clock.monotonic() == 4.0
    assert trace == []


async def test_cleanup_that_overruns_is_logged_and_cancelled(
    clock: Clock, log: Logger, records: Records
) -> None:
    trace: list[str] = []

    async def slow() -> None:
        try:
            await clock.sleep(3600)
        finally:
            trace.append("cancelled")

    await cleanup(slow(), limit_s=5, clock=clock, log=log)
    assert trace == ["cancelled"]
    assert records == [("cleanup overran", {"limit_s": 5})]
    assert clock.monotonic() == 5.0


async def test_cleanup_that_ignores_cancellation_is_bounded(
    clock: Clock, log: Logger, records: Records
) -> None:
    ended = asyncio.Event()

    async def stubborn() -> None:
        try:
            await clock.sleep(3600)
        except asyncio.CancelledError:
            await clock.sleep(3600)
        ended.set()

    await cleanup(stubborn(), limit_s=5, clock=clock, log=log)
    assert clock.monotonic() == 10.0
    assert [event for event, _ in records] == ["cleanup overran", "cleanup ignores cancellation"]
    await ended.wait()


async def test_failure_of_the_cleanup_is_raised(clock: Clock, log: Logger) -> None:
    async def broken() -> None:
        await clock.sleep(1)
        raise Boom

    with pytest.raises(Boom):
        await cleanup(broken(), limit_s=5, clock=clock, log=log)


async def test_timeout_raised_by_cleanup_is_a_failure_not_an_overrun(
    clock: Clock, log: Logger, records: Records
) -> None:
    async def times_out() -> None:
        async with clock.timeout(1):
            await clock.sleep(3600)

    with pytest.raises(TimeoutError):
        await cleanup(times_out(), limit_s=5, clock=clock, log=log)
    assert records == []


async def test_cancellation_is_not_lost_when_the_cleanup_fails(clock: Clock, log: Logger) -> None:
    async def broken() -> None:
        await clock.sleep(2)
        raise Boom

    async def caller() -> None:
        try:
            await cleanup(broken(), limit_s=5, clock=clock, log=log)
        except Boom:
            await clock.sleep(3600)

    async with Nursery() as nursery:
        child = nursery.start(caller())
        await clock.sleep(1)
        child.cancel()
    assert child.cancelled()
    assert clock.monotonic() == 2.0
