"""A pool of leases that a NodePool makes machines for, while both controllers die and the provider fails.

Leases come and go, for more than there is and for more than there can be. At every write a machine has one lease
and passes to another only when it was free; there are never more machines than the limit; what is impossible is
rejected and the rest is granted in the end. When no lease is left the pool is empty again.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from tests.sim.machine_trouble import TroubledWorld, troubled_world
from tests.sim.test_lease_claims import NodeJudge
from tests.sim.test_machines import everything_ends
from tests.support.lease_world import MANAGER

from grange.api.http import Request, Response
from grange.api.kinds import MACHINELEASE
from grange.api.kinds.machinelease import GRANTED, REJECTED, MachineLease
from grange.api.status import ApiError
from grange.base.clock import LoopClock
from grange.base.errors import invariant
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Child
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.controllers.machinelease.controller import MachineLeaseController
from grange.reconcile.deps import Deps
from grange.reconcile.informer import InformerFactory
from grange.sim.pytest_plugin import EPOCH

LIMIT = 3
TROUBLE_S = 240.0
SETTLED_S = 900.0


class LeaseHolders:
    """Leases that come and go, machines that vanish, and controllers that die."""

    def __init__(self, world: TroubledWorld, judge: NodeJudge) -> None:
        self._world, self._draw, self._made = world, world.draw.fork("holders"), 0
        self._judge = judge
        self._tasks: list[Child[None]] = []

    def begin(self) -> None:
        """Run another lease controller, with empty caches."""
        world = self._world
        for task in self._tasks:
            task.cancel()

        async def handle(request: Request) -> Response:
            return await self._judge.intercept(request, world.application.handle)

        # None of its requests is one that the machines' controller dies of.
        client = Client(InProcess(handle, MANAGER), clock=world.clock)
        informers = InformerFactory(client, clock=world.clock, rng=world.rng, log=world.log)
        registry = world.new_deps().metrics
        deps = Deps(client, informers, world.clock, world.rng, world.log, registry)
        self._tasks = [
            world.nursery.start(informers.run()),
            world.nursery.start(MachineLeaseController(deps).run()),
        ]

    async def run(self, seconds: float) -> None:
        world, draw = self._world, self._draw
        acts = [self.acquire, self.acquire, self.release, self.release, self.die, self.vanish]
        acts += [self.interrupt, self.takeover]
        due = world.clock.monotonic() + seconds
        while world.clock.monotonic() < due:
            with suppress(ApiError):
                await draw.choice(acts)()
            await world.clock.sleep(draw.uniform(0.0, 15.0))

    async def acquire(self) -> None:
        self._made += 1
        await self.add(f"l{self._made}", self._draw.integer(1, LIMIT))

    async def add(self, name: str, count: int) -> None:
        spec = {"machines": [{"pool": "w", "count": count}]}
        document = {"metadata": {"name": name}, "spec": spec}
        await self._world.client.create(MACHINELEASE, document, "default")

    async def release(self) -> None:
        name = f"l{self._draw.integer(1, max(1, self._made))}"
        await self._world.client.delete(MACHINELEASE, name, "default")

    async def takeover(self) -> None:
        self.begin()

    async def die(self) -> None:
        self._world.doom.left = self._draw.integer(0, 25)
        self._world.doom.side = self._draw.choice(["before", "after", "late"])

    async def vanish(self) -> None:
        running = self._world.running()
        if running and self._draw.integer(0, 2) == 0:
            made = self._world.cloud.instances[self._draw.choice(running)]
            self._world.cloud.vanish(made.instance.id)

    async def interrupt(self) -> None:
        running = self._world.running()
        if running and self._draw.integer(0, 2) == 0:
            made = self._world.cloud.instances[self._draw.choice(running)]
            self._world.cloud.interrupt(made.instance.id, self._draw.choice([0.0, 30.0]))

    async def leases(self) -> list[MachineLease]:
        return list((await self._world.client.list(MACHINELEASE)).items)

    async def release_all(self) -> None:
        for lease in await self.leases():
            with suppress(ApiError):
                await self._world.client.delete(MACHINELEASE, lease.metadata.name, "default")

    async def are_gone(self) -> bool:
        return not await self.leases()

    async def are_decided(self) -> bool:
        return all(one.status.phase in {GRANTED, REJECTED} for one in await self.leases())


def judged(world: TroubledWorld, judge: NodeJudge) -> None:
    """Have the judge see every write to a node, and count machines at every order."""
    before = world.intercept
    assert before is not None

    async def intercept(
        request: Request, handle: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        async def seen(inner: Request) -> Response:
            return await judge.intercept(inner, handle)

        response = await before(request, seen)
        if request.method == "POST" and request.path.endswith("/machines"):
            live = [one.metadata.name for one in await world.live()]
            invariant(len(live) <= LIMIT, "the limit of the pool is kept", machines=live)
        return response

    world.intercept = intercept


@pytest.mark.seeds(6)
async def test_pools_grow_and_shrink_through_a_day_of_faults(seed: int, log: Logger) -> None:
    async with troubled_world(LoopClock(EPOCH), Stream(seed), log) as world:
        judge = NodeJudge()
        judged(world, judge)
        await world.add_pool(
            "w",
            mode="Packed",
            limits={"machines": LIMIT},
            template={"labels": {"pool": "w"}},
            timeouts={"bootSeconds": 60},
            disruption={"consolidateAfterSeconds": 30, "budgets": [{"nodes": "100%"}]},
        )
        holders = LeaseHolders(world, judge)
        holders.begin()
        world.fault_share = world.draw.choice([0.0, 0.2, 0.5])
        await holders.run(TROUBLE_S)
        world.fault_share, world.doom.left = 0.0, None
        await holders.release_all()
        await world.until(holders.are_gone, limit_s=SETTLED_S)
        await world.empty(limit_s=SETTLED_S)  # and nothing is taken away any more
        granted = judge.passed
        await holders.add("all", LIMIT)
        await holders.add("more", LIMIT + 1)
        await world.until(holders.are_decided, limit_s=SETTLED_S)
        found = {one.metadata.name: one.status for one in await holders.leases()}
        assert {name: one.phase for name, one in found.items()} == {
            "all": GRANTED,
            "more": REJECTED,
        }
        assert "NodePool w allows 3" in found["more"].message
        assert judge.passed >= granted + LIMIT
        await holders.add("next", 1)
        await world.clock.sleep(90.0)
        (waits,) = [one for one in await holders.leases() if one.metadata.name == "next"]
        assert waits.status.reason == "PoolAvailability", "the pool is full"
        await world.client.delete(MACHINELEASE, "all", "default")
        await world.until(holders.are_decided, limit_s=SETTLED_S)
        await holders.release_all()
        await world.empty(limit_s=SETTLED_S)
        await everything_ends(world)
