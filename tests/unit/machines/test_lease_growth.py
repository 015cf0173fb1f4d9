"""Packed pools whose machines MachineLeases wait for: ordered, kept for them, explained, and ended."""

import msgspec
from tests.support.machine_world import MachineWorld, machine_world
from tests.unit.machines.test_pool_reports import report

from grange.api import conditions, timestamps
from grange.api.kinds import MACHINELEASE, NODE
from grange.api.kinds.machine import PLANNED_LEASE_ANNOTATION
from grange.api.kinds.machinelease import MACHINE_LEASE, MACHINES_REQUESTED
from grange.api.kinds.nodepool import PACKED
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Condition, Document
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

P = MachinePhase
SPEC: Document = {
    "mode": PACKED,
    "template": {"labels": {"pool": "w"}},
    "disruption": {"consolidateAfterSeconds": 30, "budgets": [{"nodes": "100%"}]},
}


async def add_lease(world: MachineWorld, name: str, count: int) -> str:
    """A lease whose turn it is; its UID."""
    spec = {"machines": [{"pool": "w", "count": count}]}
    document = {"metadata": {"name": name}, "spec": spec}
    made = await world.client.create(MACHINELEASE, document, "default")
    await request(world, name, "True")
    return made.metadata.uid


async def request(world: MachineWorld, name: str, status: str) -> None:
    """What the lease controller writes."""
    condition = Condition(MACHINES_REQUESTED, status, reason="R", message="m")
    since = timestamps.rfc3339(world.clock.now())
    found = msgspec.to_builtins(conditions.set_condition((), condition, since))
    patch: Document = {"status": {"phase": "Queued", "conditions": found}}
    await world.client.patch(MACHINELEASE, name, "default", patch=patch, subresource="status")


async def grant(world: MachineWorld, name: str, uid: str) -> None:
    """What the lease controller does with all machines that are there."""
    for machine in await world.machines(P.AVAILABLE):
        taint = {"key": MACHINE_LEASE, "value": uid, "effect": "NoSchedule"}
        patch: Document = {
            "metadata": {"labels": {MACHINE_LEASE: uid}},
            "spec": {"taints": [taint]},
        }
        await world.client.patch(NODE, machine.metadata.name, patch=patch)
    granted = {"status": {"phase": "Granted"}}
    await world.client.patch(MACHINELEASE, name, "default", patch=granted, subresource="status")


async def release(world: MachineWorld, name: str) -> None:
    await world.client.delete(MACHINELEASE, name, "default")
    for machine in await world.machines(P.AVAILABLE):
        patch: Document = {"metadata": {"labels": {MACHINE_LEASE: None}}, "spec": {"taints": []}}
        await world.client.patch(NODE, machine.metadata.name, patch=patch)


async def actions(world: MachineWorld) -> dict[str, str]:
    """What the plan of the pool names of machines, and why."""
    decisions = (await report(world, "plan"))["decisions"]
    return {f"{one['action']} {one['machine']}": one["reason"] for one in decisions}


async def test_machines_come_for_a_lease_and_go_after_it(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool("p", limits={"machines": 3}, **SPEC)
        uid = await add_lease(world, "a", 2)
        await world.count(P.AVAILABLE, 2)
        planned = [one.metadata.annotations for one in await world.machines()]
        assert [one[PLANNED_LEASE_ANNOTATION] for one in planned] == [uid, uid]
        assert len(await world.events("MachineOrdered")) == 2
        await world.settle(300.0)
        assert len(await world.machines(P.AVAILABLE)) == 2, "kept while the lease waits"
        names = [one.metadata.name for one in await world.machines()]
        assert await actions(world) == {
            f"reserve {name}": "MachineLease default/a waits for it" for name in names
        } | {f"keep {name}": "a MachineLease that waits is meant to have it" for name in names}
        await grant(world, "a", uid)
        await world.settle(300.0)
        assert len(await world.machines(P.AVAILABLE)) == 2, "kept while the lease has them"
        assert world.cloud.launches == 2
        await release(world, "a")
        assert await world.empty() >= 30.0
        assert world.cloud.launches == 2


async def test_a_lease_is_informed_of_what_it_cannot_have(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool("p", limits={"machines": 1}, **SPEC)
        await add_lease(world, "a", 2)
        await world.settle(30.0)
        text = "MachineLease default/a: pool p: limits.machines: all are there"
        assert await world.events("NoMachine") == [text]
        limited = [one for one in (await world.pool()).status.conditions if one.status == "False"]
        assert [(one.type, one.message) for one in limited] == [("WithinLimits", text)]
        assert (await world.pool()).status.max_machines == 1
        assert await world.machines() == []
        await request(world, "a", "False")
        await world.settle(30.0)
        assert all(one.status == "True" for one in (await world.pool()).status.conditions)


async def test_a_lease_is_informed_of_a_boot_that_fails(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        world.joins = lambda name: False
        await world.add_pool("p", timeouts={"bootSeconds": 30}, **SPEC)
        await add_lease(world, "a", 1)
        await world.count(P.TERMINATED, 1)
        world.joins = lambda name: True
        await world.count(P.AVAILABLE, 1)
        assert any("30" in text for text in await world.events("MachineLaunchFailed"))
