"""``grange events``: list events in the order in which they happened."""

from contextlib import aclosing

import click

from grange.api.codec import decode_document
from grange.api.http import Request
from grange.api.kinds import EVENT
from grange.api.meta import Document
from grange.cli import completers, options, session, terminal, watch_stream
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents, events as printer, table


@click.command(
    cls=Command,
    examples=(
        "grange events --for grc/web",
        "grange events --types Warning -A",
    ),
)
@click.option(
    "--for", "about", default="", shell_complete=completers.objects, help="Only about KIND/NAME."
)
@click.option(
    "--types", default="", help="Only events of these types, for example Warning or Warning,Normal."
)
@click.option("-A", "--all-namespaces", is_flag=True, help="In all namespaces.")
@click.option("-w", "--watch", "follow", is_flag=True, help="Print new events as they happen.")
@click.option("--no-headers", is_flag=True, help="Print no heading.")
@options.output(documents.TABLE)
@options.connected
def command(
    env: Environment,
    target: session.ClusterTarget,
    about: str,
    types: str,
    follow: bool,  # noqa: FBT001  click passes flags by name
    no_headers: bool,  # noqa: FBT001  click passes flags by name
    output: str,
) -> None:
    """List events, the latest last."""
    wanted = parse_types(types)
    pair = session.split_names([about])[0] if about else None
    if pair is not None and not pair[1]:
        raise click.UsageError(f"--for={about}: no name; write KIND/NAME")

    async def verb(opened: session.ApiSession) -> int:
        path, query = await _where(opened, pair)
        listing = decode_document((await opened.fetch(Request("GET", path, query=query))).body)
        found = [item for item in listing.get("items") or [] if _is_wanted(item, wanted)]
        sheet = _Sheet(opened, output)
        if found or follow or sheet.is_of_documents:
            sheet.first(printer.in_order(found), headed=not no_headers, alone=not follow)
        else:
            terminal.echo("No events found.", err=True)
        if not follow:
            return 0
        version = listing["metadata"]["resourceVersion"]
        query |= {"watch": "true", "resourceVersion": version}
        response = await opened.fetch(Request("GET", path, query=query))
        async with aclosing(watch_stream.events(response)) as changes:
            async for change in changes:
                if change.type in {"ADDED", "MODIFIED"} and _is_wanted(change.object, wanted):
                    sheet.more(change.object)
        return 0

    session.run(env, target, verb)


def parse_types(types: str) -> frozenset[str]:
    """The types of ``--types``, as the API writes them; empty means all.

    Raises:
        click.UsageError: one is neither Normal nor Warning.
    """
    found = frozenset(word.strip().capitalize() for word in types.split(",") if word.strip())
    if not found <= {"Normal", "Warning"}:
        raise click.UsageError(f"--types={types}: unknown type; write Normal, Warning or both")
    return found


def _is_wanted(event: Document, types: frozenset[str]) -> bool:
    return not types or event.get("type") in types


async def _where(
    opened: session.ApiSession, pair: tuple[str, str] | None
) -> tuple[str, dict[str, str]]:
    """Path and query of the events that are asked for."""
    if pair is None:
        return EVENT.path(opened.namespace), {}
    kind = await opened.kind(pair[0])
    selector = f"involvedObject.kind={kind.kind},involvedObject.name={pair[1]}"
    # Events about objects without a namespace are kept in the default one.
    namespace = opened.namespace if kind.namespaced else "default"
    return EVENT.path(namespace), {"fieldSelector": selector}


class _Sheet:
    """Events on standard output: rows aligned with those before, or documents."""

    def __init__(self, opened: session.ApiSession, output: str) -> None:
        self.is_of_documents = documents.is_document_format(output)
        self._output = output
        self._clock = opened.env.clock
        self._namespaces = not opened.namespace
        self._widths: list[int] = []

    def first(self, found: list[Document], *, headed: bool, alone: bool) -> None:
        """Print the heading and what there is.

        Args:
            found: the events in their order.
            headed: with a heading.
            alone: no others follow, so that documents make one List.
        """
        if self.is_of_documents:
            for group in [found] if alone else [[event] for event in found]:
                self._write(group, single=not alone)
            return
        heading = (["NAMESPACE"] if self._namespaces else []) + list(printer.HEADING)
        heading += printer.WIDE_HEADING if self._output == "wide" else ()
        rows = [self._row(event) for event in found]
        self._print([heading, *rows] if headed else rows)

    def more(self, event: Document) -> None:
        """Print one that came later."""
        if self.is_of_documents:
            self._write([event], single=True)
        else:
            self._print([self._row(event)])

    def _write(self, found: list[Document], *, single: bool) -> None:
        typed = {"apiVersion": EVENT.api_version, "kind": EVENT.kind}
        pairs = [(EVENT, {**typed, **event}) for event in found]
        terminal.write(documents.render(self._output, pairs, single=single))

    def _row(self, event: Document) -> list[str]:
        now = self._clock.now().timestamp()
        cells = printer.row(event, now=now, namespace=self._namespaces)
        return cells + (printer.wide(event) if self._output == "wide" else [])

    def _print(self, rows: list[list[str]]) -> None:
        self._widths = table.widths(rows, self._widths)
        if rows:
            terminal.echo("\n".join(table.render(rows, self._widths)))
