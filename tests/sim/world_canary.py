"""A whole world whose history must not depend on anything but its seed; run by test_determinism.

Arguments: seed, extra tasks that are allocated first (they move every later object in memory).
"""

import asyncio
import hashlib
import sys

from tests.sim.test_replication import BAD_NETWORK, populate, service

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.base.clock import LoopClock
from grange.base.log import Logger, configure
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.sim.chaos import Chaos
from grange.sim.pytest_plugin import EPOCH
from grange.sim.runner import run
from grange.sim.world import simulated
from grange.store.interface import StoreEvent


async def world(seed: int, trace: list[str]) -> None:
    clock, rng = LoopClock(EPOCH), Stream(seed)
    log = Logger("canary")
    async with simulated(clock=clock, rng=rng, log=log, faults=BAD_NETWORK) as there:
        judge = there.history.see

        def see(event: StoreEvent) -> None:
            trace.append(f"{clock.monotonic():.6f} {event.revision} {event.key} {event.value!r}")
            judge(event)

        there.history.see = see  # type: ignore[method-assign]  # to listen in
        machines = await populate(there, rng.fork("nodes"))
        for name, replicas, placement in (("web", 3, "OnePerNode"), ("heap", 5, "Packed")):
            document = service(name, replicas, placement=placement)
            await there.client.create(REPLICATIONCONTROLLER, document, "default")
        chaos = Chaos(there, machines, rng=rng.fork("chaos"))
        await chaos.run(90)
        await chaos.restore()
        await clock.sleep(60)
        trace += there.network.history


async def noisy(seed: int, noise: int, trace: list[str]) -> None:
    async with Nursery() as ballast:
        for _ in range(noise):
            ballast.start(asyncio.sleep(1e6))
        await world(seed, trace)
        ballast.cancel()


def main() -> None:
    configure(level="error")
    seed, noise = int(sys.argv[1]), int(sys.argv[2])
    kept = [bytearray(64 + n) for n in range(noise * 37)]
    trace: list[str] = []
    run(noisy(seed, noise, trace))
    assert len(kept) == noise * 37
    digest = hashlib.sha256("\n".join(trace).encode()).hexdigest()
    sys.stdout.write(f"{len(trace)} {digest}\n")


if __name__ == "__main__":
    main()
