"""Connections of Services to other machines: what one end sends arrives at the other, and so do ends."""

import asyncio
import random
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.e2e.planes import LIMIT_S

from grange.agent.service_proxy.routes import Endpoint, Frontend, PodIdentity, Route
from grange.agent.service_proxy.tcp_listener import TcpListener
from grange.agent.service_proxy.tunnel import TunnelEnd
from grange.api.meta import ObjectKey
from grange.base.clock import LoopClock
from grange.base.message_socket import MessageSocket, Upgrade
from grange.base.tasks import Nursery

pytestmark = pytest.mark.e2e
END = Endpoint("127.9.0.1", 8080, "far", PodIdentity("default", "p", "u"))


class Far:
    """A server on another machine, and the way to it in memory."""

    def __init__(self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]) -> None:
        self._serve = serve
        self.failures = 0
        self.dialed: list[Endpoint] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "Far":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def dial(self, endpoint: Endpoint, protocol: str) -> Upgrade:
        assert protocol == "TCP"
        self.dialed.append(endpoint)
        if self.failures:
            self.failures -= 1
            raise ConnectionRefusedError("away")
        return self._upgrade

    async def _upgrade(self, socket: MessageSocket) -> None:
        assert self._server is not None
        reader, writer = await asyncio.open_connection(*self._server.sockets[0].getsockname())
        await TunnelEnd(socket, reader, writer).run()


@asynccontextmanager
async def through(far: Far, *ends: Endpoint) -> AsyncGenerator[int, None]:
    """A port that leads to endpoints on another machine."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    route = Route(ObjectKey("default", "far"), ends or (END,))
    async with Nursery("proxy") as nursery:
        listener = TcpListener(route, nursery.start, LoopClock(), far.dial)
        await listener.open(Frontend("127.0.0.1", port))
        try:
            yield port
        finally:
            listener.shut()
            listener.abort()
            nursery.cancel()


@asynccontextmanager
async def connected(port: int) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(LIMIT_S):
            yield reader, writer
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def is_cut(reader: asyncio.StreamReader) -> bool:
    """Whether the connection ends without an answer."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


async def answer_at_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer all input at its end, twice as long."""
    data = b"input: " + await reader.read()
    writer.write(data + data)
    writer.write_eof()
    await writer.drain()
    writer.close()


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
async def test_bytes_and_ends_pass_between_machines(size: int) -> None:
    data = random.Random(1).randbytes(size)
    async with Far(answer_at_end) as far, through(far) as port:
        async with connected(port) as (reader, writer):
            writer.write(data)
            writer.write_eof()
            assert await reader.read() == (b"input: " + data) * 2
        assert far.dialed == [END]


async def test_endpoint_that_cannot_be_dialed_is_left_for_another() -> None:
    second = END._replace(node="second")
    async with Far(answer_at_end) as far, through(far, END, second) as port:
        far.failures = 1
        async with connected(port) as (reader, writer):
            writer.write_eof()
            assert await reader.read() == b"input: " * 2
        assert far.dialed == [END, second]
        far.failures = 2
        async with connected(port) as (reader, _):
            assert await is_cut(reader)


async def test_client_that_goes_away_ends_the_connection() -> None:
    ended = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        try:
            await reader.read()
        except ConnectionError:
            pass
        finally:
            ended.set()
            writer.transport.abort()

    async with Far(hold) as far, through(far) as port:
        async with connected(port) as (reader, _):
            assert await reader.read(5) == b"hello"
        async with asyncio.timeout(LIMIT_S):
            await ended.wait()


async def test_server_that_breaks_ends_the_client() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with Far(reset) as far, through(far) as port, connected(port) as (reader, _):
        assert await is_cut(reader)


async def test_slow_reader_holds_the_sender_up() -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        try:
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()
                sent += 65_536
        except ConnectionError:
            writer.transport.abort()

    async with Far(flood) as far, through(far) as port, connected(port) as (reader, _):
        await reader.read(1)
        before = -1
        while sent > before:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 64 << 20
