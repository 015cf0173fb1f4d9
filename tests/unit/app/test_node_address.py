"""An agent that starts before its network publishes no address that others cannot reach."""

import asyncio

from grange.app.joined_node import address_towards
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.tasks import Nursery


class Network:
    """Comes after so many tries."""

    def __init__(self, missing: int) -> None:
        self.left = missing

    async def find(self) -> str:
        self.left -= 1
        if self.left >= 0:
            raise OSError("network is unreachable")
        return "10.0.0.7"


async def test_address_is_waited_for(clock: Clock, log: Logger) -> None:
    began = clock.monotonic()
    assert await address_towards(Network(5).find, asyncio.Event(), clock, log) == "10.0.0.7"
    assert 8 <= clock.monotonic() - began <= 12


async def test_stop_ends_the_wait(clock: Clock, log: Logger) -> None:
    began, stop = clock.monotonic(), asyncio.Event()
    async with Nursery("test") as nursery:
        waiting = nursery.start(address_towards(Network(10_000).find, stop, clock, log))
        await clock.sleep(5)
        stop.set()
    assert waiting.result() == "127.0.0.1"
    assert clock.monotonic() - began < 6
