"""What ``grange test`` makes of documents: verdicts, boards, lists and cancellations."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.controller_world import World, world
from tests.unit.cli.sessions import session

from grange.api.kinds import TESTSESSION
from grange.api.meta import Document
from grange.api.status import Conflict
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli import readiness, testsession_board, testsession_lookup, testsession_view
from grange.cli.testruns import session_writes

NOW = datetime(2030, 1, 1, 0, 2, 0, tzinfo=UTC)


def document(name: str = "qps", **status: Any) -> Document:
    return {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "TestSession",
        "metadata": {"name": name, "creationTimestamp": "2030-01-01T00:00:00Z"},
        "spec": {
            "driver": {"command": ["true"]},
            "servers": [{"command": ["true"]}],
            "clients": [{"command": ["true"], "count": 2}],
        },
        "status": status,
    }


def component(name: str, health: str = "Ready", **more: Any) -> Document:
    return {"name": name, "role": name.partition("-")[0], "health": health, **more}


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> AsyncGenerator[World, None]:
    async with world(clock, rng, log, hands=False) as made:
        yield made


@pytest.mark.parametrize(
    ("status", "verdict", "code"),
    [
        ({"phase": "Succeeded", "verdict": "Passed"}, "Passed", 0),
        ({"phase": "Failed", "verdict": "Failed"}, "Failed", 1),
        ({"phase": "Errored"}, "Error", 2),
        ({"phase": "Cancelled", "verdict": "Cancelled"}, "Cancelled", 130),
        ({"phase": "Collecting", "verdict": "Failed"}, "Failed", 1),
        ({}, "", 2),
    ],
)
def test_exit_code_is_that_of_the_verdict(status: Document, verdict: str, code: int) -> None:
    shown = testsession_view.view(document(**status))
    assert (testsession_view.verdict(shown), testsession_view.exit_code(shown)) == (verdict, code)


def test_wait_ends_with_the_final_phase_only() -> None:
    cleaning = document(phase="Cleaning", verdict="Passed")
    assert not readiness.ready(cleaning).done
    assert readiness.ready(document(phase="Succeeded", verdict="Passed")).done
    failed = document(phase="Failed", verdict="Failed", reason="TestFailed", message="exit code 3")
    assert readiness.ready(failed).failed
    assert readiness.ready(failed).text == "failed: TestFailed: exit code 3"
    assert readiness.has_condition("Succeeded", "True")(failed).failed


def test_wait_for_a_lease_ends_when_it_is_rejected() -> None:
    lease: Document = {"kind": "MachineLease", "metadata": {"name": "a"}}
    assert not readiness.ready(lease).done
    lease["status"] = {"phase": "Rejected", "message": "pool big has 2 machines"}
    assert readiness.ready(lease).failed
    lease["status"] = {"phase": "Granted"}
    assert readiness.ready(lease).done


def test_waiting_session_shows_its_position() -> None:
    status: Document = {
        "position": 2,
        "message": "pool workers has 0 free",
        "expectedStart": "soon",
    }
    shown = testsession_view.view(document(phase="Queued", reason="PoolAvailability", **status))
    assert testsession_view.detail(shown) == (
        "position 2, expected to start at soon; PoolAvailability: pool workers has 0 free"
    )


def test_first_component_that_failed_explains_the_end() -> None:
    found = [
        component("driver", "Failed", finishedTime="2030-01-01T00:01:05Z"),
        component("server", "Failed", finishedTime="2030-01-01T00:01:01Z"),
        component("client-0", "NotReady"),
    ]
    shown = testsession_view.view(document(phase="Failed", verdict="Failed", components=found))
    assert [item.name for item in testsession_view.failing(shown)] == ["server", "driver"]
    shown = testsession_view.view(document(phase="Errored", components=found[2:]))
    assert [item.name for item in testsession_view.failing(shown)] == ["client-0"]
    passed = document(phase="Succeeded", verdict="Passed", components=found[2:])
    assert not testsession_view.failing(testsession_view.view(passed))


def test_board_shows_components_events_and_output() -> None:
    shown = testsession_view.view(
        document(
            phase="Running",
            startTime="2030-01-01T00:01:00Z",
            lease="qps-0",
            components=[
                component("server", node="n1", address="127.1.0.2:10000"),
                component(
                    "driver",
                    "Failed",
                    exitCode=3,
                    message="boom",
                    startedTime="2030-01-01T00:01:00Z",
                    finishedTime="2030-01-01T00:01:30Z",
                ),
            ],
            events=[
                {"type": "RUN", "time": "2030-01-01T00:01:10.123456Z", "message": "all\x1b ready"}
            ],
            metrics=[{"name": "p99", "value": 1.5, "unit": "ms"}],
        )
    )
    lines = testsession_board.lines(shown, NOW, {"driver": ["100 %"]})
    found = [" ".join(line.split()) for line in lines]
    assert "Lease: ml/qps-0" in found
    assert "Time: 60s" in found
    assert "Metrics: p99 1.5 ms" in found
    assert "server Ready n1 127.1.0.2:10000" in found
    assert "driver Failed 30s exit code 3: boom" in found
    assert "00:01:10 RUN all\\x1b ready" in found
    assert found[-2:] == ["driver:", "100 %"]


def test_component_time_ends_with_its_session() -> None:
    begun = "2030-01-01T00:01:00Z"
    ended = document(
        phase="Succeeded",
        verdict="Passed",
        completionTime="2030-01-01T00:01:01Z",
        components=[component("server", startedTime=begun)],
    )
    lines = testsession_board.lines(testsession_view.view(ended), NOW)
    assert " ".join(lines[-1].split()) == "server Ready 1s"


async def test_cancel_never_hits_a_later_session_of_the_name(there: World) -> None:
    await there.client.create(TESTSESSION, document(), "default")
    found = await testsession_lookup.find(session(there), "ts/qps")
    changed = await session_writes.cancel(session(there), found, session_writes.CANCEL_COLLECT)
    assert changed["spec"]["cancel"] == "Collect"
    await there.client.delete(TESTSESSION, "qps", "default")
    await there.client.create(TESTSESSION, document(), "default")
    with pytest.raises(Conflict):
        await session_writes.cancel(session(there), found, session_writes.CANCEL_NOW)
