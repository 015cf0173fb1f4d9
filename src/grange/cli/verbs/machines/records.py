"""``grange machines cost`` and ``grange machines timeline``: what the records of machines show."""

from pathlib import Path

import click

from grange.api import timestamps
from grange.api.kinds import MACHINE
from grange.api.kinds.machine import Machine
from grange.base.plurals import counted
from grange.cli import (
    machine_board,
    machine_costs,
    machine_timeline,
    options,
    session,
    terminal,
    timeline as drawing,
)
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents

_NONE = "No machines; grange machines pools shows the pools that order them."


@click.command(
    "cost", cls=Command, examples=("grange machines cost", "grange machines cost -o json")
)
@click.option("--pool", default="", help="Only machines of this NodePool.")
@options.output(documents.REPORT)
@options.connected
def cost(env: Environment, target: session.ClusterTarget, pool: str, output: str) -> None:
    """Show what machines cost an hour, and what each has cost since its boot.

    Time in which a machine was switched off is not counted. Machines whose record is gone, a minute after
    their end, are not shown.
    """

    async def verb(opened: session.ApiSession) -> int:
        found = machine_costs.costs(await _machines(opened, pool), env.clock.now())
        if output:
            terminal.write(documents.report(output, machine_costs.document(found)))
        else:
            terminal.echo(
                "\n".join(machine_costs.lines(found) if found else [_NONE]), err=not found
            )
        return 0

    session.run(env, target, verb)


@click.command(
    "timeline",
    cls=Command,
    examples=("grange machines timeline", "grange machines timeline --svg machines.svg"),
)
@click.option("--pool", default="", help="Only machines of this NodePool.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Write a picture.")
@options.output(documents.REPORT)
@options.connected
def timeline(
    env: Environment, target: session.ClusterTarget, pool: str, svg: Path | None, output: str
) -> None:
    """Show each machine on one line, from its order to its end or until now.

    Machines whose record is gone, a minute after their end, are not shown; of many changes of phase the
    last 20.
    """
    pictures: list[str] = []

    async def verb(opened: session.ApiSession) -> int:
        pictures.append(await show_timeline(opened, pool, output, draws=svg is not None))
        return 0

    session.run(env, target, verb)
    if svg is not None and pictures[0]:
        svg.write_text(pictures[0])
        terminal.echo(f"wrote {svg}")


async def show_timeline(opened: session.ApiSession, pool: str, output: str, *, draws: bool) -> str:
    """Print the lives of machines, or return them as a picture.

    Args:
        opened: the session.
        pool: only machines of this pool; empty for all.
        output: format; empty for text.
        draws: return a picture instead of text.

    Returns:
        SVG; empty where something was printed.
    """
    env = opened.env
    found = machine_timeline.spans(await _machines(opened, pool), env.clock.now())
    if output:
        shown = {"machines": drawing.documents("machine", found)}
        terminal.write(documents.report(output, shown))
    elif not found:
        terminal.echo(_NONE, err=True)
    elif draws:
        return drawing.picture(_title(found), found, machine_timeline.STAGES)
    else:
        lines = drawing.text(_title(found), found, machine_timeline.STAGES, env.width)
        terminal.echo("\n".join(lines))
    return ""


async def _machines(opened: session.ApiSession, pool: str) -> list[Machine]:
    found = map(machine_board.view, await opened.listed(MACHINE, ""))
    return [one for one in found if not pool or one.spec.pool == pool]


def _title(found: list[drawing.TimelineSpan]) -> str:
    machines = counted(len(found), "machine")
    return f"{machines}, {timestamps.age(drawing.length(found).total_seconds())} in all"
