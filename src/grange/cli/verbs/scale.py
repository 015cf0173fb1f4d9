"""``grange scale``: set the number of replicas of an object that has a scale subresource."""

import click

from grange.api import http
from grange.api.codec import decode_document, encode_any
from grange.api.http import Request
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.cli import options, session, waiting
from grange.cli.command import Command
from grange.cli.durations import parse_duration
from grange.cli.environment import Environment
from grange.cli.printers import documents
from grange.cli.results import Results


@click.command(cls=Command, examples=("grange scale grc/web --replicas 5 --wait",))
@options.WHAT
@click.option("--replicas", type=click.IntRange(min=0), required=True, help="Number of replicas.")
@click.option(
    "--current-replicas",
    "current",
    type=click.IntRange(min=0),
    default=None,
    help="Only if this number is wanted now.",
)
@click.option("--wait", is_flag=True, help="Wait until all of them are ready.")
@options.timeout("60s")
@options.output(documents.OBJECT)
@options.connected
def command(  # noqa: PLR0913  click hands every option over by name
    env: Environment,
    target: session.ClusterTarget,
    what: tuple[str, ...],
    *,
    replicas: int,
    current: int | None,
    wait: bool,
    timeout: str,
    output: str,
) -> None:
    """Set the number of replicas of KIND NAME… or KIND/NAME…."""
    timeout_s = parse_duration(timeout)
    pairs = session.split_names(what)
    if any(not name for _, name in pairs):
        raise click.UsageError("no name; write KIND NAME… or KIND/NAME…")

    async def verb(opened: session.ApiSession) -> int:
        scaled = []
        results = Results(output)
        asked = [(await opened.kind(word), name) for word, name in pairs]
        for kind, name in asked:
            with results.refusals.of_one():
                await _scale(opened, kind, name, replicas, current)
                found = await opened.document(kind, name) if results.wants_objects else {}
                results.add(kind, found, f"{documents.resource(kind)}/{name} scaled")
                scaled.append((kind, name, opened.within(kind)))
        code = results.end()
        if wait and scaled:
            return await waiting.wait_ready(opened, scaled, timeout_s=timeout_s) or code
        return code

    session.run(env, target, verb)


async def _scale(
    opened: session.ApiSession, kind: AnyKind, name: str, replicas: int, current: int | None
) -> None:
    path = kind.path(opened.within(kind), name, "scale")
    if current is not None:
        refuse_unless(current, decode_document((await opened.fetch(Request("GET", path))).body))
    body = encode_any(operations(replicas, current))
    headers = {"content-type": http.JSON_PATCH}
    await opened.fetch(Request("PATCH", path, headers=headers, body=body))


def operations(replicas: int, current: int | None) -> list[Document]:
    """The JSON patch of a Scale.

    With ``current`` the server tests and replaces in one write. Unlike a resourceVersion, the test
    does not fail because of a status update in between.
    """
    wanted: Document = {"op": "replace", "path": "/spec/replicas", "value": replicas}
    if current is None:
        return [wanted]
    return [{"op": "test", "path": "/spec/replicas", "value": current}, wanted]


def refuse_unless(current: int, scale: Document) -> None:
    """Refuse with kubectl's message when another number is wanted now; the server's test is terser.

    Raises:
        click.ClickException: the Scale does not have so many replicas.
    """
    found = (scale.get("spec") or {}).get("replicas") or 0
    if found != current:
        raise click.ClickException(f"Expected replicas to be {current}, was {found}")
