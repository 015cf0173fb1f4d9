"""Paths below an object: each changes its own part of it, atomically, or reads what belongs to it."""

from collections.abc import AsyncGenerator

import pytest
from tests.unit.apiserver.server import CONFIGMAPS, NODES, PODS, Server, configmap, pod

from grange.api.explanation import Explanation, SchedulingState
from grange.api.meta import Document, Resource
from grange.api.status import ApiError, BadRequest
from grange.apiserver.log_response import LogStream
from grange.apiserver.pod_logs import PodLogOptions
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

# --- binding -----------------------------------------------------------------------------------


async def test_binding_sets_node_and_condition_in_one_write(server: Server) -> None:
    made = await server.made(PODS, pod())
    before = server.store.revision
    answer = await server.bind("web", "node-1")
    assert (answer.code, answer.body["status"]) == (201, "Success")
    assert server.store.revision == before + 1
    bound = (await server.get(f"{PODS}/web")).body
    assert bound["spec"]["nodeName"] == "node-1"
    assert bound["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "True",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
    assert bound["metadata"]["uid"] == made["metadata"]["uid"]


async def test_binding_replaces_the_condition_that_stated_why_not(server: Server) -> None:
    await server.made(PODS, pod())
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "x"}
    other = {"type": "Other", "status": "True"}
    await server.patch(f"{PODS}/web/status", {"status": {"conditions": [waiting, other]}})
    await server.bind("web")
    conditions = (await server.get(f"{PODS}/web")).body["status"]["conditions"]
    assert [(item["type"], item["status"]) for item in conditions] == [
        ("Other", "True"),
        ("PodScheduled", "True"),
    ]
    assert "reason" not in conditions[1]


async def test_pod_is_bound_once(server: Server) -> None:
    await server.made(PODS, pod())
    await server.bind("web", "node-1")
    for node in ("node-1", "node-2"):
        answer = await server.bind("web", node)
        assert (answer.code, answer.reason) == (409, "Conflict")
        assert 'already assigned to node "node-1"' in answer.message


async def test_pod_that_is_going_is_not_bound(server: Server) -> None:
    asked = pod()
    asked["metadata"]["finalizers"] = ["example.com/hold"]
    await server.made(PODS, asked)
    await server.delete(f"{PODS}/web")
    answer = await server.bind("web")
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert "being deleted" in answer.message


async def test_binding_that_names_another_pod_of_that_name_conflicts(server: Server) -> None:
    """The scheduler decided about a pod that was since deleted and made again."""
    made = await server.made(PODS, pod())
    body = {"metadata": {"uid": "before"}, "target": {"name": "n"}}
    assert (await server.create(f"{PODS}/web/binding", body)).reason == "Conflict"
    body["metadata"]["uid"] = made["metadata"]["uid"]
    assert (await server.create(f"{PODS}/web/binding", body)).code == 201


async def test_binding_of_no_pod_is_not_found(server: Server) -> None:
    assert (await server.bind("web")).code == 404


async def test_binding_carries_annotations_to_the_pod(server: Server) -> None:
    asked = pod()
    asked["metadata"]["annotations"] = {"mine": "1"}
    await server.made(PODS, asked)
    meta = {"annotations": {"example.com/score": "7"}}
    await server.create(f"{PODS}/web/binding", {"metadata": meta, "target": {"name": "n"}})
    kept = (await server.get(f"{PODS}/web")).body["metadata"]["annotations"]
    assert kept == {"mine": "1", "example.com/score": "7"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"target": {}}, 422),
        ({"target": {"name": "UPPER"}}, 422),
        ({"target": {"name": "n", "kind": "Pod"}}, 400),
        ({"target": "n"}, 400),
        ({"kind": "Pod", "target": {"name": "n"}}, 400),
        ({"metadata": {"name": "other"}, "target": {"name": "n"}}, 400),
        ({"metadata": {"annotations": {"a": 5}}, "target": {"name": "n"}}, 400),
        ({"metadata": {"annotations": {"-": "b"}}, "target": {"name": "n"}}, 422),
    ],
)
async def test_binding_that_makes_no_sense_is_refused(
    server: Server, body: Document, code: int
) -> None:
    await server.made(PODS, pod())
    assert (await server.create(f"{PODS}/web/binding", body)).code == code
    assert "nodeName" not in (await server.get(f"{PODS}/web")).body["spec"]


