"""``grange get``: list objects, or show some."""

from contextlib import aclosing
from dataclasses import dataclass

import click

from grange.api import codec
from grange.api.http import Request
from grange.api.kinds import EVENT
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.cli import options, session, terminal, watch_stream
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents, events, table
from grange.cli.refused_objects import RefusedObjects

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Look:
    """How to show what was found."""

    output: str
    selector: str
    field_selector: str
    no_headers: bool
    show_labels: bool
    label_columns: tuple[str, ...] = ()

    def query(self) -> dict[str, str]:
        """The selectors as query parameters."""
        pairs = {"labelSelector": self.selector, "fieldSelector": self.field_selector}
        return {key: value for key, value in pairs.items() if value}

    def columns(self) -> list[str]:
        """The labels that have a column."""
        return [
            key.strip() for item in self.label_columns for key in item.split(",") if key.strip()
        ]


@click.command(
    cls=Command,
    examples=(
        "grange get pods -o wide",
        "grange get all",
        "grange get grc/web -o yaml",
        "grange get nodes -L pool",
    ),
)
@options.WHAT
@options.output(documents.TABLE)
@options.SELECTOR
@click.option("--field-selector", default="", help="Field selector, e.g. status.phase=Running.")
@click.option("-A", "--all-namespaces", is_flag=True, help="In all namespaces.")
@click.option("-w", "--watch", "follow", is_flag=True, help="Print changes as they happen.")
@click.option("--no-headers", is_flag=True, help="Print no heading.")
@click.option("--show-labels", is_flag=True, help="Add a column with the labels.")
@click.option(
    "-L",
    "--label-columns",
    multiple=True,
    metavar="KEY",
    help="Add a column with a label's value; repeat it or separate keys by commas.",
)
@options.connected
def command(
    env: Environment,
    target: session.ClusterTarget,
    what: tuple[str, ...],
    follow: bool,  # noqa: FBT001  click passes flags by name
    **look: str | bool | tuple[str, ...],
) -> None:
    """List objects: KIND, KIND NAME…, KIND/NAME…, kinds joined by commas, or all."""
    view = Look(**look)  # type: ignore[arg-type]  # click gives each option its declared type
    pairs = session.split_names(what)
    if follow and len(pairs) > 1:
        raise click.UsageError("--watch: several kinds or objects; watch one at a time")
    session.run(
        env,
        target,
        lambda opened: _watch(opened, pairs[0], view) if follow else _get(opened, pairs, view),
    )


async def _get(opened: session.ApiSession, pairs: list[tuple[str, str]], look: Look) -> int:
    asked = [(await opened.kind(word), name) for word, name in await opened.expanded(pairs)]
    refusals = RefusedObjects()
    if documents.is_document_format(look.output):
        found: list[tuple[AnyKind, Document]] = []
        for kind, name in asked:
            with refusals.of_one():
                body = await _fetch(opened, kind, name, look, _JSON)
                items = [body] if name else _items(kind, body)
                found += [(kind, item) for item in items]
        single = len(asked) == 1 and bool(asked[0][1])
        if found or not (single and refusals.count):
            terminal.write(documents.render(look.output, found, single=single))
        return refusals.code
    blocks: dict[str, list[list[str]]] = {}
    is_mixed = len({kind.qualified for kind, _ in asked}) > 1
    for kind, name in asked:
        with refusals.of_one():
            body = await _fetch(opened, kind, name, look, _TABLE)
            heading, rows = _rows(opened, kind, body, look, named_by_kind=is_mixed)
            if rows:
                blocks.setdefault(kind.qualified, [] if look.no_headers else [heading]).extend(rows)
    if not blocks and not refusals.count:
        is_namespaced = opened.namespace and any(kind.namespaced for kind, _ in asked)
        where = f" in namespace {opened.namespace}" if is_namespaced else ""
        terminal.echo(f"No resources found{where}.", err=True)
    for at, rows in enumerate(blocks.values()):
        terminal.echo(("\n" if at else "") + "\n".join(table.render(rows)))
    return refusals.code


def _typed(kind: AnyKind, item: Document) -> Document:
    return {"apiVersion": kind.api_version, "kind": kind.kind, **item}


def _items(kind: AnyKind, body: Document) -> list[Document]:
    """The objects of a list; events by when they happened, as the server has them by object."""
    items = [_typed(kind, item) for item in body.get("items", [])]
    return events.in_order(items) if kind is EVENT else items


def _query(kind: AnyKind, look: Look) -> dict[str, str]:
    # Rows of events are sorted by a time that their cells do not have in full.
    return look.query() | ({"includeObject": "Object"} if kind is EVENT else {})


def _rows(
    opened: session.ApiSession,
    kind: AnyKind,
    body: Document,
    look: Look,
    *,
    named_by_kind: bool = False,
) -> tuple[list[str], list[list[str]]]:
    if kind is EVENT and body.get("rows"):
        body["rows"] = events.in_order(body["rows"], event_of=lambda row: row.get("object") or {})
    return table.cells(
        body,
        wide=look.output == "wide",
        prefix=f"{documents.resource(kind)}/" if named_by_kind else "",
        namespaces=kind.namespaced and not opened.namespace,
        labels=look.show_labels,
        label_columns=look.columns(),
    )


async def _fetch(
    opened: session.ApiSession, kind: AnyKind, name: str, look: Look, accept: str
) -> Document:
    namespace = opened.within(kind) if name or opened.namespace else ""
    query = {} if name else _query(kind, look)
    request = Request("GET", kind.path(namespace, name), query=query, headers={"accept": accept})
    return codec.decode_document((await opened.fetch(request)).body)


async def _watch(opened: session.ApiSession, pair: tuple[str, str], look: Look) -> int:
    kind = await opened.kind(pair[0])
    query = _query(kind, look)
    if pair[1]:
        query["fieldSelector"] = f"metadata.name={pair[1]}"
    full = documents.is_document_format(look.output)
    path = kind.path(opened.within(kind) if opened.namespace else "")
    headers = {"accept": _JSON if full else _TABLE}
    headed = look.no_headers
    widths: list[int] = []  # columns only grow, so that what follows stays in line

    def show(body: Document) -> None:
        nonlocal headed, widths
        if full:
            terminal.write(documents.render(look.output, [(kind, body)], single=True))
            return
        heading, rows = _rows(opened, kind, body, look)
        if not rows:
            return
        shown = rows if headed else [heading, *rows]
        widths = table.widths(shown, widths)
        terminal.echo("\n".join(table.render(shown, widths)))
        headed = True

    listed = await opened.fetch(Request("GET", path, query=query, headers=headers))
    present = codec.decode_document(listed.body)
    for body in _items(kind, present) if full else [present]:
        show(body)
    query |= {"watch": "true", "resourceVersion": present["metadata"]["resourceVersion"]}
    response = await opened.fetch(Request("GET", path, query=query, headers=headers))
    async with aclosing(watch_stream.events(response)) as events:
        async for event in events:
            if event.type != "BOOKMARK":
                show(event.object)
    return 0
