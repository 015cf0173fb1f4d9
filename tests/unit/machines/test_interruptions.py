"""Machines that their provider takes away: replaced first where there is time, drained in time in any case."""

from typing import Any

import pytest
from tests.support.machine_world import MachineWorld, machine_world

from grange.api import conditions
from grange.api.http import Request
from grange.api.kinds import MACHINE, POD, PODDISRUPTIONBUDGET
from grange.api.kinds.machine import Machine
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Document
from grange.api.status import ApiError, Forbidden, ServiceUnavailable
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.disruption.disruption_progress import is_tainted, record_of
from grange.machines.providers.simulated.cloud import CloudLatencies
from grange.machines.providers.simulated.cloud_faults import CloudFault, no_fault
from grange.sim import builders

P = MachinePhase
NOTICE_S = 120.0
GRACE_S = 20


async def shared_machine(world: MachineWorld, **pool: Any) -> Machine:
    """A machine of a packed pool that a pod of a controller runs on."""
    world.poll_s = 0.5
    await world.add_pool("shared", mode="Packed", instanceTypes=["medium"], **pool)
    await world.add_unschedulable("p", cpu="1500m")
    await world.count(P.AVAILABLE, 1)
    (machine,) = await world.machines()
    await world.delete_pod("p")
    await run_on(world, "p", machine.metadata.name)
    return machine


