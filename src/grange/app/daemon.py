"""``grange up --detach``: the same command in the background, until it is ready."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from grange.app import flags, process
from grange.app.datadir import DataDirectoryUnusable, keep_older, make_directory
from grange.app.settings import Settings
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.cli import terminal

NEXT = "next:"
_LIMIT_S = 30.0
_POLL_S = 0.02
_LOGS_KEPT = 3


class AlreadyServed(GrangeError):
    """Another process serves the data directory; the message names it and what to do."""


def command_line(settings: Settings) -> list[str]:
    """The words that start a control plane with these settings in the foreground.

    Modules come from where this program is installed, never from the current directory.
    """
    return [sys.executable, "-P", "-m", "grange", "up", *flags.words(settings)]


def served_text(data_dir: Path, served: process.Served) -> str:
    """Where a control plane serves, as JSON."""
    facts = {
        "url": served.url,
        "dataDir": str(data_dir),
        "kubeconfig": str(data_dir / "kubeconfig"),
        "context": served.context,
        "pid": served.pid,
    }
    return terminal.json_text(facts)


def refuse_if_served(data_dir: Path) -> None:
    """Return if no process serves a data directory.

    Raises:
        AlreadyServed: one does.
    """
    if (present := process.find(data_dir)) is not None:
        raise AlreadyServed(
            f"{data_dir} is served by process {present.pid} at {present.url}: stop it with "
            f"grange down --data-dir {data_dir}, or choose another data directory"
        )


async def start_detached(settings: Settings, clock: Clock, output: str = "") -> int:
    """Start it in a separate session and wait until it is ready.

    Args:
        settings: what to serve.
        clock: for the wait.
        output: the value of ``-o``; without one the child's output is printed.

    Returns:
        0 when it serves; otherwise its exit code, after printing its output.

    Raises:
        AlreadyServed: the directory has a server, whose log must not be overwritten.

    Cancelled, it ends what it started.
    """
    make_directory(settings.data_dir)
    refuse_if_served(settings.data_dir)
    log = settings.data_dir / "up.log"
    rotate(log)
    child = _start(settings, log)
    try:
        async with clock.timeout(_LIMIT_S):
            while child.poll() is None:
                served = process.find(settings.data_dir)
                if served is not None and served.pid == child.pid:
                    written = log.read_text()
                    if NEXT in written:  # its last line when it is ready
                        text = served_text(settings.data_dir, served) + "\n" if output else written
                        click.echo(text, nl=False)
                        return 0
                await clock.sleep(_POLL_S)
    except TimeoutError:
        child.terminate()
        click.echo(f"not ready after {_LIMIT_S:.0f} s; see {log}", err=True)
        return 1
    except asyncio.CancelledError:  # Ctrl-C: the user does not know of it, so it must not stay
        child.terminate()
        raise
    written = log.read_text() or (
        f"Error: it ended with exit code {child.returncode} and wrote nothing to {log} "
        "(is the disk full?); run it without --detach to see why\n"
    )
    click.echo(written, nl=False, err=True)
    return child.returncode or 1


def rotate(output: Path) -> None:
    """Keep what earlier starts wrote: ``up.log.1`` is the last one, ``up.log.3`` the oldest.

    Raises:
        DataDirectoryUnusable: the directory cannot be written.
    """
    try:
        if not output.exists() or not output.stat().st_size:
            return
        keep_older(output, _LOGS_KEPT)
    except OSError as error:
        raise DataDirectoryUnusable(
            f"cannot rotate {output}: {error.strerror}; make the data directory writable"
        ) from error


@contextmanager
def default_interrupt() -> Iterator[None]:
    """Children that start inside can be interrupted, also where this process ignores SIGINT.

    A shell without job control starts its background commands that way, and ignoring is inherited.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _start(settings: Settings, output: Path) -> "subprocess.Popen[bytes]":
    """The child; what may hold a secret reaches it by its environment, which others cannot read.

    Raises:
        DataDirectoryUnusable: the directory cannot be written.
    """
    try:
        opened = output.open("wb")
    except OSError as error:
        raise DataDirectoryUnusable(
            f"cannot write {output}: {error.strerror}; make the data directory writable"
        ) from error
    with opened as log, default_interrupt():
        return subprocess.Popen(
            command_line(settings),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **flags.variables(settings)},
        )
