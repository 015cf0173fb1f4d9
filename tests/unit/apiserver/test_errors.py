"""Whatever goes wrong, the caller gets a Status with the right code, and the server goes on."""

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.apiserver.server import (
    CONFIGMAPS,
    PODS,
    Server,
    configmap,
    pod,
)

from grange.api.http import ADMIN, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Request
from grange.api.kinds import CONFIGMAP
from grange.apiserver import storage
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.sim.pytest_plugin import EPOCH, Records
from grange.store import errors
from grange.store.memory import MemoryStore


class Refusing(MemoryStore):
    """A store that refuses writes."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: Exception | None = None

    async def put(self, *positional: Any, **named: Any) -> Any:
        if self.fault is not None:
            raise self.fault
        return await super().put(*positional, **named)


@pytest.mark.parametrize(
    ("fault", "code", "reason", "reported"),
    [
        (
            errors.StorageFull("free space, then try again"),
            507,
            "InsufficientStorage",
            "free space",
        ),
        (errors.StoreClosed("it failed"), 503, "ServiceUnavailable", "closed"),
        (errors.Compacted("gone"), 410, "Expired", "list again"),
        (errors.StoreError("odd"), 500, "InternalError", "odd"),
        (
            errors.RevisionMismatch("k", expected=0, actual=4),
            409,
            "AlreadyExists",
            'configmaps "settings" already exists',
        ),
        (errors.RevisionMismatch("k", expected=4, actual=0), 404, "NotFound", "not found"),
        (errors.RevisionMismatch("k", expected=4, actual=5), 409, "Conflict", "been modified"),
    ],
)
async def test_store_error_becomes_a_status(
    clock: LoopClock,
    rng: Stream,
    log: Logger,
    fault: Exception,
    code: int,
    reason: str,
    reported: str,
) -> None:
    store = Refusing()
    server = Server(clock=clock, rng=rng, log=log, store=store)
    await server.application.bootstrap()
    store.fault = fault
    answer = await server.create(CONFIGMAPS, configmap())
    assert (answer.code, answer.reason) == (code, reason)
    assert reported in answer.message
    assert answer.body["kind"] == "Status"
    assert answer.body["status"] == "Failure"


async def test_status_has_its_fields_in_the_order_of_kubernetes(server: Server) -> None:
    failed = await server.create(CONFIGMAPS, {"metadata": {"name": "A"}})
    fields = ["kind", "apiVersion", "metadata", "status", "message", "reason", "details", "code"]
    assert list(failed.body) == fields
    await server.made(CONFIGMAPS, configmap())
    deleted = await server.delete(f"{CONFIGMAPS}/settings")
    assert list(deleted.body) == ["kind", "apiVersion", "metadata", "status", "details"]
    await server.made(PODS, pod())
    created = await server.bind("web")
    assert list(created.body) == ["kind", "apiVersion", "metadata", "status", "details", "code"]


def test_deletion_of_what_is_gone_already_is_not_found() -> None:
    fault = errors.RevisionMismatch("k", expected=0, actual=0)
    assert storage.translate(fault, CONFIGMAP, "x").reason == "NotFound"


async def test_bug_is_answered_and_logged_but_not_reported(
    clock: LoopClock, rng: Stream, log: Logger, records: Records
) -> None:
    store = Refusing()
    server = Server(clock=clock, rng=rng, log=log, store=store)
    await server.application.bootstrap()
    store.fault = ZeroDivisionError("secret detail")
    answer = await server.create(CONFIGMAPS, configmap())
    assert (answer.code, answer.reason) == (500, "InternalError")
    assert "secret" not in answer.text
    logged = [facts["path"] for event, facts in records if event == "request failed"]
    assert logged == [CONFIGMAPS]
    store.fault = None
    assert (await server.create(CONFIGMAPS, configmap())).code == 201


async def test_requests_leave_one_line_without_their_content(
    server: Server, records: Records
) -> None:
    records.clear()
    secret = {"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}}
    await server.made("/api/v1/namespaces/default/secrets", secret)
    lines = [facts for event, facts in records if event == "request"]
    assert [(line["verb"], line["code"], line["user"]) for line in lines] == [
        ("create", 201, "grange:admin")
    ]
    assert "hunter2" not in str(records)


async def test_unauthorized_and_retry_headers_are_set(server: Server) -> None:
    await server.store.close()
    answer = await server.create(CONFIGMAPS, configmap())
    assert (answer.code, answer.headers["Retry-After"]) == (503, "1")


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "web", "0", "-"]),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "name",
                    "spec",
                    "labels",
                    "containers",
                    "status",
                    "data",
                    "op",
                    "path",
                    "finalizers",
                    "uid",
                    "target",
                    "value",
                    "preconditions",
                    "ownerReferences",
                    "$patch",
                ]
            ),
            children,
            max_size=4,
        )
    ),
    max_leaves=12,
)
REQUESTS = st.tuples(
    st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]),
    st.sampled_from([PODS, f"{PODS}/web", f"{PODS}/web/status", f"{PODS}/web/binding", CONFIGMAPS])
    | st.sampled_from([f"{PODS}/web/eviction", "/api/v1/namespaces/default/finalize", "/api/v1"]),
    st.one_of(JSONS.map(lambda value: json.dumps(value).encode()), st.binary(max_size=20)),
    st.sampled_from(["application/json", MERGE_PATCH, JSON_PATCH, STRATEGIC_MERGE_PATCH]),
    st.dictionaries(
        st.sampled_from(["dryRun", "limit", "continue", "labelSelector", "fieldSelector"]),
        st.sampled_from(["", "All", "1", "a=b", "metadata.name=web", "x"]),
        max_size=2,
    ),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(REQUESTS, min_size=1, max_size=6))
async def test_no_request_is_answered_with_an_internal_error(
    requests: list[tuple[str, str, bytes, str, dict[str, str]]],
) -> None:
    """Whatever callers send is their fault or fine, never the server's."""
    server = Server(clock=LoopClock(EPOCH), rng=Stream(1), log=Logger("test"))
    await server.application.bootstrap()
    await server.made(PODS, pod())
    for method, path, body, media, query in requests:
        headers = {"content-type": media}
        request = Request(method, path, query, headers, body, ADMIN)
        response = await server.application.handle(request)
        assert response.status < 500, response.body
        json.loads(response.body)


@pytest.mark.parametrize(
    ("path", "reported"),
    [
        (
            "/apis/apps/v1/namespaces/default/deployments",
            "use ReplicationController in grange.dev/v1alpha1; nodes here run programs of the "
            "machine, not images: name one in command, for example "
            '{"apiVersion":"grange.dev/v1alpha1","kind":"ReplicationController"',
        ),
        (
            "/api/v1/namespaces/default/replicationcontrollers",
            "ReplicationController in grange.dev",
        ),
        (
            "/apis/batch/v1beta1/namespaces/default/cronjobs",
            "CronJob is served in batch/v1",
        ),
        (
            "/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets",
            "PodDisruptionBudget is served in policy/v1",
        ),
        ("/apis/example.com/v1/widgets", "the server serves no API example.com/v1; see /apis"),
    ],
)
async def test_kind_that_is_not_served_names_the_nearest(
    server: Server, path: str, reported: str
) -> None:
    answer = await server.create(path, {})
    assert (answer.code, answer.reason) == (404, "NotFound")
    assert reported in answer.message
