"""``grange test list``: test sessions with their verdicts."""

import click

from grange.api import timestamps
from grange.api.kinds import TESTSESSION
from grange.api.meta import Document
from grange.api.printing import cells
from grange.cli import options, session, terminal, testsession_view
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents, table

_HEAD = ["NAME", "PHASE", "VERDICT", "POSITION", "REASON", "TIME", "AGE"]


@click.command(
    "list", cls=Command, examples=("grange test list", "grange test list -A --verdict failed")
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Sessions of all namespaces.")
@click.option(
    "--verdict",
    type=click.Choice(["passed", "failed", "error", "cancelled"], case_sensitive=False),
    help="Only sessions with this verdict.",
)
@options.SELECTOR
@options.output(documents.OBJECT)
@options.connected
def list_(
    env: Environment,
    target: session.ClusterTarget,
    selector: str,
    verdict: str | None,
    output: str,
) -> None:
    """List test sessions, the latest last: phase, verdict, position in the queue, time."""

    async def verb(opened: session.ApiSession) -> int:
        found = await opened.listed(TESTSESSION, selector=selector)
        found.sort(key=lambda item: str(item["metadata"].get("creationTimestamp") or ""))
        if verdict is not None:
            found = [item for item in found if _verdict(item).lower() == verdict.lower()]
        if output:
            pairs = [(TESTSESSION, document) for document in found]
            terminal.write(documents.render(output, pairs, single=False))
        elif not found:
            terminal.echo("No test sessions found.", err=True)
        else:
            terminal.echo("\n".join(_table(opened, found)))
        return 0

    session.run(env, target, verb)


def _verdict(document: Document) -> str:
    return testsession_view.verdict(testsession_view.view(document))


def _table(opened: session.ApiSession, found: list[Document]) -> list[str]:
    everywhere = not opened.namespace
    rows = [[*(["NAMESPACE"] if everywhere else []), *_HEAD]]
    for document in found:
        space = str(document["metadata"].get("namespace", ""))
        rows.append([*([space] if everywhere else []), *_row(opened, document)])
    return table.render(rows)


def _row(opened: session.ApiSession, document: Document) -> list[str]:
    now = opened.env.clock.now()
    shown = testsession_view.view(document)
    phase = testsession_view.phase(shown)
    waits = shown.status.position and not testsession_view.is_finished(shown)
    return [
        shown.metadata.name,
        phase,
        testsession_view.verdict(shown),
        str(shown.status.position) if waits else "",
        shown.status.reason,
        timestamps.age(testsession_view.seconds(shown, now)) if shown.status.start_time else "",
        cells.age_of(shown.metadata.creation_timestamp, now.timestamp()),
    ]
