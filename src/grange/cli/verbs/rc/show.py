"""``grange rc list`` and ``grange rc get``."""

from collections.abc import Iterable, Mapping

import click
import yaml

from grange.api import codec
from grange.api.http import Request
from grange.api.kinds import REPLICATIONCONTROLLER
from grange.cli import options, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents, table
from grange.cli.refused_objects import RefusedObjects
from grange.cli.verbs.rc import objects

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@click.command("list", cls=Command, examples=("grange rc list -o wide",))
@options.output(documents.TABLE)
@options.SELECTOR
@click.option("-A", "--all-namespaces", is_flag=True, help="In all namespaces.")
@options.connected
def list_(env: Environment, target: session.ClusterTarget, output: str, selector: str) -> None:
    """List controllers."""

    async def verb(opened: session.ApiSession) -> int:
        kind = REPLICATIONCONTROLLER
        if documents.is_document_format(output):
            found = await opened.listed(kind, selector=selector)
            text = documents.render(output, [(kind, item) for item in found], single=False)
            terminal.write(text)
            return 0
        query = {"labelSelector": selector} if selector else {}
        heading, rows = await _cells(opened, "", query=query, wide=output == "wide")
        if rows:
            terminal.echo("\n".join(table.render([heading, *rows])))
        else:
            terminal.echo("No controllers found.", err=True)
        return 0

    session.run(env, target, verb)


async def _cells(
    opened: session.ApiSession, name: str, *, query: Mapping[str, str], wide: bool
) -> tuple[list[str], list[list[str]]]:
    """The heading and the rows of one controller, or of all."""
    kind = REPLICATIONCONTROLLER
    path = kind.path(opened.within(kind), name) if name else kind.path(opened.namespace)
    request = Request("GET", path, query=query, headers={"accept": _TABLE})
    body = codec.decode_document((await opened.fetch(request)).body)
    return table.cells(body, wide=wide, namespaces=not opened.namespace)


@click.command("get", cls=Command, examples=("grange rc get web -o yaml",))
@click.argument("names", nargs=-1, required=True, type=objects.CONTROLLER)
@options.output(documents.TABLE, default="yaml")
@click.option("--template", is_flag=True, help="Only the pod template.")
@options.connected
def get(
    env: Environment,
    target: session.ClusterTarget,
    names: tuple[str, ...],
    output: str,
    *,
    template: bool,
) -> None:
    """Print NAMES in full."""

    async def verb(opened: session.ApiSession) -> int:
        refusals = RefusedObjects()
        if output == "wide" and not template:
            await tabled(opened, names, refusals)
            return refusals.code
        found = []
        for name in names:
            with refusals.of_one():
                found.append(await objects.document(opened, name))
        if template:
            for one in found:
                text = yaml.dump(one["spec"]["template"], Dumper=yaml.CSafeDumper, sort_keys=True)
                terminal.write(("---\n" if len(found) > 1 else "") + text)
        elif found:
            pairs = [(REPLICATIONCONTROLLER, item) for item in found]
            terminal.write(documents.render(output, pairs, single=len(names) == 1))
        return refusals.code

    session.run(env, target, verb)


async def tabled(
    opened: session.ApiSession, names: Iterable[str], refusals: RefusedObjects
) -> None:
    """Print a row for each of these that may be read."""
    rows: list[list[str]] = []
    for name in names:
        with refusals.of_one():
            heading, found = await _cells(opened, name, query={}, wide=True)
            rows += found if rows else [heading, *found]
    if rows:
        terminal.echo("\n".join(table.render(rows)))
