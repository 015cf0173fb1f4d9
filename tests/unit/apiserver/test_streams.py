"""Connections into pods: what is asked of the node, who may, and what is refused before."""

from collections.abc import Mapping, Sequence

import pytest
from tests.unit.apiserver.server import PODS, Answer, Server, pod

from grange.api.http import ADMIN, Request, Response, User
from grange.api.meta import Document
from grange.api.stream_requests import ATTACH, EXEC, PORT_FORWARD, StreamRequest
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.message_socket import MessageSocket
from grange.base.rng import Stream

V5 = "v5.channel.k8s.io"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"


class Node:
    """Accepts everything and notes it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, StreamRequest]] = []

    async def open(self, pod: Document, request: StreamRequest) -> Response:
        self.asked.append((pod["metadata"]["name"], request))
        return Response(101, upgrade=self._serve)

    async def _serve(self, socket: MessageSocket) -> None:
        await socket.close()


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
async def connected(clock: Clock, rng: Stream, log: Logger, node: Node) -> Server:
    server = Server(clock=clock, rng=rng, log=log, streams=node)
    await server.application.bootstrap()
    await server.made(PODS, pod())
    await server.bind("web")
    return server


async def ask(
    server: Server,
    operation: str = EXEC,
    *,
    method: str = "GET",
    command: Sequence[str] = ("ls",),
    user: User = ADMIN,
    upgrade: str = "websocket",
    name: str = "web",
    query: Mapping[str, str] | None = None,
) -> Answer:
    headers = {"upgrade": upgrade, "sec-websocket-protocol": f"{V5}, other"}
    asked = {"stdout": "true", **(query or {})}
    repeated = {"command": command} if command and operation == EXEC else {}
    if repeated:
        asked["command"] = command[-1]
    request = Request(
        method, f"{PODS}/{name}/{operation}", asked, headers, b"", user, repeated=repeated
    )
    return Answer(await server.application.handle(request))


async def test_node_gets_what_was_asked_for(connected: Server, node: Node) -> None:
    answer = await ask(
        connected, command=("ls", "-l", "a b"), query={"stdin": "1", "stderr": "true"}
    )
    assert answer.code == 101
    words = ("ls", "-l", "a b")
    wanted = StreamRequest(
        EXEC, "main", words, stdin=True, stdout=True, stderr=True, protocols=(V5, "other")
    )
    assert node.asked == [("web", wanted)]


async def test_terminal_has_one_output(connected: Server, node: Node) -> None:
    await ask(
        connected,
        ATTACH,
        method="POST",
        query={"tty": "true", "stderr": "true", "container": "main"},
    )
    ((_, request),) = node.asked
    assert (request.operation, request.tty, request.stderr) == (ATTACH, True, False)


async def test_request_without_websocket_has_no_protocols(connected: Server, node: Node) -> None:
    await ask(connected, upgrade="SPDY/3.1", method="POST")
    assert node.asked[0][1].protocols == ()


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ({"stdout": "false"}, "at least one of stdin, stdout, stderr"),
        ({"container": "other"}, "container other is not valid for pod web"),
    ],
)
async def test_faulty_requests_do_not_reach_the_node(
    connected: Server, node: Node, query: dict[str, str], part: str
) -> None:
    answer = await ask(connected, query=query)
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert part in answer.message
    assert node.asked == []


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ((), "specify at least one"),
        (("",), "specify at least one"),
        (("a\0b",), "NUL"),
        (("x" * 70_000,), "at most 65536"),
    ],
)
async def test_faulty_commands_do_not_reach_the_node(
    connected: Server, node: Node, command: Sequence[str], part: str
) -> None:
    answer = await ask(connected, command=command)
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert part in answer.message
    assert node.asked == []


async def test_ports_are_given_to_the_node(connected: Server, node: Node) -> None:
    assert (await ask(connected, PORT_FORWARD, query={"ports": "80,8080"})).code == 101
    wanted = StreamRequest(PORT_FORWARD, ports=(80, 8080), protocols=(V5, "other"))
    assert node.asked == [("web", wanted)]


@pytest.mark.parametrize("ports", ["0", "65536", "http", "80,-1", "²", ",".join(["80"] * 65)])
async def test_faulty_ports_do_not_reach_the_node(
    connected: Server, node: Node, ports: str
) -> None:
    answer = await ask(connected, PORT_FORWARD, query={"ports": ports})
    assert (answer.code, answer.message[:6]) == (400, "ports:")
    assert node.asked == []


async def test_pods_without_a_node_are_refused(connected: Server) -> None:
    await connected.made(PODS, pod("new"))
    assert "does not have a host assigned" in (await ask(connected, name="new")).message
    assert (await ask(connected, name="missing")).code == 404


async def test_server_without_agents_has_no_streams(server: Server) -> None:
    await server.made(PODS, pod())
    await server.bind("web")
    answer = await ask(server)
    assert (answer.code, answer.reason) == (503, "ServiceUnavailable")


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(("verb", "code"), [("get", 403), ("create", 101)])
async def test_streams_need_the_verb_create(
    connected: Server, method: str, verb: str, code: int
) -> None:
    rule = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": [verb]}
    await connected.made(ROLES, {"metadata": {"name": "look"}, "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "look"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}
    await connected.made(
        BINDINGS, {"metadata": {"name": "look"}, "roleRef": role, "subjects": [subject]}
    )
    assert (await ask(connected, method=method, user=User("ann"))).code == code


async def test_nodes_open_no_streams(connected: Server) -> None:
    user = User("system:node:node-1", ("system:nodes", "system:authenticated"))
    assert (await ask(connected, user=user)).code == 403


async def test_other_methods_are_refused(connected: Server) -> None:
    assert (await ask(connected, method="DELETE")).code == 405
