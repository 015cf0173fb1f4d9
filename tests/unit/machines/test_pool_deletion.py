"""A pool that is deleted while it has machines: nothing more is launched, and it shows what it waits for."""

from contextlib import suppress

import pytest
from tests.support.machine_world import MachineWorld, machine_world

from grange.api import conditions
from grange.api.kinds import NODEPOOL
from grange.api.kinds.nodepool import PACKED
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Condition
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.providers.simulated.cloud_faults import CloudFault

P, F = MachinePhase, CloudFault


async def shown(world: MachineWorld, kind: str) -> Condition:
    found = conditions.find((await world.pool()).status.conditions, kind)
    assert found is not None
    return found


async def pool_is_gone(world: MachineWorld) -> bool:
    with suppress(NotFound):
        await world.pool()
        return False
    return True


async def test_deleted_pool_shows_what_holds_it(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(limits={"machines": 1})
        await world.add_pod("a")
        await world.bound("a")
        await world.add_pod("b")
        (machine,) = await world.live()
        world.faults.add("terminate", *[F.FAIL] * 5)
        await world.client.delete(NODEPOOL, "p")
        await world.settle(3.0)
        assert (await shown(world, "Ready")).reason == "Terminating"
        holding = await shown(world, "Terminating")
        assert (holding.status, holding.reason) == ("True", "MachinesRemain")
        assert holding.message.startswith(f"1 machine ends: {machine.metadata.name} (Terminating")
        assert "last error: " in holding.message
        (event,) = await world.events("Terminating")
        assert "held by pod default/a" in event
        assert "pool p is being deleted; select another one" in await world.events("NoMachine")
        assert len(await world.events("PodEjected")) == 1
        await world.until(lambda: pool_is_gone(world), limit_s=200.0)
        await world.empty()
        assert world.cloud.launches == 1


@pytest.mark.parametrize("mode", ["Dedicated", PACKED])
async def test_deleted_pool_launches_nothing_more(
    mode: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        world.faults.add("launch", *[F.HANG_DONE] * 2)
        await world.add_pool(mode=mode, standby=[{"instanceType": "small", "count": 2}])
        await world.count(P.CREATING, 2)
        await world.client.delete(NODEPOOL, "p")
        await world.settle(5.0)
        assert (await shown(world, "Terminating")).message.startswith("2 machines end: ")
        await world.until(lambda: pool_is_gone(world), limit_s=300.0)
        await world.empty()
        assert world.cloud.launches == 2  # before it was deleted, without an answer


async def test_deleted_pool_names_a_provider_that_fails(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=[{"instanceType": "small", "count": 1}])
        await world.count(P.AVAILABLE, 1)
        world.faults.add("instances", *[F.FAIL] * 20)
        await world.client.delete(NODEPOOL, "p")
        await world.settle(30.0)
        assert "; the provider fails: " in (await shown(world, "Terminating")).message
        await world.until(lambda: pool_is_gone(world), limit_s=400.0)


async def test_deletion_of_an_unused_pool_is_over_at_once(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.settle(3.0)
        await world.client.delete(NODEPOOL, "p")
        assert await world.until(lambda: pool_is_gone(world)) < 1.0
        assert await world.events("Terminating") == []
