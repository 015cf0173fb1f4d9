"""Standby of packed pools over a simulated cloud: replaced where it is outdated, on or off."""

import pytest
from tests.support.machine_world import MachineWorld, machine_world

from grange.api.kinds import NODEPOOL
from grange.api.kinds.node import is_ready
from grange.api.machine_phases import MachinePhase
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.providers.provider import InstanceState
from grange.machines.providers.simulated.cloud import CloudLatencies
from grange.machines.providers.simulated.cloud_faults import CloudFault

P = MachinePhase


async def versions(world: MachineWorld, phase: MachinePhase) -> list[str]:
    """Labels of the templates of machines in a phase."""
    return sorted(one.spec.labels.get("version", "") for one in await world.machines(phase))


@pytest.mark.parametrize(("state", "phase"), [("Booted", P.AVAILABLE), ("Stopped", P.STOPPED)])
async def test_outdated_standby_is_replaced_before_it_ends(
    state: str, phase: MachinePhase, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        standby = [{"instanceType": "medium", "count": 2, "state": state}]
        template = {"labels": {"version": "1"}}
        await world.add_pool("s", mode="Packed", standby=standby, template=template)
        await world.count(phase, 2)
        change = {"spec": {"template": {"labels": {"version": "2"}}}}
        await world.client.patch(NODEPOOL, "s", patch=change)
        least = 2

        async def replaced() -> bool:
            nonlocal least
            least = min(least, len(await world.machines(phase)))
            live = [one.spec.labels.get("version") for one in await world.live()]
            return live == ["2", "2"] and await versions(world, phase) == ["2", "2"]

        await world.until(replaced, limit_s=300.0)
        assert least == 2
        await world.settle(60.0)
        assert world.cloud.launches == 4


async def test_addresses_of_a_late_list_are_shown(clock: Clock, rng: Stream, log: Logger) -> None:
    """The node is ready before a list shows the instance."""
    async with machine_world(clock, rng, log) as world:
        world.cloud.latencies = CloudLatencies(list_lag=8.0)
        await world.add_pool(standby=[{"instanceType": "small", "count": 1}])
        await world.count(P.AVAILABLE, 1)
        (machine,) = await world.live()
        assert machine.status.addresses == ()
        await world.settle(20.0)
        assert (await world.machine(machine.metadata.name)).status.addresses


@pytest.mark.parametrize("fault", [CloudFault.TWICE, CloudFault.LATE])
async def test_late_stop_of_a_resumed_machine_is_undone(
    fault: CloudFault, clock: Clock, rng: Stream, log: Logger
) -> None:
    """The call is repeated, or done late, when a pod has the machine already."""
    async with machine_world(clock, rng, log) as world:
        world.cloud.latencies = CloudLatencies(late=40.0)
        world.faults.add("stop", fault)
        standby = [{"instanceType": "small", "count": 1, "state": "Stopped"}]
        await world.add_pool(standby=standby)
        await world.count(P.STOPPED, 1)
        (machine,) = await world.machines()
        name = machine.metadata.name
        await world.add_pod("a")
        await world.bound("a")
        assert (await world.pod("a")).spec.node_name == name

        async def is_off() -> bool:
            return world.cloud.instances[name].state_at(world.cloud.now()) is InstanceState.STOPPED

        async def is_back() -> bool:
            running = world.cloud.instances[name].state_at(world.cloud.now())
            return running is InstanceState.RUNNING and is_ready(await world.node(name))

        await world.until(is_off, limit_s=60.0)
        assert await world.until(is_back, limit_s=30.0) < 20.0
        assert await world.events("SwitchedOff")
        await world.settle(120.0)
        assert (await world.machine(name)).phase is P.CLAIMED
        assert (await world.pod("a")).spec.node_name == name
