"""Standby of a packed pool is switched off while a slow scheduler places pods and the controller dies.

The scheduler decides on what it saw some seconds ago. No instance with a pod is switched off where that is less
than the time for which nodes are closed before; for a pod that comes later the machine is switched on again. In
the end every pod is on a machine that runs, and without pods nothing is left.
"""

import pytest
from tests.sim.machine_trouble import SIDES, TroubledWorld, troubled_world
from tests.sim.slow_scheduler import SlowScheduler
from tests.sim.test_machines import SETTLED_S, everything_ends

from grange.api.kinds import NODEPOOL, POD
from grange.api.machine_phases import MachinePhase
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.controller.machine_lifecycle import CLOSED_S
from grange.machines.providers.provider import InstanceState
from grange.sim.pytest_plugin import EPOCH

PODS, STANDBY = 4, 2
TROUBLE_S = 180.0
ENTRY = {"instanceType": "medium", "count": STANDBY, "state": "Stopped"}
PROMPT_S, SLOW_S = CLOSED_S - 3.0, 3 * CLOSED_S
_UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def _with_pods(world: TroubledWorld, scheduler: SlowScheduler) -> list[str]:
    """Instances that are switched off from now on though a pod is on them."""
    found: list[str] = []
    stop = world.cloud.stop

    def judged(instance_id: str) -> None:
        (name,) = [n for n, one in world.cloud.instances.items() if one.instance.id == instance_id]
        found.extend(f"{pod} on {node}" for pod, node in scheduler.placed.items() if node == name)
        stop(instance_id)

    world.cloud.stop = judged  # type: ignore[method-assign]  # of this world alone
    return found


class Users:
    """Pods that come whenever a machine is free, and end; standby that changes."""

    def __init__(
        self, world: TroubledWorld, scheduler: SlowScheduler, draw: Stream, sides: list[str]
    ) -> None:
        self._world, self._scheduler, self._draw, self._sides = world, scheduler, draw, sides
        self._made = 0
        self.pods: list[str] = []

    async def run(self, seconds: float) -> None:
        world, draw = self._world, self._draw
        due = world.clock.monotonic() + seconds
        while world.clock.monotonic() < due:
            if self._scheduler.free and len(self.pods) < PODS and draw.integer(0, 1):
                await self._create()
            if draw.integer(0, 20) == 0:
                await self.keep(draw.integer(0, STANDBY))
            if draw.integer(0, 20) == 0:
                await self._create()
            if self.pods and draw.integer(0, 15) == 0:
                await self._scheduler.end(self.pods.pop(0))
            if draw.integer(0, 15) == 0:
                world.doom.left = draw.integer(0, 12)
                world.doom.side = draw.choice(self._sides)
            await world.clock.sleep(1.0)

    async def _create(self) -> None:
        self._made += 1
        name = f"u{self._made}"
        await self._world.add_pod(name, "s", cpu="3")  # one a machine
        self.pods.append(name)

    async def keep(self, count: int) -> None:
        """Have so many machines switched off."""
        patch = {"spec": {"standby": [{**ENTRY, "count": count}]}}
        await self._world.client.patch(NODEPOOL, "s", patch=patch)


@pytest.mark.seeds(4)
async def test_no_machine_with_a_pod_is_switched_off(seed: int, log: Logger) -> None:
    async with troubled_world(LoopClock(EPOCH), Stream(seed), log) as world:
        draw = world.draw.fork("parking")
        prompt = seed % 4 != 3
        scheduler = SlowScheduler(world, "s", draw.fork("lag"), PROMPT_S if prompt else SLOW_S)
        switched_off = _with_pods(world, scheduler)
        budgets = {"budgets": [{"nodes": "0"}]}  # only standby is taken from the pool
        await world.add_pool("s", mode="Packed", standby=[ENTRY], disruption=budgets)
        world.nursery.start(scheduler.run())
        # A call that is done late may switch off what is in use by then; it is switched on again.
        sides = [side for side in SIDES if side != "late" or not prompt]
        users = Users(world, scheduler, draw.fork("users"), sides)
        await users.run(TROUBLE_S)
        world.doom.left = None
        await users.keep(STANDBY)

        async def all_run() -> bool:
            live = {one.metadata.name for one in await world.machines(MachinePhase.AVAILABLE)}
            now, running = world.cloud.now(), InstanceState.RUNNING
            on = {n for n, one in world.cloud.instances.items() if one.state_at(now) is running}
            placed = scheduler.placed
            there = {pod.metadata.name for pod in (await world.client.list(POD)).items}
            return there == {*placed} and {*placed.values()} <= live & on

        await world.until(all_run, limit_s=SETTLED_S)
        await world.count(MachinePhase.STOPPED, STANDBY, limit_s=SETTLED_S)
        await world.settle(60.0)
        assert await all_run()
        assert not prompt or switched_off == []
        for name in users.pods:
            await scheduler.end(name)
        await everything_ends(world)
