"""``grange job timeline``: when the pods of a job waited, started and ran."""

from pathlib import Path

import click

from grange.cli import job_lookup, job_timeline, job_view, options, session, terminal, timeline
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.job_timeline import STAGES
from grange.cli.printers import documents


@click.command(
    cls=Command,
    examples=("grange job timeline train", "grange job timeline train --svg train.svg"),
)
@job_lookup.NAME
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Write a picture.")
@options.output(documents.REPORT)
@options.connected
def command(
    env: Environment, target: session.ClusterTarget, name: str, svg: Path | None, output: str
) -> None:
    """Show each pod of NAME on one line, from its creation to its end or until now.

    Pods that are deleted already are not shown.
    """
    pictures: list[str] = []

    async def verb(opened: session.ApiSession) -> int:
        job = job_view.view((await job_lookup.find(opened, name))[1])
        now = env.clock.now()
        spans = job_timeline.spans(await job_lookup.pods_of(opened, job), now)
        if not spans:
            terminal.echo(f"{job.label} has no pods", err=True)
            return 1
        if output:
            pods = timeline.documents("pod", spans)
            shown = {"job": job.label, "phase": job.phase, "pods": pods}
            terminal.write(documents.report(output, shown))
        elif svg is not None:
            pictures.append(timeline.picture(job_timeline.title(job, spans), spans, STAGES))
        else:
            title = job_timeline.title(job, spans)
            terminal.echo("\n".join(timeline.text(title, spans, STAGES, env.width)))
        return 0

    session.run(env, target, verb)
    if svg is not None and pictures:
        svg.write_text(pictures[0])
        terminal.echo(f"wrote {svg}")
