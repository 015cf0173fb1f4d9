"""Many bindings over a server that takes them in one request, and over one that does not."""

import asyncio

import msgspec
import pytest
from tests.unit.client.scripted import Scripted

from grange.api import bindings, status
from grange.api.bindings import Binding
from grange.api.http import Request, Response
from grange.client.client import Client

GROUP = [Binding("ns", name, f"uid-{name}", "n1") for name in ("a", "b", "c")]


class Kubernetes:
    """A server that takes bindings one by one, and answers so in its own way."""

    def __init__(self, refusal: status.ApiError) -> None:
        self.refusal = refusal
        self.requests: list[Request] = []
        self.at_once = self.most_at_once = 0
        self.answers: dict[str, status.ApiError] = {}

    async def send(self, request: Request) -> Response:
        self.requests.append(request)
        if request.path == bindings.PATH:
            return failed(self.refusal)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)  # others get their turn
        self.at_once -= 1
        error = self.answers.get(request.path.split("/")[-2])
        return failed(error) if error else Response(201, b"{}")

    async def close(self) -> None:
        """Nothing to release."""


def failed(error: status.ApiError) -> Response:
    return Response(error.code, msgspec.json.encode(error.status().document()))


@pytest.mark.parametrize(
    "refusal",
    [status.NotFound("no path"), status.MethodNotAllowed("no verb"), status.Forbidden("no right")],
)
async def test_server_without_groups_gets_each_binding_by_itself(refusal: status.ApiError) -> None:
    server = Kubernetes(refusal)
    server.answers = {"b": status.Conflict("bound already")}
    client = Client(server)
    outcomes = await client.bind(GROUP)
    assert [each and each.reason for each in outcomes] == [None, "Conflict", None]
    assert server.most_at_once == 3
    paths = [request.path for request in server.requests]
    single = [f"/api/v1/namespaces/ns/pods/{name}/binding" for name in ("a", "b", "c")]
    assert paths == [bindings.PATH, *single]
    body = msgspec.json.decode(server.requests[1].body)
    assert body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    await client.bind(GROUP)  # the server is not asked for groups again
    assert [request.path for request in server.requests[4:]] == single


async def test_bindings_one_by_one_are_bounded_at_once() -> None:
    server = Kubernetes(status.NotFound("no path"))
    group = [Binding("ns", f"p{number}", "u", "n1") for number in range(100)]
    assert await Client(server).bind(group) == [None] * 100
    assert server.most_at_once == 32
    assert len({request.path for request in server.requests}) == 101


async def test_single_binding_takes_the_path_of_its_pod() -> None:
    server = Kubernetes(status.NotFound("not asked"))
    assert await Client(server).bind(GROUP[:1]) == [None]
    assert [request.path for request in server.requests] == ["/api/v1/namespaces/ns/pods/a/binding"]


@pytest.mark.parametrize(
    "error",
    [status.Timeout("no answer"), status.ServiceUnavailable("no way"), status.InternalError("bug")],
)
async def test_failure_of_the_request_is_the_answer_to_each(error: status.ApiError) -> None:
    """And it is sent once: whether it was carried out is for the caller to find out."""
    transport = Scripted(error)
    outcomes = await Client(transport).bind(GROUP)
    assert [type(each) for each in outcomes] == [type(error)] * 3
    transport = Scripted(failed(error))
    outcomes = await Client(transport).bind(GROUP)
    assert [type(each) for each in outcomes] == [type(error)] * 3
    assert len(transport.requests) == 1


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"items":[{"status":"Success"}]}'])
async def test_incomplete_binding_answer_is_an_internal_error(body: bytes) -> None:
    outcomes = await Client(Scripted(Response(200, body))).bind(GROUP)
    assert [type(each) for each in outcomes] == [status.InternalError] * 3


async def test_binding_answers_are_errors_with_their_subject() -> None:
    conflict = status.Conflict("bound already", kind="pods", name="b")
    items = [{"status": "Success", "code": 201}, conflict.status().document(), {"code": 507}]
    body = msgspec.json.encode({"kind": "StatusList", "apiVersion": "v1", "items": items})
    outcomes = await Client(Scripted(Response(200, body))).bind(GROUP)
    assert outcomes[0] is None
    assert isinstance(outcomes[1], status.Conflict)
    assert (str(outcomes[1]), outcomes[1].details.name) == ("bound already", "b")
    assert isinstance(outcomes[2], status.InsufficientStorage)
