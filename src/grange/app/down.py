"""``grange down``: stop the control plane of a data directory."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from grange.api.meta import Document
from grange.app import process
from grange.app.datadir import MACHINES
from grange.app.locations import default_data_dir
from grange.base.log import Logger
from grange.cli import options, terminal
from grange.cli.command import Command
from grange.cli.confirm import confirm
from grange.cli.durations import parse_duration
from grange.cli.environment import Environment
from grange.cli.printers import documents


def meant(env: Environment, environment: Mapping[str, str]) -> Path:
    """The data directory that is meant where none is named.

    That is ``$GRANGE_DATA_DIR``, else the one whose context is current, else the default one; the
    last needs a confirmation where another program's context is current.

    Raises:
        NotConfirmed: the answer was no.
        UsageError: another program's context is current, and there is no terminal to ask at.
    """
    from grange.client.kubeconfig_contexts import current_home  # reads YAML, which takes its time

    default = default_data_dir(environment)
    if environment.get("GRANGE_DATA_DIR"):
        return default
    current, home = current_home(env.kubeconfig)
    if home:
        return Path(home)
    if current:
        if not (env.interactive and sys.stdin.isatty()):
            raise click.UsageError(
                f"no data directory is named: the current context, {terminal.cell(current)}, is not "
                f"Grange's; add --data-dir {shlex.quote(str(default))} to stop the default one"
            )
        confirm(f"The current context, {current}, is not Grange's. Stop {default}?", yes=False)
    return default


@click.command(cls=Command, examples=("grange down",))
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=None,
    help="Which one; by default $GRANGE_DATA_DIR, or what the current context names.",
)
@options.timeout("60s")
@options.output(documents.REPORT)
@click.pass_obj
def command(env: Environment, data_dir: Path | None, timeout: str, output: str) -> None:
    """Stop it cleanly: pods get 30 s at most to end, everything is on disk.

    Local machines end, too; the next `grange up` starts pods and machines again. Where the server was
    killed, this ends what it has left running. Machines of other providers go on, and are named.
    """
    timeout_s = parse_duration(timeout)
    directory = (data_dir or meant(env, os.environ)).absolute()

    async def stop() -> None:
        try:
            facts = await _stop_served(directory, timeout_s, env)
        except process.NotRunning as error:
            facts = await _end_leftovers(directory, timeout_s, env)
            if not (facts["machines"] or facts["pods"]):
                raise error from None
        facts["remainingMachines"], about = await _remaining(directory)
        if output:
            terminal.write(documents.report(output, {"dataDir": str(directory), **facts}))
        else:
            click.echo("\n".join([*_text(facts), *about]))

    env.run(stop())


async def _stop_served(directory: Path, timeout_s: float, env: Environment) -> Document:
    """Stop the process that serves; what it was, and what has ended with it."""
    found = process.find(directory)
    machines: list[str] = []
    if found is not None:
        click.echo(f"stopping {found.url}: pods end first", err=True)
        machines = _local_machines(directory)
    try:
        served = await process.end(directory, timeout_s=timeout_s, clock=env.clock)
    except TimeoutError:
        raise _too_slow(directory, timeout_s) from None
    left = _local_machines(directory)
    if left:
        raise click.ClickException(
            f"machines go on: {', '.join(left)}; run grange down again, see {directory / 'up.log'}"
        )
    return {"url": served.url, "pid": served.pid, "machines": machines, "pods": []}


async def _end_leftovers(directory: Path, timeout_s: float, env: Environment) -> Document:
    """End what a killed server has left running."""
    from grange.app import leftovers  # loads the runtimes, which takes its time

    try:
        async with env.clock.timeout(timeout_s):
            ended = await leftovers.end(directory, env.clock)
    except TimeoutError:
        raise _too_slow(directory, timeout_s) from None
    return {"url": "", "pid": 0, "machines": [*ended.machines], "pods": [*ended.pods]}


async def _remaining(directory: Path) -> tuple[list[Document], list[str]]:
    """The machines that go on, and the text about them."""
    from grange.app import remaining_machines  # loads the store, which takes its time

    found, about = await remaining_machines.reported(directory, Logger("down"))
    documents_of = [
        {
            "name": one.name,
            "pool": one.pool,
            "provider": one.provider,
            "instanceID": one.instance,
            "pricePerHour": "" if one.price is None else f"{one.price:f}",
        }
        for one in found
    ]
    return documents_of, about


def _too_slow(directory: Path, timeout_s: float) -> click.ClickException:
    return click.ClickException(f"still running after {timeout_s:g} s; see {directory / 'up.log'}")


def _local_machines(directory: Path) -> list[str]:
    if not (directory / MACHINES).is_dir():
        return []
    from grange.app import local_machines  # few have any

    return [*local_machines.running(directory)]


def _text(facts: Document) -> list[str]:
    machines, pods = facts["machines"], facts["pods"]
    lines = [f"stopped {facts['url']} (pid {facts['pid']})"] if facts["pid"] else []
    if pods:
        lines.append(f"ended pods that a killed server had left: {', '.join(pods)}")
    if machines:
        lines.append(f"ended local machines until the next up: {', '.join(machines)}")
    return lines
