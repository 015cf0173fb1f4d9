"""Reports about pools: what would be done, and whether records and provider agree."""

import json

import msgspec
import pytest
from tests.support.machine_world import MachineWorld, machine_world

from grange.api.http import Request, Response
from grange.api.kinds import NODE, NODEPOOL
from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import PACKED
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Document
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.controller.pool_reports import differences
from grange.machines.controller.report_requests import shortened
from grange.machines.providers.provider import Instance, InstanceState
from grange.machines.providers.simulated.cloud import CloudLatencies
from grange.sim.api_fixture import Handler

P = MachinePhase


async def report(world: MachineWorld, what: str, pool: str = "p") -> Document:
    found = await world.controller.report(what, pool)
    assert found is not None
    return found


def record(name: str, phase: MachinePhase, instance: str = "", pool: str = "p") -> Machine:
    document = {
        "metadata": {"name": name},
        "spec": {"pool": pool, "provider": "simulated"},
        "status": {"phase": phase.value, "instanceID": instance},
    }
    return msgspec.convert(document, Machine)


def shown(*machines: Machine, instances: tuple[Instance, ...] = ()) -> list[tuple[str, str]]:
    records = {one.metadata.name: one for one in machines}
    found = differences("p", records, instances)
    return [(one["machine"], one["problem"]) for one in found]