async def test_only_a_binding_places_a_pod(server: Server) -> None:
    await server.made(PODS, pod())
    answer = await server.patch(f"{PODS}/web", {"spec": {"nodeName": "n"}})
    assert (answer.code, answer.fields) == (422, ["spec.nodeName"])


# --- log ---------------------------------------------------------------------------------------


class Source:
    """Output that shows how it was asked for."""

    def __init__(self) -> None:
        self.asked: list[PodLogOptions] = []
        self.fault: ApiError | None = None
        self.pieces = [b"", b"one\n", b"two\n"]
        self.closed = 0

    async def read(self, pod: Document, options: PodLogOptions) -> AsyncGenerator[bytes, None]:
        self.asked.append(options)
        if self.fault is not None:
            raise self.fault
        try:
            for piece in self.pieces:
                yield piece
        finally:
            self.closed += 1


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
async def logging(clock: Clock, rng: Stream, log: Logger, source: Source) -> Server:
    made = Server(clock=clock, rng=rng, log=log, logs=source)
    await made.application.bootstrap()
    await made.made(PODS, pod())
    await made.bind("web")
    return made


async def text_of(server: Server, **query: str) -> str:
    answer = await server.get(f"{PODS}/web/log", **query)
    assert answer.code == 200, answer.text
    assert answer.response.content_type == "text/plain"
    stream = answer.response.chunks
    assert isinstance(stream, LogStream)
    text = b"".join([chunk async for chunk in stream]).decode()
    await stream.aclose()
    return text


async def test_log_streams_what_the_source_gives(logging: Server, source: Source) -> None:
    assert await text_of(logging) == "one\ntwo\n"
    assert (source.asked, source.closed) == ([PodLogOptions("main")], 1)


async def test_log_hands_on_all_options(logging: Server, source: Source) -> None:
    await text_of(
        logging,
        container="main",
        follow="true",
        previous="1",
        sinceSeconds="60",
        tailLines="0",
        timestamps="true",
        limitBytes="10",
    )
    await text_of(logging, sinceTime="2026-01-01T00:00:00Z")
    assert source.asked == [
        PodLogOptions("main", True, True, 60, "", 0, True, 10),
        PodLogOptions("main", since_time="2026-01-01T00:00:00Z"),
    ]


async def test_unreadable_log_is_an_error_not_an_empty_log(logging: Server, source: Source) -> None:
    source.fault = BadRequest("previous terminated container not found")
    answer = await logging.get(f"{PODS}/web/log", previous="true")
    assert (answer.code, answer.message) == (400, "previous terminated container not found")


async def test_empty_log_is_empty(logging: Server, source: Source) -> None:
    source.pieces = []
    answer = await logging.get(f"{PODS}/web/log")
    assert (answer.code, answer.text, answer.response.chunks) == (200, "", None)


async def test_log_that_is_closed_unread_closes_its_source(logging: Server, source: Source) -> None:
    stream = (await logging.get(f"{PODS}/web/log", follow="true")).response.chunks
    assert isinstance(stream, LogStream)
    await stream.aclose()
    assert source.closed == 1


@pytest.mark.parametrize(
    "query",
    [
        {"container": "none"},
        {"tailLines": "-1"},
        {"limitBytes": "many"},
        {"sinceTime": "yesterday"},
        {"sinceTime": "2026-01-01T00:00:00Z", "sinceSeconds": "1"},
    ],
)
async def test_log_options_that_make_no_sense_are_refused(
    logging: Server, source: Source, query: dict[str, str]
) -> None:
    assert (await logging.get(f"{PODS}/web/log", **query)).code == 400
    assert source.asked == []


