"""What every transport promises, whether the server is in this process or behind a socket."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest
from tests.support import transport_factories

from grange.api.http import ADMIN, JSON, Request, Response
from grange.api.status import ServiceUnavailable
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.message_socket import MessageSocket, socket_pair
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.transport import Transport
from grange.sim.faults import Network


class Server:
    """A scripted handler.

    Attributes:
        seen: the requests, as they arrived.
        answer: what to answer.
        gate: a stream's second chunk waits for it.
        ended: names of streams and slow requests that have ended.
    """

    def __init__(self) -> None:
        self.seen: list[Request] = []
        self.answer = Response(200, b"{}")
        self.gate = asyncio.Event()
        self.ended: list[str] = []
        self.entered = asyncio.Event()

    async def handle(self, request: Request) -> Response:
        self.seen.append(request)
        if request.path == "/slow":
            self.entered.set()
            try:
                await self.gate.wait()
            finally:
                self.ended.append("slow")
        if request.path == "/echo":
            await self.gate.wait()
            return Response(200, request.query["n"].encode())
        if request.query.get("watch") == "true" or request.path.endswith("/log"):
            return Response(200, chunks=self._stream(breaks="breaks" in request.query))
        if request.path == "/socket":
            found = {"sec-websocket-protocol": "echo"}
            return Response(101, headers=found, upgrade=self._echo)
        return self.answer

    async def _echo(self, socket: MessageSocket) -> None:
        try:
            while (message := await socket.receive()) not in {None, b"close"}:
                await socket.send(message or b"")
        finally:
            self.ended.append("socket")
            await socket.close()

    async def _stream(self, *, breaks: bool) -> AsyncGenerator[bytes, None]:
        try:
            yield b"one\n"
            await self.gate.wait()
            if breaks:
                raise ServiceUnavailable("the store went away")
            yield b"two\n"
        finally:
            self.ended.append("stream")


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture(params=["inprocess", "network", pytest.param("http", marks=pytest.mark.e2e)])
async def transport(
    request: pytest.FixtureRequest, server: Server, clock: Clock, log: Logger
) -> AsyncGenerator[Transport, None]:
    async with AsyncExitStack() as stack:
        if request.param == "inprocess":
            yield await stack.enter_async_context(transport_factories.inprocess(server.handle))
        elif request.param == "network":  # on a good day it is a transport like any other
            inner = await stack.enter_async_context(transport_factories.inprocess(server.handle))
            yield Network(clock=clock, rng=Stream(0)).transport(inner, "anybody")
        else:
            yield await stack.enter_async_context(
                transport_factories.http(server.handle, clock, log)
            )


WATCH = Request("GET", "/api/v1/pods", {"watch": "true"})


async def test_request_arrives_as_it_was_sent(transport: Transport, server: Server) -> None:
    """Names and selectors hold characters that mean something in URLs."""
    query = {"labelSelector": "a in (b,c),!d", "fieldManager": "ü&=+%20 x", "empty": ""}
    await transport.send(
        Request(
            "PATCH",
            "/api/v1/namespaces/a b/pods/ü%2F?",
            query,
            {"content-type": "application/merge-patch+json", "accept": JSON},
            b'{"a":1}',
        )
    )
    (seen,) = server.seen
    assert seen.method == "PATCH"
    assert seen.path == "/api/v1/namespaces/a b/pods/ü%2F?"
    assert dict(seen.query) == query
    assert seen.headers["content-type"] == "application/merge-patch+json"
    assert seen.headers["accept"] == JSON
    assert seen.body == b'{"a":1}'
    assert seen.user == ADMIN


@pytest.mark.parametrize("status", [200, 201, 202, 404, 409, 410, 422, 429, 500, 503, 507])
async def test_every_status_is_an_answer_not_an_error(
    transport: Transport, server: Server, status: int
) -> None:
    server.answer = Response(status, b'{"x":1}\n', headers={"Retry-After": "3"})
    answer = await transport.send(Request("POST", "/api", body=b"{}"))
    assert (answer.status, answer.body, answer.chunks) == (status, b'{"x":1}\n', None)
    assert {name.lower(): value for name, value in answer.headers.items()}["retry-after"] == "3"
    assert answer.content_type.startswith(JSON)


async def test_large_bodies_pass_both_ways(transport: Transport, server: Server) -> None:
    body = b"x" * 1_500_000
    server.answer = Response(200, body)
    answer = await transport.send(Request("PUT", "/api", body=body))
    assert server.seen[0].body == body
    assert answer.body == body


async def test_concurrent_requests_get_their_own_answers(
    transport: Transport, server: Server
) -> None:
    answers: dict[int, bytes] = {}

    async def ask(number: int) -> None:
        answer = await transport.send(Request("GET", "/echo", {"n": str(number)}))
        answers[number] = answer.body

    async with Nursery() as nursery:
        for number in range(20):
            nursery.start(ask(number))
        server.gate.set()
    assert answers == {number: str(number).encode() for number in range(20)}


@pytest.mark.parametrize("path", ["/api/v1/pods", "/api/v1/namespaces/n/pods/p/log"])
async def test_stream_arrives_as_it_is_made(
    transport: Transport, server: Server, path: str
) -> None:
    query = {"watch": "true"} if path.endswith("pods") else {}
    answer = await transport.send(Request("GET", path, query))
    assert answer.chunks is not None
    assert await anext(answer.chunks) == b"one\n"
    assert server.ended == []
    server.gate.set()
    assert [chunk async for chunk in answer.chunks] == [b"two\n"]
    assert server.ended == ["stream"]


async def test_closing_a_stream_ends_it_at_the_server(
    transport: Transport, server: Server, clock: Clock
) -> None:
    """Else every reader that goes away leaves a subscription behind."""
    answer = await transport.send(WATCH)
    assert isinstance(answer.chunks, AsyncGenerator)
    await anext(answer.chunks)
    await answer.chunks.aclose()
    async with clock.timeout(5):
        while not server.ended:
            await clock.sleep(0.01)
    assert server.ended == ["stream"]


async def test_cancelled_reader_ends_the_stream_at_the_server(
    transport: Transport, server: Server, clock: Clock
) -> None:
    reading = asyncio.Event()

    async def read() -> None:
        answer = await transport.send(WATCH)
        assert isinstance(answer.chunks, AsyncGenerator)
        try:
            async for _ in answer.chunks:
                reading.set()
        finally:
            await answer.chunks.aclose()

    async with Nursery() as nursery:
        task = nursery.start(read())
        await reading.wait()
        await clock.sleep(0.01)
        task.cancel()
    async with clock.timeout(5):
        while not server.ended:
            await clock.sleep(0.01)


async def test_stream_that_breaks_raises_after_what_came_before(
    transport: Transport, server: Server
) -> None:
    answer = await transport.send(Request("GET", "/x", {"watch": "true", "breaks": ""}))
    assert answer.chunks is not None
    assert await anext(answer.chunks) == b"one\n"
    server.gate.set()
    with pytest.raises(ServiceUnavailable):
        await anext(answer.chunks)


async def test_error_answer_to_a_watch_is_a_whole_body(
    transport: Transport, server: Server
) -> None:
    server.answer = Response(410, b"gone")
    answer = await transport.send(Request("GET", "/api/v1/pods", {"watch": "1"}))
    assert (answer.status, answer.body, answer.chunks) == (410, b"gone", None)


async def test_cancelled_request_leaves_the_transport_usable(
    transport: Transport, server: Server, clock: Clock
) -> None:
    async with Nursery() as nursery:
        task = nursery.start(transport.send(Request("GET", "/slow")))
        await server.entered.wait()
        task.cancel()
    async with clock.timeout(5):
        while server.ended != ["slow"]:
            await clock.sleep(0.01)
    assert (await transport.send(Request("GET", "/api"))).status == 200


async def test_closed_transport_refuses_and_closing_again_is_fine(
    transport: Transport, server: Server
) -> None:
    await transport.send(Request("GET", "/api"))
    await transport.close()
    await transport.close()
    with pytest.raises(ServiceUnavailable):
        await transport.send(Request("GET", "/api"))
    assert len(server.seen) == 1


WEBSOCKET = Request(
    "GET",
    "/socket",
    headers={"upgrade": "websocket", "sec-websocket-protocol": "other, echo"},
)


async def test_websocket_carries_messages_both_ways(transport: Transport, server: Server) -> None:
    async with upgraded(transport) as (answer, socket):
        assert answer.headers["sec-websocket-protocol"] == "echo"
        for message in (b"one", b"", b"\x00" * 100_000):
            await socket.send(message)
            assert await socket.receive() == message
    assert server.ended == ["socket"]
    (seen,) = server.seen
    assert seen.wants_websocket
    assert seen.subprotocols == ["other", "echo"]


async def test_websocket_ends_when_the_server_closes_it(transport: Transport) -> None:
    async with upgraded(transport) as (_, socket):
        await socket.send(b"close")
        assert await socket.receive() is None
        with pytest.raises(ConnectionError):
            await socket.send(b"more")


async def test_refused_websocket_is_an_answer(transport: Transport, server: Server) -> None:
    server.answer = Response(404, b'{"reason":"NotFound"}')
    answer = await transport.send(replace(WEBSOCKET, path="/none"))
    assert (answer.status, answer.upgrade) == (404, None)
    assert answer.body.strip() == b'{"reason":"NotFound"}'


async def test_repeated_parameters_arrive_in_order(transport: Transport, server: Server) -> None:
    query = {"command": "&b", "stdin": "true"}
    repeated = {"command": ["a b", "", "&b"]}
    await transport.send(Request("GET", "/api", query, repeated=repeated))
    (seen,) = server.seen
    assert seen.values("command") == ["a b", "", "&b"]
    assert list(seen.values("stdin")) == ["true"]
    assert list(seen.values("tty")) == []
    assert seen.query["command"] == "&b"


@asynccontextmanager
async def upgraded(transport: Transport) -> AsyncGenerator[tuple[Response, MessageSocket], None]:
    answer = await transport.send(WEBSOCKET)
    assert answer.status == 101
    assert answer.upgrade is not None
    ours, theirs = socket_pair()
    async with Nursery("upgraded") as nursery:
        nursery.start(answer.upgrade(theirs), name="upgrade")
        yield answer, ours
        await ours.close()
