"""``grange job run``: create jobs, and wait for or follow them."""

import click

from grange.api import http
from grange.api.codec import decode_document, encode
from grange.api.http import Request
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import AlreadyExists
from grange.cli import job_notices, job_view, manifests, options, session, terminal, waiting
from grange.cli.command import Command
from grange.cli.durations import parse_duration
from grange.cli.environment import Environment
from grange.cli.job_logs import JobLogs, LogSelection
from grange.cli.printers import documents
from grange.cli.results import Results

_NO_LIMIT_S = 10 * 365 * 86400.0


@click.command(
    cls=Command,
    examples=("grange job run -f train.yaml --follow", "grange job run -f train.yaml --wait"),
)
@options.FILES
@click.option("--wait", is_flag=True, help="Wait until all jobs have ended.")
@click.option("--follow", is_flag=True, help="Print the logs of the job until it has ended.")
@options.timeout("0")
@options.output(documents.OBJECT)
@options.connected
def command(
    env: Environment,
    target: session.ClusterTarget,
    *,
    files: tuple[str, ...],
    wait: bool,
    follow: bool,
    timeout: str,
    output: str,
) -> None:
    """Create the jobs of the manifests; other objects are created unless they exist.

    With --wait or --follow the exit code is 0 if all succeeded, and 1 if one failed. A timeout of 0
    waits without a limit.

    Members that are processes of several machines do not reach each other; schedulingPolicy.topology with the
    key kubernetes.io/hostname keeps a job on one machine.
    """
    limit_s = parse_duration(timeout) or _NO_LIMIT_S
    wanted = manifests.read(files)

    async def verb(opened: session.ApiSession) -> int:
        kinds = [await opened.kind_of(document) for document in wanted]
        jobs = sum(map(job_view.is_job, kinds))
        if not jobs:
            raise click.UsageError("the manifests hold no job; nothing was created")
        if follow and jobs > 1:
            raise click.UsageError("--follow takes one job; use --wait for several")
        created = []
        results = Results(output)
        for kind, document in zip(kinds, wanted, strict=True):
            found = await _create(opened, kind, document, results)
            if job_view.is_job(kind):
                created.append(found)
        results.end()
        views = [job_view.view(found) for found in created]
        if follow:
            return await _follow(opened, views[0], limit_s)
        if wait:
            targets = [(job.kind, job.name, job.namespace) for job in views]
            return await waiting.wait_ready(opened, targets, timeout_s=limit_s)
        return 0

    session.run(env, target, verb)


async def _create(
    opened: session.ApiSession, kind: AnyKind, document: Document, results: Results
) -> Document:
    """Create an object.

    Raises:
        click.ClickException: there is a job of the name already.
    """
    meta = document.setdefault("metadata", {})
    namespace = opened.within(kind, meta.get("namespace", ""))
    label = f"{documents.resource(kind)}/{meta.get('name', '')}"
    request = Request(
        "POST",
        kind.path(namespace),
        headers={"content-type": http.JSON},
        body=encode(document),
    )
    try:
        answer = await opened.fetch(request)
    except AlreadyExists as error:
        if job_view.is_job(kind):
            advice = f"grange delete {label} removes it; metadata.generateName makes a new name"
            raise click.ClickException(f"{label} exists already; {advice}") from error
        results.add(kind, document, f"{label} exists; left as it is")
        return document
    found = {"kind": kind.kind, **decode_document(answer.body)}
    results.add(kind, found, f"{documents.resource(kind)}/{found['metadata']['name']} created")
    return found


async def _follow(opened: session.ApiSession, job: job_view.JobView, limit_s: float) -> int:
    try:
        with job_notices.left_running(job, opened.namespace):
            async with opened.env.clock.timeout(limit_s):
                ended = await JobLogs(opened, job, LogSelection()).follow()
    except TimeoutError:
        terminal.echo(f"timed out after {limit_s:g}s: {job.label} goes on", err=True)
        return 1
    text = f": {ended.message}" if ended.message else ""
    terminal.echo(f"{ended.label} {ended.phase.lower()}{text}", err=True)
    return ended.exit_code
