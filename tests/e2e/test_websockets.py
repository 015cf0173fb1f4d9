"""WebSockets of the listener on real sockets: what they may take, and how they end."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from tests.e2e.planes import LIMIT_S

from grange.api.http import ADMIN, Request, Response
from grange.apiserver.authn import StaticTokens
from grange.apiserver.listener import Limits, Listener
from grange.apiserver.websockets import WebSocketLimits
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.message_socket import MessageSocket
from grange.base.tasks import Nursery

pytestmark = pytest.mark.e2e
BEARER = {"Authorization": "Bearer a-token"}
HANDSHAKE = {**BEARER, "Upgrade": "websocket", "Connection": "Upgrade"}


@dataclass
class Echo:
    """Sends every message back; notes what it sent and when it ended."""

    sent: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, request: Request) -> Response:
        return Response(101, upgrade=self.flood if request.path == "/flood" else self.echo)

    async def echo(self, socket: MessageSocket) -> None:
        try:
            while (message := await socket.receive()) is not None:
                await socket.send(message)
        finally:
            self.ended.set()

    async def flood(self, socket: MessageSocket) -> None:
        try:
            async with Nursery("flood") as nursery:
                nursery.start(self._send_all(socket))
                await socket.receive()
                nursery.cancel()
        finally:
            self.ended.set()

    async def _send_all(self, socket: MessageSocket) -> None:
        while True:
            await socket.send(b"x" * 10_000)
            self.sent += 1


@asynccontextmanager
async def serving(
    clock: Clock, log: Logger, echo: Echo, limits: WebSocketLimits | None = None
) -> AsyncGenerator[tuple[Listener, aiohttp.ClientSession], None]:
    tokens = StaticTokens({"a-token": ADMIN})
    wanted = Limits(close_s=1, websockets=limits or WebSocketLimits())
    async with (
        Listener(
            echo, authenticator=tokens, ssl_context=None, clock=clock, log=log, limits=wanted
        ) as listener,
        aiohttp.ClientSession(listener.url, headers=BEARER) as session,
    ):
        yield listener, session


async def test_large_message_ends_the_connection(clock: Clock, log: Logger) -> None:
    echo = Echo()
    async with serving(clock, log, echo, WebSocketLimits(message_bytes=1000)) as (_, session):
        async with session.ws_connect("/") as socket:
            await socket.send_bytes(b"x" * 1000)
            assert await socket.receive_bytes() == b"x" * 1000
            await socket.send_bytes(b"x" * 1001)
            assert (await socket.receive()).data == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
        async with clock.timeout(LIMIT_S):
            await echo.ended.wait()


async def test_garbage_ends_the_connection(clock: Clock, log: Logger) -> None:
    echo = Echo()
    async with serving(clock, log, echo) as (listener, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        head = {**HANDSHAKE, "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "a" * 22 + "=="}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        writer.write(f"GET / HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode() + b"\xff" * 5000)
        async with clock.timeout(LIMIT_S):
            assert b" 101 " in await reader.readline()
            await reader.read()
            await echo.ended.wait()
        writer.close()


async def test_connections_above_the_limit_are_refused(clock: Clock, log: Logger) -> None:
    async with serving(clock, log, Echo(), WebSocketLimits(connections=1)) as (listener, session):
        async with session.ws_connect("/"):
            answer = await session.get("/", headers=HANDSHAKE)
            assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        async with clock.timeout(LIMIT_S):
            while len(listener.websockets):
                await clock.sleep(0.01)
        async with session.ws_connect("/"):
            assert len(listener.websockets) == 1


async def test_malformed_handshake_is_a_bad_request(clock: Clock, log: Logger) -> None:
    async with serving(clock, log, Echo()) as (_, session):
        for headers in (BEARER, HANDSHAKE, {**HANDSHAKE, "Sec-WebSocket-Version": "13"}):
            answer = await session.get("/", headers=headers)
            assert (answer.status, (await answer.json())["reason"]) == (400, "BadRequest")


async def test_idle_connection_is_closed(clock: Clock, log: Logger) -> None:
    async with (
        serving(clock, log, Echo(), WebSocketLimits(idle_s=2)) as (_, session),
        session.ws_connect("/") as socket,
        clock.timeout(LIMIT_S),
    ):
        await socket.send_bytes(b"x")
        await socket.receive_bytes()
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE


async def test_sender_waits_for_a_client_that_does_not_read(clock: Clock, log: Logger) -> None:
    echo = Echo()
    async with serving(clock, log, echo) as (_, session):
        async with session.ws_connect("/flood"):
            before = -1
            async with clock.timeout(LIMIT_S):
                while echo.sent > before:
                    before = echo.sent
                    await clock.sleep(0.3)
            assert not echo.ended.is_set()
        async with clock.timeout(LIMIT_S):
            await echo.ended.wait()


async def test_closing_the_listener_ends_connections(clock: Clock, log: Logger) -> None:
    echo = Echo()
    async with serving(clock, log, echo) as (listener, session), session.ws_connect("/") as socket:
        await socket.send_bytes(b"x")
        await socket.receive_bytes()
        async with clock.timeout(LIMIT_S):
            await listener.close()
        assert echo.ended.is_set()
