"""The audit events of requests: who asked, for what, with which answer; no secrets."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from grange.api.http import ADMIN, Request, Response, User
from grange.api.kinds import BUILT_IN
from grange.api.scheme import Scheme
from grange.apiserver.request_audit import RequestAudit
from grange.base.clock import Clock
from grange.base.rng import Stream

ALICE = User("alice", ("dev", "system:authenticated"))
POD = "/api/v1/namespaces/default/pods/web"


@pytest.fixture
def record(clock: Clock, rng: Stream) -> Callable[[Request, Response], dict[str, Any]]:
    lines: list[bytes] = []
    audit = RequestAudit(lines.append, Scheme(BUILT_IN), clock, rng)

    def recorded(request: Request, response: Response) -> dict[str, Any]:
        audit.record(request, "10.0.0.7", response, 0.0125)
        event: dict[str, Any] = json.loads(lines.pop())
        return event

    return recorded


Record = Callable[[Request, Response], dict[str, Any]]


async def test_event_names_user_object_code_and_duration(record: Record) -> None:
    headers = {"user-agent": "kubectl/v1.36"}
    event = record(Request("DELETE", POD, headers=headers, user=ALICE), Response(403))
    assert event["kind"] == "Event"
    assert event["apiVersion"] == "audit.k8s.io/v1"
    assert event["user"] == {"username": "alice", "groups": ["dev", "system:authenticated"]}
    assert event["verb"] == "delete"
    assert event["objectRef"] == {
        "resource": "pods",
        "namespace": "default",
        "name": "web",
        "apiVersion": "v1",
    }
    assert event["responseStatus"]["code"] == 403
    assert event["sourceIPs"] == ["10.0.0.7"]
    assert event["userAgent"] == "kubectl/v1.36"
    assert event["annotations"] == {"apiserver.latency.k8s.io/total": "12.500ms"}
    assert event["requestReceivedTimestamp"] < event["stageTimestamp"]
    assert "impersonatedUser" not in event


async def test_event_names_whom_an_administrator_impersonates(record: Record) -> None:
    headers = {"Impersonate-User": "alice", "Impersonate-Group": "dev"}
    event = record(Request("GET", POD, headers=headers, user=ADMIN), Response(200))
    assert event["user"]["username"] == ADMIN.name
    assert event["impersonatedUser"] == {"username": "alice", "groups": ["dev"]}


async def test_created_object_is_named_by_the_server(record: Record) -> None:
    path = "/api/v1/namespaces/default/pods"
    body = b'{"metadata": {"name": "web-x7k2p", "uid": "u"}, "spec": {}}'
    event = record(Request("POST", path, user=ALICE), Response(201, body))
    assert (event["verb"], event["objectRef"]["name"]) == ("create", "web-x7k2p")
    for answer in (Response(409, body), Response(201, b"half"), Response(201, b"k8s", "other")):
        assert "name" not in record(Request("POST", path, user=ALICE), answer)["objectRef"]


async def test_secrets_of_a_request_are_not_recorded(record: Record) -> None:
    headers = {"authorization": "Bearer swordfish", "user-agent": "x"}
    query = {"command": "swordfish", "container": "main"}
    request = Request("POST", f"{POD}/exec", query, headers, b"swordfish", ALICE)
    event = record(request, Response(101))
    assert "swordfish" not in json.dumps(event)
    assert event["objectRef"]["subresource"] == "exec"


async def chunks() -> AsyncIterator[bytes]:
    yield b"{}"


async def test_stream_is_recorded_at_its_beginning(record: Record) -> None:
    request = Request("GET", "/api/v1/pods", {"watch": "1"}, user=ALICE)
    event = record(request, Response(200, chunks=chunks()))
    assert (event["verb"], event["stage"]) == ("watch", "ResponseStarted")
    assert record(Request("GET", POD), Response(200))["stage"] == "ResponseComplete"


async def test_paths_that_are_no_objects_have_their_method(record: Record) -> None:
    for path in ("/version", "/apis/none/v1/things", "/" + "x" * 5000):
        event = record(Request("GET", path, headers={"user-agent": "y" * 5000}), Response(404))
        assert event["verb"] == "get"
        assert "objectRef" not in event
        assert event["user"]["username"] == "system:anonymous"
        assert len(json.dumps(event)) < 2500
