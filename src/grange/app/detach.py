"""``grange up --detach``: the same command in the background, until it is ready."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import click

from grange.app import process
from grange.app.alerting import ENVIRONMENT
from grange.app.datadir import make_directory
from grange.app.settings import Settings
from grange.base.clock import Clock
from grange.base.errors import GrangeError

NEXT = "next:"
_LIMIT_S = 30.0
_POLL_S = 0.02


class AlreadyServed(GrangeError):
    """Another process serves the data directory; the message names it and what to do."""


def command_line(settings: Settings, *, no_switch: bool) -> list[str]:
    """The words that start a control plane with these settings in the foreground."""
    words = [sys.executable, "-m", "grange", "up", "--data-dir", str(settings.data_dir)]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    words += ["--listen", f"{host}:{settings.port}", "--nodes", str(settings.nodes)]
    words += ["--log-level", settings.log_level]
    words += ["--disable", ",".join(sorted(settings.disable))] if settings.disable else []
    if settings.scheduler_config is not None:
        words += ["--scheduler-config", str(settings.scheduler_config)]
    words += ["--no-switch"] if no_switch else []
    words += ["--log-json"] if settings.log_json else []
    return words


async def detach_up(settings: Settings, clock: Clock, *, no_switch: bool) -> int:
    """Start it in a session of its own and wait until it is ready.

    Returns:
        0 when it serves; otherwise its exit code, after printing what it said.

    Raises:
        AlreadyServed: the directory has a server, whose log must not be overwritten.

    Cancelled, it ends what it started.
    """
    make_directory(settings.data_dir)
    present = process.find(settings.data_dir)
    if present is not None:
        raise AlreadyServed(
            f"{settings.data_dir} is served by process {present.pid} at {present.url}: stop it with "
            f"grange down --data-dir {settings.data_dir}, or choose another data directory"
        )
    output = settings.data_dir / "up.log"
    child = _start(command_line(settings, no_switch=no_switch), output, settings.alert_webhook)
    try:
        async with clock.timeout(_LIMIT_S):
            while child.poll() is None:
                served = process.find(settings.data_dir)
                if served is not None and served.pid == child.pid:
                    said = output.read_text()
                    if NEXT in said:  # the last it says when it is ready, the kubeconfig included
                        click.echo(said, nl=False)
                        return 0
                await clock.sleep(_POLL_S)
    except TimeoutError:
        child.terminate()
        click.echo(f"not ready after {_LIMIT_S:.0f} s; see {output}", err=True)
        return 1
    except asyncio.CancelledError:  # Ctrl-C: nobody was told of it, so it must not stay
        child.terminate()
        raise
    said = output.read_text() or (
        f"Error: it ended with exit code {child.returncode} and without a word in {output} "
        "(is the disk full?); run it without --detach to see why\n"
    )
    click.echo(said, nl=False, err=True)
    return child.returncode or 1


def _start(words: list[str], output: Path, webhook: str) -> "subprocess.Popen[bytes]":
    """The child; what may hold a secret reaches it by its environment, which others cannot read."""
    with output.open("wb") as log:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, ENVIRONMENT: webhook},
        )
