"""Connections to ports of pods over messages: in a tunnel and in channels."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from tests.unit.agent.builders import UID, document

from grange.agent.agent_streams import AgentStreams
from grange.agent.container_runtime import ContainerID, PodSetup, Program
from grange.agent.runtimes.fake import FakeMachine, FakeRuntime, Script
from grange.api.http import SUBPROTOCOL
from grange.api.port_forward import CHANNELS, DATA, ERROR, TUNNEL, read_headers, stream_headers
from grange.api.status import BadRequest
from grange.api.stream_requests import PORT_FORWARD, StreamRequest
from grange.base.clock import Clock
from grange.base.message_socket import MessageSocket, socket_pair
from grange.base.spdy_connection import SpdyConnection, SpdyStream
from grange.base.tasks import Nursery

POD = document() | {"metadata": {"name": "web", "uid": UID}}
MAIN = ContainerID(UID, "main", 0)


@pytest.fixture
async def machine(clock: Clock) -> FakeMachine:
    found = FakeMachine({"app": Script(listens=(("127.9.0.1", 80), ("127.9.0.1", 81)))})
    runtime = FakeRuntime(found, clock)
    await runtime.prepare(PodSetup(UID, "default", "web", "node-1"))
    await runtime.start(MAIN, Program(("app",), {}), ())
    return found


@pytest.fixture
def streams(machine: FakeMachine, clock: Clock) -> AgentStreams:
    return AgentStreams(FakeRuntime(machine, clock))


@asynccontextmanager
async def opened(
    streams: AgentStreams, protocol: str, *ports: int
) -> AsyncGenerator[MessageSocket, None]:
    request = StreamRequest(PORT_FORWARD, ports=ports, protocols=(protocol,))
    response = await streams.open(POD, request)
    assert response.upgrade is not None
    assert response.headers[SUBPROTOCOL] == protocol
    client, server = socket_pair()
    async with Nursery("test") as nursery:
        nursery.start(response.upgrade(server), name="server")
        yield client
        await client.close()


class Forwarder:
    """The client's side of a tunnel."""

    def __init__(self, spdy: SpdyConnection) -> None:
        self._spdy = spdy
        self._count = 0

    async def connect(self, port: int) -> tuple[SpdyStream, SpdyStream]:
        self._count += 1
        errors = await self._spdy.open(stream_headers(ERROR, port, self._count))
        await errors.end_output()
        return await self._spdy.open(stream_headers(DATA, port, self._count)), errors

    async def open(self, **headers: str) -> SpdyStream:
        return await self._spdy.open(headers)


@asynccontextmanager
async def tunnel(streams: AgentStreams) -> AsyncGenerator[Forwarder, None]:
    async with opened(streams, TUNNEL) as socket, Nursery("client") as nursery:
        spdy = SpdyConnection(socket, is_server=False)
        nursery.start(spdy.run(lambda _: None), name="client")
        yield Forwarder(spdy)
        nursery.cancel()


async def test_tunnel_carries_several_connections(
    streams: AgentStreams, machine: FakeMachine
) -> None:
    async with tunnel(streams) as client:
        pairs = [await client.connect(port) for port in (80, 81, 80)]
        for at, (data, _) in enumerate(pairs):
            await data.write(b"%d" % at)
        assert [await data.read() for data, _ in pairs] == [b"0", b"1", b"2"]
        data, errors = pairs[0]
        await data.end_output()
        assert [await data.read(), await errors.read()] == [b"", b""]
        assert len(machine.streams) == 2
    assert machine.streams == []


async def test_tunnel_explains_what_cannot_be_reached(streams: AgentStreams) -> None:
    async with tunnel(streams) as client:
        data, errors = await client.connect(99)
        assert await data.read() == b""
        assert b"port 99: nothing in the pod listens on it; it listens on 80, 81" in (
            await errors.read()
        )
        after, _ = await client.connect(80)
        await after.write(b"still")
        assert await after.read() == b"still"


async def test_connection_ends_when_its_client_resets_it(
    streams: AgentStreams, machine: FakeMachine
) -> None:
    async with tunnel(streams) as client:
        data, errors = await client.connect(80)
        other, _ = await client.connect(81)
        await other.write(b"x")
        assert await other.read() == b"x"
        await data.close()
        assert await errors.read() == b""
        assert len(machine.streams) == 1


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"streamtype": "other", "port": "80", "requestid": "1"},
        {"streamtype": "data", "port": "0", "requestid": "1"},
        {"streamtype": "data", "port": "65536", "requestid": "1"},
        {"streamtype": "data", "port": "²", "requestid": "1"},
        {"streamtype": "data", "port": "80"},
    ],
)
async def test_malformed_streams_are_reset(streams: AgentStreams, headers: dict[str, str]) -> None:
    assert read_headers(headers) is None
    async with tunnel(streams) as client:
        stream = await client.open(**headers)
        with pytest.raises(ConnectionResetError):
            await stream.read()


async def test_channels_begin_with_their_ports(streams: AgentStreams) -> None:
    async with opened(streams, CHANNELS[0], 80, 81) as socket:
        greetings = [await socket.receive() for _ in range(4)]
        assert greetings == [b"\0\x50\0", b"\1\x50\0", b"\2\x51\0", b"\3\x51\0"]
        for garbage in (b"", b"\0", b"\1error", b"\x09data"):
            await socket.send(garbage)
        await socket.send(b"\2there")
        assert await socket.receive() == b"\2there"


async def test_channels_end_with_their_connections(streams: AgentStreams) -> None:
    async with opened(streams, CHANNELS[1], 99) as socket:
        assert await socket.receive() == b"\0\x63\0"
        assert await socket.receive() == b"\1\x63\0"
        why = await socket.receive() or b""
        assert why.startswith(b"\1port 99: nothing in the pod listens on it")
        assert await socket.receive() is None


async def test_connections_end_with_their_client(
    streams: AgentStreams, machine: FakeMachine
) -> None:
    async with opened(streams, CHANNELS[0], 80) as socket:
        await socket.receive()
        await socket.receive()
        await socket.send(b"\0x")
        assert await socket.receive() == b"\0x"
        assert len(machine.streams) == 1
    assert machine.streams == []


async def test_channels_need_ports(streams: AgentStreams) -> None:
    with pytest.raises(BadRequest, match="needs at least one port"):
        async with opened(streams, CHANNELS[0]):
            pass


async def test_pods_where_nothing_runs_are_refused(
    streams: AgentStreams, machine: FakeMachine, clock: Clock
) -> None:
    machine.end(MAIN, clock.now(), 0)
    with pytest.raises(BadRequest, match='nothing runs in pod "web": its phase is Pending'):
        async with opened(streams, TUNNEL):
            pass
