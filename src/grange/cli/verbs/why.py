"""``grange why``: explain why an object waits or fails."""

import click

from grange.api.meta import Document
from grange.cli import options, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents
from grange.cli.refused_objects import RefusedObjects
from grange.cli.why import TABLE, generic
from grange.cli.why.answer import WhyAnswer


@click.command(
    cls=Command,
    examples=(
        "grange why pod/web-1",
        "grange why grc/web",
    ),
)
@options.WHAT
@options.output(documents.REPORT)
@options.connected
def command(
    env: Environment, target: session.ClusterTarget, what: tuple[str, ...], output: str
) -> None:
    """Explain why KIND/NAME… waits or fails, or why a pod is on its node."""
    pairs = session.split_names(what)
    if any(not name for _, name in pairs):
        raise click.UsageError("no name; write KIND NAME… or KIND/NAME…")

    async def verb(opened: session.ApiSession) -> int:
        found, refusals = [], RefusedObjects()
        asked = [(await opened.kind(word), name) for word, name in pairs]
        for kind, name in asked:
            with refusals.of_one():
                ask = TABLE.get(kind.qualified, generic.ask)
                found.append(await ask(opened, kind, name))
        if output and found:
            items = [answer.document for answer in found]
            whole: Document = {"apiVersion": "v1", "kind": "List", "items": items}
            terminal.write(documents.report(output, items[0] if len(items) == 1 else whole))
        elif found:
            terminal.echo("\n\n".join(_text(answer) for answer in found))
        return refusals.code

    session.run(env, target, verb)


def _text(answer: WhyAnswer) -> str:
    return "\n".join(answer.lines)
