"""``grange job list``: the jobs of all kinds."""

import click

from grange.api.meta import Document
from grange.api.printing import cells
from grange.api.scheme import AnyKind
from grange.api.status import Forbidden, NotFound
from grange.cli import job_view, options, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.job_view import JobView
from grange.cli.printers import documents, table

_HEAD = ["JOB", "PHASE", "ACTIVE", "SUCCEEDED", "RESTARTS", "PROGRESS", "AGE"]


@click.command("list", cls=Command, examples=("grange job list", "grange job list -A -l team=a"))
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of all namespaces.")
@options.SELECTOR
@options.output(documents.OBJECT)
@options.connected
def list_(env: Environment, target: session.ClusterTarget, selector: str, output: str) -> None:
    """List GangJobs, TFJobs, PyTorchJobs and Jobs, whichever the cluster serves."""

    async def verb(opened: session.ApiSession) -> int:
        found = await _listed(opened, selector)
        if output:
            terminal.write(documents.render(output, found, single=False))
        elif not found:
            terminal.echo("No jobs found.", err=True)
        else:
            terminal.echo("\n".join(_table(opened, [document for _, document in found])))
        return 0

    session.run(env, target, verb)


async def _listed(opened: session.ApiSession, selector: str) -> list[tuple[AnyKind, Document]]:
    found: list[tuple[AnyKind, Document]] = []
    refused: list[Forbidden | NotFound] = []
    for kind in job_view.KINDS:
        try:
            found += [(kind, item) for item in await opened.listed(kind, selector=selector)]
        except (NotFound, Forbidden) as error:  # a cluster need not serve every kind
            refused.append(error)
    if len(refused) == len(job_view.KINDS):
        raise refused[0]
    return found


def _table(opened: session.ApiSession, found: list[Document]) -> list[str]:
    now = opened.env.clock.now().timestamp()
    jobs = [job_view.view(document) for document in found]
    everywhere = not opened.namespace
    rows = [[*([job.namespace] if everywhere else []), *_row(job, now)] for job in jobs]
    return table.render([[*(["NAMESPACE"] if everywhere else []), *_HEAD], *rows])


def _row(job: JobView, now: float) -> list[str]:
    wanted = sum(role.wanted for role in job.roles)
    return [
        job.label,
        job.phase,
        f"{sum(role.active for role in job.roles)}/{wanted}",
        f"{sum(role.succeeded for role in job.roles)}/{wanted}",
        str(job.restarts),
        "" if job.percent is None else f"{job.percent:g}%",
        cells.age_of(job.created, now),
    ]
