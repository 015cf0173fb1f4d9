"""The node controller dies before, after, in the middle of or between its requests and calls; its provider fails.

At every binding a machine has one pod, and had no other since it was made or wiped. When the faults stop,
every waiting pod gets a machine within a bound; when the pods are gone no instance, record or node is left.
"""

from contextlib import suppress
from functools import cache
from math import gcd

import pytest
from tests.sim.machine_trouble import SIDES, TroubledWorld, troubled_world
from tests.sim.slow_scheduler import SlowScheduler

from grange.api.kinds import NODEPOOL, POD
from grange.api.machine_phases import MachinePhase
from grange.api.status import ApiError
from grange.base.clock import LoopClock
from grange.base.errors import invariant
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.providers.simulated.cloud import CloudLatencies
from grange.sim import runner
from grange.sim.pytest_plugin import EPOCH

PODS = 6
TROUBLE_S = 240.0
SETTLED_S = 900.0
_BOOTED = {"instanceType": "small", "count": 1}
_WIPED = {"cleaning": "Wipe", "standby": [_BOOTED, {**_BOOTED, "state": "Stopped"}]}
_OFF = {"instanceType": "medium", "count": 1, "state": "Stopped"}
_SHARED = {"mode": "Packed", "instanceTypes": ["medium"], "standby": [_OFF]}
BIND_S = 3.0


async def everything_ends(world: TroubledWorld) -> None:
    """Without pods and pools nothing is left."""
    for name in [pool.metadata.name for pool in (await world.client.list(NODEPOOL)).items]:
        await world.client.delete(NODEPOOL, name)
    await world.empty(limit_s=SETTLED_S)
    assert await world.nodes_left() == []
    assert world.cloud.launches == len(world.cloud.instances)


async def one_pod(world: TroubledWorld) -> None:
    """A pod gets a machine, ends, and another one gets it after it was wiped."""
    await world.add_pool(timeouts={"idleSeconds": 90}, cleaning="Wipe")
    for name in ("a", "b"):
        await world.add_pod(name)
        await world.bound(name, limit_s=SETTLED_S)
        await world.end_pod(name)
        for phase in (MachinePhase.CLAIMED, MachinePhase.CLEANING):
            await world.count(phase, 0, limit_s=SETTLED_S)
    await everything_ends(world)


@cache
def requests() -> int:
    """How many requests and calls the scenario takes; it needs one machine."""

    async def run() -> int:
        async with troubled_world(LoopClock(EPOCH), Stream(0), Logger("scenario")) as world:
            await one_pod(world)
            assert world.cloud.launches == 1
            assert [len(pods) for pods in world.given.values()] == [2]
            return len(world.asked)

    return runner.run(run())


@pytest.mark.seeds(15)
def test_controller_may_die_at_any_request(seed: int, log: Logger) -> None:
    """Each seed is another request and another side of it; those that follow each other are far apart."""
    size = requests() * len(SIDES)
    stride = next(n for n in range(int(size * 0.618), 2 * size) if gcd(n, size) == 1)
    at, side = divmod(seed * stride % size, len(SIDES))

    async def run() -> None:
        async with troubled_world(LoopClock(EPOCH), Stream(seed), log) as world:
            world.doom.left, world.doom.side = at, SIDES[side]
            await one_pod(world)
            assert world.cloud.launches <= 3

    runner.run(run())


class Users:
    """Pods that come, end and are deleted, and instances that vanish.

    Attributes:
        taken: names of the machines whose instances vanish or are announced to.
    """

    def __init__(self, world: TroubledWorld) -> None:
        self._world, self._draw, self._made = world, world.draw.fork("users"), 0
        self.taken: set[str] = set()

    async def run(self, seconds: float) -> None:
        world, draw = self._world, self._draw
        acts = [self.add, self.add, self.end, self.delete, self.die, self.die, self.vanish]
        acts.append(self.interrupt)
        due = world.clock.monotonic() + seconds
        while world.clock.monotonic() < due:
            with suppress(ApiError):
                await draw.choice(acts)()
            await world.clock.sleep(draw.uniform(0.0, 12.0))

    async def add(self) -> None:
        self._made += 1
        pool, cpu = self._draw.choice(["p", "w", "s"]), self._draw.choice(["1", "3"])
        await self._world.add_pod(f"u{self._made}", pool, cpu)

    async def end(self) -> None:
        await self._world.end_pod(self._some())

    async def delete(self) -> None:
        await self._world.delete_pod(self._some())

    async def die(self) -> None:
        self._world.doom.left = self._draw.integer(0, 25)
        self._world.doom.side = self._draw.choice([*SIDES])

    async def vanish(self) -> None:
        running = self._world.running()
        if running and self._draw.integer(0, 3) == 0:
            self._world.cloud.vanish(self._take(running))

    async def interrupt(self) -> None:
        running = self._world.running()
        if running:
            taken = self._take(running)
            self._world.cloud.interrupt(taken, self._draw.choice([0.0, 30.0, 120.0]))

    def _take(self, running: list[str]) -> str:
        """The id of an instance that is chosen to go."""
        machine = self._draw.choice(running)
        self.taken.add(machine)
        return self._world.cloud.instances[machine].instance.id

    def _some(self) -> str:
        return f"u{self._draw.integer(1, max(1, self._made))}"