async def test_plan_names_each_decision(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.add_pod("a")
        await world.bound("a")
        await world.add_pod("huge", cpu="4000")
        await world.settle(5.0)
        launches = world.cloud.launches
        found = await report(world, "plan")
        (skip,) = found["decisions"]
        assert (skip["action"], skip["pod"]) == ("skip", "default/huge")
        assert skip["reason"] == "no instance type of the pool holds cpu 4000"
        assert world.cloud.launches == launches


async def test_plan_shows_why_free_machines_stay(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=[{"instanceType": "small", "count": 2}])
        await world.settle(30.0)
        first, second = sorted(one.metadata.name for one in await world.machines())
        await world.client.patch(NODE, first, patch={"spec": {"unschedulable": True}})
        await world.settle(0.2)
        kept = {
            one["machine"]: one["reason"]
            for one in (await report(world, "plan"))["decisions"]
            if one["action"] == "keep"
        }
        assert kept[first] == "its node is cordoned"
        assert kept[second].startswith("standby, or free for less than ")


async def test_plan_shows_the_start_that_is_due(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(mode=PACKED)
        await world.settle(5.0)
        await world.add_unschedulable("a", "1")
        await world.settle(0.2)
        (start,) = (await report(world, "plan"))["decisions"]
        assert (start["action"], start["pod"], start["instanceType"]) == (
            "start",
            "default/a",
            "small",
        )
        assert await world.machines() == []


async def test_plan_of_an_unusable_pool_has_the_reason(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.settle(1.0)
        assert (await report(world, "plan", "q"))["refusal"] == "there is none"
        assert (await report(world, "audit", "q"))["refusal"] == "there is none"


async def test_records_and_provider_agree_in_the_end(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.add_pod("a")
        await world.bound("a")
        found = await report(world, "audit")
        assert (found["machines"], found["instances"], found["differences"]) == (1, 1, [])


async def test_lost_instance_is_a_difference(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.add_pod("a")
        await world.bound("a")
        (machine,) = await world.machines()
        world.cloud.instances.clear()
        found = await report(world, "audit")
        assert [(one["machine"], one["problem"]) for one in found["differences"]] == [
            (machine.metadata.name, "NoInstance")
        ]


async def request(world: MachineWorld, what: str, pool: str = "p") -> str:
    """A report as a client of any API server requests it; the id of the request."""
    request_id = f"r-{what}"
    annotations = {f"reports.grange.dev/{request_id}": what}
    await world.client.patch(NODEPOOL, pool, patch={"metadata": {"annotations": annotations}})
    return request_id


async def test_requested_reports_are_in_the_status_for_a_minute(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.add_pod("huge", cpu="4000")
        await world.settle(5.0)
        ids = [await request(world, what) for what in ("plan", "audit", "else")]
        await world.settle(1.0)
        pool = await world.client.get(NODEPOOL, "p")
        plan, audit, unknown = [json.loads(pool.status.reports[one]) for one in ids]
        assert [one["action"] for one in plan["decisions"]] == ["skip"]
        assert (audit["refusal"], audit["differences"]) == ("", [])
        assert unknown["refusal"].startswith("there is no report 'else'")
        assert not pool.metadata.annotations
        await world.settle(65.0)
        pool = await world.client.get(NODEPOOL, "p")
        assert not pool.status.reports


async def test_report_is_answered_and_removed_after_a_restart(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.settle(1.0)
        await world.stop_controller()
        request_id = await request(world, "plan")
        await world.restart()
        await world.settle(1.0)
        assert request_id in (await world.client.get(NODEPOOL, "p")).status.reports
        await world.restart()
        await world.settle(65.0)
        assert not (await world.client.get(NODEPOOL, "p")).status.reports


async def test_requested_report_survives_refused_writes(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.settle(1.0)
        refused = 0

        async def intercept(sent: Request, server: Handler) -> Response:
            nonlocal refused
            if sent.method == "PATCH" and sent.path.endswith("/status") and refused < 3:
                refused += 1
                return Response(503)
            return await server(sent)

        request_id = await request(world, "audit")
        world.intercept = intercept
        await world.settle(10.0)
        assert refused == 3
        assert request_id in (await world.client.get(NODEPOOL, "p")).status.reports


@pytest.mark.parametrize(("code", "reason"), [(413, "RequestEntityTooLarge"), (422, "Invalid")])
async def test_report_that_the_server_refuses_is_answered(
    code: int, reason: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.settle(1.0)

        async def intercept(sent: Request, server: Handler) -> Response:
            if sent.method == "PATCH" and b"instances" in sent.body:  # a count of the report
                body = {"kind": "Status", "code": code, "reason": reason, "message": "no"}
                return Response(code, body=json.dumps(body).encode())
            return await server(sent)

        request_id = await request(world, "audit")
        world.intercept = intercept
        await world.settle(3.0)
        pool = await world.client.get(NODEPOOL, "p")
        answer = json.loads(pool.status.reports[request_id])
        assert answer["refusal"] == f"the server refused the report: {reason}"
        assert not pool.metadata.annotations


async def test_hostile_request_has_a_short_answer(
    clock: Clock, rng: Stream, log: Logger, records: list[tuple[str, dict[str, object]]]
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.settle(1.0)
        refused = 0

        async def intercept(sent: Request, server: Handler) -> Response:
            nonlocal refused
            if sent.method == "PATCH" and b"there is no report" in sent.body and not refused:
                refused += 1
                return Response(503)
            return await server(sent)

        world.intercept = intercept
        annotations = {"reports.grange.dev/r": "\x01" * 250_000}
        await world.client.patch(NODEPOOL, "p", patch={"metadata": {"annotations": annotations}})
        await world.settle(3.0)
        pool = await world.client.get(NODEPOOL, "p")
        assert not pool.metadata.annotations
        assert len(pool.status.reports["r"]) < 1_000
        (facts,) = [facts for event, facts in records if event == "report not written"]
        assert facts["what"] == "\x01" * 64


async def test_report_without_room_for_any_answer_is_given_up(
    clock: Clock, rng: Stream, log: Logger, records: list[tuple[str, dict[str, object]]]
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.settle(1.0)

        async def intercept(sent: Request, server: Handler) -> Response:
            if sent.method == "PATCH" and b"reports" in sent.body and b"decisions" in sent.body:
                body = {"kind": "Status", "code": 413, "reason": "RequestEntityTooLarge"}
                return Response(413, body=json.dumps(body).encode())
            return await server(sent)

        world.intercept = intercept
        await request(world, "plan")
        await world.settle(30.0)
        assert not (await world.pool()).metadata.annotations
        assert len([event for event, _ in records if event == "report refused"]) == 1


async def test_failed_report_is_tried_again_after_growing_pauses(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.settle(1.0)
        refused = 0

        async def intercept(sent: Request, server: Handler) -> Response:
            nonlocal refused
            if sent.method == "PATCH" and b"decisions" in sent.body:
                refused += 1
                return Response(503)
            return await server(sent)

        world.intercept = intercept
        request_id = await request(world, "plan")
        await world.settle(60.0)
        assert refused <= 6
        tried = refused
        gone = {f"reports.grange.dev/{request_id}": None}
        await world.client.patch(NODEPOOL, "p", patch={"metadata": {"annotations": gone}})
        await world.settle(60.0)
        assert refused == tried


async def test_pool_keeps_its_latest_four_reports(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.settle(1.0)
        first = await request(world, "plan")
        await world.settle(6.0)
        await request_many(world, 4)
        await world.settle(2.0)
        pool = await world.pool()
        assert not pool.metadata.annotations
        assert first not in pool.status.reports
        assert sorted(pool.status.reports) == ["r0", "r1", "r2", "r3"]


@pytest.mark.parametrize("slow_s", [0.0, 8.0])
async def test_each_of_many_requested_reports_can_be_read(
    slow_s: float, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.settle(1.0)
        world.cloud.latencies = CloudLatencies(call=slow_s)
        await request_many(world, 7, "audit")
        seen: dict[str, set[float]] = {}
        for _ in range(60):
            for key in (pool := await world.pool()).status.reports:
                seen.setdefault(key, set()).add(world.clock.monotonic())
            assert len(pool.status.reports) <= 4
            await world.settle(0.5)
        assert sorted(seen) == [f"r{number}" for number in range(7)]
        assert min(max(times) - min(times) for times in seen.values()) >= 3.5
        assert not (await world.pool()).metadata.annotations


async def request_many(world: MachineWorld, count: int, what: str = "plan") -> None:
    """Requests of several clients at once."""
    annotations = {f"reports.grange.dev/r{number}": what for number in range(count)}
    await world.client.patch(NODEPOOL, "p", patch={"metadata": {"annotations": annotations}})


@pytest.mark.parametrize("field", ["decisions", "differences"])
def test_report_beyond_its_bound_is_counted(field: str) -> None:
    report = {"refusal": "", field: [{"machine": f"m-{number}"} for number in range(2_003)]}
    found = shortened(report)
    assert (len(found[field]), found["omitted"]) == (2_000, 3)
    assert shortened({"refusal": "", field: report[field][:2_000]}).get("omitted") is None


def test_records_and_instances_are_compared_both_ways() -> None:
    lost = record("lost", P.AVAILABLE, "i-1")
    over = record("over", P.TERMINATED, "i-2")
    other = record("other", P.CLAIMED, "i-3")
    instances = (
        Instance("i-2", "over"),
        Instance("i-4", "other"),
        Instance("i-5", "unknown"),
        Instance("i-6", "twice"),
        Instance("i-7", "twice"),
    )
    found = shown(lost, over, other, record("twice", P.AVAILABLE, "i-6"), instances=instances)
    assert found == [
        ("lost", "NoInstance"),
        ("other", "OtherInstance"),
        ("over", "StillThere"),
        ("twice", "SecondInstance"),
        ("unknown", "NoRecord"),
    ]


def test_what_is_under_way_is_no_difference() -> None:
    ordered, ending = record("ordered", P.CREATING), record("ending", P.TERMINATING, "i-1")
    assert shown(ordered, ending) == []
    there = Instance("i-1", "ending", InstanceState.ENDING)
    assert shown(ending, instances=(there,)) == []
    assert shown(record("m", P.AVAILABLE, "i-9", pool="q")) == []
