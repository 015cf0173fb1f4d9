"""A supervised service starts again after a crash, later each time, and ends on request."""

import asyncio

from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import exposition, registry
from grange.base.supervision import STABLE_S, services
from grange.base.tasks import Nursery, supervise
from grange.sim.pytest_plugin import Records


class Boom(Exception):
    pass


async def test_crashes_are_logged_and_delays_double_up_to_the_cap(
    clock: Clock, log: Logger, records: Records
) -> None:
    starts: list[float] = []

    async def service() -> None:
        starts.append(clock.monotonic())
        if len(starts) <= 5:
            raise Boom("no luck")

    backoff = Exponential(initial_s=1, cap_s=5)
    await supervise("lottery", service, clock=clock, log=log, backoff=backoff)
    assert starts == [0, 1, 3, 7, 12, 17]
    event, facts = records[1]
    assert event == "service crashed"
    assert facts["service"] == "lottery"
    assert facts["attempt"] == 2
    assert isinstance(facts["error"], Boom)


async def test_long_life_forgives_earlier_crashes(clock: Clock, log: Logger) -> None:
    starts: list[float] = []

    async def service() -> None:
        starts.append(clock.monotonic())
        if len(starts) in {1, 2}:
            raise Boom
        if len(starts) == 3:
            await clock.sleep(100)
            raise Boom

    backoff = Exponential(initial_s=1, cap_s=5)
    await supervise("service", service, clock=clock, log=log, backoff=backoff)
    assert starts == [0, 1, 3, 104]


async def test_cancellation_passes_through(clock: Clock, log: Logger, records: Records) -> None:
    async with Nursery() as nursery:
        child = nursery.start(supervise("service", lambda: clock.sleep(3600), clock=clock, log=log))
        await clock.sleep(1)
        child.cancel()
    assert child.cancelled()
    assert records == []


async def test_service_that_crashes_on_cancellation_is_not_restarted(
    clock: Clock, log: Logger, records: Records
) -> None:
    async def service() -> None:
        try:
            await clock.sleep(3600)
        except asyncio.CancelledError:
            raise Boom from None

    async with Nursery() as nursery:
        child = nursery.start(supervise("service", service, clock=clock, log=log))
        await clock.sleep(1)
        child.cancel()
    assert child.cancelled()
    assert [event for event, _ in records] == ["service crashed"]
    assert clock.monotonic() == 1.0


async def test_groups_of_errors_are_crashes_too(clock: Clock, log: Logger) -> None:
    starts: list[float] = []

    async def child() -> None:
        raise Boom

    async def service() -> None:
        starts.append(clock.monotonic())
        if len(starts) == 1:
            async with Nursery() as nursery:
                nursery.start(child())

    await supervise("service", service, clock=clock, log=log)
    assert starts == [0, 0.2]


async def test_services_name_the_one_that_is_down(clock: Clock, log: Logger) -> None:
    metrics = registry()
    states, begun = services(metrics), []

    async def service() -> None:
        begun.append(clock.monotonic())
        if len(begun) <= 2:
            raise Boom("with a secret")
        await clock.sleep(3600)

    def faults() -> dict[str, str]:
        return states.faults(clock.monotonic())

    backoff = Exponential(initial_s=1, cap_s=5)
    run = supervise("a", service, clock=clock, log=log, backoff=backoff, services=states)
    sound = supervise("b", lambda: clock.sleep(3600), clock=clock, log=log, services=states)
    async with Nursery() as nursery:
        nursery.start(run)
        nursery.start(sound)
        await clock.sleep(1.5)
        waiting = "crashed (Boom, attempt 2) and waits for its restart"
        assert faults() == {"a": waiting, "b": ""}
        assert b'grange_service_up{service="a"} 0.0' in exposition(metrics)
        assert b'grange_service_crashes_total{service="a"} 2.0' in exposition(metrics)
        await clock.sleep(2)
        assert begun == [0, 1, 3]
        assert "restarted after a crash (Boom)" in faults()["a"]
        await clock.sleep(STABLE_S)
        assert faults() == {"a": "", "b": ""}
        nursery.cancel()
    assert faults() == {}
    assert b'grange_service_up{service="a"}' not in exposition(metrics)
