"""The cause of a failure in one place: exit, signal, probe, output, and nothing that is over."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.controller_world import World, world
from tests.unit.cli.sessions import opened

from grange.api import codec, explanation, timestamps
from grange.api.explanation import Attempt, Explanation, SchedulingState
from grange.api.http import Request, Response
from grange.api.kinds import EVENT, POD, REPLICATIONCONTROLLER
from grange.api.meta import Document
from grange.api.pod_fields import ISOLATED
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli import failures, waiting
from grange.cli.session import ApiSession
from grange.cli.why import pods, replicationcontrollers
from grange.sim import builders

TRACEBACK = b'Traceback (most recent call last):\n  File "x"\nValueError: no port\n\n'
EARLY, LATE = "2026-01-01T00:00:10Z", "2026-01-01T00:05:00Z"


class Logging(World):
    """A world whose pods have logs."""

    logs: bytes = TRACEBACK
    restarted = False
    explained: Explanation | None = None
    asked: list[dict[str, str]]

    async def handle(self, request: Request) -> Response:
        if request.path.endswith("/why") and self.explained is not None:
            return Response(200, codec.encode(explanation.document(self.explained)))
        if not request.path.endswith("/log"):
            return await super().handle(request)
        self.asked.append(dict(request.query))
        is_previous = "previous" in request.query
        return Response(200, self.logs if is_previous is self.restarted else b"")


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> Any:
    async with world(clock, rng, log, hands=False, kind=Logging) as made:
        assert isinstance(made, Logging)
        made.asked = []
        yield made


def session(there: World) -> ApiSession:
    return opened(there.deps.client, clock=there.clock, rng=there.rng, log=there.log)


def container(state: Document, last: Document | None = None, **more: Any) -> Document:
    return {
        "name": "c0",
        "image": "",
        "imageID": "",
        "ready": False,
        "restartCount": 1,
        "state": state,
        "lastState": {"terminated": last} if last else {},
        **more,
    }


CRASHED = container(
    {"waiting": {"reason": "CrashLoopBackOff"}},
    {"exitCode": 1, "reason": "Error", "startedAt": EARLY, "finishedAt": LATE},
)
RESTARTED = {**CRASHED, "state": {"running": {"startedAt": LATE}}}


async def add_pod(there: World, name: str, status: Document, *owner: Document) -> Document:
    document = builders.pod_document(name, nodeName="n")
    document["metadata"]["ownerReferences"] = list(owner)
    await there.client.create(POD, document, "default")
    await there.client.patch(POD, name, "default", patch={"status": status}, subresource="status")
    return await there.client.get_document(POD, name, "default")


async def add_owner(there: World) -> Document:
    await there.add_controller("web", replicas=3)
    owner = await there.client.get_document(REPLICATIONCONTROLLER, "web", "default")
    return {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "ReplicationController",
        "name": "web",
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


async def warn(there: World, about: Document, message: str, at: str) -> None:
    meta = about["metadata"]
    event = {
        "metadata": {"generateName": "e-", "namespace": "default"},
        "involvedObject": {
            "kind": about["kind"],
            "name": meta["name"],
            "namespace": "default",
            "uid": meta["uid"],
        },
        "type": "Warning",
        "reason": "Unhealthy",
        "message": message,
        "lastTimestamp": at,
    }
    await there.client.create(EVENT, event, "default")


def unready(message: str = "containers with unready status: [c0]", at: str = LATE) -> Document:
    return {"type": "Ready", "status": "False", "message": message, "lastTransitionTime": at}


async def test_crash_is_shown_with_the_last_line_of_its_output(there: Any) -> None:
    status = {"conditions": [unready()], "containerStatuses": [CRASHED]}
    found = await add_pod(there, "p", status)
    assert await failures.describe(session(there), found) == (
        "c0: ended with exit code 1: ValueError: no port"
    )
    assert there.asked == [{"container": "c0", "tailLines": "20"}]
    there.restarted = True
    assert "ValueError" in await failures.describe(session(there), found), "restarted meanwhile"
    there.logs = b"\n"
    assert await failures.describe(session(there), found) == (
        "c0: ended with exit code 1; see its log"
    )


async def test_run_before_the_present_one_is_read_where_it_is_meant(there: Any) -> None:
    status = {"conditions": [unready()], "containerStatuses": [RESTARTED]}
    there.restarted = True
    found = await add_pod(there, "p", status)
    assert "ValueError: no port" in await failures.describe(session(there), found)
    assert [query.get("previous") for query in there.asked] == ["true"]


async def test_probe_is_quoted_from_the_status_or_from_its_event(there: Any) -> None:
    status = {"conditions": [unready()], "containerStatuses": [container({"running": {}})]}
    found = await add_pod(there, "p", status)
    assert await failures.describe(session(there), found) == "containers with unready status: [c0]"
    await warn(there, found, "Readiness probe failed: HTTP 500", EARLY)
    assert "probe" not in await failures.describe(session(there), found), "it was ready since"
    await warn(there, found, "Readiness probe failed: HTTP 503", LATE)
    assert await failures.describe(session(there), found) == "Readiness probe failed: HTTP 503"
    reported = "containers with unready status: [c0]; c0: readiness probe failed: refused"
    status["conditions"] = [unready(reported)]
    found = await add_pod(there, "q", status)
    assert await failures.describe(session(there), found) == "c0: readiness probe failed: refused"
    assert there.asked == []


async def test_warnings_from_before_the_last_success_are_not_shown(there: Any) -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": LATE}
    found = await add_pod(there, "p", {"conditions": [ready]})
    await warn(there, found, "old", EARLY)
    assert await failures.latest_warnings(session(there), found) == []
    await warn(there, found, "new", LATE)
    shown = await failures.latest_warnings(session(there), found)
    assert [item["message"] for item in shown] == ["new"]
    answer = await pods.ask(session(there), POD, "p")
    assert not any("old" in line for line in answer.lines)


async def test_why_of_controller_gives_a_common_cause_once(
    there: Any,
) -> None:
    reference = await add_owner(there)
    status = {"conditions": [unready()], "containerStatuses": [CRASHED]}
    for name in ("web-0", "web-1"):
        await add_pod(there, name, status, reference)
    refused = container(
        {"waiting": {"reason": "CreateContainerConfigError", "message": "no configmap web"}}
    )
    await add_pod(there, "web-2", {**status, "containerStatuses": [refused]}, reference)
    answer = await replicationcontrollers.ask(session(there), REPLICATIONCONTROLLER, "web")
    at = answer.lines.index("Not ready on their nodes:")
    assert answer.lines[at + 1 : at + 3] == [
        "  pod/web-0, pod/web-1  c0: ended with exit code 1: ValueError: no port",
        "  pod/web-2  c0: no configmap web",
    ]


FINISHED = Explanation(state=SchedulingState.FINISHED, summary="ran on n and failed", node="n")
PLACED = Explanation(state=SchedulingState.PLACED, summary="is on n", node="n")
READY = {"type": "Ready", "status": "True", "lastTransitionTime": LATE}


async def test_why_of_a_failed_pod_gives_its_cause(there: Any) -> None:
    there.explained = FINISHED
    ended = container({"terminated": {"exitCode": 3, "reason": "Error"}})
    await add_pod(there, "p", {"phase": "Failed", "containerStatuses": [ended]})
    answer = await pods.ask(session(there), POD, "p")
    assert answer.lines == [
        "pod/p ran on n and failed",
        "",
        "Its programs: failed: c0: ended with exit code 3: ValueError: no port",
    ]
    message = container({"terminated": {"exitCode": 3, "message": "no disk"}})
    await add_pod(there, "q", {"phase": "Failed", "containerStatuses": [message]})
    answer = await pods.ask(session(there), POD, "q")
    assert answer.lines[-1] == "Its programs: failed: c0: no disk"


async def test_why_of_a_broken_pod_begins_with_its_cause(there: Any) -> None:
    tried = Attempt(result="scheduled", time=EARLY, since=EARLY, node="n")
    there.explained = replace(PLACED, attempts=(tried,))
    status = {"phase": "Running", "conditions": [unready()], "containerStatuses": [CRASHED]}
    await add_pod(there, "p", status)
    lines = (await pods.ask(session(there), POD, "p")).lines
    assert lines[:2] == ["pod/p is on n", ""]
    assert lines[2].startswith("Its programs: not ready: c0: ended with exit code 1")
    assert lines.index("Attempts:") > 2


def test_missing_isolation_of_a_node_is_no_problem() -> None:
    isolation = {"type": ISOLATED, "status": "False", "lastTransitionTime": EARLY}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": LATE}
    node = {"status": {"conditions": [isolation, ready]}}
    assert failures.unmet(node) == []
    assert failures.last_well(node) == timestamps.parse(LATE)


async def test_why_of_a_pod_killed_for_memory_is_not_its_log(there: Any) -> None:
    there.explained = FINISHED
    killed = container({"terminated": {"exitCode": 137, "signal": 9, "reason": "OOMKilled"}})
    await add_pod(there, "p", {"phase": "Failed", "containerStatuses": [killed]})
    answer = await pods.ask(session(there), POD, "p")
    assert answer.lines[-1].startswith("Its programs: failed: c0: OOMKilled: memory ran out")
    assert there.asked == []


async def test_why_of_a_failed_pod_prefers_its_own_message(there: Any) -> None:
    there.explained = FINISHED
    killed = container({"terminated": {"exitCode": 137, "signal": 9}})
    status = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
    await add_pod(there, "p", {**status, "containerStatuses": [killed]})
    answer = await pods.ask(session(there), POD, "p")
    assert answer.lines[-1] == "Its programs: failed: Evicted: low on memory"
    await add_pod(there, "q", {"phase": "Failed"})
    answer = await pods.ask(session(there), POD, "q")
    assert answer.lines[-1] == "Its programs: failed"


async def test_why_of_a_completed_pod_names_no_failure(there: Any) -> None:
    there.explained = Explanation(
        state=SchedulingState.FINISHED, summary="ran on n and ended", node="n"
    )
    await add_pod(there, "p", {"phase": "Succeeded", "conditions": [unready("completed")]})
    answer = await pods.ask(session(there), POD, "p")
    assert answer.lines == ["pod/p ran on n and ended"]


async def test_why_without_a_scheduler_gives_the_cause(there: Any) -> None:
    status = {"conditions": [unready()], "containerStatuses": [CRASHED]}
    await add_pod(there, "p", status)
    answer = await pods.ask(session(there), POD, "p")
    assert answer.lines[0] == "pod/p: not ready: c0: ended with exit code 1: ValueError: no port"


async def test_why_of_a_pod_ready_between_crashes_gives_the_cause(there: Any) -> None:
    there.explained, there.restarted = PLACED, True
    started = timestamps.rfc3339_micro(there.clock.now())
    again = {**CRASHED, "ready": True, "restartCount": 3}
    again["state"] = {"running": {"startedAt": started}}
    status = {"phase": "Running", "conditions": [READY], "containerStatuses": [again]}
    await add_pod(there, "p", status)
    line = (
        "Its programs: ready after 3 restarts; "
        "the last one: c0: ended with exit code 1: ValueError: no port"
    )
    assert (await pods.ask(session(there), POD, "p")).lines[-1] == line
    await there.settle(599.0)
    assert (await pods.ask(session(there), POD, "p")).lines[-1] == line
    await there.settle(2.0)
    answer = await pods.ask(session(there), POD, "p")
    assert answer.lines[-1] == "Its programs: ready.", "it has run for long enough"


async def test_terminating_pods_are_not_listed_as_not_ready(there: Any) -> None:
    reference = await add_owner(there)
    status = {"conditions": [unready()], "containerStatuses": [CRASHED]}
    await add_pod(there, "web-0", status, reference)
    await there.client.delete(POD, "web-0", "default")
    deleted = await there.client.get_document(POD, "web-0", "default")
    assert deleted["metadata"]["deletionTimestamp"]
    answer = await replicationcontrollers.ask(session(there), REPLICATIONCONTROLLER, "web")
    assert not any("web-0" in line or "Not ready" in line for line in answer.lines)


async def test_wait_that_times_out_names_no_terminating_pod(there: Any, capsys: Any) -> None:
    reference = await add_owner(there)
    status = {"conditions": [unready()], "containerStatuses": [CRASHED]}
    for name in ("web-0", "web-1"):
        await add_pod(there, name, status, reference)
    await there.client.delete(POD, "web-0", "default")
    targets = [(REPLICATIONCONTROLLER, "web", "default")]
    assert await waiting.wait_ready(session(there), targets, timeout_s=5.0) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "next: grange describe pod/web-1"