async def test_container_must_be_named_where_there_are_several(
    logging: Server, source: Source
) -> None:
    asked = pod("many")
    asked["spec"]["containers"].append({"name": "side", "command": ["x"]})
    await logging.made(PODS, asked)
    await logging.bind("many")
    answer = await logging.get(f"{PODS}/many/log")
    assert answer.code == 400
    assert "['main', 'side']" in answer.message
    note = {"metadata": {"annotations": {"kubectl.kubernetes.io/default-container": "side"}}}
    await logging.patch(f"{PODS}/many", note)
    stream = (await logging.get(f"{PODS}/many/log")).response.chunks
    assert isinstance(stream, LogStream)
    await stream.aclose()
    assert source.asked[-1].container == "side"


async def test_pod_without_a_node_has_no_log(logging: Server) -> None:
    await logging.made(PODS, pod("new"))
    answer = await logging.get(f"{PODS}/new/log")
    assert answer.code == 400
    assert "does not have a host assigned" in answer.message


async def test_server_without_agents_is_an_error(server: Server) -> None:
    await server.made(PODS, pod())
    await server.bind("web")
    assert (await server.get(f"{PODS}/web/log")).code == 503


# --- what there is -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", f"{PODS}/web/proxy", 404),
        ("GET", f"{CONFIGMAPS}/settings/status", 404),
        ("PUT", f"{NODES}/n/finalize", 404),
        ("GET", f"{PODS}/web/binding", 405),
        ("DELETE", f"{PODS}/web/status", 405),
        ("POST", f"{PODS}/web/log", 405),
    ],
)
async def test_subresource_or_verb_that_is_not_served_is_an_error(
    server: Server, method: str, path: str, code: int
) -> None:
    await server.made(PODS, pod())
    await server.made(CONFIGMAPS, configmap())
    answer = await server.ask(method, path, {})
    assert answer.code == code
    assert answer.body["kind"] == "Status"


# --- why ---------------------------------------------------------------------------------------


class Answers:
    """Explains every pod."""

    async def explain(self, pod: Resource) -> Explanation:
        return Explanation(state=SchedulingState.BACKOFF, summary=f"waits as {pod.metadata.name}")

    async def pool_report(self, what: str, pool: str) -> Document:
        return {"refusal": f"{what} of {pool}"}


POOLS = "/apis/grange.dev/v1alpha1/nodepools"


@pytest.mark.parametrize(("part", "kind"), [("plan", "NodePoolPlan"), ("audit", "NodePoolAudit")])
async def test_pool_reports_are_answered_by_the_node_controller(
    clock: Clock, rng: Stream, log: Logger, part: str, kind: str
) -> None:
    server = Server(clock=clock, rng=rng, log=log, explainer=Answers())
    await server.application.bootstrap()
    await server.made(POOLS, {"metadata": {"name": "p"}, "spec": {"provider": "local"}})
    body = (await server.get(f"{POOLS}/p/{part}")).body
    assert (body["kind"], body["refusal"]) == (kind, f"{part} of p")
    assert (await server.get(f"{POOLS}/none/{part}")).code == 404


async def test_why_is_answered_by_the_scheduler(clock: Clock, rng: Stream, log: Logger) -> None:
    server = Server(clock=clock, rng=rng, log=log, explainer=Answers())
    await server.application.bootstrap()
    await server.made(PODS, pod())
    body = (await server.get(f"{PODS}/web/why")).body
    assert (body["apiVersion"], body["kind"]) == ("grange.dev/v1alpha1", "Explanation")
    assert (body["state"], body["summary"]) == ("Backoff", "waits as web")
    assert (await server.get(f"{PODS}/none/why")).code == 404
    assert (await server.get(f"{NODES}/none/why")).code == 404
    refused = await server.create(f"{PODS}/web/why", {})
    assert refused.code == 405
    listed = (await server.get("/api/v1")).body["resources"]
    (part,) = [item for item in listed if item["name"] == "pods/why"]
    assert (part["kind"], part["verbs"]) == ("Explanation", ["get"])


async def test_why_without_a_scheduler_shows_where_else_to_look(server: Server) -> None:
    await server.made(PODS, pod())
    answer = await server.get(f"{PODS}/web/why")
    assert (answer.code, answer.reason) == (503, "ServiceUnavailable")
    assert "PodScheduled" in answer.message
