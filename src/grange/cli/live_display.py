"""A display that stays in place on a terminal, and that Ctrl-C does not shift."""

import contextlib
import os
import signal
import termios
from collections.abc import Iterator
from typing import IO, Any

from grange.cli.standard_streams import on_signals

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_LOCAL_FLAGS = 3  # index in the attributes of a terminal


@contextlib.contextmanager
def opened(*, color: bool, err: bool = False, transient: bool = False) -> Iterator[Any]:
    """A live display of rich, which is imported only here; it is redrawn by ``update`` alone.

    The terminal is as before at the end of the block, and when a signal ends the process.

    Args:
        color: colors may be used.
        err: on standard error.
        transient: nothing of it stays at the end.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=err, no_color=not color)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_without_control_echo(console.file))
        live = Live(console=console, auto_refresh=False, transient=transient)
        stack.enter_context(live)

        def end(number: int) -> None:
            try:
                stack.close()
            finally:  # also where the terminal is gone
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)

        # Others keep those that they handle, or that ``nohup`` ignores.
        ending = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
        with on_signals(end, *ending):
            yield live


@contextlib.contextmanager
def _without_control_echo(file: IO[str]) -> Iterator[None]:
    """Ctrl-C is not shown as ``^C``: behind a full line it would wrap to the next one.

    A process in the background leaves the terminal alone: a change would stop it.
    """
    descriptor = -1
    try:
        descriptor = file.fileno()
        echoed = _is_foreground(descriptor) and _set_control_echo(descriptor, on=False)
    except (OSError, termios.error):  # not the terminal of this process
        echoed = False
    try:
        yield
    finally:
        if echoed:
            with contextlib.suppress(OSError, termios.error):  # the terminal is gone
                if _is_foreground(descriptor):
                    _set_control_echo(descriptor, on=True)


def _is_foreground(descriptor: int) -> bool:
    return os.tcgetpgrp(descriptor) == os.getpgrp()


def _set_control_echo(descriptor: int, *, on: bool) -> bool:
    """Whether control characters were shown before."""
    attributes = termios.tcgetattr(descriptor)
    flags = attributes[_LOCAL_FLAGS]
    attributes[_LOCAL_FLAGS] = flags | termios.ECHOCTL if on else flags & ~termios.ECHOCTL
    termios.tcsetattr(descriptor, termios.TCSADRAIN, attributes)
    return bool(flags & termios.ECHOCTL)
