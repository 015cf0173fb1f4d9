"""Boots that another controller began (``resume_waits``), and launches that find no capacity."""

import pytest
from tests.support.machine_world import MachineWorld, machine_world

from grange.api import timestamps
from grange.api.machine_phases import MachinePhase
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.providers.provider import CapacityError, Instance, LaunchRequest
from grange.machines.providers.simulated.cloud import SimulatedCloud

P = MachinePhase
BOOT_S = 60


async def booting(world: MachineWorld, *, addresses: bool) -> str:
    """A machine that boots and does not join; with or without addresses on record."""
    world.joins = lambda name: False
    standby = [{"instanceType": "small", "count": 1}]
    await world.add_pool(standby=standby, timeouts={"bootSeconds": BOOT_S})

    async def seen() -> bool:
        found = await world.machines(P.CREATED)
        return bool(found) and bool(found[0].status.addresses) is addresses

    await world.until(seen)
    (machine,) = await world.machines()
    return machine.metadata.name


class OneOffering(SimulatedCloud):
    """Tries one offering a launch, and has capacity for the fourth that it tries."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.tried: list[tuple[str, str, bool]] = []

    def launch(self, request: LaunchRequest, cluster: str) -> Instance:
        first = request.offerings[0]
        self.tried.append((first.instance_type, first.zone, first.spot))
        if len(self.tried) <= 3:
            raise CapacityError("no capacity; wait", offering=first)
        return super().launch(request, cluster)


@pytest.mark.parametrize("addresses", [False, True])
async def test_resumed_boot_ends_available(
    *, addresses: bool, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        name = await booting(world, addresses=addresses)
        await world.restart()
        assert (await world.machine(name)).phase is P.CREATED
        world.joins = lambda name: True
        await world.count(P.AVAILABLE, 1)
        found = await world.machine(name)
        assert found.phase is P.AVAILABLE
        assert world.cloud.launches == 1


@pytest.mark.parametrize("addresses", [False, True])
async def test_resumed_boot_keeps_its_deadline(
    *, addresses: bool, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        name = await booting(world, addresses=addresses)
        launched = (await world.machine(name)).status.launch_time
        await world.settle(BOOT_S / 2)
        await world.restart()

        async def ends() -> bool:
            return (await world.machine(name)).phase is not P.CREATED

        await world.until(ends, limit_s=2.0 * BOOT_S)
        found = await world.machine(name)
        assert "BootTimeout" in [entry.reason for entry in found.status.history]
        assert found.status.launch_time == launched
        assert launched is not None
        took_s = (clock.now() - timestamps.parse(launched)).total_seconds()
        assert BOOT_S <= took_s <= BOOT_S + 2.0


async def test_f56_each_refused_offering_is_tried_once(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A provider that tries one offering a launch has another one of the list the next time."""
    async with machine_world(clock, rng, log, runs=False) as world:
        world.cloud = cloud = OneOffering(clock)
        world.begin()
        await world.add_pool()
        await world.add_pod("a")
        await world.bound("a")
        assert len(cloud.tried) == 4
        assert len(set(cloud.tried)) == 4
