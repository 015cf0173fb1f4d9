"""Calls to a provider that fails, hangs, lies, or does things late or twice."""

from dataclasses import dataclass

import pytest
from tests.support.scripted_faults import ScriptedFaults

from grange.api.kinds import MACHINE
from grange.api.kinds.machine import Machine, MachineOffering
from grange.api.kinds.nodepool import NodePoolSpec
from grange.api.machine_phases import MachinePhase
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.controller.instance_looks import InstanceLooks
from grange.machines.controller.machine_lifecycle import MachineInputs, MachineStep, next_step
from grange.machines.controller.metrics import MachineInstruments, instruments
from grange.machines.controller.provider_calls import ProviderCalls, instance_fields
from grange.machines.controller.status_updater import StatusUpdater
from grange.machines.providers.provider import CapacityError, Instance, LaunchRequest, Provider
from grange.machines.providers.simulated.cloud import SimulatedCloud
from grange.machines.providers.simulated.cloud_faults import CloudFault
from grange.machines.providers.simulated.simulated_provider import SimulatedProvider
from grange.machines.scaling.capacity_memory import CapacityMemory
from grange.sim.api_fixture import ApiFixture, opened

F, P, S = CloudFault, MachinePhase, MachineStep
OFFERING = MachineOffering("small", "a")
FAULTS = [F.FAIL, F.LIE, F.HANG, F.HANG_DONE, F.LATE, F.TWICE, F.THROTTLE]


@dataclass
class Run:
    """Leads one machine by ``next_step``, one step every five seconds."""

    world: ApiFixture

    def __post_init__(self) -> None:
        clock = self.world.clock
        self.faults, self.memory = ScriptedFaults(), CapacityMemory()
        self.cloud = SimulatedCloud(clock, faults=self.faults)
        self.provider = SimulatedProvider(self.cloud, "test")
        self.updater = StatusUpdater(self.world.new_client(), clock)
        self.calls = self.new_calls(self.provider)
        self.looks = InstanceLooks(10.0)

    def new_calls(self, provider: Provider) -> ProviderCalls:
        metrics = MachineInstruments(instruments(self.world.registry))
        clock = self.world.clock
        return ProviderCalls(provider, self.updater, self.memory, clock, metrics, timeout_s=10.0)

    async def order(self) -> Machine:
        spec = {"pool": "p", "provider": "simulated"}
        return await self.world.client.create(MACHINE, {"metadata": {"name": "m"}, "spec": spec})

    async def end(self) -> None:
        await self.world.client.patch(MACHINE, "m", patch={"spec": {"terminate": True}})

    async def go(self, rounds: int) -> Machine:
        for _ in range(rounds):
            await self.step()
            await self.world.clock.sleep(5.0)
        return await self.world.client.get(MACHINE, "m")

    async def step(self) -> None:
        began = self.world.clock.monotonic()
        listed = await self.provider.instances()
        machine = await self.world.client.get(MACHINE, "m")
        seen = self.looks.look(listed, ["m"], began=began)
        instance, pool = seen.by_machine.get("m"), NodePoolSpec(provider="simulated")
        known = MachineInputs(machine, pool, instance, missing="m" in seen.missing)
        step, now = next_step(known, self.world.clock.now()), self.world.clock.now()
        if step.step is S.RECORD_LAUNCH:
            await self.updater.update(machine, {"launchTime": f"{now:%Y-%m-%dT%H:%M:%SZ}"})
        elif step.step is S.LAUNCH:
            await self.calls.launch(machine, LaunchRequest("m", (OFFERING,)), None)
            self.looks.forget("m")
        elif step.step is S.MOVE:
            assert step.event is not None
            fields = instance_fields(instance) if instance else {}
            await self.updater.move(machine, step.event, reason=step.reason, fields=fields)
        elif step.step is S.UPDATE:
            assert instance is not None
            await self.updater.update(machine, instance_fields(instance))
        elif step.step is S.TERMINATE:
            assert instance is not None
            await self.calls.terminate(machine, instance)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_a_launch_makes_one_instance(
    clock: Clock, rng: Stream, log: Logger, fault: CloudFault, times: int
) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        run = Run(world)
        run.faults.add("launch", *[fault] * times)
        await run.order()
        found = await run.go(12)
        assert found.phase is P.CREATED
        assert [one.instance.id for one in run.cloud.alive()] == [found.status.instance_id]
        assert run.cloud.launches == 1


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_an_ended_machine_leaks_nothing(
    clock: Clock, rng: Stream, log: Logger, fault: CloudFault
) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        run = Run(world)
        run.faults.add("launch", fault)
        run.faults.add("terminate", fault)
        await run.order()
        await run.go(2)
        await run.end()
        found = await run.go(20)
        assert found.phase is P.TERMINATED
        assert run.cloud.alive() == []
        assert run.cloud.launches <= 1


async def test_a_shortage_ends_and_is_remembered(clock: Clock, rng: Stream, log: Logger) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        run = Run(world)
        run.cloud.capacity["small", "a", False] = 0
        await run.order()
        found = await run.go(2)
        assert found.phase is P.TERMINATED
        assert found.status.history[-1].reason == "InsufficientCapacity"
        assert "no capacity" in found.status.last_error
        assert run.memory.refusal("small", "a", spot=False, now=clock.now()) is not None
        assert run.memory.refusal("small", "b", spot=False, now=clock.now()) is None


class OneByOne(SimulatedProvider):
    """Tries the first offering of a request only."""

    async def launch(self, request: LaunchRequest) -> Instance:
        raise CapacityError("no capacity; wait", offering=request.offerings[0])


async def test_only_what_was_tried_is_remembered(clock: Clock, rng: Stream, log: Logger) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        run = Run(world)
        run.calls = run.new_calls(OneByOne(run.cloud, "test"))
        request = LaunchRequest("m", (OFFERING, MachineOffering("small", "b")))
        await run.calls.launch(await run.order(), request, None)
        known = [run.memory.refusal("small", z, spot=False, now=clock.now()) for z in "ab"]
        assert [one is not None for one in known] == [True, False]


async def test_a_wrong_pool_ends_without_a_mark(clock: Clock, rng: Stream, log: Logger) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        run = Run(world)
        run.faults.add("launch", F.MISCONFIGURED)
        await run.order()
        found = await run.go(2)
        assert found.phase is P.TERMINATED
        assert found.status.history[-1].reason == "Misconfigured"
        assert all(
            run.memory.refusal("small", zone, spot=False, now=clock.now()) is None for zone in "ab"
        )
