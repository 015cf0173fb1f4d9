"""``grange why`` of pods that wait for a machine."""

import json
from datetime import UTC, datetime

from msgspec.structs import replace
from tests.support.machine_world import machine_world
from tests.unit.cli.sessions import opened

from grange.api.explanation import Change, Explanation, ReasonCount, SchedulingState
from grange.api.http import Request, Response
from grange.api.kinds import NODE, POD
from grange.api.meta import Document
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.why import machine_attempts, owned_pods, pods
from grange.sim.api_fixture import Handler

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def waiting(pool: str = "batch") -> Document:
    selector = {"grange.dev/node-pool": pool} if pool else {}
    return {
        "metadata": {"name": "a", "namespace": "default", "uid": "u-a"},
        "spec": {"nodeSelector": selector},
    }


def pool(name: str = "batch", **condition: str) -> Document:
    return {
        "metadata": {"name": name},
        "spec": {"provider": "local"},
        "status": {"conditions": [condition] if condition else []},
    }


def machine(name: str, phase: str, **status: object) -> Document:
    history = [{"time": "2026-03-01T11:59:48Z", "phase": phase, "reason": "R", "message": "why"}]
    return {
        "metadata": {"name": name},
        "spec": {"pool": "batch", "provider": "local", "instanceType": "small"},
        "status": {"phase": phase, "history": history, **status},
    }


def event(reason: str, message: str) -> Document:
    return {"reason": reason, "message": message, "lastTimestamp": "2026-03-01T11:58:00Z"}


def test_boot_is_shown_with_its_last_error() -> None:
    machines = [
        machine("m-1", "Terminated", boundPodUID="u-a"),
        machine("m-2", "Created", boundPodUID="u-a", stage="Joining", lastError="no route"),
        machine("m-3", "Created", boundPodUID="u-b"),
    ]
    assert machine_attempts.render(waiting(), [pool()], machines, [], NOW) == [
        "",
        "Its machine:",
        "  from pool batch (provider local)",
        "  machine m-1 (small): Terminated for 12s",
        "    R: why",
        "  machine m-2 (small): Created (Joining) for 12s",
        "    last error of its boot: no route",
    ]


def test_machines_that_are_kept_for_others_are_shown() -> None:
    ended = machine("m-9", "Available", boundPodName="default/z")
    ended["spec"]["terminate"] = True
    machines = [
        machine("m-1", "Available", boundPodUID="u-a"),
        machine("m-4", "Available"),
        machine("m-3", "Claimed", boundPodName="default/b", boundPodUID="u-b"),
        machine("m-2", "Available", boundPodName="default/c", boundPodUID="u-c"),
        machine("m-5", "Claimed", holder="ReplicationController/default/web"),
        machine("m-6", "Available"),
        machine("m-7", "Terminated", boundPodName="default/y"),
        ended,
    ]
    reasons = {"m-4": "its node is cordoned", "m-1": "bound to it"}
    found = machine_attempts.render(waiting(), [pool()], machines, [], NOW, reasons)
    assert found[3:] == [
        "  machine m-1 (small): Available for 12s",
        "  kept for something else:",
        "    m-2 (small), Available: meant for pod default/c",
        "    m-3 (small), Claimed: claimed by pod default/b",
        "    m-4 (small), Available: its node is cordoned",
        "    m-5 (small), Claimed: held by ReplicationController/default/web",
    ]
    many = [machine(f"m-{n}", "Claimed", boundPodName="default/b") for n in range(8)]
    cut = machine_attempts.render(waiting(), [pool()], many, [], NOW)
    assert len(cut) == 3 + 1 + 5 + 1
    assert cut[-1] == "    and 3 more: grange machines plan --pool batch"


