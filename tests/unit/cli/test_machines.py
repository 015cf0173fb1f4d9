"""``grange machines``: machines as rows, pools, and the live table."""

import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial

import click
import pytest
from tests.support.controller_world import World, world
from tests.support.machine_world import machine_world
from tests.unit.cli import sessions
from tests.unit.cli.sessions import session

from grange.api.http import Request, Response
from grange.api.kinds import MACHINE, NODEPOOL, POD
from grange.api.kinds.machine import Machine
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Document
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.cli import machine_board, machine_costs, machine_reports, machine_timeline, timeline
from grange.cli.machine_board import MachineSight
from grange.cli.verbs.machines import records, reports, show
from grange.sim.api_fixture import Handler

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def machine(name: str, phase: str = "", *, pool: str = "batch", **status: object) -> Document:
    history = [{"time": "2026-03-01T11:59:00Z", "phase": phase, "reason": f"Is{phase}"}]
    shown = {"phase": phase, "history": history} if phase else {}
    return {
        "metadata": {"name": name, "creationTimestamp": "2026-03-01T11:50:00Z"},
        "spec": {
            "pool": pool,
            "provider": "local",
            "instanceType": "small",
            "candidates": [{"instanceType": "small", "zone": "a", "pricePerHour": "0.05"}],
        },
        "status": {**shown, **status},
    }


def node(name: str, *, ready: bool = True, cordoned: bool = False) -> Document:
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "metadata": {"name": name},
        "spec": {"unschedulable": cordoned},
        "status": {"conditions": conditions},
    }


def pod(name: str, on: str, phase: str = "Running") -> Document:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": on},
        "status": {"phase": phase},
    }


def only(sight: MachineSight, *, wide: bool = False) -> dict[str, str]:
    (row,) = machine_board.rows(sight, NOW, wide=wide)
    heads = [*machine_board.HEAD, "MARKET", "INSTANCE", "ADDRESS", "POD", "MESSAGE"]
    return dict(zip(heads, row, strict=False))


def test_machine_that_boots_has_stage_and_last_error() -> None:
    found = only(
        MachineSight([machine("m", "Created", stage="Joining", lastError="no quota")], {}, [])
    )
    assert (found["PHASE"], found["FOR"]) == ("Created (Joining)", "60s")
    assert (found["REASON"], found["PRICE/H"], found["NODE"]) == ("no quota", "0.05", "")


def test_machine_counts_the_pods_that_have_not_ended() -> None:
    pods = [pod("a", "m"), pod("b", "m", "Succeeded"), pod("c", "other"), pod("d", "m")]
    found = only(MachineSight([machine("m", "Available")], {"m": node("m")}, pods))
    assert (found["PODS"], found["NODE"], found["REASON"]) == ("2", "Ready", "IsAvailable")


def test_node_that_the_cluster_named_is_shown() -> None:
    listed = machine("m-1", "Claimed", nodeName="ip-1")
    row = only(MachineSight([listed], {"ip-1": node("ip-1")}, [pod("a", "ip-1")]))
    assert (row["NODE"], row["PODS"]) == ("Ready", "1")


def test_last_error_of_a_boot_that_succeeded_is_not_shown() -> None:
    one = machine("m", "Available", lastError="no quota", stage="Joining")
    found = only(MachineSight([one], {}, []))
    assert (found["PHASE"], found["REASON"]) == ("Available", "IsAvailable")


def test_cordoned_and_silent_nodes_are_marked() -> None:
    nodes = {"m": node("m", ready=False, cordoned=True)}
    assert only(MachineSight([machine("m", "Available")], nodes, []))["NODE"] == (
        "NotReady,SchedulingDisabled"
    )


def test_what_the_user_may_not_list_is_unknown() -> None:
    found = only(MachineSight([machine("m")], None, None))
    assert (found["NODE"], found["PODS"]) == ("<unknown>", "<unknown>")
    assert (found["PHASE"], found["FOR"], found["REASON"]) == ("Creating", "10m", "")


def test_wide_rows_show_what_the_instance_is() -> None:
    one = machine(
        "m",
        "Claimed",
        instanceID="i-1",
        spot=True,
        boundPodName="default/job",
        addresses=[{"type": "InternalIP", "address": "10.0.0.7"}],
    )
    found = only(MachineSight([one], {}, []), wide=True)
    assert [found[head] for head in ("MARKET", "INSTANCE", "ADDRESS", "POD")] == [
        "spot",
        "i-1",
        "10.0.0.7",
        "default/job",
    ]


def test_total_leaves_terminated_machines_out() -> None:
    machines = [
        machine("a", "Available", pricePerHour="0.10"),
        machine("b", "Created"),
        machine("c", "Terminated", pricePerHour="7"),
    ]
    assert machine_board.total(machines) == "2 machines, 0.15 per hour"
    machines[1]["spec"]["candidates"] = []
    expected = "2 machines, 0.10 per hour; the price of 1 is not known"
    assert machine_board.total(machines) == expected


