"""``grange why``: explain why an object waits or fails."""

import click

from grange.api.meta import Document
from grange.cli import options, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents
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
        found = []
        for word, name in pairs:
            kind = await opened.kind(word)
            ask = TABLE.get(kind.qualified, generic.ask)
            found.append(await ask(opened, kind, name))
        if output:
            items = [answer.document for answer in found]
            whole: Document = {"apiVersion": "v1", "kind": "List", "items": items}
            terminal.write(documents.report(output, items[0] if len(items) == 1 else whole))
        else:
            terminal.echo("\n\n".join(_text(answer) for answer in found))
        return 0

    session.run(env, target, verb)


def _text(answer: WhyAnswer) -> str:
    return "\n".join(answer.lines)
