"""Commands in containers over messages: output, input, the end, and clients that go away."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from tests.unit.agent.builders import UID, document

from grange.agent.agent_streams import AgentStreams
from grange.agent.container_runtime import CommandResult, ContainerID, PodSetup, Program
from grange.agent.container_streams import STDERR, STDOUT, Output
from grange.agent.memory_streams import MemoryStream, Reply, echo
from grange.agent.runtimes.fake import FakeMachine, FakeRuntime, Script
from grange.api import remote_command
from grange.api.http import SUBPROTOCOL
from grange.api.remote_command import CLOSE, ERROR, STDIN, V4, V5, TerminalSize, message
from grange.api.status import ApiError, BadRequest
from grange.api.stream_requests import ATTACH, EXEC, StreamRequest
from grange.base.clock import Clock
from grange.base.message_socket import MessageSocket, socket_pair
from grange.base.tasks import Nursery

POD = document() | {"metadata": {"name": "web", "uid": UID}}
MAIN = ContainerID(UID, "main", 0)
COMMAND = StreamRequest(EXEC, "main", ("cat",), stdin=True, stdout=True, protocols=(V5,))


def complain(data: bytes | None) -> Reply:
    return Reply((Output(STDERR, b"no\n"),), 3)


@pytest.fixture
async def machine(clock: Clock) -> FakeMachine:
    found = FakeMachine(
        {"app": Script(respond=echo)},
        {"id": CommandResult(0, "root\n"), "sleep": CommandResult(0, timed_out=True)},
        {"cat": echo, "complain": complain},
    )
    runtime = FakeRuntime(found, clock)
    await runtime.prepare(PodSetup(UID, "default", "web", "node-1"))
    await runtime.start(MAIN, Program(("app",), {}, stdin=True), ())
    return found


@pytest.fixture
def streams(machine: FakeMachine, clock: Clock) -> AgentStreams:
    return AgentStreams(FakeRuntime(machine, clock))


@asynccontextmanager
async def opened(
    streams: AgentStreams, request: StreamRequest
) -> AsyncGenerator[MessageSocket, None]:
    response = await streams.open(POD, request)
    assert response.upgrade is not None
    client, server = socket_pair()
    async with Nursery("test") as nursery:
        nursery.start(response.upgrade(server), name="server")
        yield client
        await client.close()


async def rest(socket: MessageSocket) -> list[bytes]:
    found = []
    while (received := await socket.receive()) is not None:
        found.append(received)
    return found


def command(*words: str, stderr: bool = False) -> StreamRequest:
    return StreamRequest(EXEC, "main", words, stdout=True, stderr=stderr, protocols=(V4,))


async def test_input_comes_back_until_its_end(streams: AgentStreams, machine: FakeMachine) -> None:
    async with opened(streams, COMMAND) as socket:
        await socket.send(message(STDIN, b"one"))
        assert await socket.receive() == message(STDOUT, b"one")
        await socket.send(message(CLOSE, bytes((STDIN,))))
        assert await rest(socket) == [remote_command.succeeded()]
    assert machine.streams == []


async def test_end_of_input_is_of_version_5(streams: AgentStreams) -> None:
    old = StreamRequest(EXEC, "main", ("cat",), stdin=True, stdout=True, protocols=(V4,))
    async with opened(streams, old) as socket:
        await socket.send(message(CLOSE, bytes((STDIN,))))
        await socket.send(message(STDIN, b"still"))
        assert await socket.receive() == message(STDOUT, b"still")


async def test_exit_code_and_errors_arrive(streams: AgentStreams) -> None:
    async with opened(streams, command("complain", stderr=True)) as socket:
        assert await rest(socket) == [message(STDERR, b"no\n"), remote_command.exited(3)]


async def test_missing_program_is_explained(streams: AgentStreams) -> None:
    async with opened(streams, command("nothing", stderr=True)) as socket:
        why, last = await rest(socket)
    assert why == message(STDERR, b'program "nothing" not found\n')
    assert remote_command.exit_code(last[1:]) == 127


async def test_terminal_gets_its_size(streams: AgentStreams, machine: FakeMachine) -> None:
    async with opened(streams, COMMAND) as socket:
        await socket.send(remote_command.resize(TerminalSize(132, 50)))
        for garbage in (b"", b"\x04{}", b"\x04\xff", b"\x09unknown", b"\xff\x07"):
            await socket.send(garbage)
        await socket.send(message(STDIN, b"x"))
        assert await socket.receive() == message(STDOUT, b"x")
        found = machine.streams[0]
        assert isinstance(found, MemoryStream)
        assert found.size == (132, 50)


async def test_command_ends_with_its_client(streams: AgentStreams, machine: FakeMachine) -> None:
    async with opened(streams, command("sleep")):
        pass
    assert machine.streams == []


async def test_attached_stream_ends_with_its_container(
    streams: AgentStreams, machine: FakeMachine, clock: Clock
) -> None:
    request = StreamRequest(ATTACH, "main", stdin=True, stdout=True, protocols=(V5, V4))
    async with opened(streams, request) as socket:
        await socket.send(message(STDIN, b"hello"))
        assert await socket.receive() == message(STDOUT, b"hello")
        machine.end(MAIN, clock.now(), 1)
        assert await rest(socket) == [remote_command.succeeded()]


async def test_container_that_ends_first_is_explained(
    streams: AgentStreams, machine: FakeMachine, clock: Clock
) -> None:
    response = await streams.open(POD, COMMAND)
    machine.end(MAIN, clock.now(), 1)
    assert response.upgrade is not None
    client, server = socket_pair()
    await response.upgrade(server)
    (last,) = await rest(client)
    assert last[0] == ERROR
    with pytest.raises(ApiError, match="is not running"):
        remote_command.exit_code(last[1:])


async def test_newest_protocol_is_chosen(streams: AgentStreams) -> None:
    asked = StreamRequest(EXEC, "main", ("cat",), stdout=True, protocols=("x", V4, V5))
    assert (await streams.open(POD, asked)).headers[SUBPROTOCOL] == V5


@pytest.mark.parametrize("protocols", [(), ("SPDY/3.1",)])
async def test_unknown_protocols_are_refused_last(
    streams: AgentStreams, machine: FakeMachine, clock: Clock, protocols: tuple[str, ...]
) -> None:
    asked = StreamRequest(EXEC, "main", ("cat",), stdout=True, protocols=protocols)
    with pytest.raises(BadRequest, match="exec needs a WebSocket with a protocol of v5"):
        await streams.open(POD, asked)
    machine.end(MAIN, clock.now(), 4)
    with pytest.raises(BadRequest, match=r'"main" in pod "web" is not running: it ended with .* 4'):
        await streams.open(POD, asked)


async def test_container_that_waits_is_explained(clock: Clock) -> None:
    streams = AgentStreams(FakeRuntime(FakeMachine(), clock))
    with pytest.raises(BadRequest, match="is not running: it is waiting to start: not yet"):
        await streams.open(POD, COMMAND)
