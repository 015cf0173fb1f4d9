"""Two schedulers side by side on one cluster, neither of which knows what the other decides.

Either both have the same pods, as when a user starts a second one by mistake, or the pods are divided
between them by ``schedulerName``. The server refuses what would not fit, so the world's invariants hold
at every revision under all the faults that one scheduler has to live with; and since it counts as
schedulers count, both come to rest with everything placed that fits.
"""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.sim import test_gpus as gpus
from tests.sim.test_scheduler import Users, unplaced_that_fit
from tests.support import faults
from tests.support.faults import BAD

from grange.api import bindings
from grange.api.gpus import GPU_MILLI
from grange.api.http import Request, Response
from grange.api.kinds import POD
from grange.api.kinds.pod import condition
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.reconcile.deps import Deps
from grange.scheduler.service import Scheduler, SchedulerConfig
from grange.sim import builders
from grange.sim.faults import NetworkFaults
from grange.sim.world import World, simulated

NAMES = ("left", "right")
NO_ROOM = b"has not enough"


class Pair:
    """Two schedulers, of which each may crash and come back, and how often they were refused."""

    def __init__(self, world: World, *, divided: bool) -> None:
        self.world, self.divided = world, divided
        self.refusals = 0
        self.lives: dict[str, Scheduler] = {}
        world.witnesses.append(self._see)
        for name in NAMES:
            world.add(name, self._factory(name))

    def _factory(self, name: str) -> Callable[[Deps], Scheduler]:
        names = frozenset({name} if self.divided else NAMES)

        def made(deps: Deps) -> Scheduler:
            self.lives[name] = Scheduler(deps, SchedulerConfig(scheduler_names=names))
            return self.lives[name]

        return made

    def _see(self, request: Request, response: Response) -> None:
        if request.path.endswith("/binding") or request.path == bindings.PATH:
            self.refusals += response.body.count(NO_ROOM)

    async def disturb(self, rng: Stream) -> None:
        """Perhaps one of them crashes or is cut off, or the server goes away for a while."""
        world, name = self.world, rng.choice(NAMES)
        match rng.integer(0, 6):
            case 0:
                await faults.crash(world, rng, name)
            case 1:
                await faults.outage(world, rng.uniform(0.0, 8.0))
            case 2 | 3:  # what it knows grows old while the other goes on
                await faults.partition(world, rng.uniform(0.0, 8.0), name)

    async def rest(self, unplaced: Callable[[World], Coroutine[Any, Any, list[str]]]) -> None:
        """Without faults: all that fits is placed, and both know it."""
        self.world.network.faults = NetworkFaults()

        async def settled() -> bool:
            assumed = [scheduler.cache.assumed_count for scheduler in self.lives.values()]
            return assumed == [0, 0] and not await unplaced(self.world)

        await self.world.until(settled, limit_s=700.0)
        await self.world.clock.sleep(60.0)  # the last conditions are written
        pods = (await self.world.client.list(POD)).items
        bound = sum(1 for pod in pods if pod.spec.node_name)
        assert [each.cache.pod_count for each in self.lives.values()] == [bound, bound]
        for pod in pods:
            reported = condition(pod, "PodScheduled")
            assert reported is not None
            assert reported.status == ("True" if pod.spec.node_name else "False"), pod.metadata.name


class Crowd(Users):
    """Users whose pods name one of the two schedulers."""

    def scheduler_name(self) -> str:
        return self.rng.choice(NAMES)


@pytest.mark.parametrize("divided", [True, False], ids=["divided", "shared"])
async def test_two_schedulers_never_overcommit_a_node_and_settle(
    clock: Clock, rng: Stream, log: Logger, seed: int, *, divided: bool
) -> None:
    rng = Stream(seed, "test")
    async with simulated(clock=clock, rng=Stream(seed), log=log, faults=BAD) as world:
        users = Crowd(world, rng.fork("users"))
        await users.add_classes()
        pair = Pair(world, divided=divided)
        for _ in range(12):
            await users.add_pod()
        await clock.sleep(5.0)
        for _ in range(
            3
        ):  # less room than all of them need, and both see it at about the same time
            await users.add_node()
        for _ in range(6):
            await clock.sleep(rng.uniform(0.0, 3.0))
            await pair.disturb(rng)
            for _ in range(rng.integer(1, 8)):
                await users.act()
        await pair.rest(unplaced_that_fit)
        assert await world.fixed_point(40.0) == []


async def test_two_schedulers_never_promise_a_device_twice(
    clock: Clock, rng: Stream, log: Logger, seed: int
) -> None:
    rng = Stream(seed, "test")
    async with simulated(clock=clock, rng=Stream(seed), log=log, faults=BAD) as world:
        pair = Pair(world, divided=True)
        for number in range(24):
            if number % 8 == 4:
                await gpus.add_node(world, f"n{number}")
            want = rng.choice(gpus.WANTS)
            document = builders.pod_document(f"p{number}", requests={GPU_MILLI: want})
            document["spec"]["schedulerName"] = rng.choice(NAMES)
            await world.client.create(POD, document, "default")
            if rng.integer(0, 2) == 0:
                await clock.sleep(rng.uniform(0.0, 1.5))
                await pair.disturb(rng)
        await pair.rest(gpus.waiting_that_fit)


async def test_two_schedulers_do_meet(clock: Clock, rng: Stream, log: Logger) -> None:
    """Without faults and with a crowd for a few places: there were refusals, or nothing was tested."""
    async with simulated(clock=clock, rng=rng, log=log) as world:
        world.network.faults = NetworkFaults(latency_s=0.5)
        users = Crowd(world, Stream(1))
        await users.add_classes()
        pair = Pair(world, divided=True)
        for _ in range(20):
            await users.add_pod()
        await clock.sleep(5.0)
        for _ in range(3):
            await users.add_node()
        await clock.sleep(5.0)
        await pair.rest(unplaced_that_fit)
        assert pair.refusals > 0