def test_machines_are_listed_by_pool() -> None:
    machines = [machine("b"), machine("z", pool="api"), machine("a")]
    rows = machine_board.rows(MachineSight(machines, {}, []), NOW)
    assert [row[0] for row in rows] == ["z", "a", "b"]


def test_pools_show_machines_by_phase_and_faults() -> None:
    condition = {"type": "Launching", "status": "False", "reason": "NoMachine", "message": "no m5"}
    status = {
        "machines": {"Creating": 1, "Created": 2, "Available": 3, "Cleaning": 1, "Terminated": 9},
        "pricePerHour": "0.42",
        "conditions": [condition, {"type": "Ready", "status": "True", "reason": "ProviderReady"}],
    }
    one = {"metadata": {"name": "batch"}, "spec": {"provider": "local"}, "status": status}
    head, row, *faults = machine_board.pool_lines([one])
    assert head.split()[:2] == ["POOL", "PROVIDER"]
    assert row.split() == ["batch", "local", "Packed", "3", "3", "0", "1", "0.42"]
    assert faults == ["", "batch: NoMachine: no m5"]


def test_one_machine_is_printed_as_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    show.print_objects("json", MACHINE, [machine("m")])
    found = json.loads(capsys.readouterr().out)
    assert [item["metadata"]["name"] for item in found["items"]] == ["m"]


# --- with a server ------------------------------------------------------------------------------------


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> AsyncGenerator[World, None]:
    async with world(clock, rng, log) as made:
        yield made


async def test_watch_prints_each_state_once(
    there: World, capsys: pytest.CaptureFixture[str]
) -> None:
    await there.client.create(MACHINE, {"metadata": {"name": "m-1"}, **_spec("batch")})
    await there.client.create(MACHINE, {"metadata": {"name": "x-1"}, **_spec("other")})
    async with Nursery("test") as nursery:
        nursery.start(show.follow(session(there), "batch"))
        await there.clock.sleep(5)
        first = capsys.readouterr().out
        assert first.count("m-1") == 1
        assert "x-1" not in first
        status = {"status": {"phase": "Created", "stage": "Booting"}}
        await there.client.patch(MACHINE, "m-1", patch=status, subresource="status")
        await there.clock.sleep(5)
        second = capsys.readouterr().out
        assert "Created (Booting)" in second
        for namespace in ("default", "kube-system"):  # of one name: both count
            await there.client.create(
                POD,
                {
                    "metadata": {"name": "twin", "namespace": namespace},
                    "spec": {"nodeName": "m-1", "containers": [{"name": "c", "image": "i"}]},
                },
            )
        await there.clock.sleep(5)
        last = capsys.readouterr().out.splitlines()
        rows = [line.split() for line in last if line.startswith("m-1")]
        assert rows[-1][-1] == "2"
        nursery.cancel()


def _spec(pool: str) -> Document:
    return {"spec": {"pool": pool, "provider": "local", "instanceType": "small"}}


def lived(name: str, *phases: tuple[str, str], launched: str = "11:50:10") -> Machine:
    """A machine with a history of today."""
    history = [{"time": f"2026-03-01T{time}Z", "phase": phase} for time, phase in phases]
    found = machine(name, phases[-1][1], launchTime=f"2026-03-01T{launched}Z")
    found["status"]["history"] = history
    return machine_board.view(found)


def test_timeline_has_a_stage_for_each_phase() -> None:
    claimed = lived(
        "a", ("11:51:00", "Created"), ("11:52:00", "Available"), ("11:55:00", "Claimed")
    )
    ended = lived(
        "b", ("11:51:00", "Created"), ("11:52:00", "Terminating"), ("11:53:00", "Terminated")
    )
    spans = machine_timeline.spans([ended, claimed], NOW)
    assert [span.name for span in spans] == ["a", "b"]
    marks = ["".join(stage.mark for stage, _, _ in span.parts) for span in spans]
    assert marks == [".-=#", ".-x"]
    assert [span.end for span in spans] == ["", "Terminated"]
    assert (spans[0].parts[-1][2], spans[1].parts[-1][2].minute) == (NOW, 53)
    text = timeline.text("two", spans, machine_timeline.STAGES, 80)
    assert text[1].startswith("a  .")
    assert 'fill="#d9534f"' in timeline.picture("two", spans, machine_timeline.STAGES)


