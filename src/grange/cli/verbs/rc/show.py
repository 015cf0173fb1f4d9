"""``grange rc list`` and ``grange rc get``."""

import click
import yaml

from grange.api import codec
from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.wire import Request
from grange.cli import listing, session
from grange.cli.printers import documents, table
from grange.cli.surroundings import Surroundings
from grange.cli.verbs.rc import objects

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@click.command("list")
@click.option("-o", "--output", default="", help=f"Format: {documents.FORMATS}.")
@click.option("-l", "--selector", default="", help="Label selector, e.g. app=web,tier!=db.")
@click.option("-A", "--all-namespaces", is_flag=True, help="In every namespace.")
@session.connected
def list_(around: Surroundings, target: session.Target, output: str, selector: str) -> None:
    """List controllers."""

    async def verb(opened: session.Session) -> int:
        kind = REPLICATIONCONTROLLER
        if documents.is_document_format(output):
            found = await listing.listed(opened, kind, selector=selector)
            text = documents.render(output, [(kind, item) for item in found], single=False)
            click.echo(text, nl=False)
            return 0
        request = Request(
            "GET",
            kind.path(opened.namespace),
            query={"labelSelector": selector} if selector else {},
            headers={"accept": _TABLE},
        )
        body = codec.decode_document((await opened.fetch(request)).body)
        heading, rows = table.cells(body, wide=output == "wide", namespaces=not opened.namespace)
        if rows:
            click.echo("\n".join(table.render([heading, *rows])))
        else:
            click.echo("No controllers found.", err=True)
        return 0

    session.run(around, target, verb)


@click.command("get")
@click.argument("names", nargs=-1, required=True)
@click.option("-o", "--output", default="yaml", show_default=True, help="yaml, json, name, ….")
@click.option("--template", is_flag=True, help="Only the pod template.")
@session.connected
def get(
    around: Surroundings,
    target: session.Target,
    names: tuple[str, ...],
    output: str,
    *,
    template: bool,
) -> None:
    """Print NAMES in full."""

    async def verb(opened: session.Session) -> int:
        found = [await objects.document(opened, name) for name in names]
        if template:
            for one in found:
                text = yaml.dump(one["spec"]["template"], Dumper=yaml.CSafeDumper, sort_keys=True)
                click.echo(("---\n" if len(found) > 1 else "") + text, nl=False)
            return 0
        pairs = [(REPLICATIONCONTROLLER, item) for item in found]
        click.echo(documents.render(output, pairs, single=len(names) == 1), nl=False)
        return 0

    session.run(around, target, verb)
