"""A program that a verb runs in the foreground: it has the terminal, and ends with the verb."""

import asyncio
from collections.abc import Mapping, Sequence

import click

from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.tasks import cleanup

_GRACE_S = 10.0
_SIGNALLED = 128  # plus the number of the signal, as shells report it


async def run(
    command: Sequence[str], variables: Mapping[str, str], *, clock: Clock, log: Logger
) -> int:
    """Run a program to its end; its exit code, as a shell reports it.

    Cancelled, it ends the program: SIGTERM, and SIGKILL after ten seconds.

    Args:
        command: the program and its arguments.
        variables: its whole environment.
        clock: for the grace period.
        log: names a program that does not end.

    Raises:
        click.ClickException: it cannot be started.
    """
    try:
        child = await asyncio.create_subprocess_exec(*command, env=variables)
    except OSError as error:
        raise click.ClickException(f"cannot run {command[0]}: {error.strerror}") from error
    try:
        code = await child.wait()
    finally:
        if child.returncode is None:
            await cleanup(_end(child, clock), limit_s=2 * _GRACE_S, clock=clock, log=log)
    return _SIGNALLED - code if code < 0 else code


async def _end(child: asyncio.subprocess.Process, clock: Clock) -> None:
    child.terminate()
    try:
        async with clock.timeout(_GRACE_S):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()
