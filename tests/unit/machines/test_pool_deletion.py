"""A pool that is deleted while it has machines: nothing more is launched, and it shows what it waits for."""

from contextlib import suppress
from typing import Any

import pytest
from tests.support.machine_world import MachineWorld, machine_world

from grange.api import conditions
from grange.api.kinds import MACHINE, NODEPOOL, POD, PODDISRUPTIONBUDGET
from grange.api.kinds.nodepool import DEDICATED, PACKED
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Condition
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.disruption.disruption_progress import (
    DISRUPTION_ANNOTATION,
    DisruptionRecord,
    is_tainted,
)
from grange.machines.providers.simulated.cloud_faults import CloudFault
from grange.sim import builders

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
        (event,) = await world.events("Terminating")
        assert "held by pod default/a" in event
        await world.delete_pod("a")
        await world.settle(3.0)
        assert (await shown(world, "Ready")).reason == "Terminating"
        holding = await shown(world, "Terminating")
        assert (holding.status, holding.reason) == ("True", "MachinesRemain")
        assert holding.message.startswith(f"1 machine ends: {machine.metadata.name} (Terminating")
        assert "last error: " in holding.message
        assert "pool p is being deleted; select another one" in await world.events("NoMachine")
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


async def protect(world: MachineWorld, pod: str) -> None:
    patch = {"metadata": {"annotations": {"grange.dev/do-not-disrupt": "true"}}}
    await world.client.patch(POD, pod, "default", patch=patch)


async def add_budget(world: MachineWorld) -> None:
    """A budget that allows no eviction of pods with the label ``app: x``."""
    budget = {
        "metadata": {"name": "pdb", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    }
    await world.client.create(PODDISRUPTIONBUDGET, budget, "default")


async def in_use(world: MachineWorld, mode: str, **pool: Any) -> str:
    """The name of a machine that a running pod ``a`` with the label ``app: x`` is on."""
    await world.add_pool(mode=mode, **pool)
    if mode == PACKED:
        await world.add_unschedulable("a", cpu="1")
        await world.count(P.AVAILABLE, 1)
        await world.delete_pod("a")
        (machine,) = await world.machines()
        document = builders.pod_document("a", requests={"cpu": "1"}, nodeName=machine.metadata.name)
        await world.client.create(POD, document, "default")
    else:
        await world.add_pod("a")
        await world.bound("a")
        (machine,) = await world.machines()
    await world.client.patch(POD, "a", "default", patch={"metadata": {"labels": {"app": "x"}}})
    await world.end_pod("a", "Running")
    return machine.metadata.name


async def is_leaving(world: MachineWorld) -> bool:
    return (await world.pod("a")).metadata.deletion_timestamp is not None


@pytest.mark.parametrize("mode", [DEDICATED, PACKED])
async def test_deleted_pool_drains_within_disruption_budgets(
    mode: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        name = await in_use(world, mode)
        await add_budget(world)
        await world.client.delete(NODEPOOL, "p")
        await world.settle(60.0)
        assert not await is_leaving(world)
        assert is_tainted(await world.node(name))
        shown_now = (await shown(world, "Terminating")).message
        assert shown_now.startswith(f"1 machine ends: {name} (")
        assert shown_now.endswith("drained of pod default/a)")
        await world.client.delete(PODDISRUPTIONBUDGET, "pdb", "default")
        await world.until(lambda: is_leaving(world), limit_s=10.0)
        assert world.cloud.instances
        await world.delete_pod("a")  # it has ended
        await world.until(lambda: pool_is_gone(world), limit_s=60.0)
        await world.empty()


@pytest.mark.parametrize("mode", [DEDICATED, PACKED])
async def test_deleted_pool_ends_drains_after_its_grace(
    mode: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await in_use(world, mode, disruption={"terminationGracePeriodSeconds": 120})
        await add_budget(world)
        await protect(world, "a")
        await world.client.delete(NODEPOOL, "p")
        await world.settle(30.0)
        assert not await is_leaving(world)
        assert (
            "drained of pod default/a (do-not-disrupt), by force at 2026-"
            in (await shown(world, "Terminating")).message
        )
        await world.restart()
        took_s = await world.until(lambda: is_leaving(world), limit_s=120.0)
        assert 50.0 <= took_s <= 70.0  # its own 30 s are left
        await world.until(lambda: pool_is_gone(world), limit_s=60.0)
        await world.empty()


async def test_interrupted_machine_of_a_deleted_pool_drains_in_time(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        name = await in_use(world, PACKED)
        await add_budget(world)
        await world.client.delete(NODEPOOL, "p")
        await world.settle(5.0)
        world.cloud.interrupt(world.cloud.instances[name].instance.id, 100.0)
        await world.settle(5.0)
        assert not await is_leaving(world)
        took_s = await world.until(lambda: is_leaving(world), limit_s=100.0)
        assert 40.0 <= took_s <= 60.0


async def test_disruption_waits_while_its_pool_cannot_be_planned(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A decision about a machine in use is not carried out blindly when the catalogue is not known."""
    async with machine_world(clock, rng, log) as world:
        name = await in_use(world, PACKED)
        record = DisruptionRecord("Drifted", "drifted", "2026-01-01T00:00:00Z", (name,))
        patch = {"metadata": {"annotations": {DISRUPTION_ANNOTATION: record.text()}}}
        await world.stop_controller()
        await world.client.patch(MACHINE, name, patch=patch)
        world.faults.add("catalogue", *[F.FAIL] * 100)
        await world.restart()
        await world.settle(60.0)
        assert (await world.machine(name)).phase is P.AVAILABLE
        assert not await is_leaving(world)


@pytest.mark.parametrize("noticed", [True, False])
async def test_machine_whose_pool_object_is_gone_ends(
    *, noticed: bool, clock: Clock, rng: Stream, log: Logger
) -> None:
    """No pool is left that has a grace and whose status shows what a drain waits for."""
    async with machine_world(clock, rng, log) as world:
        name = await in_use(world, PACKED)
        await add_budget(world)
        if not noticed:
            await world.stop_controller()
        await world.client.delete(NODEPOOL, "p")
        if noticed:
            await world.settle(5.0)
            assert is_tainted(await world.node(name))
        await world.client.patch(NODEPOOL, "p", patch={"metadata": {"finalizers": None}})
        assert await pool_is_gone(world)
        if not noticed:
            await world.restart()
        await world.empty()
