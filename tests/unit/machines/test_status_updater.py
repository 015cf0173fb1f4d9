"""Statuses of machines are written field by field, from the version that was read."""

from typing import Any

import pytest

from grange.api.kinds import MACHINE
from grange.api.kinds.machine import HISTORY_MAX, Machine
from grange.api.machine_phases import TRANSITIONS, MachineEvent, MachinePhase
from grange.api.status import Conflict
from grange.base.clock import Clock
from grange.base.errors import InvariantError
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.controller.status_updater import StatusUpdater
from grange.sim.api_fixture import ApiFixture, opened

P, E = MachinePhase, MachineEvent
HELD = {"boundPodName": "default/a", "boundPodUID": "u-a"}


async def machine(world: ApiFixture, phase: str = "", **status: Any) -> Machine:
    spec = {"pool": "p", "provider": "simulated"}
    made = await world.client.create(MACHINE, {"metadata": {"name": "m"}, "spec": spec})
    if not phase:
        return made
    patch = {"status": {"phase": phase, **status}}
    return await world.client.patch(MACHINE, "m", patch=patch, subresource="status")


def _conditions(found: Machine) -> dict[str, tuple[str, str]]:
    return {one.type: (one.status, one.reason) for one in found.status.conditions}


async def test_a_move_writes_phase_and_history(clock: Clock, rng: Stream, log: Logger) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        updater = StatusUpdater(world.new_client(), clock)
        found = await updater.update(await machine(world), {"launchTime": "2026-01-01T00:00:00Z"})
        assert found.status.phase == "Creating"
        found = await updater.move(
            found, E.LAUNCHED, reason="Launched", message="i-1", fields={"instanceID": "i-1"}
        )
        assert found.phase is P.CREATED
        assert (found.status.instance_id, found.status.stage) == ("i-1", "Booting")
        assert [(one.phase, one.reason) for one in found.status.history] == [
            ("Creating", "Ordered"),
            ("Created", "Launched"),
        ]
        assert found.status.launch_time == "2026-01-01T00:00:00Z"


async def test_events_of_a_boot_set_conditions(clock: Clock, rng: Stream, log: Logger) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        updater = StatusUpdater(world.new_client(), clock)
        found = await updater.move(await machine(world), E.LAUNCHED, reason="Launched")
        assert _conditions(found) == {"Launched": ("True", "Launched")}
        found = await updater.move(found, E.JOINED, reason="Joined")
        joined = {"Launched": ("True", "Joined"), "Initialized": ("True", "Joined")}
        assert _conditions(found) == joined
        found = await updater.move(found, E.PARK, reason="Standby")
        found = await updater.move(found, E.PARKED, reason="Parked")
        assert _conditions(found) == {**joined, "Initialized": ("False", "Parked")}


async def test_a_refused_launch_sets_its_condition(clock: Clock, rng: Stream, log: Logger) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        updater = StatusUpdater(world.new_client(), clock)
        found = await updater.move(await machine(world), E.LAUNCH_REFUSED, reason="Misconfigured")
        assert _conditions(found) == {"Launched": ("False", "Misconfigured")}


async def test_a_late_write_is_refused(clock: Clock, rng: Stream, log: Logger) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        updater = StatusUpdater(world.new_client(), clock)
        stale = await machine(world, "Available")
        await updater.move(stale, E.CLAIM, reason="Claimed", fields=HELD)
        with pytest.raises(Conflict):
            await updater.move(stale, E.CLAIM, reason="Claimed", fields={"boundPodUID": "u-b"})
        with pytest.raises(Conflict):
            await updater.update(stale, {"stage": "Joining"})
        left = await world.client.get(MACHINE, "m")
        assert (left.phase, left.status.bound_pod_uid) == (P.CLAIMED, "u-a")


@pytest.mark.parametrize("phase", list(P), ids=lambda phase: phase.value)
async def test_only_events_of_the_table_are_written(
    clock: Clock, rng: Stream, log: Logger, phase: MachinePhase
) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        updater = StatusUpdater(world.new_client(), clock)
        found = await machine(world, phase.value)
        for event in E:
            if (phase, event) in TRANSITIONS:
                continue
            with pytest.raises(InvariantError):
                await updater.move(found, event, reason="Test")
        assert world.requests == []


@pytest.mark.parametrize(
    ("phase", "event"), [(P.CLAIMED, E.RETURNED_UNUSED), (P.CLEANING, E.CLEANED)]
)
async def test_a_freed_machine_has_no_holder(
    clock: Clock, rng: Stream, log: Logger, phase: MachinePhase, event: MachineEvent
) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        updater = StatusUpdater(world.new_client(), clock)
        held = await machine(world, phase.value, nodeName="m", **HELD)
        freed = (await updater.move(held, event, reason="Test")).status
        assert (freed.bound_pod_name, freed.bound_pod_uid) == ("", "")
        assert freed.available_time is not None
        assert freed.node_name == "m"


async def test_a_resumed_machine_boots_afresh(clock: Clock, rng: Stream, log: Logger) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        updater = StatusUpdater(world.new_client(), clock)
        before = "2020-01-01T00:00:00Z"
        found = await machine(world, "Stopped", launchTime=before, instanceID="i-1")
        found = await updater.move(found, E.RESUMED, reason="Resumed")
        assert found.status.launch_time is not None
        assert found.status.launch_time > before
        assert found.status.instance_id == "i-1"


async def test_history_keeps_the_newest(clock: Clock, rng: Stream, log: Logger) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        updater = StatusUpdater(world.new_client(), clock)
        found = await machine(world, "Available")
        for turn in range(HISTORY_MAX):
            found = await updater.move(found, E.CLAIM, reason=f"Claim{turn}")
            found = await updater.move(found, E.RETURNED_UNUSED, reason=f"Return{turn}")
        assert len(found.status.history) == HISTORY_MAX
        assert found.status.history[-1].reason == f"Return{HISTORY_MAX - 1}"
