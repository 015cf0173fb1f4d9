"""A program whose trace must not depend on anything but its seed; run by test_determinism.

Arguments: seed, extra tasks that are allocated first (they move every later object in memory).
"""

import asyncio
import hashlib
import sys

from grange.base.backoff import Exponential
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery, supervise
from grange.sim.pytest_plugin import EPOCH
from grange.sim.runner import run


class Boom(Exception):
    pass


class World:
    """Producers, consumers and a crashing service around one queue."""

    def __init__(self, seed: int, trace: list[str]) -> None:
        self.clock, self.rng, self.trace = LoopClock(EPOCH), Stream(seed), trace
        self.queue: asyncio.Queue[str] = asyncio.Queue(maxsize=3)

    def note(self, text: str) -> None:
        self.trace.append(f"{self.clock.monotonic():.6f} {text}")

    async def produce(self, name: str) -> None:
        rng = self.rng.fork(name)
        for number in range(rng.integer(2, 6)):
            await self.clock.sleep(rng.uniform(0, 1))
            await self.queue.put(f"{name}/{number}/{rng.uid()}")

    async def consume(self, name: str) -> None:
        rng = self.rng.fork(name)
        try:
            while True:
                self.note(f"{name} got {await self.queue.get()}")
                await self.clock.sleep(round(rng.uniform(0, 0.2), 1))  # many equal deadlines
        finally:
            self.note(f"{name} ended")

    async def produce_all(self, number: int) -> None:
        async with Nursery() as producers:
            for index in range(10):
                producers.start(self.produce(f"producer-{number}-{index}"))
        raise Boom

    async def round_of_work(self, number: int) -> None:
        try:
            async with self.clock.timeout(30), Nursery() as nursery:
                for index in range(10):
                    nursery.start(self.consume(f"consumer-{number}-{index}"))
                nursery.start(self.produce_all(number))
        except* Boom:
            self.note(f"round {number} over, {self.queue.qsize()} left")

    async def flaky(self) -> None:
        rng = self.rng.fork("flaky")
        for _ in range(5):
            await self.clock.sleep(rng.uniform(0, 3))
        self.note("flaky fails")
        raise Boom

    async def run(self) -> None:
        backoff = Exponential(initial_s=1, cap_s=8)
        log = Logger("canary")
        async with Nursery() as nursery:
            nursery.start(
                supervise("flaky", self.flaky, clock=self.clock, log=log, backoff=backoff)
            )
            for number in range(20):
                await self.round_of_work(number)
            nursery.cancel()


def main() -> None:
    seed, noise = int(sys.argv[1]), int(sys.argv[2])
    kept = [bytearray(64 + n) for n in range(noise * 37)]

    async def noisy(trace: list[str]) -> None:
        async with Nursery() as ballast:
            for _ in range(noise):
                ballast.start(asyncio.sleep(1e6))
            await World(seed, trace).run()
            ballast.cancel()

    trace: list[str] = []
    run(noisy(trace))
    assert len(kept) == noise * 37
    digest = hashlib.sha256("\n".join(trace).encode()).hexdigest()
    sys.stdout.write(f"{len(trace)} {digest}\n")


if __name__ == "__main__":
    main()
