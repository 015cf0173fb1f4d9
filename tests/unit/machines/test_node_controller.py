"""The node controller over a simulated cloud: from a waiting pod to its machine and back."""

from tests.support.machine_world import machine_world

from grange.api import conditions
from grange.api.kinds import NAMESPACE, NODEPOOL
from grange.api.kinds.machine import DEDICATED_TAINT, NODE_POOL_LABEL, MachineOffering
from grange.api.machine_phases import MachinePhase
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.providers.provider import LaunchRequest
from grange.machines.providers.simulated.cloud_faults import CloudFault, no_fault

P, F = MachinePhase, CloudFault


async def test_a_waiting_pod_gets_a_machine(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.settle()
        await world.add_pod("a")
        took_s = await world.bound("a")
        assert took_s < 4.0  # 2 s of boot and 1 s until its agent has joined
        (machine,) = await world.machines()
        assert machine.phase is P.CLAIMED
        assert machine.status.bound_pod_name == "default/a"
        assert (await world.pod("a")).spec.node_name == machine.metadata.name
        node = await world.node(machine.metadata.name)
        assert node.metadata.labels[NODE_POOL_LABEL] == "p"
        assert [taint.key for taint in node.spec.taints] == [DEDICATED_TAINT]
        assert world.cloud.launches == 1
        assert [entry.reason for entry in machine.status.history] == [
            "Ordered",
            "Launched",
            "Joined",
            "Claimed",
        ]


async def test_an_ended_pod_gives_its_machine_back(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.add_pod("a")
        await world.bound("a")
        await world.end_pod("a")
        await world.empty()
        (machine,) = world.cloud.instances
        assert world.cloud.launches == 1
        try:
            await world.node(machine)
        except NotFound:
            return
        raise AssertionError("the node of a machine that is gone is deleted")


async def test_an_answered_end_needs_one_list(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.add_pod("a")
        await world.bound("a")
        await world.end_pod("a")

        async def over() -> bool:
            return bool(await world.machines(P.TERMINATED))

        assert await world.until(over) < world.config.strike_s / 2


async def test_idle_machines_end(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(timeouts={"idleSeconds": 20})
        await world.add_pod("a")
        await world.settle(1.0)
        await world.delete_pod("a")
        await world.count(P.AVAILABLE, 1)
        await world.empty()


async def test_standby_is_claimed_at_once(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=[{"instanceType": "small", "count": 2}])
        await world.count(P.AVAILABLE, 2)
        world.poll_s = 0.01
        await world.add_pod("a")
        assert await world.bound("a") <= 0.05
        await world.count(P.AVAILABLE, 2)  # refilled
        assert world.cloud.launches == 3


async def test_standby_is_claimed_with_two_requests(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=[{"instanceType": "small", "count": 2}])
        await world.count(P.AVAILABLE, 2)
        await world.settle()
        world.requests.clear()
        await world.add_pod("a")
        await world.bound("a")
        name = (await world.pod("a")).spec.node_name
        of_claim = [
            (method, path.rpartition("/v1")[2].partition("/")[2])
            for method, path in world.requests
            if name in path or "/pods/" in path
        ]
        assert of_claim == [
            ("PATCH", f"machines/{name}/status"),
            ("POST", "namespaces/default/pods/a/binding"),
        ]


async def test_a_deleted_pool_ends_its_machines(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=[{"instanceType": "small", "count": 2}])
        await world.count(P.AVAILABLE, 2)
        await world.client.delete(NODEPOOL, "p")
        await world.settle(0.5)
        assert (await world.pool()).metadata.deletion_timestamp
        await world.empty()

        async def gone() -> bool:
            try:
                await world.pool()
            except NotFound:
                return True
            return False

        await world.until(gone)


async def test_machine_of_no_pool_ends_unbooted(clock: Clock, rng: Stream, log: Logger) -> None:
    """The order of a controller that died, recorded after the pool was deleted."""
    async with machine_world(clock, rng, log) as world:
        await world.settle()
        await world.add_machine("late")
        await world.empty()
        assert world.cloud.launches == 0


async def test_a_pool_shows_what_it_has(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=[{"instanceType": "small", "count": 2}])
        await world.count(P.AVAILABLE, 2)
        await world.settle(1.0)
        status = (await world.pool()).status
        assert status.machines == {"Available": 2}
        assert status.resources["cpu"] == "4"
        assert status.price_per_hour == "0.20"
        assert status.boot_image == "image-2"
        assert conditions.is_true(status.conditions, "Ready")


async def test_a_provider_that_is_unknown_is_shown(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        world.faults.add("catalogue", *[F.MISCONFIGURED] * 50)
        await world.add_pool()
        await world.add_pod("a")
        await world.settle(20.0)
        found = conditions.find((await world.pool()).status.conditions, "Ready")
        assert found is not None
        assert (found.status, found.reason) == ("False", "CatalogueUnknown")
        assert "credentials refused" in found.message
        assert world.cloud.launches == 0


async def test_packed_pools_grow_for_unschedulable_pods(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Pods that the scheduler finds no node for share machines, and no dedicated pool serves them."""
    async with machine_world(clock, rng, log) as world:
        await world.add_pool("alone")
        await world.add_pool("shared", mode="Packed", instanceTypes=["medium"])
        for number in range(4):
            await world.add_unschedulable(f"p{number}", cpu="1500m")
        await world.count(P.AVAILABLE, 2)
        machines = await world.machines()
        assert {machine.spec.pool for machine in machines} == {"shared"}
        assert {machine.status.instance_type for machine in machines} == {"medium"}
        node = await world.node(machines[0].metadata.name)
        assert node.spec.taints == ()
        await world.settle(30.0)
        assert world.cloud.launches == 2
        status = (await world.pool("shared")).status
        assert status.machines == {"Available": 2}


async def test_pods_too_large_for_packed_pools_learn_why(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool("shared", mode="Packed")
        await world.add_unschedulable("huge", cpu="100")
        await world.settle(15.0)
        (reason,) = await world.events("NoMachine")
        assert reason.startswith("no type holds it: cpu 100 where 8 can be had")
        assert await world.machines() == []


async def test_packed_pools_shrink_when_pods_end(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool("shared", mode="Packed", instanceTypes=["medium"])
        await world.add_unschedulable("p", cpu="1500m")
        await world.count(P.AVAILABLE, 1)
        (machine,) = await world.machines()
        await world.settle(60.0)
        assert (await world.machine(machine.metadata.name)).phase is P.AVAILABLE
        await world.delete_pod("p")
        took_s = await world.empty()
        assert took_s > 15.0  # it is decided twice
        assert await world.events("Disrupted") == ["Terminating: Empty: no pods"]
        assert world.cloud.launches == 1


async def test_packed_standby_is_kept(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        standby = [{"instanceType": "medium", "count": 1}]
        await world.add_pool("shared", mode="Packed", standby=standby)
        await world.count(P.AVAILABLE, 1)
        await world.settle(120.0)
        assert len(await world.machines(P.AVAILABLE)) == 1
        assert world.cloud.launches == 1


async def test_packed_standby_that_is_off_ends_unneeded(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        standby = [{"instanceType": "medium", "count": 2, "state": "Stopped"}]
        await world.add_pool("shared", mode="Packed", standby=standby)
        await world.count(P.STOPPED, 2)
        await world.settle(60.0)
        fewer = [{**standby[0], "count": 1}]
        await world.client.patch(NODEPOOL, "shared", patch={"spec": {"standby": fewer}})
        await world.settle(60.0)
        assert len(await world.machines(P.STOPPED)) == 1
        await world.client.patch(NODEPOOL, "shared", patch={"spec": {"standby": []}})
        await world.empty()
        assert world.cloud.launches == 2


async def test_limits_of_a_packed_pool_are_its_own(clock: Clock, rng: Stream, log: Logger) -> None:
    """What refuses a pod is shown by the pools that the pod could use, and by no other."""
    async with machine_world(clock, rng, log) as world:
        standby = [{"instanceType": "unknown", "count": 1}]
        await world.add_pool("p", mode="Packed", limits={"machines": 0})
        await world.add_pool("q", mode="Packed", standby=standby)
        await world.add_pool("r", mode="Packed")
        await world.add_unschedulable("a", "1", nodeSelector={NODE_POOL_LABEL: "p"})
        await world.settle(30.0)
        shown = {
            (name, one.type): (one.status, one.message)
            for name in "pqr"
            for one in (await world.pool(name)).status.conditions
        }
        fine = ("True", "no pod is refused a machine for this")
        assert shown["p", "WithinLimits"] == ("False", "pool p: limits.machines: all are there")
        assert shown["p", "Launching"] == fine
        assert shown["q", "WithinLimits"] == fine
        missing = "pool q: standby unknown: the provider does not offer it that way"
        assert shown["q", "Launching"] == ("False", missing)
        assert shown["r", "WithinLimits"] == shown["r", "Launching"] == fine


async def test_refused_end_of_an_orphan_is_logged_once(
    clock: Clock, rng: Stream, log: Logger, records: list[tuple[str, dict[str, object]]]
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.settle(1.0)
        tag = (await world.client.get(NAMESPACE, "kube-system")).metadata.uid
        world.cloud.launch(LaunchRequest("stranger", (MachineOffering("small"),)), tag)
        calls = 0

        def fault(call: str, subject: str) -> CloudFault | None:
            nonlocal calls
            calls += call == "terminate"
            return CloudFault.MISCONFIGURED if call == "terminate" else None

        world.cloud.faults = fault
        await world.settle(120.0)
        logged = [event for event, _ in records if "instance" in event]
        assert calls > 5
        assert logged == ["instance without a record is ended", "instance not ended"]
        world.cloud.faults = no_fault
        await world.empty()
