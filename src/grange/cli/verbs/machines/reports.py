"""``grange machines plan`` and ``grange machines audit``: reports of the node controller."""

import json

import click

from grange.api.http import Request
from grange.api.kinds import NODEPOOL
from grange.api.meta import Document
from grange.api.pool_report_requests import REPORT_PREFIX
from grange.api.status import Forbidden, MethodNotAllowed, NotFound, ServiceUnavailable
from grange.cli import machine_reports, options, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents

_ANSWER_S = 30.0
"""How long a node controller of another process has: an audit of a slow provider takes some seconds."""

_POLL_S = 0.2
_UNANSWERED = (
    "machines {what}: no node controller answers for pool {pool} within {seconds:.0f} s: see that `grange controllers` "
    "runs with `machines`, and that the CRDs are of this version (grange install | kubectl apply -f -)"
)
_NONE = "No node pools; grange apply -f FILE creates one from a manifest."


@click.command(
    "plan", cls=Command, examples=("grange machines plan", "grange machines plan -o json")
)
@click.option("--pool", default="", help="Only this NodePool.")
@options.output(documents.REPORT)
@options.connected
def plan(env: Environment, target: session.ClusterTarget, pool: str, output: str) -> None:
    """Show what the node controller would do now, each machine and pod with the reason; nothing is done."""

    async def verb(opened: session.ApiSession) -> int:
        found = await reports(opened, "plan", pool)
        if output:
            terminal.write(documents.report(output, {"pools": found}))
        else:
            terminal.echo("\n".join(machine_reports.plan_lines(found) or [_NONE]), err=not found)
        return 0

    session.run(env, target, verb)


@click.command("audit", cls=Command, examples=("grange machines audit",))
@click.option("--pool", default="", help="Only this NodePool.")
@options.output(documents.REPORT)
@options.connected
def audit(env: Environment, target: session.ClusterTarget, pool: str, output: str) -> None:
    """Compare the records of machines with the instances that providers have; exit 1 if they differ.

    A difference is shown when two lists of the provider, a few seconds apart, have it. The node controller
    removes differences by itself within seconds, so one that stays is worth a look.
    """

    async def verb(opened: session.ApiSession) -> int:
        found = await reports(opened, "audit", pool)
        if output:
            terminal.write(documents.report(output, {"pools": found}))
        else:
            terminal.echo("\n".join(machine_reports.audit_lines(found) or [_NONE]), err=not found)
        return 0 if all(machine_reports.agrees(one) for one in found) else 1

    session.run(env, target, verb)


async def reports(opened: session.ApiSession, what: str, pool: str) -> list[Document]:
    """The reports about one pool, or about all.

    Args:
        opened: the session.
        what: ``plan`` or ``audit``.
        pool: name of the pool; empty for all.

    Raises:
        NotFound: there is no such pool.
        click.ClickException: no node controller answers.
    """
    names = (
        [pool] if pool else [item["metadata"]["name"] for item in await opened.listed(NODEPOOL, "")]
    )
    return [await _report(opened, what, name) for name in sorted(names)]


async def _report(opened: session.ApiSession, what: str, pool: str) -> Document:
    """The report of the server's own process, else of the node controller that runs elsewhere."""
    try:
        response = await opened.fetch(Request("GET", NODEPOOL.path("", pool, what)))
    except (Forbidden, NotFound, MethodNotAllowed, ServiceUnavailable):
        # Kubernetes authorizes a subresource before it looks whether there is one.
        await opened.document(NODEPOOL, pool)  # raises where the pool is what was not found
        return await _requested(opened, what, pool)
    found: Document = json.loads(response.body)
    return found


async def _requested(opened: session.ApiSession, what: str, pool: str) -> Document:
    """A report that is requested by an annotation of the pool and answered in its status."""
    request_id, clock = opened.env.rng.suffix(10), opened.env.clock
    annotation = f"{REPORT_PREFIX}{request_id}"

    async def annotate(value: str | None) -> None:
        patch = {"metadata": {"annotations": {annotation: value}}}
        await opened.client.patch(NODEPOOL, pool, patch=patch)

    await annotate(what)
    until = clock.monotonic() + _ANSWER_S
    while clock.monotonic() < until:
        text = (await opened.client.get(NODEPOOL, pool)).status.reports.get(request_id)
        if text is not None:
            return {"metadata": {"name": pool}, **json.loads(text)}
        await clock.sleep(_POLL_S)
    await annotate(None)
    raise click.ClickException(_UNANSWERED.format(what=what, pool=pool, seconds=_ANSWER_S))
