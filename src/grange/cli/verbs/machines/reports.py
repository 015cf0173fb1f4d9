"""``grange machines plan`` and ``grange machines audit``: reports of the node controller."""

import json

import click

from grange.api.http import Request
from grange.api.kinds import NODEPOOL
from grange.api.meta import Document
from grange.api.status import MethodNotAllowed, NotFound
from grange.cli import machine_reports, options, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents

_UNSERVED = (
    "machines {what}: the API server of this cluster does not answer it: only `grange up` does, which has the "
    "node controller in its process; with `grange controllers` see why machines are missing by `grange machines "
    "pools` and `kubectl describe nodepool {pool}`, and compare `grange machines list -o wide` with the provider's list"
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
        click.ClickException: the API server of the cluster answers no reports.
    """
    names = (
        [pool] if pool else [item["metadata"]["name"] for item in await opened.listed(NODEPOOL, "")]
    )
    return [await _report(opened, what, name) for name in sorted(names)]


async def _report(opened: session.ApiSession, what: str, pool: str) -> Document:
    try:
        response = await opened.fetch(Request("GET", NODEPOOL.path("", pool, what)))
    except (NotFound, MethodNotAllowed):
        await opened.document(NODEPOOL, pool)  # raises where the pool is what was not found
        raise click.ClickException(_UNSERVED.format(what=what, pool=pool)) from None
    found: Document = json.loads(response.body)
    return found
