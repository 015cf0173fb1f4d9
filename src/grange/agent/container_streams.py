"""The part of the seam to runtimes that is about looking inside: streams and connections.

The contract (tests/contract/test_runtime.py):

- Nothing is read ahead of the reader but what the kernel buffers, and ``write`` waits while the
  program takes nothing.
- After ``close`` nothing of a command is left: no process and no descriptor.
- An attached stream that is not read does not stop the program: it ends with ``OVERRUN``.
"""

from typing import NamedTuple, Protocol

STDOUT, STDERR = 1, 2
OVERRUN = "the reader is too slow: output was lost; attach again"


class Output(NamedTuple):
    """What a program wrote.

    Attributes:
        stream: ``STDOUT`` or ``STDERR``; a terminal has the first one only.
        data: never empty.
    """

    stream: int
    data: bytes


class StreamOptions(NamedTuple):
    """What is wanted of a command or of a container's main process.

    Attributes:
        stdin: there will be input.
        stdout, stderr: output is to be read; without a terminal one of them may be left out.
        tty: the command gets a terminal; of a main process: it is taken to have one.
    """

    stdin: bool = False
    stdout: bool = True
    stderr: bool = True
    tty: bool = False


class StreamEnd(NamedTuple):
    """How a stream ended.

    Attributes:
        exit_code: of the command, as a shell reports it; None where it is not the stream that knows
            it (attached ones) or where the command was lost.
        message: why it could not be run or was lost; empty for none.
    """

    exit_code: int | None = None
    message: str = ""


class ContainerStream(Protocol):
    """Standard streams of a program; to be closed. One task may read while another writes."""

    async def read(self) -> Output | None:
        """The next output; None after the end of all output."""

    async def write(self, data: bytes) -> None:
        """Give input; waits while the program takes nothing. Without effect after its end."""

    def end_input(self) -> None:
        """Let the program see the end of its input; idempotent."""

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal a size; without effect where there is none."""

    async def wait(self) -> StreamEnd:
        """How it ended; to be asked after the end of all output."""

    async def close(self) -> None:
        """Kill the command and what it started, or detach; idempotent."""


class PortConnection(Protocol):
    """A connection to a TCP port of a pod; to be closed."""

    async def read(self) -> bytes:
        """The next bytes; empty after their end.

        Raises:
            ConnectionError: the program broke it.
        """

    async def write(self, data: bytes) -> None:
        """Send; waits while the program takes nothing.

        Raises:
            ConnectionError: the program broke it.
        """

    def end_output(self) -> None:
        """Let the program see the end of what is sent; idempotent."""

    async def close(self) -> None:
        """Close; idempotent."""
