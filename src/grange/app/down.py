"""``grange down``: stop the control plane of a data directory."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from grange.app import process
from grange.app.locations import default_data_dir
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
    """Stop it cleanly: pods get 30 s at most to end, everything is on disk."""
    timeout_s = parse_duration(timeout)
    directory = (data_dir or meant(env, os.environ)).absolute()

    async def stop() -> None:
        found = process.find(directory)
        if found is not None:
            click.echo(f"stopping {found.url}: pods end first", err=True)
        try:
            served = await process.end(directory, timeout_s=timeout_s, clock=env.clock)
        except TimeoutError:
            raise click.ClickException(
                f"still running after {timeout_s:g} s; see {directory / 'up.log'}"
            ) from None
        if output:
            facts = {"dataDir": str(directory), "url": served.url, "pid": served.pid}
            terminal.write(documents.report(output, facts))
        else:
            click.echo(f"stopped {served.url} (pid {served.pid})")

    env.run(stop())
