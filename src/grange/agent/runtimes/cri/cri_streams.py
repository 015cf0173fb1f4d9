"""Commands and main processes of containers by the streaming server of a container runtime.

The runtime answers with the URL of its streaming server on loopback, for one use. It speaks Kubernetes'
remote command protocol ``v4.channel.k8s.io`` over SPDY/3.1: a stream each for errors, input, output and
the size of the terminal.
"""

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from grange.agent.container_runtime import RuntimeFailedError
from grange.agent.container_streams import STDERR, STDOUT, Output, StreamEnd, StreamOptions
from grange.agent.runtimes.cri import cri_status
from grange.agent.runtimes.cri.cri_client import CriClient, CriError
from grange.base.clock import Clock
from grange.base.message_socket import MessageSocket
from grange.base.spdy_connection import SpdyConnection, SpdyStream
from grange.base.tasks import Child, Nursery

_PROTOCOL = "v4.channel.k8s.io"
_OPEN_LIMIT_S = 10.0
_HEAD_BYTES = 16 * 1024
_READ_BYTES = 32 * 1024
_QUEUED = 16
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class _TcpSocket:
    """A TCP connection as a ``MessageSocket``; SPDY needs no borders of messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> bytes | None:
        """The next bytes."""
        try:
            return await self._reader.read(_READ_BYTES) or None
        except OSError:
            return None

    async def send(self, message: bytes) -> None:
        """Send bytes."""
        self._writer.write(message)
        try:
            await self._writer.drain()
        except OSError as error:
            raise ConnectionResetError("the container runtime closed the stream") from error

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


async def upgraded(url: str, clock: Clock) -> _TcpSocket:
    """A connection to the streaming server that speaks SPDY.

    Args:
        url: as the runtime has answered.
        clock: bounds the opening.

    Raises:
        RuntimeFailedError: it is not on this machine, or does not take the connection.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname not in _LOOPBACK or parts.port is None:
        raise RuntimeFailedError(
            f"the container runtime streams at {parts.scheme}://{parts.netloc}; have it listen on "
            "loopback without TLS"
        )
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: Upgrade\r\n"
        f"Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {_PROTOCOL}\r\nContent-Length: 0\r\n\r\n"
    )
    why = "it does not answer"
    try:
        async with clock.timeout(_OPEN_LIMIT_S):
            opened = await asyncio.open_connection(parts.hostname, parts.port, limit=_HEAD_BYTES)
            socket = _TcpSocket(*opened)
            try:
                await socket.send(head.encode())
                answer = await opened[0].readuntil(b"\r\n\r\n")
                first = answer.split(b"\r\n", 1)[0].decode(errors="replace")
                if " 101 " in f"{first} ":
                    return socket
                why = first
            except BaseException:
                await socket.close()
                raise
            await socket.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        why = str(error) or why
    raise RuntimeFailedError(f"the container runtime refuses to stream: {why}")