async def test_why_asks_the_controller_what_is_kept(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:

        async def answer(request: Request, server: Handler) -> Response:
            if request.path.endswith("/nodepools/p/plan"):
                report = await world.controller.report("plan", "p")
                return Response(200, body=json.dumps(report).encode())
            return await server(request)

        await world.add_pool(standby=[{"instanceType": "small", "count": 1}])
        await world.settle(30.0)
        (name,) = [one.metadata.name for one in await world.machines()]
        await world.client.patch(NODE, name, patch={"spec": {"unschedulable": True}})
        world.joins = lambda name: False
        await world.add_pod("a")
        await world.settle(5.0)
        for intercepted in (True, False):
            world.intercept = answer if intercepted else None
            there = opened(world.new_client(), clock=world.clock, rng=world.rng, log=world.log)
            shown = (await pods.ask(there, POD, "a")).lines
            line = f"    {name} (small), Available: its node is cordoned"
            assert (line in shown) is intercepted


def test_pool_that_cannot_be_served_is_shown() -> None:
    wrong = {"type": "Ready", "status": "False", "reason": "Misconfigured", "message": "bad"}
    events = [event("NoMachine", "no type holds it"), event("MachineLaunchFailed", "m-0: quota")]
    assert machine_attempts.render(waiting(), [pool(**wrong)], [], events, NOW)[2:] == [
        "  from pool batch (provider local)",
        "    it is not ready: Misconfigured: bad",
        "  last failed attempt: m-0: quota (2m ago)",
        "  no machine: no type holds it (2m ago)",
    ]


def test_what_the_pool_refuses_other_pods_is_left_out() -> None:
    other = {"type": "Launching", "status": "False", "reason": "NoMachine", "message": "too big"}
    found = machine_attempts.render(waiting(), [pool(**other)], [], [], NOW)
    assert found[2:] == ["  from pool batch (provider local)"]


def test_refusal_before_a_machine_was_ordered_is_old() -> None:
    found = machine_attempts.render(
        waiting(),
        [pool()],
        [machine("m", "Creating", boundPodUID="u-a")],
        [event("NoMachine", "no type holds it")],
        NOW,
    )
    assert not [line for line in found if "no machine" in line]


def unschedulable() -> Document:
    pod = waiting("")
    pod["status"] = {"conditions": [{"type": "PodScheduled", "reason": "Unschedulable"}]}
    return pod


def failing(name: str) -> Document:
    return pool(name, type="Ready", status="False", reason="Misconfigured", message="no key")


def test_reason_of_each_pool_is_shown_if_none_can_be_used() -> None:
    refusal = event("NoMachine", "no pool can be used: …")
    found = machine_attempts.render(
        unschedulable(), [failing("b"), failing("a")], [], [refusal], NOW
    )
    assert found[2:] == [
        "  no pool can be used:",
        "    pool a: Misconfigured: no key",
        "    pool b: Misconfigured: no key",
    ]
    assert machine_attempts.render(unschedulable(), [failing("a"), pool("b")], [], [], NOW) == []
    assert machine_attempts.render(waiting(""), [failing("a")], [], [], NOW) == []


def test_unknown_pool_is_named() -> None:
    found = machine_attempts.render(waiting("typo"), [pool()], [], [], NOW)
    assert found[2:] == ["  pool typo does not exist; there are: batch"]


def test_shared_machine_is_found_by_its_planned_pods() -> None:
    one = machine("m", "Creating")
    one["metadata"]["annotations"] = {"grange.dev/planned-pods": "u-x,u-a"}
    found = machine_attempts.render(waiting(""), [pool()], [one], [], NOW)
    assert found[2:] == ["  machine m (small): Creating for 12s"]
    one["metadata"]["annotations"] = {"grange.dev/planned-pods": "u-x,u-ab"}
    assert machine_attempts.render(waiting(""), [pool()], [one], [], NOW) == []


async def test_why_names_the_failed_launch(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        world.joins = lambda name: False
        await world.add_pool()
        await world.add_pod("a")
        await world.settle(20.0)
        there = opened(world.client, clock=world.clock, rng=world.rng, log=world.log)
        shown = (await pods.ask(there, POD, "a")).lines
        (name,) = [one.metadata.name for one in await world.machines()]
        at = shown.index("Its machine:")
        assert shown[at + 1] == "  from pool p (provider simulated)"
        assert shown[at + 2].startswith(f"  machine {name} (small): Created (Joining) for ")


async def test_why_of_a_controller_names_the_pool(clock: Clock, rng: Stream, log: Logger) -> None:
    """Its pods wait alike, so the machines of one are those of all."""
    owner = {"apiVersion": "v1", "kind": "ReplicationController", "name": "w", "uid": "u-w"}
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(limits={"machines": 0})
        for name in ("w-1", "w-2"):
            pod = await world.add_pod(name)
            reference = {**owner, "controller": True}
            patch = {"metadata": {"ownerReferences": [reference]}}
            await world.client.patch(POD, pod.metadata.name, "default", patch=patch)
        await world.settle(30.0)
        meta = {"name": "w", "namespace": "default", "uid": "u-w"}
        there = opened(world.client, clock=world.clock, rng=world.rng, log=world.log)
        lines, _ = await owned_pods.explain(there, {"metadata": meta})
    assert lines.count("Its machine:") == 1
    assert any("limits.machines" in line for line in lines), lines


def test_reasons_of_the_scheduler_give_way_to_the_pool() -> None:
    change = Change("it tolerates taint grange.dev/reserved", 1)
    found = Explanation(
        state=SchedulingState.UNSCHEDULABLE,
        summary="waits: no node would do",
        waiting_since="2026-03-01T11:59:00Z",
        changes=(change,),
        reasons=(ReasonCount("node(s) had untolerated taint(s)", 2),),
    )
    dedicated = pool()
    dedicated["spec"]["mode"] = "Dedicated"
    named = machine_attempts.dedicated_pool(waiting(), [dedicated])
    applied = machine_attempts.MachineAttempts(named).applied(found)
    assert applied.summary == "waits for a machine of pool batch"
    assert (applied.changes, applied.reasons) == ((), ())
    assert applied.waiting_since == found.waiting_since
    assert machine_attempts.dedicated_pool(waiting(), [pool()]) == ""
    assert machine_attempts.MachineAttempts().applied(found) is found
    placed = replace(found, state=SchedulingState.PLACED)
    assert machine_attempts.MachineAttempts("batch").applied(placed) is placed
