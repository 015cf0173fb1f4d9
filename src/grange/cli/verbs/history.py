"""``grange history``: the recorded changes of a ReplicationController's pods, the latest last."""

from collections.abc import Iterable, Sequence
from typing import Any

import click

from grange.api import names, timestamps
from grange.api.kinds import AUDITRECORD, REPLICATIONCONTROLLER
from grange.api.kinds.auditevents import current_name
from grange.api.kinds.replicationcontroller import NAME_LABEL
from grange.api.meta import Document
from grange.api.timestamps import TimestampError
from grange.cli import completers, options, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents, table

_HEADING = ["AGE", "EVENT", "ADDED", "REMOVED", "MEMBERS", "WHAT"]
_SHOWN = 3  # names in a cell


@click.command(cls=Command, examples=("grange history web --limit 10",))
@click.argument("controller", shell_complete=completers.of_kind(REPLICATIONCONTROLLER))
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="The latest N changes.",
)
@options.output(documents.TABLE)
@options.connected
def command(
    env: Environment, target: session.ClusterTarget, controller: str, limit: int, output: str
) -> None:
    """List the recorded changes of CONTROLLER's pods.

    The controller itself may have been deleted; one that never existed is an error.
    """
    kind, _, name = controller.rpartition("/")
    if not name:
        raise click.UsageError("the name is empty; give the name of a ReplicationController")

    async def verb(opened: session.ApiSession) -> int:
        if kind and await opened.kind(kind) is not REPLICATIONCONTROLLER:
            raise click.UsageError(
                f"{controller}: not a ReplicationController; no other kind has a history"
            )
        return await listed(opened, name, limit, output)

    session.run(env, target, verb)


async def listed(opened: session.ApiSession, name: str, limit: int, output: str) -> int:
    """Print the latest changes of a controller; the exit code.

    Raises:
        NotFound: it does not exist, and never did.
    """
    selector = f"{NAME_LABEL}={names.label_value(name)}"
    found = in_order(await opened.listed(AUDITRECORD, selector=selector))
    earlier = len(found) - limit
    found = found[-limit:]
    if documents.is_document_format(output):
        text = documents.render(output, [(AUDITRECORD, item) for item in found], single=False)
        terminal.write(text)
    elif found:
        now = opened.env.clock.now().timestamp()
        terminal.echo(
            "\n".join(table.render([_HEADING, *rows(found, now=now, wide=output == "wide")]))
        )
        if earlier > 0:
            terminal.echo(f"{earlier} earlier, not shown: --limit {earlier + limit}", err=True)
    else:
        await opened.document(REPLICATIONCONTROLLER, name)
        terminal.echo(f"No changes of {name} are recorded.", err=True)
    return 0


def in_order(records: Iterable[Document]) -> list[Document]:
    """The records by time; those of one decision in the order in which they were written."""

    def at(record: Document) -> tuple[str, int]:
        return str((record.get("spec") or {}).get("time", "")), documents.version(record)

    return sorted(records, key=at)


def rows(records: Sequence[Document], *, now: float, wide: bool) -> list[list[str]]:
    """The cells of records in their order, with a note where another controller of the name begins."""
    cells, last = [], None
    for record in records:
        found = row(record, now=now, wide=wide)
        uid = (record.get("spec") or {}).get("controllerUid")
        if last not in {None, uid}:
            found[-1] = "; ".join(filter(None, ["another controller of the name", found[-1]]))
        last = uid
        cells.append(found)
    return cells


def row(record: Document, *, now: float, wide: bool) -> list[str]:
    """The cells of a record.

    Args:
        record: in full.
        now: wall time, seconds since the epoch.
        wide: name every pod.
    """
    spec = record.get("spec") or {}
    return [
        _age(str(spec.get("time", "")), now),
        current_name(str(spec.get("event", ""))),
        _pods(spec.get("added") or (), wide=wide),
        _pods(spec.get("removed") or (), wide=wide),
        _pods(spec.get("members") or (), wide=True)
        if wide
        else str(len(spec.get("members") or ())),
        _what(spec),
    ]


def _age(time: str, now: float) -> str:
    try:
        return timestamps.age(now - timestamps.parse(time).timestamp())
    except TimestampError:
        return "<unknown>"


def _pods(found: Sequence[dict[str, Any]], *, wide: bool) -> str:
    pods = [str(item.get("pod", "")) for item in found]
    if wide or len(pods) <= _SHOWN:
        return ",".join(pods) or "-"
    return f"{','.join(pods[:_SHOWN])} +{len(pods) - _SHOWN}"


def _what(spec: dict[str, Any]) -> str:
    move = spec.get("transfer") or {}
    if not move:
        return str(spec.get("message", ""))
    way = f"{move.get('oldPod', '')}: {move.get('old', '')} to {move.get('new') or 'another node'}"
    return f"{way} ({move['reason']})" if move.get("reason") else way
