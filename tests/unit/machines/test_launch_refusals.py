"""Launches that a provider refuses whatever is ordered: few are tried, and pool and pod show why."""

from datetime import timedelta

import pytest
from tests.support.machine_world import MachineWorld, machine_world
from tests.unit.machines.scaling import NOW, pool

from grange.api.kinds import EVENT, NODEPOOL
from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import PACKED, NodePoolSpec
from grange.api.machine_phases import MachinePhase
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.controller.launch_refusals import PAUSE_MAX_S, PAUSE_S, LaunchRefusals
from grange.machines.controller.machine_boot import BootSecrets, NoBootstrap
from grange.machines.providers.provider import MisconfiguredError
from grange.machines.providers.simulated.cloud_faults import CloudFault


class Faulty:
    """One call of a cloud that fails as long as it is to.

    Attributes:
        fault: of the call; None: it succeeds.
        calls: how many there were.
    """

    def __init__(self, world: MachineWorld, call: str, fault: CloudFault) -> None:
        self.fault: CloudFault | None = fault
        self.calls = 0
        self._call = call
        world.cloud.faults = self

    def __call__(self, call: str, subject: str) -> CloudFault | None:
        if call != self._call:
            return None
        self.calls += 1
        return self.fault


async def ready(world: MachineWorld) -> tuple[str, str, str]:
    found = (await world.client.get(NODEPOOL, "p")).status.conditions
    (condition,) = [one for one in found if one.type == "Ready"]
    return condition.status, condition.reason, condition.message


async def reports(world: MachineWorld, name: str) -> set[str]:
    events = (await world.client.list(EVENT)).items
    return {event.reason for event in events if event.involved_object.name == name}


@pytest.mark.parametrize("mode", ["Dedicated", PACKED])
async def test_refused_launches_are_tried_less_and_less(
    mode: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        launches = Faulty(world, "launch", CloudFault.MISCONFIGURED)
        await world.add_pool("p", mode=mode)
        if mode == PACKED:
            await world.add_unschedulable("a", "1")
        else:
            await world.add_pod("a")
        await world.settle(600)
        assert 2 <= launches.calls <= 8
        status, reason, message = await ready(world)
        assert (status, reason) == ("False", "Misconfigured")
        assert "launches are tried again at 20" in message
        assert "Misconfigured" in await reports(world, "p")
        assert await reports(world, "a") >= {"MachineLaunchFailed"}
        launches.fault = None
        await world.client.patch(NODEPOOL, "p", patch={"spec": {"weight": 7}})
        await world.settle(60)
        assert (await ready(world))[0] == "True"
        assert await world.live()


class Malformed(NoBootstrap):
    """User data that cannot be made.

    Attributes:
        finished: machines whose tokens are not needed any more.
    """

    def __init__(self) -> None:
        self.finished: list[str] = []

    async def prepare(self, machine: Machine, pool: NodePoolSpec) -> BootSecrets:
        """Refuse."""
        raise MisconfiguredError("spec.userData: it is no YAML; correct it")

    async def finish(self, machine: Machine) -> None:
        """Note it."""
        self.finished.append(machine.metadata.name)


async def test_user_data_that_cannot_be_made_launch_nothing(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log, runs=False) as world:
        bootstrap = world.bootstrap = Malformed()
        world.controller = world.new_controller()
        world.begin()
        await world.add_pool("p")
        await world.add_pod("a")
        await world.settle(600)
        assert 2 <= len(bootstrap.finished) == len({*bootstrap.finished}) <= 8
        assert world.cloud.launches == 0
        assert "spec.userData: it is no YAML; correct it" in (await ready(world))[2]
        assert "NoMachine" in await reports(world, "a")


async def test_pod_is_informed_of_a_boot_that_takes_too_long(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        world.joins = lambda name: False
        await world.add_pool("p", timeouts={"bootSeconds": 30})
        await world.add_pod("a")
        await world.count(MachinePhase.TERMINATED, 1)
        await world.settle(1)
        assert any("30" in text for text in await world.events("MachineLaunchFailed"))


async def test_standby_is_given_while_launches_are_refused(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool("p", standby=[{"instanceType": "small", "count": 1}])
        await world.count(MachinePhase.AVAILABLE, 1)
        Faulty(world, "launch", CloudFault.MISCONFIGURED)
        await world.add_pod("a")
        await world.bound("a")
        await world.add_pod("b")
        await world.settle(30)
        assert "NoMachine" in await reports(world, "b")


async def test_pool_is_not_ready_while_its_provider_fails(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool("p", standby=[{"instanceType": "small", "count": 1}])
        await world.count(MachinePhase.AVAILABLE, 1)
        assert (await ready(world))[0] == "True"
        lists = Faulty(world, "instances", CloudFault.FAIL)
        await world.settle(60)
        assert (await ready(world))[:2] == ("False", "ProviderFailing")
        await world.add_pod("a")
        await world.bound("a")
        lists.fault = None
        await world.settle(60)
        assert (await ready(world))[0] == "True"


async def test_pool_at_rest_writes_nothing(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool("p")
        await world.settle(60)
        version = (await world.pool()).metadata.resource_version
        before = len(world.requests)
        await world.settle(300)
        written = [path for method, path in world.requests[before:] if "nodepools" in path]
        assert (written, (await world.pool()).metadata.resource_version) == ([], version)


def test_pause_doubles_up_to_its_limit_and_ends_with_a_launch() -> None:
    refusals, found, now = LaunchRefusals(), pool(), NOW
    pauses = []
    for _ in range(8):
        refusals.refuse(found, "no", now)
        refusals.refuse(found, "no, again", now)
        begun = now
        while refusals.reason(found, now):
            now += timedelta(seconds=1)
        pauses.append((now - begun).total_seconds())
    assert pauses == [min(PAUSE_S * 2**n, PAUSE_MAX_S) for n in range(8)]
    refusals.refuse(found, "no", now)
    refusals.allow(found)
    assert refusals.reason(found, now) == ""