class CriStream:
    """The streams of one command or main process; see ``ContainerStream``.

    A child of the runtime carries them to their end.

    Args:
        options: what was asked for.
        program: of the command, for messages; empty for a main process.
    """

    def __init__(self, options: StreamOptions, program: str) -> None:
        self._options = options
        self._program = program
        self._output: deque[Output] = deque()
        self._changed = asyncio.Event()
        self._child: Child[None] | None = None
        self._stdin: SpdyStream | None = None
        self._opened, self._ended = asyncio.Event(), asyncio.Event()
        self._input_ended, self._resized = asyncio.Event(), asyncio.Event()
        self._size = (0, 0)
        self._end = StreamEnd(message="the container runtime closed the stream" if program else "")

    async def run(self, socket: MessageSocket) -> None:
        """Carry the streams to their end.

        Args:
            socket: to the streaming server; it is closed in the end.
        """
        connection = SpdyConnection(socket, is_server=False)
        try:
            async with Nursery("container streams") as nursery:
                nursery.start(_receive(connection), name="receive")
                with suppress(ConnectionError):
                    await self._carry(connection, nursery)
                nursery.cancel()
        finally:
            self._opened.set()
            self._ended.set()
            self._wake()
            await socket.close()

    async def _carry(self, connection: SpdyConnection, nursery: Nursery) -> None:
        options = self._options
        errors = await _open(connection, "error")
        if options.stdin:
            self._stdin = await _open(connection, "stdin")
            nursery.start(self._end_input(self._stdin), name="end of input")
        wanted = [(STDOUT, "stdout")] if options.stdout else []
        wanted += [(STDERR, "stderr")] if options.stderr and not options.tty else []
        outputs = [(number, await _open(connection, name)) for number, name in wanted]
        if options.tty:
            nursery.start(self._send_sizes(await _open(connection, "resize")), name="sizes")
        self._opened.set()
        async with Nursery("outputs") as pumps:
            for number, stream in outputs:
                pumps.start(self._pump(number, stream))
        text = b""
        with suppress(ConnectionError):  # not every runtime ends it before the connection
            while piece := await errors.read():
                text += piece
        if self._program and text:
            self._end = _end_of(text, self._program)

    async def _pump(self, number: int, stream: SpdyStream) -> None:
        with suppress(ConnectionError):
            while data := await stream.read():
                while len(self._output) >= _QUEUED:
                    await self._changed.wait()
                self._output.append(Output(number, data))
                self._wake()

    async def _end_input(self, stream: SpdyStream) -> None:
        await self._input_ended.wait()
        with suppress(ConnectionError):
            await stream.end_output()

    async def _send_sizes(self, stream: SpdyStream) -> None:
        with suppress(ConnectionError):
            while True:
                await self._resized.wait()
                self._resized.clear()
                columns, rows = self._size
                text = json.dumps({"Width": columns, "Height": rows})
                await stream.write(text.encode() + b"\n")

    async def begin(self, nursery: Nursery, socket: MessageSocket) -> None:
        """Start to carry; returns when the program can be read and written, or has ended.

        Args:
            nursery: of the runtime.
            socket: to the streaming server.
        """
        self._child = nursery.start(self.run(socket), name=f"streams {self._program}")
        await self._opened.wait()

    async def read(self) -> Output | None:
        """The next output; see ``ContainerStream``."""
        while not self._output:
            if self._ended.is_set():
                return None
            await self._changed.wait()
        found = self._output.popleft()
        self._wake()
        return found

    def _wake(self) -> None:
        """Let readers and pumps look again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def write(self, data: bytes) -> None:
        """Give input; see ``ContainerStream``."""
        if self._stdin is not None and not self._input_ended.is_set():
            with suppress(ConnectionError):
                await self._stdin.write(data)

    def end_input(self) -> None:
        """End the input; see ``ContainerStream``."""
        self._input_ended.set()

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal a size; see ``ContainerStream``."""
        self._size = (columns, rows)
        self._resized.set()

    async def wait(self) -> StreamEnd:
        """How it ended; see ``ContainerStream``."""
        await self._ended.wait()
        return self._end

    async def close(self) -> None:
        """Detach; see ``ContainerStream``.

        The runtime goes on with a command whose stream is closed: it sees the end of its input.
        """
        if self._child is not None:
            self._child.cancel()
        await self._ended.wait()


def _end_of(text: bytes, program: str) -> StreamEnd:
    """From the status that the errors stream gives at the end of a command."""
    try:
        status: Any = json.loads(text)
    except ValueError:
        return StreamEnd(message=text.decode(errors="replace"))
    if not isinstance(status, Mapping) or status.get("status") == "Success":
        return StreamEnd(0)
    causes = (status.get("details") or {}).get("causes") or ()
    codes = [item.get("message") for item in causes if item.get("reason") == "ExitCode"]
    if codes and str(codes[0]).isdecimal():
        return StreamEnd(int(codes[0]))
    return StreamEnd(*cri_status.start_failure(program, str(status.get("message", ""))))


async def _receive(connection: SpdyConnection) -> None:
    with suppress(ConnectionError):
        await connection.run(lambda stream: None)


async def _open(connection: SpdyConnection, kind: str) -> SpdyStream:
    return await connection.open({"streamtype": kind})


async def opened(
    client: CriClient,
    call: str,
    request: dict[str, Any],
    stream: CriStream,
    nursery: Nursery | None,
    clock: Clock,
) -> CriStream:
    """Ask the container runtime for streams, and begin to carry them.

    Args:
        client: to the runtime.
        call: Exec or Attach.
        request: what is asked for.
        stream: not begun.
        nursery: of the runtime; None when it is closed.
        clock: bounds the opening.

    Raises:
        RuntimeFailedError: the runtime gives no streams.
    """
    try:
        answer = await client.call(call, request)
    except CriError as error:
        raise RuntimeFailedError(f"the container runtime failed: {error.message}") from error
    socket = await upgraded(str(answer.get("url", "")), clock)
    if nursery is None:
        await socket.close()
        raise RuntimeFailedError("the runtime is closed")
    await stream.begin(nursery, socket)
    return stream
