"""Rules of kip's node controller and dispenser, by their numbers, where ours keep them."""

import json
from datetime import UTC, datetime
from itertools import pairwise

import msgspec
import pytest
from tests.support.machine_world import MachineWorld, machine_world

from grange.api import conditions
from grange.api.kinds import MACHINE, NODE, NODEPOOL
from grange.api.kinds.machine import NODE_POOL_LABEL, Machine
from grange.api.kinds.pod import Pod
from grange.api.machine_phases import MachineEvent, MachinePhase
from grange.api.status import AlreadyExists, Conflict, ServiceUnavailable
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.machines.catalogue import InstanceType
from grange.machines.controller.machine_health import MachineHealth
from grange.machines.controller.pass_timer import PassTimer
from grange.machines.controller.status_updater import StatusUpdater
from grange.machines.providers.simulated.cloud import IMAGES
from grange.machines.providers.simulated.cloud_faults import CloudFault
from grange.machines.scaling_plan import PodBinding, PodSkip, ScalingPlan

P, F = MachinePhase, CloudFault
STANDBY = [{"instanceType": "small", "count": 1}]


# --- the controller --------------------------------------------------------------------------------


async def test_f37_a_stopped_machine_is_terminated_then_gone(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=STANDBY)
        await world.count(P.AVAILABLE, 1)
        (machine,) = await world.machines()
        await world.end_machine(machine.metadata.name)
        await world.count(P.TERMINATED, 1)
        assert machine.metadata.name not in world.running()
        await world.until(lambda: world.is_gone(machine.metadata.name))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("spot", [False, True])
async def test_f38_ordered_machines_become_available(
    *, count: int, spot: bool, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=[{"instanceType": "small", "count": count, "spot": spot}])
        await world.count(P.AVAILABLE, count)
        assert {machine.status.spot for machine in await world.machines()} == {spot}


