"""Streams without a process: of scripted programs, and of those that could not be run."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from grange.agent.container_streams import STDOUT, Output, StreamEnd


class Reply(NamedTuple):
    """What a scripted program does with input.

    Attributes:
        output: what it writes.
        exit_code: with which it ends; None goes on.
    """

    output: tuple[Output, ...] = ()
    exit_code: int | None = None


Responder = Callable[[bytes | None], Reply]
"""A program that reacts to input; None is the end of the input."""


def echo(data: bytes | None) -> Reply:
    """A program that writes what it reads, and ends well with its input."""
    return Reply(exit_code=0) if data is None else Reply((Output(STDOUT, data),))


class MemoryStream:
    """The streams of a scripted program.

    Args:
        respond: reacts to input.
        on_close: called whenever it is closed.

    Attributes:
        size: columns and rows that the terminal was given last.
    """

    def __init__(
        self, respond: Responder, *, on_close: Callable[["MemoryStream"], None] = lambda _: None
    ) -> None:
        self._respond = respond
        self._on_close = on_close
        self._output: deque[Output] = deque()
        self._changed = asyncio.Event()
        self._end: StreamEnd | None = None
        self._has_input = True
        self.size = (0, 0)

    @property
    def has_ended(self) -> bool:
        """Whether the program is over."""
        return self._end is not None

    def feed(self, output: Output) -> None:
        """Let the program write."""
        self._output.append(output)
        self._changed.set()

    def finish(self, end: StreamEnd) -> None:
        """Let the program end, if it has not."""
        self._end = self._end or end
        self._changed.set()

    async def read(self) -> Output | None:
        """What was written; see ``ContainerStream``."""
        while not self._output:
            if self.has_ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._output.popleft()

    async def write(self, data: bytes) -> None:
        """Let the program respond; see ``ContainerStream``."""
        if self._has_input:
            self._take(self._respond(data))

    def end_input(self) -> None:
        """Let the program respond to the end; see ``ContainerStream``."""
        if self._has_input:
            self._has_input = False
            self._take(self._respond(None))

    def resize(self, columns: int, rows: int) -> None:
        """Note the size; see ``ContainerStream``."""
        self.size = (columns, rows)

    async def wait(self) -> StreamEnd:
        """How it ended; see ``ContainerStream``."""
        while self._end is None:
            self._changed.clear()
            await self._changed.wait()
        return self._end

    async def close(self) -> None:
        """End it; see ``ContainerStream``."""
        self._has_input = False
        self.finish(StreamEnd(None, "closed"))
        self._on_close(self)

    def _take(self, reply: Reply) -> None:
        if self.has_ended:
            return
        for output in reply.output:
            self.feed(output)
        if reply.exit_code is not None:
            self.finish(StreamEnd(reply.exit_code))


def ended(end: StreamEnd) -> MemoryStream:
    """The streams of a program that could not be run."""
    stream = MemoryStream(lambda _: Reply())
    stream.finish(end)
    return stream


class MemoryConnection:
    """A connection to a scripted program that sends back what it gets."""

    def __init__(self, on_close: Callable[["MemoryConnection"], None]) -> None:
        self._stream = MemoryStream(echo)
        self._on_close = on_close

    async def read(self) -> bytes:
        """See ``PortConnection``."""
        found = await self._stream.read()
        return b"" if found is None else found.data

    async def write(self, data: bytes) -> None:
        """See ``PortConnection``."""
        if self._stream.has_ended:
            raise ConnectionResetError("the program closed the connection")
        await self._stream.write(data)

    def end_output(self) -> None:
        """See ``PortConnection``."""
        self._stream.end_input()

    async def close(self) -> None:
        """See ``PortConnection``."""
        await self._stream.close()
        self._on_close(self)
