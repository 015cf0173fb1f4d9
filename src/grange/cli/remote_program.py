"""A program in a pod with the standard streams of this process."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass

from grange.api import remote_command
from grange.api.remote_command import CLOSE, ERROR, STDERR, STDIN, STDOUT, V5
from grange.api.status import ServiceUnavailable
from grange.base.message_socket import MessageSocket
from grange.base.tasks import Nursery
from grange.cli.standard_streams import (
    StandardInput,
    on_signals,
    raw_terminal,
    terminal_size,
    write_all,
)

_SIGNALLED = 128


@dataclass(frozen=True, slots=True)
class StreamUse:
    """Which streams are used.

    Attributes:
        stdin: standard input is passed on.
        tty: the program has a terminal, and ours passes on every key.
    """

    stdin: bool
    tty: bool

    def query(self) -> dict[str, list[str]]:
        """The parameters of the request."""
        wanted = {"stdin": self.stdin, "stdout": True, "stderr": not self.tty, "tty": self.tty}
        return {name: ["true"] for name, value in wanted.items() if value}


async def run_program(socket: MessageSocket, protocol: str, use: StreamUse) -> int:
    """Pass streams on until the program ends.

    Returns:
        Its exit code; 128 and the number of a signal that ended this process's part.

    Raises:
        ApiError: the program could not be run, or the connection broke.
    """
    ended: list[int] = []
    with contextlib.ExitStack() as stack:
        async with Nursery("program") as nursery:

            def end(number: int) -> None:
                ended.append(number)
                nursery.cancel()

            if use.tty:
                terminal = sys.stdin.fileno()
                stack.enter_context(raw_terminal(terminal))
                stack.enter_context(on_signals(end, signal.SIGTERM, signal.SIGHUP))
                nursery.start(_send_sizes(socket, terminal), name="size")
            if use.stdin:
                nursery.start(_send_input(socket, protocol), name="input")
            code = await _receive(socket, _writers())
            nursery.cancel()
    return _SIGNALLED + ended[0] if ended else code


def _writers() -> dict[int, Callable[[bytes], None]]:
    sys.stdout.flush()
    sys.stderr.flush()
    out, err = sys.stdout.fileno(), sys.stderr.fileno()
    return {
        STDOUT: lambda data: write_all(out, data),
        STDERR: lambda data: write_all(err, data),
    }


async def _receive(socket: MessageSocket, writers: dict[int, Callable[[bytes], None]]) -> int:
    while (message := await socket.receive()) is not None:
        if not message:
            continue
        channel, data = message[0], message[1:]
        if channel == ERROR:
            return remote_command.exit_code(data)
        if write := writers.get(channel):
            try:
                write(data)
            except BrokenPipeError:  # the reader of our output has left
                return _SIGNALLED + signal.SIGPIPE
    raise ServiceUnavailable(
        "the connection to the pod broke off; whether the program ended is unknown"
    )


async def _send_input(socket: MessageSocket, protocol: str) -> None:
    stdin = StandardInput()
    with contextlib.suppress(ConnectionError):  # the reader of the answers learns of it, too
        while data := await stdin.read():
            await socket.send(remote_command.message(STDIN, data))
        if protocol == V5:
            await socket.send(remote_command.message(CLOSE, bytes((STDIN,))))


async def _send_sizes(socket: MessageSocket, terminal: int) -> None:
    """Give the program's terminal the size of ours, and again whenever that changes."""
    changed = asyncio.Event()
    with on_signals(lambda _: changed.set(), signal.SIGWINCH), contextlib.suppress(ConnectionError):
        while True:
            await socket.send(remote_command.resize(terminal_size(terminal)))
            await changed.wait()
            changed.clear()
