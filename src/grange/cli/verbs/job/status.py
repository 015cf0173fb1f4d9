"""``grange job status``: a job, its roles and its pods, once or until it ends."""

import click

from grange.api.status import NotFound
from grange.base.tasks import Nursery
from grange.cli import job_board, job_lookup, job_view, options, session, steady_screen, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents
from grange.cli.watched_object import WatchedObject

_REFRESH_S = 1.0


@click.command(
    cls=Command, examples=("grange job status train", "grange job status gj/train --watch")
)
@job_lookup.NAME
@click.option("-w", "--watch", is_flag=True, help="Until it ends; exit code 1 if it failed.")
@options.output(documents.REPORT)
@options.connected
def command(
    env: Environment,
    target: session.ClusterTarget,
    name: str,
    watch: bool,  # noqa: FBT001  click passes flags by name
    output: str,
) -> None:
    """Show NAME or KIND/NAME: phase, progress, counts by role, pods."""

    async def verb(opened: session.ApiSession) -> int:
        _, found = await job_lookup.find(opened, name)
        if output:
            terminal.write(documents.report(output, found.get("status") or {}))
            return 0
        if watch:
            return await follow(opened, job_view.view(found))
        job = job_view.view(found)
        members = await job_lookup.pods_of(opened, job)
        terminal.echo("\n".join(job_board.lines(job, members, env.clock.now())))
        return 0

    session.run(env, target, verb)


async def follow(opened: session.ApiSession, job: job_view.JobView) -> int:
    """Show the board until the job has ended; its exit code.

    Raises:
        NotFound: it was deleted.
    """
    clock = opened.env.clock
    subject = WatchedObject(opened, job.kind, job.name, job.namespace, pods=False)
    async with steady_screen.opened(opened.env) as draw, Nursery("job") as nursery:
        for watch in subject.watches:
            nursery.start(watch())
        while True:
            if subject.is_known:
                if subject.document is None or _is_another(subject, job):
                    raise NotFound(f"{job.label}: it was deleted")
                job = job_view.view(subject.document)
                draw(job_board.lines(job, None, clock.now()))
                if job.is_finished:
                    nursery.cancel()
                    break
            await subject.changed(_REFRESH_S if opened.env.interactive else None)
    return job.exit_code


def _is_another(subject: WatchedObject, job: job_view.JobView) -> bool:
    found = subject.document
    return found is not None and found["metadata"].get("uid") != job.uid
