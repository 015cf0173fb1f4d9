"""A suspended process does nothing, and finds out afterwards what its clocks show."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from grange.api.http import ADMIN, Request, Response
from grange.api.status import ServiceUnavailable
from grange.base.clock import Clock
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.transports.inprocess import InProcess
from grange.sim.faults import Network
from grange.sim.skewed_clock import SkewedClock
from grange.sim.suspension import SuspendableClock


async def stand(clock: SuspendableClock, true: Clock, seconds: float, *, machine: bool) -> None:
    clock.suspend(machine=machine)
    await true.sleep(seconds)
    clock.resume()


@pytest.mark.parametrize(("machine", "ends", "read"), [(True, 40.0, 10.0), (False, 35.0, 35.0)])
async def test_a_sleep_ends_when_the_process_runs(
    clock: Clock, machine: bool, ends: float, read: float
) -> None:
    """Ten seconds from zero, of which the process stands still from 5 to 35."""
    own = SuspendableClock(clock)
    async with Nursery() as nursery:
        sleeper = nursery.start(own.sleep(10))
        await clock.sleep(5)
        await stand(own, clock, 30, machine=machine)
        while not sleeper.done():
            await clock.sleep(0.5)
    assert clock.monotonic() == pytest.approx(ends, abs=0.6)
    assert own.monotonic() == pytest.approx(read, abs=0.6)
    assert own.elapsed() == clock.elapsed()


@pytest.mark.parametrize(("machine", "ends"), [(True, 40.0), (False, 35.0)])
async def test_a_timeout_does_not_fire_in_a_process_that_stands_still(
    clock: Clock, machine: bool, ends: float
) -> None:
    own = SuspendableClock(clock)
    ended: list[float] = []

    async def wait() -> None:
        with pytest.raises(TimeoutError):
            async with SkewedClock(own).timeout(10):
                await asyncio.Event().wait()
        ended.append(clock.monotonic())

    async with Nursery() as nursery:
        nursery.start(wait())
        await clock.sleep(5)
        await stand(own, clock, 30, machine=machine)
    assert ended == [pytest.approx(ends)]


async def test_a_timeout_that_has_ended_is_left_alone(clock: Clock) -> None:
    own = SuspendableClock(clock)
    async with own.timeout(10):
        await clock.sleep(1)
    await stand(own, clock, 30, machine=False)
    async with own.timeout(None):
        await stand(own, clock, 30, machine=True)
    assert clock.monotonic() == 61


async def test_what_was_sent_arrives_and_its_answer_waits(clock: Clock, rng: Stream) -> None:
    network = Network(clock=clock, rng=rng)
    arrived: list[tuple[float, str]] = []

    async def handle(request: Request) -> Response:
        arrived.append((clock.monotonic(), request.path))
        return Response(200, b"ok")

    transport = network.transport(InProcess(handle, ADMIN), "one")
    answered: list[float] = []

    async def ask(path: str) -> None:
        await transport.send(Request("POST", path))
        answered.append(clock.monotonic())

    async with Nursery() as nursery:
        network.hold("one")
        nursery.start(ask("/before"))
        await clock.sleep(3)
        nursery.start(ask("/after"))
        await clock.sleep(4)
        assert (arrived, answered) == ([(0.0, "/before")], [])
        network.go_on("one")
    assert arrived == [(0.0, "/before"), (7.0, "/after")]
    assert answered == [7.0, 7.0]


async def test_a_stream_hangs_and_then_breaks_or_goes_on(clock: Clock) -> None:
    """Which of the two, and whether it hangs at all, is drawn; a stream opened later is good."""
    fates: set[tuple[str, float]] = set()
    for seed in range(20):
        network = Network(clock=clock, rng=Stream(seed))

        async def ticks() -> AsyncGenerator[bytes, None]:
            for _ in range(5):
                await clock.sleep(1)
                yield b"{}\n"

        async def handle(_: Request) -> Response:
            return Response(200, chunks=ticks())

        async def read(response: Response) -> tuple[str, float, int]:
            began, first, received = clock.monotonic(), 0.0, 0
            assert isinstance(response.chunks, AsyncGenerator)
            async with aclosing(response.chunks):
                try:
                    async for _ in response.chunks:
                        first, received = first or clock.monotonic() - began, received + 1
                except ServiceUnavailable:
                    return "breaks", clock.monotonic() - began, received
            return "goes on", first, received

        transport = network.transport(InProcess(handle, ADMIN), "one")
        early = await transport.send(Request("GET", "/pods"))
        network.hang("one", 60)
        fate, at_s, received = await read(early)
        assert received == (0 if fate == "breaks" else 5)
        fates.add((fate, round(at_s)))
        assert await read(await transport.send(Request("GET", "/pods"))) == ("goes on", 1.0, 5)
    assert fates == {("breaks", 60), ("goes on", 60), ("goes on", 1)}
