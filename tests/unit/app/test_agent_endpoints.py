"""What an agent serves to the API server, and the logs that the API server gets from it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec import structs
from tests.unit.app.revocation_lists import RevocationList, followed

from grange.agent.agent_streams import AgentStreams
from grange.agent.container_logs import AgentLogs
from grange.agent.container_runtime import ContainerID, PodSetup, Program
from grange.agent.container_streams import STDOUT
from grange.agent.memory_streams import echo
from grange.agent.pod_tunnels import PodTunnels
from grange.agent.runtimes.fake import FakeMachine, FakeRuntime, Script
from grange.agent.usage_sampler import UsageSampler
from grange.api.http import ADMIN, ANONYMOUS, SUBPROTOCOL, Request, Response, User
from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.meta import Document, ObjectKey
from grange.api.node_identity import API_SERVER, API_SERVERS, NODES
from grange.api.remote_command import STDIN, V5, message
from grange.api.resource_metrics import UsageSample
from grange.api.status import ApiError, BadRequest, NotFound, ServiceUnavailable
from grange.api.stream_requests import (
    ATTACH,
    DATAGRAM_PROTOCOL,
    EXEC,
    PORT_FORWARD,
    TUNNEL,
    TUNNEL_PROTOCOL,
    StreamRequest,
)
from grange.apiserver.log_response import log_options
from grange.apiserver.pod_logs import PodLogOptions
from grange.app.agent_endpoints import STREAM, USAGE_PATH, AgentEndpoints
from grange.app.node_connections import AgentConnection, NoSuchNode
from grange.app.node_logs import NodeLogs, log_query
from grange.app.node_streams import NodeStreams
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.message_socket import MessageSocket, socket_pair
from grange.base.metrics import registry
from grange.base.ratelimited import RateLimitedLogger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.errors import Unreachable

SERVER = User(API_SERVER, (API_SERVERS,))
POD_DOCUMENT: Document = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
    "spec": {"nodeName": "far", "containers": [{"name": "main"}, {"name": "side"}]},
}
LOG = "/api/v1/namespaces/default/pods/web/log"
MAIN = PodLogOptions(container="main")


class Node:
    """An agent with one pod; in place of connections to it, too."""

    def __init__(self, clock: Clock, log: Logger, listed: RevocationList) -> None:
        self.listed = listed
        output = ((0, "one"), (0, "two"))
        machine = FakeMachine({"run": Script(output=output)}, responders={"cat": echo})
        self.runtime = FakeRuntime(machine, clock)
        self.tunnels = PodTunnels(AgentStreams(self.runtime), self.runtime, clock)
        self.usage = UsageSampler(self.runtime, ("far",), clock)
        self.endpoints = AgentEndpoints(
            AgentLogs(self.runtime, clock),
            self.tunnels,
            self.usage,
            registry(),
            self.listed.revocations,
            RateLimitedLogger(log, clock),
        )
        self.endpoints.pod = self.find
        self.opened: list[str] = []
        self.is_there = True
        self.answer: Response | None = None
        self.clock, self.patience_s = clock, 0.0
        self.tries, self.unreachable = 0, 0

    def find(self, key: ObjectKey) -> Pod | None:
        return msgspec.convert(POD_DOCUMENT, POD.view) if key.name == "web" else None

    async def start(self) -> None:
        await self.runtime.prepare(PodSetup("u1", "default", "web", "far"))
        await self.runtime.start(ContainerID("u1", "main", 0), Program(("run",), {}), ())

    @asynccontextmanager
    async def open(self, node: str) -> AsyncIterator[AgentConnection]:
        self.opened.append(node)
        if not self.is_there:
            raise NoSuchNode(f"there is no node {node} to ask")
        yield AgentConnection(node, self, self.clock, self.patience_s)

    async def send(self, request: Request) -> Response:
        self.tries += 1
        if self.tries <= self.unreachable:
            raise Unreachable("no connection")
        return self.answer or await self.endpoints.handle(replace(request, user=SERVER))

    async def close(self) -> None:
        """There is nothing to close."""


@pytest.fixture
async def node(clock: Clock, log: Logger, rng: Stream) -> AsyncGenerator[Node, None]:
    async with followed(clock, rng, log) as listed:
        yield Node(clock, log, listed)


async def asked(node: Node, path: str, user: User = SERVER, method: str = "GET") -> Response:
    return await node.endpoints.handle(Request(method, path, user=user))


@pytest.mark.parametrize(
    "user",
    [
        ANONYMOUS,
        ADMIN,
        User("system:node:other", (NODES, "system:authenticated")),
        User(API_SERVER, (NODES,)),
        User("system:node:other", (API_SERVERS,)),
    ],
)
@pytest.mark.parametrize("path", ["/healthz", "/metrics", USAGE_PATH, LOG, "/"])
async def test_only_the_api_server_is_served(node: Node, user: User, path: str) -> None:
    answer = await asked(node, path, user)
    assert answer.status == 403
    assert answer.chunks is None


NODE = User("system:node:other", (NODES, "system:authenticated"))
TUNNEL_PATH = LOG.replace("log", TUNNEL)


async def tunnel(node: Node, query: Mapping[str, str], *, protocol: str = TUNNEL_PROTOCOL) -> int:
    headers = {"upgrade": "websocket", SUBPROTOCOL: protocol}
    request = Request("GET", TUNNEL_PATH, query, headers, user=NODE)
    return (await node.endpoints.handle(request)).status


async def test_other_nodes_reach_ports_of_services(node: Node) -> None:
    node.tunnels.exposes = lambda *asked: asked == ("u1", 8080, "TCP")
    assert await tunnel(node, {"port": "8080"}) == 404  # the pod is not prepared yet
    await node.start()
    assert await tunnel(node, {"port": "8080"}) == 101
    assert await tunnel(node, {"port": "8080"}, protocol="other") == 400
    assert await tunnel(node, {"port": "8080", "uid": "u2"}) == 404
    assert await tunnel(node, {"port": "22"}) == 403
    assert await tunnel(node, {"port": "8080"}, protocol=DATAGRAM_PROTOCOL) == 403
    node.tunnels.exposes = lambda *asked: asked == ("u1", 8080, "UDP")
    assert await tunnel(node, {"port": "8080"}, protocol=DATAGRAM_PROTOCOL) == 101
    assert await tunnel(node, {"port": "8080"}) == 403
    for port in ("", "0", "65536", "-1", "8080x", "٣"):
        assert await tunnel(node, {"port": port}) == 400


async def test_revoked_node_is_refused_until_it_is_let_in(node: Node, clock: Clock) -> None:
    node.tunnels.exposes = lambda *asked: True
    await node.start()
    await node.listed.revoke("other")
    await clock.sleep(1)
    answer = await asked(node, TUNNEL_PATH, NODE)
    assert answer.status == 403
    assert b"node other is revoked (stolen)" in answer.body
    another = User("system:node:another", (NODES, "system:authenticated"))
    headers = {"upgrade": "websocket", SUBPROTOCOL: TUNNEL_PROTOCOL}
    request = Request("GET", TUNNEL_PATH, {"port": "8080"}, headers, user=another)
    assert (await node.endpoints.handle(request)).status == 101
    await node.listed.let_in("other")
    await clock.sleep(1)
    assert await tunnel(node, {"port": "8080"}) == 101


async def test_tunnels_of_a_node_end_when_it_is_revoked(node: Node, clock: Clock) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    class Endless:
        async def open(self, pod: Document, request: StreamRequest) -> Response:
            async def serve(socket: MessageSocket) -> None:
                try:
                    started.set()
                    await asyncio.Event().wait()
                finally:
                    ended.set()

            return Response(101, upgrade=serve)

    node.endpoints._streams = Endless()
    headers = {"upgrade": "websocket", SUBPROTOCOL: TUNNEL_PROTOCOL}
    request = Request("GET", TUNNEL_PATH, {"port": "8080"}, headers, user=NODE)
    answer = await node.endpoints.handle(request)
    assert answer.upgrade is not None
    async with Nursery("tunnel") as nursery:
        nursery.start(answer.upgrade(socket_pair()[0]), name="tunnel")
        await started.wait()
        await clock.sleep(60)
        assert not ended.is_set()
        await node.listed.revoke("other")
        async with clock.timeout(2):
            await ended.wait()


async def test_other_nodes_open_nothing_else_by_that_path(node: Node) -> None:
    await node.start()
    for operation in (EXEC, ATTACH, PORT_FORWARD):
        wanted = structs.replace(CAT, operation=operation)
        assert await tunnel(node, {STREAM: msgspec.json.encode(wanted).decode()}) == 400
    assert (await asked(node, TUNNEL_PATH + "/", NODE)).status == 403


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/healthz", 200),
        ("/metrics", 200),
        (USAGE_PATH, 503),
        ("/", 404),
        ("/api/v1/pods", 404),
        ("/api/v1/namespaces/default/pods/web/status", 404),
        ("/api/v1/namespaces/default/pods/other/log", 404),
        (LOG, 400),
        (LOG + "/more", 404),
    ],
)
async def test_paths_are_answered(node: Node, path: str, code: int) -> None:
    assert (await asked(node, path)).status == code


async def test_nothing_can_be_written(node: Node) -> None:
    assert (await asked(node, LOG, method="POST")).status == 405


async def test_pod_of_another_uid_is_not_found(node: Node) -> None:
    query = {"uid": "u2", "container": "main"}
    answer = await node.endpoints.handle(Request("GET", LOG, query, user=SERVER))
    assert answer.status == 404


async def test_usage_is_what_was_measured(node: Node) -> None:
    await node.start()
    await node.usage.measure()
    answer = await asked(node, USAGE_PATH)
    assert msgspec.json.decode(answer.body, type=UsageSample) == node.usage.newest()


async def test_fault_of_the_agent_is_an_answer(node: Node) -> None:
    def broken(key: ObjectKey) -> Pod | None:
        raise ZeroDivisionError("secret detail")

    node.endpoints.pod = broken
    answer = await asked(node, LOG)
    assert answer.status == 500
    assert b"secret" not in answer.body


# --- logs --------------------------------------------------------------------------------------


class Local:
    """Logs of this machine."""

    async def read(self, pod: Document, options: PodLogOptions) -> AsyncGenerator[bytes, None]:
        yield b"local"


def logs(node: Node, names: tuple[str, ...] = ()) -> NodeLogs:
    return NodeLogs(Local(), lambda: names, node)  # type: ignore[arg-type]  # in place of connections


async def text(source: NodeLogs, options: PodLogOptions = MAIN) -> bytes:
    return b"".join([piece async for piece in source.read(POD_DOCUMENT, options)])


async def test_log_comes_from_the_agent_of_the_node(node: Node) -> None:
    await node.start()
    assert await text(logs(node)) == b"one\ntwo\n"
    assert await text(logs(node), replace(MAIN, tail_lines=1)) == b"two\n"
    assert node.opened == ["far", "far"]


@pytest.mark.parametrize(
    ("phase", "expected"), [("Running", NoSuchNode), ("Succeeded", NotFound), ("Failed", NotFound)]
)
async def test_log_of_a_finished_pod_ends_with_its_node(
    node: Node, phase: str, expected: type[ApiError]
) -> None:
    node.is_there = False
    document = {**POD_DOCUMENT, "status": {"phase": phase}}
    with pytest.raises(expected) as raised:
        [piece async for piece in logs(node).read(document, MAIN)]
    if expected is NotFound:
        assert "are gone: its node far does not exist any more; " in str(raised.value)


async def test_log_of_a_local_node_needs_no_connection(node: Node) -> None:
    assert await text(logs(node, ("far",))) == b"local"
    assert node.opened == []


async def test_new_agent_is_tried_again_until_it_serves(node: Node) -> None:
    await node.start()
    node.unreachable = 3
    assert isinstance(await refusal(node), ServiceUnavailable)
    assert node.tries == 1
    node.patience_s = 5.0
    assert await text(logs(node)) == b"one\ntwo\n"
    node.tries, node.unreachable = 0, 10_000
    assert "no connection" in str(await refusal(node))
    assert 10 < node.tries < 100


async def refusal(node: Node, options: PodLogOptions = MAIN) -> ApiError:
    with pytest.raises(ApiError) as raised:
        await text(logs(node), options)
    return raised.value


async def test_refusal_of_an_agent_has_its_reason(node: Node) -> None:
    waiting = await refusal(node)
    assert isinstance(waiting, BadRequest)
    assert "waiting to start" in str(waiting)
    node.answer = Response(404, b'{"kind": "Status", "reason": "NotFound", "message": "gone"}')
    assert isinstance(await refusal(node), NotFound)


@pytest.mark.parametrize("code", [204, 302, 401, 403, 409, 500, 503])
async def test_other_answers_mean_that_the_agent_fails(node: Node, code: int) -> None:
    node.answer = Response(code, b"\xff garbage")
    found = await refusal(node)
    assert isinstance(found, ServiceUnavailable)
    assert "node far" in str(found)


# --- connections into pods ---------------------------------------------------------------------


CAT = StreamRequest(EXEC, "main", ("cat", "ü ?&"), stdin=True, stdout=True, protocols=("none", V5))


def streams(node: Node) -> NodeStreams:
    return NodeStreams(None, tuple, node)  # type: ignore[arg-type]  # in place of connections


async def test_command_runs_on_the_node(node: Node) -> None:
    await node.start()
    response = await streams(node).open(POD_DOCUMENT, CAT)
    assert response.headers == {SUBPROTOCOL: V5}
    assert response.upgrade is not None
    client, server = socket_pair()
    async with Nursery("test") as nursery:
        nursery.start(response.upgrade(server), name="server")
        await client.send(message(STDIN, b"one"))
        assert await client.receive() == message(STDOUT, b"one")
        await client.close()
    assert node.opened == ["far", "far"]


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (structs.replace(CAT, container="side"), "waiting to start"),
        (structs.replace(CAT, container="other"), "not valid for pod"),
        (structs.replace(CAT, protocols=("none",)), "needs a WebSocket"),
    ],
)
async def test_agent_refuses_before_a_connection(
    node: Node, request_: StreamRequest, why: str
) -> None:
    await node.start()
    with pytest.raises(BadRequest, match=why):
        await streams(node).open(POD_DOCUMENT, request_)


@pytest.mark.parametrize(
    "query", ["", "{", "[]", '{"operation": "attach"}', '{"operation": "exec", "tty": 3}']
)
async def test_malformed_stream_is_refused(node: Node, query: str) -> None:
    request = Request("GET", LOG.replace("log", "exec"), {STREAM: query}, user=SERVER)
    assert (await node.endpoints.handle(request)).status == 400


async def test_protocol_that_was_not_offered_is_refused(node: Node) -> None:
    node.answer = Response(200, b"{}", headers={SUBPROTOCOL: "other"})
    with pytest.raises(ServiceUnavailable, match="chose no protocol"):
        await streams(node).open(POD_DOCUMENT, CAT)


async def test_connection_that_fails_later_is_closed(node: Node) -> None:
    await node.start()
    response = await streams(node).open(POD_DOCUMENT, CAT)
    assert response.upgrade is not None
    node.answer = Response(503, b"{}")
    client, server = socket_pair()
    with pytest.raises(ServiceUnavailable):
        await response.upgrade(server)
    assert await client.receive() is None


# --- options -----------------------------------------------------------------------------------


COUNTS = st.none() | st.integers(0, 10_000)


@given(
    st.builds(
        PodLogOptions,
        container=st.sampled_from(["main", "side"]),
        follow=st.booleans(),
        previous=st.booleans(),
        since_seconds=COUNTS,
        since_time=st.sampled_from(["", "2026-01-01T00:00:00Z"]),
        tail_lines=COUNTS,
        timestamps=st.booleans(),
        limit_bytes=COUNTS,
    ).filter(lambda options: not options.since_time or options.since_seconds is None)
)
def test_options_of_a_log_reach_the_agent(options: PodLogOptions) -> None:
    query: Mapping[str, str] = log_query(options)
    assert log_options(POD_DOCUMENT, query) == options