class LastPods:
    """Pods that come when the faults have stopped, and their controller.

    Machines are taken away until their time is over, also then: a pod that loses its machine so is made again.

    Args:
        world: where.
        users: took machines away.
        scheduler: of the packed pool.
    """

    def __init__(self, world: TroubledWorld, users: Users, scheduler: SlowScheduler) -> None:
        self._world, self._users, self._scheduler = world, users, scheduler
        self._pools = {f"last{number}": "pws"[number % 3] for number in range(PODS)}

    async def are_served(self) -> bool:
        """Whether each has a machine that is there; judges that others lost theirs by the trouble alone."""
        world = self._world
        pods = {pod.metadata.name: pod for pod in (await world.client.list(POD)).items}
        live = {one.node for one in await world.live()}
        served = 0
        for name, pool in self._pools.items():
            pod = pods.get(name)
            node = pod.spec.node_name if pod is not None else self._scheduler.bound.get(name, "")
            if pod is not None and (not node or node in live):
                served += bool(node)
                continue
            if node:
                taken = {world.node_name(machine) for machine in self._users.taken}
                invariant(node in taken, "a pod keeps its machine", pod=name, node=node)
            if pod is not None:
                await world.delete_pod(name)
            await world.add_pod(name, pool)
        return served == len(self._pools)


@pytest.mark.seeds(6)
async def test_machines_survive_a_day_of_faults(seed: int, log: Logger) -> None:
    async with troubled_world(LoopClock(EPOCH), Stream(seed), log) as world:
        world.cloud.latencies = CloudLatencies(list_lag=world.draw.choice([0.0, 3.0]))
        world.cloud_names = world.draw.choice([False, True])
        await world.add_pool("p", timeouts={"idleSeconds": 20, "bootSeconds": 60})
        await world.add_pool("w", timeouts={"idleSeconds": 20, "bootSeconds": 60}, **_WIPED)
        await world.add_pool("s", timeouts={"bootSeconds": 60}, **_SHARED)
        world.fault_share = world.draw.choice([0.0, 0.2, 0.5])
        scheduler = SlowScheduler(world, "s", world.draw.fork("scheduler"), BIND_S)
        world.nursery.start(scheduler.run())
        users = Users(world)
        await users.run(TROUBLE_S)
        world.fault_share, world.doom.left = 0.0, None
        last = LastPods(world, users, scheduler)
        await world.until(last.are_served, limit_s=SETTLED_S)
        claimed = await world.machines(MachinePhase.CLAIMED)
        held = [one.status.bound_pod_uid for one in claimed]
        assert len({*held}) == len(held)
        await world.delete_all_pods()
        await everything_ends(world)


async def test_pods_outlive_all_machines_that_they_had(log: Logger) -> None:
    """As the unlucky day ends where its last announcements are kept after its faults."""
    async with troubled_world(LoopClock(EPOCH), Stream(1), log) as world:
        await world.add_pool("p")
        await world.add_pool("w", **_WIPED)
        await world.add_pool("s", **_SHARED)
        scheduler = SlowScheduler(world, "s", world.draw.fork("scheduler"), BIND_S)
        world.nursery.start(scheduler.run())
        users = Users(world)
        last = LastPods(world, users, scheduler)
        await world.until(last.are_served)
        for machine in world.running():
            users.taken.add(machine)
            world.cloud.interrupt(world.cloud.instances[machine].instance.id, 30.0)
        await world.until(last.are_served)
        await world.settle(20.0)
        assert not await last.are_served()
        await world.until(last.are_served, limit_s=SETTLED_S)
        assert not users.taken & {one.metadata.name for one in await world.live()}
