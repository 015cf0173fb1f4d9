"""``grange job logs``: the logs of a job's pods."""

import click

from grange.cli import job_lookup, job_notices, options, session
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.job_logs import JobLogs, LogSelection
from grange.cli.log_stream import log_query


@click.command(
    cls=Command,
    examples=("grange job logs train -f", "grange job logs train --role worker --index 0"),
)
@job_lookup.NAME
@click.option("--role", default="", help="Only this role.")
@click.option("--index", default="", help="Only this index.")
@click.option("-c", "--container", default="", help="Container; the only or first one by default.")
@click.option("-f", "--follow", is_flag=True, help="Until the job ends, also of new pods.")
@click.option("--tail", type=int, default=-1, help="Only the last N lines of each pod.")
@click.option("--since", default="", help="Only lines newer than a duration, for example 30s, 5m.")
@options.output(("json",))
@options.connected
def command(  # noqa: PLR0913  click hands every option over by name
    env: Environment,
    target: session.ClusterTarget,
    name: str,
    *,
    role: str,
    index: str,
    container: str,
    follow: bool,
    tail: int,
    since: str,
    output: str,
) -> None:
    """Print the logs of the pods of NAME, each line after [ROLE-INDEX].

    With -o json every line is an object with role, index, pod and text.

    With -f the exit code is 0 if the job succeeded, else 1.
    """
    given = tuple(log_query(tail=tail, since=since, container=container).items())

    async def verb(opened: session.ApiSession) -> int:
        job = await job_lookup.seen(opened, name)
        if role and role.lower() not in {item.name.lower() for item in job.roles}:
            raise job_lookup.no_role(job, role)
        logs = JobLogs(opened, job, LogSelection(role, index, given), is_json=bool(output))
        if not follow:
            return await logs.print_once()
        with job_notices.left_running(job, opened.namespace):
            return (await logs.follow()).exit_code

    session.run(env, target, verb)
