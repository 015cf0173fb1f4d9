"""Standard input, output and the terminal of a verb that lends them to a program elsewhere."""

import asyncio
import contextlib
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator

from grange.api.remote_command import TerminalSize

_READ_BYTES = 32 * 1024


class StandardInput:
    """Reads a descriptor on the loop; nothing is read ahead, as the next program may want it.

    Args:
        descriptor: standard input by default.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = sys.stdin.fileno() if descriptor is None else descriptor

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
        loop = asyncio.get_running_loop()
        readable = loop.create_future()
        try:
            loop.add_reader(self._descriptor, _resolve, readable)
        except OSError:  # a regular file: it never lets its reader wait
            return os.read(self._descriptor, _READ_BYTES)
        try:
            await readable
        finally:
            loop.remove_reader(self._descriptor)
        return os.read(self._descriptor, _READ_BYTES)


def _resolve(readable: "asyncio.Future[None]") -> None:
    if not readable.done():
        readable.set_result(None)


def write_all(descriptor: int, data: bytes) -> None:
    """Write to standard output or standard error as it is, and at once."""
    while data:
        data = data[os.write(descriptor, data) :]


def terminal_size(descriptor: int) -> TerminalSize:
    """The size of a terminal."""
    columns, rows = os.get_terminal_size(descriptor)
    return TerminalSize(columns, rows)


@contextlib.contextmanager
def raw_terminal(descriptor: int) -> Iterator[None]:
    """Every key reaches the program elsewhere; the terminal is as before at the end of the block."""
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextlib.contextmanager
def on_signals(callback: Callable[[int], None], *numbers: int) -> Iterator[None]:
    """Call back on signals while the block runs, on the loop."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        loop.add_signal_handler(number, callback, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