async def test_f39_a_machine_that_never_joins_ends(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        world.joins = lambda name: False
        await world.add_pool(timeouts={"bootSeconds": 30})
        await world.add_pod("a")
        await world.count(P.TERMINATED, 1, limit_s=60.0)
        (ended, *_) = await world.machines(P.TERMINATED)
        assert "BootTimeout" in [entry.reason for entry in ended.status.history]


@pytest.mark.parametrize("fault", [F.FAIL, F.MISCONFIGURED])
async def test_f40_a_launch_that_fails_ends_or_is_tried_again(
    fault: CloudFault, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        world.faults.add("launch", fault)
        await world.add_pool()
        await world.add_pod("a")
        await world.bound("a")
        ended = await world.machines(P.TERMINATED)
        assert len(ended) == (fault is F.MISCONFIGURED)
        assert world.cloud.launches == 1


async def test_f41_a_ready_node_makes_its_machine_available(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The probe is the agent's heartbeat, and the node must be the machine's own."""
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=STANDBY)
        await world.count(P.AVAILABLE, 1)
        (machine,) = await world.machines()
        assert machine.status.node_name == machine.metadata.name


async def test_f42_silent_available_machines_end(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=STANDBY, timeouts={"healthySeconds": 30})
        await world.count(P.AVAILABLE, 1)
        (machine,) = await world.machines()
        await world.set_ready(machine.metadata.name, ready=False)
        await world.settle(25.0)
        assert (await world.machine(machine.metadata.name)).phase is P.AVAILABLE
        await world.count(P.TERMINATED, 1)
        assert await world.events("Unhealthy") == ["silent for 30 s"]


@pytest.mark.parametrize("number", [43, 44])
async def test_f43_f44_claimed_machines_are_not_judged(
    number: int, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(timeouts={"healthySeconds": 30})
        await world.add_pod("a")
        await world.bound("a")
        (machine,) = await world.machines()
        await world.set_ready(machine.metadata.name, ready=False)
        await world.settle(120.0 if number == 44 else 40.0)
        assert (await world.machine(machine.metadata.name)).phase is P.CLAIMED


def test_f45_answering_machines_are_kept() -> None:
    health = MachineHealth(0.2)
    for now in range(0, 300, 10):
        assert health.look("p", {"m": True}, 90.0, float(now)).unhealthy == ()


def test_f46_silence_counts_from_the_first_look() -> None:
    health = MachineHealth(0.2)
    assert health.look("p", {"m": False}, 90.0, 1000.0).unhealthy == ()
    assert health.look("p", {"m": False}, 90.0, 1089.0).unhealthy == ()
    assert health.look("p", {"m": False}, 90.0, 1090.0).unhealthy == ("m",)


def test_f47_machines_that_are_gone_are_forgotten() -> None:
    health = MachineHealth(0.2)
    health.look("p", {"m": False}, 90.0, 0.0)
    health.look("p", {}, 90.0, 50.0)
    assert health.look("p", {"m": False}, 90.0, 100.0).unhealthy == ()


@pytest.mark.parametrize(("silent", "ended"), [(1, 1), (2, 2), (3, 0), (10, 0)])
def test_no_machine_ends_while_too_many_are_silent(silent: int, ended: int) -> None:
    health = MachineHealth(0.2)
    answering = {f"m{number}": number >= silent for number in range(10)}
    health.look("p", answering, 90.0, 0.0)
    verdict = health.look("p", answering, 90.0, 90.0)
    assert len(verdict.unhealthy) == ended
    assert verdict.braked == (0 if ended else silent)


async def test_the_brake_is_shown(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        standby = [{"instanceType": "small", "count": 4}]
        await world.add_pool(standby=standby, timeouts={"healthySeconds": 30})
        await world.count(P.AVAILABLE, 4)
        for machine in await world.machines():
            await world.set_ready(machine.metadata.name, ready=False)
        await world.settle(120.0)
        assert len(await world.machines(P.AVAILABLE)) == 4
        (message,) = {*await world.events("UnhealthyBrake")}
        assert message == "more than 20% of 4 machines are silent: none is ended"


async def test_f49_an_instance_that_ends_in_its_boot(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        world.joins = lambda name: world.cloud.launches > 1
        await world.add_pool()
        await world.add_pod("a")
        await world.count(P.CREATED, 1)
        (machine,) = await world.machines()
        world.cloud.vanish(machine.status.instance_id)
        await world.bound("a", limit_s=120.0)
        (gone,) = await world.machines(P.TERMINATED)
        assert gone.metadata.name == machine.metadata.name
        assert gone.status.history[-1].reason == "InstanceGone"


async def test_f81_failed_boots_do_not_remove_the_pod(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Unlike in elotl/kip, where the third failure deletes it: without a controller it would be lost."""
    async with machine_world(clock, rng, log) as world:
        world.joins = lambda name: world.cloud.launches > 3
        await world.add_pool(timeouts={"bootSeconds": 10})
        uid = (await world.add_pod("a")).metadata.uid
        await world.bound("a", limit_s=300.0)
        assert (await world.pod("a")).metadata.uid == uid
        assert world.cloud.launches == 4
        ended = await world.machines(P.TERMINATED)
        reasons = [[entry.reason for entry in one.status.history] for one in ended]
        assert ["BootTimeout" in one for one in reasons] == [True] * len(ended)
        assert len(await world.events("MachineOrdered")) == 4


async def test_f50_an_image_that_was_found_is_used(clock: Clock, rng: Stream, log: Logger) -> None:
    """Look-ups are cached; when one fails the last image that was found is used."""
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.settle(5.0)
        world.faults.add("resolve_image", *[F.FAIL] * 1000)
        await world.settle(400.0)
        await world.add_pod("a")
        await world.bound("a")
        (machine,) = await world.machines()
        assert machine.spec.boot_image == "image-2"


async def test_f50_without_any_image_nothing_is_launched(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(bootImage={"name": "unknown"})
        await world.add_pod("a")
        await world.settle(30.0)
        ready = conditions.find((await world.pool()).status.conditions, "Ready")
        assert ready is not None
        assert (ready.status, ready.reason) == ("False", "ImageUnknown")
        assert "spec.bootImage: no image 'unknown'" in ready.message
        assert await world.machines() == []


async def test_f51_a_machine_that_suits_no_pod_is_replaced(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(timeouts={"idleSeconds": 10})
        await world.add_pod("a", nodeSelector={"node.kubernetes.io/instance-type": "small"})
        await world.settle(1.0)
        await world.delete_pod("a")
        await world.add_pod("b", nodeSelector={"node.kubernetes.io/instance-type": "large"})
        await world.bound("b")
        name = (await world.pod("b")).spec.node_name
        assert (await world.machine(name)).status.instance_type == "large"
        await world.count(P.TERMINATED, 1)


async def test_f53_the_end_of_a_used_machine_names_its_pod(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.add_pod("a")
        await world.bound("a")
        await world.end_pod("a")
        await world.count(P.TERMINATED, 1)
        messages = await world.events("PodGone")
        assert messages == ["Cleaning: pod default/a is gone or has ended"]


@pytest.mark.parametrize(("mode", "used"), [("Dedicated", P.CLAIMED), ("Packed", P.AVAILABLE)])
async def test_stopped_standby_is_launched_once_and_resumed(
    mode: str, used: MachinePhase, clock: Clock, rng: Stream, log: Logger
) -> None:
    """A machine that is being switched off counts; one that a pod gets is replaced once."""
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(mode=mode, standby=[{**STANDBY[0], "state": "Stopped"}])
        await world.settle(300.0)
        (off,) = await world.machines()
        assert (off.phase, world.cloud.launches) == (P.STOPPED, 1)
        if mode == "Dedicated":
            await world.add_pod("a")
        else:
            await world.add_unschedulable("a", "1")
        await world.settle(300.0)
        assert (await world.machine(off.metadata.name)).phase is used
        phases = {one.metadata.name: one.phase for one in await world.machines()}
        assert sorted(phase.value for phase in phases.values()) == sorted([used.value, "Stopped"])
        assert world.cloud.launches == 2


# --- the dispenser ---------------------------------------------------------------------------------


async def world_with_machine(world: MachineWorld, phase: str, **status: str) -> Machine:
    """A machine of a pool that has no provider, so that passes leave it alone."""
    await world.add_pool("none", provider="unknown")
    machine = await world.add_machine("m", phase, pool="none", instanceID="i", **status)
    await world.join("m")
    await world.settle(0.1)
    return machine


async def test_f56_a_type_without_capacity_gives_way_to_another(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """One launch names them all, cheapest first, so no machine is refused."""
    async with machine_world(clock, rng, log) as world:
        world.cloud.capacity = {
            (kind, zone, False): 0 for kind in ("small", "medium") for zone in "ab"
        }
        await world.add_pool()
        await world.add_pod("a")
        await world.bound("a")
        (machine,) = await world.machines()
        (held,) = world.cloud.instances.values()
        assert machine.status.instance_type == held.instance.instance_type == "large"


async def test_f57_without_a_plan_there_is_no_binding(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.settle(1.0)
        reply = await world.controller.dispenser.request_node(await world.add_pod("a"))
        assert (reply.node, reply.no_binding) == ("", True)


async def test_f57_a_refused_pod_learns_why_and_since_when(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        pod = await world.add_pod("a", "none")
        dispenser = world.controller.dispenser
        plan = ScalingPlan(skip=(PodSkip("default/a", pod.metadata.uid, "no room"),))
        dispenser.publish("none", plan)
        since = clock.now()
        await world.settle(5.0)
        dispenser.publish("none", plan)
        reply = await dispenser.request_node(pod)
        assert (reply.no_binding, reply.reason, reply.since) == (True, "no room", since)


async def test_f58_a_machine_of_another_pod_is_not_given(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world_with_machine(world, "Available")
        held = (await world.add_pod("other", "none")).metadata.uid
        bound = {"phase": "Claimed", "boundPodName": "default/other", "boundPodUID": held}
        await world.client.patch(MACHINE, "m", patch={"status": bound}, subresource="status")
        reply = await world.controller.dispenser.request_node(await world.add_pod("a", "none"))
        assert (reply.node, reply.no_binding) == ("", True)


async def planned(world: MachineWorld, phase: str) -> tuple[Machine, Pod]:
    machine = await world_with_machine(world, phase)
    pod = await world.add_pod("a", "none")
    binding = PodBinding("default/a", pod.metadata.uid, "m")
    world.controller.dispenser.publish("none", ScalingPlan(bind=(binding,)))
    return machine, pod


async def test_f59_an_available_machine_is_claimed(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await planned(world, "Available")
        dispenser = world.controller.dispenser
        pod = await world.pod("a")
        assert (await dispenser.request_node(pod)).node == "m"
        machine = await world.machine("m")
        assert machine.phase is P.CLAIMED
        assert machine.status.bound_pod_uid == pod.metadata.uid
        # Two requests of one pod get one machine.
        assert (await dispenser.request_node(pod)).node == "m"


async def test_f60_an_unknown_machine_is_not_given(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        pod = await world.add_pod("a", "none")
        binding = PodBinding("default/a", pod.metadata.uid, "unknown")
        world.controller.dispenser.publish("none", ScalingPlan(bind=(binding,)))
        assert (await world.controller.dispenser.request_node(pod)).node == ""


async def test_f61_a_booting_machine_is_given_when_it_is_available(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        world.joins = lambda name: clock.monotonic() > 10.0
        await world.add_pool()
        pod = await world.add_pod("a")
        await world.count(P.CREATED, 1)
        reply = await world.controller.dispenser.request_node(pod)
        assert (reply.node, reply.no_binding) == ("", False)
        assert reply.reason.endswith("is Created")
        reply = await world.controller.dispenser.request_node(pod, wait_s=60.0)
        assert (await world.machine(reply.node)).phase is P.CLAIMED


async def test_f62_a_request_waits_for_pass_and_boot(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        pod = await world.add_pod("a")
        reply = await world.controller.dispenser.request_node(pod, wait_s=60.0)
        assert (await world.machine(reply.node)).status.bound_pod_uid == pod.metadata.uid


async def test_a_request_ends_at_its_deadline(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        pod = await world.add_pod("a", "none")
        began = clock.monotonic()
        reply = await world.controller.dispenser.request_node(pod, wait_s=7.0)
        assert reply.no_binding
        assert clock.monotonic() - began == pytest.approx(7.0, abs=0.1)


@pytest.mark.parametrize(("unused", "phase"), [(True, P.AVAILABLE), (False, P.CLEANING)])
async def test_returned_machines_are_reused_or_cleaned(
    *, unused: bool, phase: MachinePhase, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        world.faults.add("terminate", *[F.FAIL] * 1000)
        await planned(world, "Available")
        dispenser = world.controller.dispenser
        await dispenser.request_node(await world.pod("a"))
        assert await dispenser.return_node("m", unused=unused)
        reached = {entry.phase for entry in (await world.machine("m")).status.history}
        assert phase.value in reached
        assert not await dispenser.return_node("m", unused=unused)


@pytest.mark.parametrize("name", ["", "unknown"])
async def test_returning_no_machine_does_nothing(
    name: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.settle(0.1)
        assert not await world.controller.dispenser.return_node(name, unused=True)


# --- records ---------------------------------------------------------------------------------------


async def test_f63_f64_f65_records_are_kept_by_name_and_label(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log, runs=False) as world:
        made = await world.add_machine("m")
        assert await world.machine("m") == made
        with pytest.raises(AlreadyExists):
            await world.add_machine("m")
        labels = {"grange.dev/node-pool": "p"}
        spec = {"pool": "p", "provider": "simulated"}
        document = {"metadata": {"name": "n", "labels": labels}, "spec": spec}
        await world.client.create(MACHINE, document)
        found = await world.client.list(MACHINE, labels="grange.dev/node-pool=p")
        assert [one.metadata.name for one in found.items] == ["n"]


# --- what is kept for a while ------------------------------------------------------------------------


async def test_f70_f71_f73_an_image_is_looked_up_again_in_time(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Use does not extend the time for which an image is kept."""
    calls: list[float] = []
    async with machine_world(clock, rng, log) as world:

        def count(call: str, subject: str) -> None:
            if call == "resolve_image":
                calls.append(clock.monotonic())

        world.cloud.faults = count
        await world.add_pool()
        for _ in range(70):  # 700 s of use
            await world.add_pod("a")
            await world.settle(5.0)
            await world.delete_pod("a")
            await world.settle(5.0)
    gaps = [after - before for before, after in pairwise(calls)]
    assert gaps
    assert all(300.0 <= gap <= 310.0 for gap in gaps)


# --- pods --------------------------------------------------------------------------------------------


async def test_f80_a_pod_that_a_cache_misses_is_looked_up(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A cache that does not show the holder is the first sign; the server decides."""
    async with machine_world(clock, rng, log, runs=False) as world:
        await world_with_machine(world, "Available")
        world.held_watches.add("/api/v1/pods")
        world.begin()
        await world.settle(0.5)
        pod = await world.add_pod("a", "none", nodeName="m")
        claim = {"boundPodName": "default/a", "boundPodUID": pod.metadata.uid}
        patch = {"status": {"phase": "Claimed", **claim}}
        await world.client.patch(MACHINE, "m", patch=patch, subresource="status")
        await world.settle(1.0)
        assert (await world.machine("m")).phase is P.CLAIMED
        await world.delete_pod("a")
        await world.client.patch(MACHINE, "m", patch={"metadata": {"labels": {"seen": "again"}}})
        await world.settle(1.0)
        assert (await world.machine("m")).phase is not P.CLAIMED


@pytest.mark.parametrize("mode", ["Dedicated", "Packed"])
async def test_memory_of_refusals_ends_with_the_pods(
    mode: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(mode=mode, limits={"machines": 0})
        selector = {NODE_POOL_LABEL: "p"}
        for number in range(5):
            await world.add_unschedulable(f"u{number}", "1", nodeSelector=selector)
            await world.settle(15.0)
            await world.delete_pod(f"u{number}")
        assert len(await world.events("NoMachine")) == 5
        last = await world.add_unschedulable("last", "1", nodeSelector=selector)
        await world.settle(20.0)
        assert json.loads(world.controller.dump())["refusedPods"] == 1
        await world.delete_pod("last")
        await world.settle(20.0)
        assert json.loads(world.controller.dump())["refusedPods"] == 0
        reply = await world.controller.dispenser.request_node(last)
        assert reply.reason == "no pass has seen the pod yet"


# --- people ------------------------------------------------------------------------------------------


async def test_the_end_of_a_machine_is_reported_to_its_pod(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.add_pod("a")
        await world.bound("a")
        name = (await world.pod("a")).spec.node_name
        await world.end_machine(name)
        await world.count(P.TERMINATED, 1)
        assert await world.events("PodEjected") == [f"machine {name} ends: spec.terminate is set"]


@pytest.mark.parametrize("mode", ["Dedicated", "Packed"])
async def test_a_shortage_is_one_event_of_its_pod(
    mode: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        world.cloud.capacity = {
            (kind, zone, spot): 0
            for kind in ("small", "medium", "large")
            for zone in "ab"
            for spot in (False, True)
        }
        await world.add_pool(mode=mode)
        await world.add_unschedulable("a", "1", nodeSelector={NODE_POOL_LABEL: "p"})
        await world.settle(170.0)
        (reason,) = await world.events("NoMachine")
        assert "; tried again at 2026-01-01T00:03:0" in reason


async def test_machines_that_are_being_launched_can_be_ended(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        world.faults.add("launch", F.HANG)
        await world.add_pool()
        await world.add_pod("a")
        await world.settle(2.0)
        await world.delete_pod("a")
        assert await world.controller.stop_creating_nodes() == 1
        await world.empty()


async def test_dump_shows_passes_and_machines(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=STANDBY)
        await world.count(P.AVAILABLE, 1)
        found = json.loads(world.controller.dump())
        (machine,) = await world.machines()
        assert found["machines"] == {machine.metadata.name: "Available"}
        assert found["pools"] == ["p"]
        assert found["count"] >= 1
        assert {"start", "end", "lastSeconds", "averageSeconds"} <= {*found}


def test_the_average_of_passes_is_a_mean() -> None:
    timer, now = PassTimer(), datetime(2026, 1, 1, tzinfo=UTC)
    for seconds in (1.0, 2.0, 6.0):
        timer.passed(now, now, seconds)
    assert (timer.count, timer.last_s, timer.average_s) == (3, 6.0, 3.0)


async def test_many_orders_are_launched_in_turn(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(maxBootPerIteration=2)
        for number in range(6):
            await world.add_pod(f"p{number}")
        await world.bound(*[f"p{number}" for number in range(6)], limit_s=60.0)
        assert world.cloud.launches == 6


@pytest.mark.parametrize(
    ("phase", "status"),
    [("Created", {"instanceID": "i"}), ("Cleaning", {"instanceID": "i"}), ("Terminating", {})],
)
async def test_what_a_former_controller_began_is_continued(
    phase: str, status: dict[str, str], clock: Clock, rng: Stream, log: Logger
) -> None:
    """A boot goes on with its deadline, a used machine never becomes available, an end goes on."""
    async with machine_world(clock, rng, log, runs=False) as world:
        await world.add_pool(timeouts={"bootSeconds": 30, "idleSeconds": 5})
        await world.add_machine("m", phase, launchTime="1970-01-01T00:00:00Z", **status)
        world.begin()
        await world.until(lambda: world.is_gone("m"), limit_s=200.0)


async def test_a_node_that_registers_again_gets_its_marks(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=STANDBY)
        await world.count(P.AVAILABLE, 1)
        (machine,) = await world.machines()
        name = machine.metadata.name
        await world.client.delete(NODE, name)
        await world.join(name)
        await world.settle(1.0)
        node = await world.node(name)
        assert [taint.key for taint in node.spec.taints] == ["grange.dev/dedicated-machine"]
        assert node.metadata.labels["grange.dev/node-pool"] == "p"
        assert msgspec.to_builtins(node.spec.taints)[0]["effect"] == "NoSchedule"


async def test_f48_a_machine_that_joins_is_available(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=STANDBY)
        await world.count(P.CREATED, 1)
        (machine,) = await world.machines()
        assert machine.status.stage in {"Booting", "Joining"}
        await world.count(P.AVAILABLE, 1)
        assert (await world.machine(machine.metadata.name)).status.stage == ""


async def test_f52_a_pool_that_cannot_be_planned_stops_no_other(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A plan that crashes starts nothing; the other pools have theirs."""
    async with machine_world(clock, rng, log, runs=False) as world:
        world.cloud.types["odd"] = InstanceType("odd", {"cpu": "no quantity", "memory": "1Gi"})
        world.begin()
        await world.add_pool("bad", instanceTypes=["odd"])
        await world.add_pool("good", instanceTypes=["medium"])
        await world.add_pod("a", "bad")
        await world.add_pod("b", "good")
        await world.bound("b")
        await world.settle(20.0)
        assert {machine.spec.pool for machine in await world.machines()} == {"good"}


async def test_f72_another_image_is_for_new_machines(
    clock: Clock, rng: Stream, log: Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=STANDBY)
        await world.add_pod("a")
        await world.bound("a")
        monkeypatch.setitem(IMAGES, "default", "image-3")
        await world.settle(360.0)
        images = {one.phase: one.spec.boot_image for one in await world.live()}
        assert images == {P.CLAIMED: "image-2", P.AVAILABLE: "image-3"}


@pytest.mark.parametrize("change", ["image", "template", "age"])
async def test_outdated_standby_is_replaced_first(
    change: str, clock: Clock, rng: Stream, log: Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another image, another template or its age: its successor is available before it ends."""
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=STANDBY, disruption={"expireAfterSeconds": 400})
        await world.count(P.AVAILABLE, 1)
        (old,) = await world.machines()
        if change == "image":
            monkeypatch.setitem(IMAGES, "default", "image-3")
        elif change == "template":
            template = {"spec": {"template": {"labels": {"v": "2"}}}}
            await world.client.patch(NODEPOOL, "p", patch=template)

        async def replaced() -> bool:
            available = [one.metadata.name for one in await world.machines(P.AVAILABLE)]
            assert available
            return old.metadata.name not in available

        limit_s = {"image": 360.0, "template": 60.0, "age": 450.0}[change]
        await world.until(replaced, limit_s=limit_s)
        assert world.cloud.launches == 2
        (new,) = await world.machines(P.AVAILABLE)
        assert new.spec.boot_image == ("image-3" if change == "image" else "image-2")
        assert new.spec.labels.get("v") == ("2" if change == "template" else None)


async def test_a_stop_that_was_decided_before_a_claim_is_refused(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        machine, pod = await planned(world, "Available")
        updater = StatusUpdater(world.client, clock)
        assert (await world.controller.dispenser.request_node(pod)).node == "m"
        with pytest.raises(Conflict):
            await updater.move(machine, MachineEvent.END, reason="Surplus")
        assert (await world.machine("m")).phase is P.CLAIMED


async def test_two_requests_at_once_get_one_machine(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        _, pod = await planned(world, "Available")
        async with Nursery() as nursery:
            asked = [nursery.start(world.controller.dispenser.request_node(pod)) for _ in range(5)]
        replies = {child.result().node for child in asked}
        assert "m" in replies
        assert replies <= {"m", ""}
        assert [entry.phase for entry in (await world.machine("m")).status.history].count(
            "Claimed"
        ) == 1


async def test_a_cancelled_request_leaves_no_claim_behind(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        pod = await world.add_pod("a")
        async with Nursery() as nursery:
            nursery.start(world.controller.dispenser.request_node(pod, wait_s=60.0))
            await world.settle(1.0)
            nursery.cancel()
        await world.delete_pod("a")
        await world.empty()


async def test_an_api_server_that_is_down_for_a_while(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.add_pod("a")
        await world.settle(1.0)
        world.gate = lambda request: ServiceUnavailable("down")
        await world.settle(60.0)
        world.gate = lambda request: None
        await world.bound("a", limit_s=60.0)
        assert world.cloud.launches == 1


async def test_pods_of_daemons_do_not_keep_a_machine(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(cleaning="Wipe", timeouts={"idleSeconds": 600})
        await world.add_pod("a")
        await world.bound("a")
        name = (await world.pod("a")).spec.node_name
        await world.add_daemon("log", name)
        await world.end_pod("a")
        await world.count(P.AVAILABLE, 1)
        assert world.cloud.instances[name].wiped == 1
