"""The program: reads the environment and argv, then hands over to a verb."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from grange import __version__
from grange.app import gc_tuning
from grange.app.locations import kubeconfig_paths, service_account
from grange.base import log
from grange.base.clock import LoopClock
from grange.base.rng import Stream
from grange.cli import terminal
from grange.cli.command import Section, Verb
from grange.cli.environment import Environment
from grange.cli.main import USAGE_ERROR, group

T = TypeVar("T")

INTERRUPTED = 130  # 128 + SIGINT, as shells report it

_RUN, _OPERATE = Section.RUN, Section.OPERATE

VERBS = {
    "up": Verb(_RUN, "grange.app.up", "Serve a control plane from a data directory."),
    "down": Verb(_RUN, "grange.app.down", "Stop the control plane of a data directory."),
    "agent": Verb(_RUN, "grange.app.node_agent", "Join this machine to a control plane."),
    "controllers": Verb(
        _OPERATE, "grange.app.controllers", "Run controllers and scheduler against a cluster."
    ),
    "token": Verb(_OPERATE, "grange.app.join_tokens", "Manage tokens with which machines join."),
    "install": Verb(
        _OPERATE, "grange.app.install.verb", "Print manifests that install Grange in Kubernetes."
    ),
    "simulate": Verb(
        _OPERATE, "grange.app.simulate.verb", "Compare scheduling policies on a trace."
    ),
}


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a fresh loop."""
    return asyncio.run(main)


@contextlib.contextmanager
def interrupts(callback: Callable[[], None]) -> Iterator[None]:
    """Call back on SIGINT and SIGTERM, instead of ending the program, while a block runs."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        loop.add_signal_handler(number, callback)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])


def environment() -> Environment:
    """The environment of this process."""
    interactive = sys.stderr.isatty()
    return Environment(
        clock=LoopClock(),
        rng=Stream.from_system(),
        log=log.Logger("cli"),
        kubeconfig=kubeconfig_paths(os.environ),
        interactive=interactive,
        color=interactive and not os.environ.get("NO_COLOR"),
        width=shutil.get_terminal_size().columns,
        run=run,
        account=service_account(os.environ),
        interrupts=interrupts,
        variables=dict(os.environ),
    )


def main() -> None:
    """Run the command line and leave with its exit code."""
    import click

    gc_tuning.tune()  # before verbs load their modules
    command = group(VERBS, __version__)
    try:
        code = command.main(prog_name="grange", standalone_mode=False, obj=environment())
        sys.exit(code if isinstance(code, int) else 0)  # click hands the code of an Exit back
    except click.UsageError as error:
        error.show()
        sys.exit(USAGE_ERROR)
    except click.ClickException as error:
        terminal.show(error)
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader of our output left, as `grange get … | head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