async def test_timeline_is_drawn_or_printed(
    clock: Clock, rng: Stream, log: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    async with machine_world(clock, rng, log) as world:
        there = sessions.opened(world.client, clock=clock, rng=rng, log=log)
        assert await records.show_timeline(there, "", "", draws=True) == ""
        assert "No machines" in capsys.readouterr().err
        for name in ("p", "q"):
            await world.add_pool(name, standby=[{"instanceType": "small", "count": 1}])
        await world.count(MachinePhase.AVAILABLE, 2)
        await world.settle(60.0)
        first, second = sorted(one.metadata.name for one in await world.live())
        picture = await records.show_timeline(there, "p", "", draws=True)
        assert picture.startswith("<svg")
        assert (first in picture, second in picture) == (True, False)
        assert capsys.readouterr().out == ""
        assert await records.show_timeline(there, "", "", draws=False) == ""
        assert capsys.readouterr().out.startswith("2 machines, ")
        assert await records.show_timeline(there, "", "json", draws=True) == ""
        shown = json.loads(capsys.readouterr().out)
        assert [one["machine"] for one in shown["machines"]] == [first, second]


def test_cost_counts_the_time_that_a_machine_was_on() -> None:
    on = lived("a", ("11:51:00", "Created"), launched="11:30:00")
    parked = lived("b", ("11:52:10", "Stopping"), ("11:54:10", "Stopped"))
    found = machine_costs.costs([parked, on], NOW)
    assert [one.on.total_seconds() for one in found] == [600.0, 240.0]
    assert [str(one.spent) for one in found] == ["0.0083", "0.0033"]
    assert machine_costs.per_hour(found) == Decimal("0.05")
    assert machine_costs.lines(found)[-1] == "2 machines, 0.05 per hour, 0.0116 spent"
    document = machine_costs.document(found)
    assert (document["spent"], document["machines"][0]["onSeconds"]) == ("0.0116", 600)


def test_cost_of_what_was_never_launched_is_nothing() -> None:
    bare = machine("a")
    del bare["spec"]["candidates"]
    (found,) = machine_costs.costs([machine_board.view(bare)], NOW)
    assert (found.price, found.spent, found.on.total_seconds()) == (None, None, 0.0)
    assert machine_costs.lines([found])[-1].endswith("the price of 1 is not known")


def pool_report(**more: object) -> Document:
    return {"metadata": {"name": "p"}, "refusal": "", "decisions": [], "differences": [], **more}


def test_plan_is_shown_with_its_reasons() -> None:
    start = {"action": "start", "machine": "m", "instanceType": "small", "pod": "d/a"}
    decisions = [{**start, "reason": "pod d/a waits"}]
    lines = machine_reports.plan_lines([pool_report(decisions=decisions), pool_report()])
    assert lines[0] == "pool p:"
    assert lines[2].split() == ["start", "m", "small", "d/a", "pod", "d/a", "waits"]
    assert lines[3] == "pool p: nothing is to be done"


async def kubernetes(
    request: Request, server: Handler, code: int = 404, reason: str = "NotFound"
) -> Response:
    """An API server that has NodePools and Machines as custom resources, and no reports."""
    if request.path.endswith(("/plan", "/audit")):
        missing = {"kind": "Status", "code": code, "reason": reason, "message": "no"}
        return Response(code, body=json.dumps(missing).encode())
    return await server(request)


@pytest.mark.parametrize(("code", "reason"), [(404, "NotFound"), (403, "Forbidden")])
async def test_reports_are_answered_on_another_cluster(
    code: int, reason: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.add_pod("huge", cpu="4000")
        await world.settle(5.0)
        world.intercept = partial(kubernetes, code=code, reason=reason)
        there = sessions.opened(world.new_client(), clock=clock, rng=rng, log=log)
        for pool in ("", "p"):
            (plan,) = await reports.reports(there, "plan", pool)
            assert [one["action"] for one in plan["decisions"]] == ["skip"]
            (audit,) = await reports.reports(there, "audit", pool)
            assert machine_reports.agrees(audit)
            assert (audit["metadata"]["name"], audit["machines"]) == ("p", 0)
        with pytest.raises(NotFound, match=r'nodepools.* "q" not found'):
            await reports.reports(there, "plan", "q")


async def test_reports_without_a_controller_name_the_remedy(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.stop_controller()
        world.intercept = kubernetes
        there = sessions.opened(world.new_client(), clock=clock, rng=rng, log=log)
        for what in ("plan", "audit"):
            with pytest.raises(click.ClickException, match=f"machines {what}: .*for pool p"):
                await reports.reports(there, what, "")
        assert not (await world.client.get(NODEPOOL, "p")).metadata.annotations


def test_reports_count_entries_that_are_not_shown() -> None:
    start = {"action": "start", "machine": "m", "instanceType": "small", "pod": "", "reason": ""}
    lines = machine_reports.plan_lines([pool_report(decisions=[start], omitted=3)])
    assert lines[-1] == "  and 3 more"
    lost = {"machine": "m", "instance": "i", "problem": "NoInstance", "message": "it is Claimed"}
    lines = machine_reports.audit_lines([pool_report(differences=[lost], omitted=2)])
    assert lines[-1] == "  and 2 more"


def test_audit_agrees_only_without_a_difference() -> None:
    lost = {"machine": "m", "instance": "i", "problem": "NoInstance", "message": "it is Claimed"}
    differs, refused = pool_report(differences=[lost]), pool_report(refusal="no answer")
    assert [machine_reports.agrees(one) for one in (pool_report(), differs, refused)] == [
        True,
        False,
        False,
    ]
    lines = machine_reports.audit_lines([pool_report(machines=1, instances=1), differs, refused])
    assert lines[0] == "pool p: records and provider agree (1 record, 1 instance)"
    assert "NoInstance" in lines[3]
    assert lines[4] == "pool p: not known: no answer"
