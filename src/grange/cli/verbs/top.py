"""``grange top``: what nodes and pods use."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import click

from grange.api import codec, quantity
from grange.api.http import JSON, Request
from grange.api.kinds import NODE, POD
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.cli import options, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents, table

_ROOT = "/apis/metrics.k8s.io/v1beta1"
_CPU, _MEMORY = "cpu", "memory"
_MEBIBYTE = 1 << 20


@click.command(
    cls=Command,
    examples=(
        "grange top nodes",
        "grange top pods --sort-by memory",
        "grange top pods -A -l app=web",
    ),
)
@click.argument("what", metavar="nodes|pods")
@click.argument("name", required=False, default="")
@options.SELECTOR
@click.option("-A", "--all-namespaces", is_flag=True, help="Pods of every namespace.")
@click.option("--containers", is_flag=True, help="A row for each container.")
@click.option(
    "--sort-by", type=click.Choice((_CPU, _MEMORY)), default=None, help="The largest first."
)
@options.output(documents.REPORT)
@options.connected
def command(  # noqa: PLR0913  the options of the verb
    env: Environment,
    target: session.ClusterTarget,
    what: str,
    name: str,
    selector: str,
    sort_by: str | None,
    output: str,
    *,
    containers: bool,
) -> None:
    """Show the CPU and memory that nodes or pods use, measured every 15 seconds.

    Pods are listed once they run for so long.
    """

    async def verb(opened: session.ApiSession) -> int:
        kind = await opened.kind(what)
        if kind not in {NODE, POD}:
            raise click.UsageError(f"{what}: must be nodes or pods")
        found = await _fetch(opened, kind, name, selector)
        if output:
            terminal.write(documents.report(output, found))
            return 0
        items = found.get("items", [found])
        if kind is NODE:
            nodes = await opened.listed(NODE, "")
            rows = node_rows(items, nodes, sort_by)
        else:
            rows = pod_rows(items, sort_by, containers=containers, everywhere=not opened.namespace)
        if len(rows) == 1:
            terminal.echo(
                f"no usage of such {kind.plural} is known; samples are taken every 15 s", err=True
            )
            return 1
        terminal.echo("\n".join(table.render(rows)))
        return 0

    session.run(env, target, verb)


async def _fetch(opened: session.ApiSession, kind: AnyKind, name: str, selector: str) -> Document:
    namespace = opened.within(kind) if name else opened.namespace
    place = f"/namespaces/{namespace}" if kind is POD and namespace else ""
    path = f"{_ROOT}{place}/{kind.plural}" + (f"/{name}" if name else "")
    query = {"labelSelector": selector} if selector and not name else {}
    response = await opened.fetch(Request("GET", path, query, {"accept": JSON}))
    return codec.decode_document(response.body)


def node_rows(
    items: Sequence[Document], nodes: Sequence[Document], sort_by: str | None
) -> list[list[str]]:
    """A table of nodes with what they use of what pods may have."""
    rooms = {node["metadata"]["name"]: node["status"].get("allocatable") or {} for node in nodes}
    rows = [["NAME", "CPU", "CPU%", "MEMORY", "MEMORY%"]]
    for item in sorted(items, key=lambda item: _order(item, item["usage"], sort_by)):
        name, usage = item["metadata"]["name"], item["usage"]
        room = rooms.get(name, {})
        rows.append(
            [
                name,
                _cpu(usage),
                _share(usage, room, _CPU),
                _memory(usage),
                _share(usage, room, _MEMORY),
            ]
        )
    return rows


def pod_rows(
    items: Sequence[Document], sort_by: str | None, *, containers: bool, everywhere: bool
) -> list[list[str]]:
    """A table of pods, or of their containers."""
    rows = [["NAMESPACE"] * everywhere + ["POD"] + ["CONTAINER"] * containers + ["CPU", "MEMORY"]]
    for item in sorted(items, key=lambda item: _order(item, _sum(item["containers"]), sort_by)):
        metadata = item["metadata"]
        begin = [metadata["namespace"]] * everywhere + [metadata["name"]]
        if not containers:
            usage = _sum(item["containers"])
            rows.append([*begin, _cpu(usage), _memory(usage)])
            continue
        rows += [
            [*begin, part["name"], _cpu(part["usage"]), _memory(part["usage"])]
            for part in item["containers"]
        ]
    return rows


Usage = Mapping[str, quantity.Quantity]


def _sum(containers: Sequence[Document]) -> dict[str, quantity.Quantity]:
    return {
        name: quantity.format_decimal(
            sum((quantity.parse(item["usage"][name]) for item in containers), Fraction())
        )
        for name in (_CPU, _MEMORY)
    }


def _order(item: Document, usage: Usage, sort_by: str | None) -> tuple[Fraction, str, str]:
    metadata = item["metadata"]
    size = -quantity.parse(usage[sort_by]) if sort_by else Fraction()
    return size, metadata.get("namespace", ""), metadata["name"]


def _cpu(usage: Usage) -> str:
    return f"{quantity.milli(usage[_CPU])}m"


def _memory(usage: Usage) -> str:
    return f"{quantity.value(usage[_MEMORY]) // _MEBIBYTE}Mi"


def _share(usage: Usage, room: Usage, name: str) -> str:
    whole = quantity.parse(room.get(name, "0"))
    return f"{int(100 * quantity.parse(usage[name]) / whole)}%" if whole else "-"
