"""Standby of a packed pool is switched off while a slow scheduler places pods and the controller dies.

The scheduler decides on what it saw some seconds ago. No instance with a pod is switched off where that is less
than the time for which nodes are closed before; for a pod that comes later the machine is switched on again. In
the end every pod is on a machine that runs, and without pods nothing is left.
"""

from contextlib import suppress

import pytest
from tests.sim.machine_trouble import TroubledWorld, troubled_world
from tests.sim.test_machines import SETTLED_S, everything_ends

from grange.api.bindings import Binding
from grange.api.kinds import NODE, NODEPOOL, POD
from grange.api.kinds.node import Node, is_ready
from grange.api.kinds.pod import Pod
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Document
from grange.api.status import NotFound
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.controller.machine_lifecycle import CLOSED_S
from grange.machines.providers.provider import InstanceState
from grange.sim import builders
from grange.sim.pytest_plugin import EPOCH

PODS, STANDBY = 4, 2
TROUBLE_S = 180.0
ENTRY = {"instanceType": "medium", "count": STANDBY, "state": "Stopped"}
PROMPT_S, SLOW_S = CLOSED_S - 3.0, 3 * CLOSED_S
_UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


class SlowScheduler:
    """Binds each pod some time after it has chosen its node.

    Attributes:
        placed: node of each pod that has not ended, by the name of the pod.
        free: nodes that took pods at the last look.
    """

    def __init__(self, world: TroubledWorld, draw: Stream, lag_s: float) -> None:
        self._world, self._draw, self._lag_s = world, draw, lag_s
        self._assumed: dict[str, str] = {}
        self.placed: dict[str, str] = {}
        self.free: list[str] = []

    async def run(self) -> None:
        while True:
            pods = (await self._world.client.list(POD)).items
            nodes = (await self._world.client.list(NODE)).items
            taken = {*self.placed.values(), *self._assumed.values()}
            open_nodes = [one.metadata.name for one in nodes if _takes_pods(one)]
            self.free = [name for name in open_nodes if name not in taken]
            for pod in pods:
                name = pod.metadata.name
                if pod.spec.node_name or name in self._assumed:
                    continue
                if self.free:
                    self._assumed[name] = self.free.pop(0)
                    self._world.nursery.start(self._bind(pod))
                else:
                    await self._report(name, {"phase": "Pending", "conditions": [_UNSCHEDULABLE]})
            await self._world.clock.sleep(0.5)

    async def _bind(self, pod: Pod) -> None:
        meta, node = pod.metadata, self._assumed[pod.metadata.name]
        await self._world.clock.sleep(self._draw.uniform(0.0, self._lag_s))
        binding = Binding(meta.namespace, meta.name, meta.uid, node)
        (error,) = await self._world.client.bind([binding])
        if error is None:
            self.placed[meta.name] = node
            await self._report(meta.name, {"phase": "Running", "conditions": []})
        del self._assumed[meta.name]

    async def _report(self, name: str, status: Document) -> None:
        with suppress(NotFound):  # it has ended meanwhile
            await self._world.client.patch(
                POD, name, "default", patch={"status": status}, subresource="status"
            )

    async def end(self, name: str) -> None:
        """A pod ends."""
        await self._world.delete_pod(name)
        self.placed.pop(name, None)


def _takes_pods(node: Node) -> bool:
    return is_ready(node) and not node.spec.unschedulable and not node.spec.taints


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

    def __init__(self, world: TroubledWorld, scheduler: SlowScheduler, draw: Stream) -> None:
        self._world, self._scheduler, self._draw = world, scheduler, draw
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
                world.doom.side = draw.choice(["before", "after"])
            await world.clock.sleep(1.0)

    async def _create(self) -> None:
        self._made += 1
        name = f"u{self._made}"
        document = builders.pod_document(name, requests={"cpu": "3"})  # one a machine
        await self._world.client.create(POD, document, "default")
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
        scheduler = SlowScheduler(world, draw.fork("lag"), PROMPT_S if prompt else SLOW_S)
        switched_off = _with_pods(world, scheduler)
        budgets = {"budgets": [{"nodes": "0"}]}  # only standby is taken from the pool
        await world.add_pool("s", mode="Packed", standby=[ENTRY], disruption=budgets)
        world.nursery.start(scheduler.run())
        users = Users(world, scheduler, draw.fork("users"))
        await users.run(TROUBLE_S)
        world.doom.left = None
        await users.keep(STANDBY)

        async def all_run() -> bool:
            live = {one.metadata.name for one in await world.machines(MachinePhase.AVAILABLE)}
            now, running = world.cloud.now(), InstanceState.RUNNING
            on = {n for n, one in world.cloud.instances.items() if one.state_at(now) is running}
            placed = scheduler.placed
            return {*users.pods} == {*placed} and {*placed.values()} <= live & on

        await world.until(all_run, limit_s=SETTLED_S)
        await world.count(MachinePhase.STOPPED, STANDBY, limit_s=SETTLED_S)
        await world.settle(60.0)
        assert await all_run()
        assert not prompt or switched_off == []
        for name in users.pods:
            await scheduler.end(name)
        await everything_ends(world)
