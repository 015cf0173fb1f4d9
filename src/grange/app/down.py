"""``grange down``: stop the control plane of a data directory."""

import os
from pathlib import Path

import click

from grange.app import process
from grange.app.settings import default_data_dir
from grange.cli.durations import parse_duration
from grange.cli.surroundings import Surroundings


@click.command()
@click.option("--data-dir", type=click.Path(path_type=Path), default=None, help="Which one.")
@click.option("--timeout", default="60s", show_default=True, help="For example 30s, 2m.")
@click.pass_obj
def command(around: Surroundings, data_dir: Path | None, timeout: str) -> None:
    """Stop it cleanly: pods get 30 s at most to end, everything is on disk."""
    timeout_s = parse_duration(timeout)
    directory = (data_dir or default_data_dir(os.environ)).absolute()

    async def stop() -> None:
        found = process.find(directory)
        if found is not None:
            click.echo(f"stopping {found.url}: pods end first", err=True)
        try:
            served = await process.end(directory, timeout_s=timeout_s, clock=around.clock)
        except TimeoutError:
            raise click.ClickException(
                f"still running after {timeout_s:g} s; see {directory / 'up.log'}"
            ) from None
        click.echo(f"stopped {served.url} (pid {served.pid})")

    around.run(stop())