async def run_on(world: MachineWorld, name: str, node: str) -> None:
    """A pod that a controller would replace runs on a node."""
    owner = {"apiVersion": "v1", "kind": "ReplicationController", "name": "rc", "uid": "u-rc"}
    document = builders.pod_document(
        name,
        labels={"app": "x"},
        requests={"cpu": "1500m"},
        nodeName=node,
        terminationGracePeriodSeconds=GRACE_S,
    )
    document["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    await world.client.create(POD, document, "default")
    await world.client.patch(
        POD, name, "default", patch={"status": {"phase": "Running"}}, subresource="status"
    )


async def is_leaving(world: MachineWorld, name: str) -> bool:
    found = [pod for pod in (await world.client.list(POD)).items if pod.metadata.name == name]
    return not found or found[0].metadata.deletion_timestamp is not None


def interrupt(world: MachineWorld, machine: str, *, warning: bool = False) -> None:
    instance = world.cloud.instances[machine].instance.id
    world.cloud.interrupt(instance, NOTICE_S, warning=warning)


@pytest.mark.parametrize("warning", [False, True])
async def test_replacement_is_there_before_pods_leave(
    clock: Clock, rng: Stream, log: Logger, *, warning: bool
) -> None:
    async with machine_world(clock, rng, log) as world:
        machine = await shared_machine(world)
        name = machine.metadata.name
        interrupt(world, name, warning=warning)
        await world.until(lambda: is_leaving(world, "p"), limit_s=60.0)
        live = {one.metadata.name: one.phase for one in await world.live()}
        assert live.pop(name) is P.AVAILABLE
        assert list(live.values()) == [P.AVAILABLE]
        assert is_tainted(await world.node(name))
        (message,) = await world.events("InterruptionNotice")
        assert message == "Interrupted: instance is reclaimed"
        shown = conditions.find((await world.machine(name)).status.conditions, "Interrupted")
        assert shown is not None
        assert (shown.status, shown.message) == ("True", message)
        await world.delete_pod("p")
        await run_on(world, "q", next(iter(live)))
        await world.until(lambda: world.is_gone(name), limit_s=200.0)
        assert [one.metadata.name for one in await world.machines()] == [*live]
        assert world.cloud.launches == 2


async def test_drain_begins_in_time_without_a_replacement(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """No machine may replace it; a budget that allows no eviction holds up nothing at the end."""
    async with machine_world(clock, rng, log) as world:
        machine = await shared_machine(world, limits={"machines": 1})
        budget: Document = {
            "metadata": {"name": "pdb", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
        }
        await world.client.create(PODDISRUPTIONBUDGET, budget, "default")
        interrupt(world, machine.metadata.name)
        took_s = await world.until(lambda: is_leaving(world, "p"), limit_s=NOTICE_S)
        assert NOTICE_S - GRACE_S - 25.0 <= took_s <= NOTICE_S - GRACE_S - 5.0
        pod = await world.pod("p")
        assert pod.metadata.deletion_grace_period_seconds == GRACE_S


async def test_slow_replacement_holds_no_drain_up(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        machine = await shared_machine(world)
        world.cloud.latencies = CloudLatencies(boot=250.0)
        interrupt(world, machine.metadata.name)
        took_s = await world.until(lambda: is_leaving(world, "p"), limit_s=NOTICE_S)
        assert took_s <= NOTICE_S - GRACE_S - 5.0
        assert world.cloud.launches == 2


async def test_warning_without_a_replacement_moves_nothing(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        machine = await shared_machine(world, limits={"machines": 1})
        interrupt(world, machine.metadata.name, warning=True)
        await world.settle(300.0)
        assert not await is_leaving(world, "p")
        assert (await world.machine(machine.metadata.name)).phase is P.AVAILABLE


async def test_failed_replacement_is_ordered_again(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        machine = await shared_machine(world)
        world.joins = lambda name: world.cloud.launches != 2
        interrupt(world, machine.metadata.name)
        await world.until(lambda: launched(world, 2), limit_s=30.0)
        (second,) = [one for one in world.running() if one != machine.metadata.name]
        world.cloud.vanish(world.cloud.instances[second].instance.id)
        await world.until(lambda: is_leaving(world, "p"), limit_s=80.0)
        assert world.cloud.launches == 3


async def launched(world: MachineWorld, number: int) -> bool:
    return world.cloud.launches >= number


async def test_holder_of_a_machine_moves_to_another(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(cleaning="Wipe")
        await world.add_pod("p")
        await world.bound("p")
        (machine,) = await world.machines(P.CLAIMED)
        interrupt(world, machine.metadata.name)
        await world.until(lambda: is_leaving(world, "p"), limit_s=10.0)
        await world.delete_pod("p")
        await world.add_pod("q")
        await world.bound("q")
        assert (await world.pod("q")).spec.node_name != machine.metadata.name
        await world.until(lambda: world.is_gone(machine.metadata.name), limit_s=200.0)


async def test_standby_that_is_taken_away_is_not_given(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=[{"instanceType": "small", "count": 1}])
        await world.count(P.AVAILABLE, 1)
        (machine,) = await world.machines()
        interrupt(world, machine.metadata.name)
        await world.until(lambda: is_noted(world, machine.metadata.name), limit_s=5.0)
        await world.add_pod("p")
        await world.bound("p")
        assert (await world.pod("p")).spec.node_name != machine.metadata.name


async def is_noted(world: MachineWorld, name: str) -> bool:
    return record_of(await world.machine(name)) is not None


@pytest.mark.parametrize("failures", [1, 3])
async def test_notice_outlives_a_server_that_fails(
    failures: int, clock: Clock, rng: Stream, log: Logger
) -> None:
    """The provider's queue keeps a notice until it is written."""
    async with machine_world(clock, rng, log) as world:
        machine = await shared_machine(world)
        name = machine.metadata.name
        left = failures

        def failing(request: Request) -> ApiError | None:
            nonlocal left
            if request.method != "PATCH" or "/machines/" not in request.path or left == 0:
                return None
            left -= 1
            return ServiceUnavailable("the server is away")

        world.gate = failing
        interrupt(world, name)
        await world.until(lambda: is_noted(world, name), limit_s=20.0)
        assert left == 0


async def test_restart_goes_on_with_an_interruption(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        machine = await shared_machine(world)
        interrupt(world, machine.metadata.name)
        for _ in range(4):
            await world.settle(2.0)
            await world.restart()
        await world.until(lambda: is_leaving(world, "p"), limit_s=60.0)
        assert world.cloud.launches == 2


async def test_notice_outlives_a_list_that_fails(clock: Clock, rng: Stream, log: Logger) -> None:
    """A controller that has begun knows no instance yet; a list that fails does not show that there is none."""
    async with machine_world(clock, rng, log) as world:
        name = (await shared_machine(world)).metadata.name
        await world.stop_controller()
        world.faults.add("instances", CloudFault.FAIL, CloudFault.FAIL)
        interrupt(world, name)
        await world.restart()
        await world.until(lambda: is_noted(world, name), limit_s=30.0)


@pytest.mark.parametrize("hangs", [1, 2])
async def test_list_that_hangs_holds_no_notice_up(
    clock: Clock, rng: Stream, log: Logger, hangs: int
) -> None:
    """Of the lists that a controller asks for as it begins, one hangs."""
    async with machine_world(clock, rng, log) as world:
        name = (await shared_machine(world)).metadata.name
        await world.stop_controller()
        asked: list[str] = []

        def fault(call: str, subject: str) -> CloudFault | None:
            asked.append(call)
            is_it = call == "instances" and asked.count(call) == hangs
            return CloudFault.HANG if is_it else None

        world.cloud.faults = fault
        interrupt(world, name)
        await world.restart()
        await world.until(lambda: is_noted(world, name), limit_s=30.0)


async def test_notice_of_an_unknown_instance_holds_no_later_one_up(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """While no list succeeds it may be ours: it comes again, and is noted when a list shows its machine."""
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=[{"instanceType": "small", "count": 2}])
        await world.count(P.AVAILABLE, 2)
        first, second = sorted(one.metadata.name for one in await world.machines())
        await world.stop_controller()
        nothing: Document = {"status": {"instanceID": None}}
        await world.client.patch(MACHINE, first, patch=nothing, subresource="status")
        world.cloud.faults = lambda call, _: CloudFault.FAIL if call == "instances" else None
        for name in (first, second):
            interrupt(world, name)
        await world.restart()
        await world.until(lambda: is_noted(world, second), limit_s=10.0)
        await world.settle(20.0)
        assert not await is_noted(world, first)
        world.cloud.faults = no_fault
        await world.until(lambda: is_noted(world, first), limit_s=75.0)


async def test_notice_that_cannot_be_written_holds_no_later_one_up(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=[{"instanceType": "small", "count": 2}])
        await world.count(P.AVAILABLE, 2)
        first, second = sorted(one.metadata.name for one in await world.machines())
        refused = True

        def failing(request: Request) -> ApiError | None:
            is_it = request.method == "PATCH" and f"/machines/{first}" in request.path
            return Forbidden("a policy refuses it") if is_it and refused else None

        world.gate = failing
        for name in (first, second):
            interrupt(world, name)
        await world.until(lambda: is_noted(world, second), limit_s=10.0)
        refused = False
        await world.until(lambda: is_noted(world, first), limit_s=30.0)
