"""``grange why``: why a thing is as it is, or why it still waits."""

import click

from grange.cli import session, terminal
from grange.cli.printers import documents
from grange.cli.surroundings import Surroundings
from grange.cli.why import TABLE, anything
from grange.cli.why.answer import Answer


@click.command()
@click.argument("what", nargs=-1, required=True)
@click.option("-o", "--output", default="", help="Format: json, yaml, jsonpath=…")
@session.connected
def command(
    around: Surroundings, target: session.Target, what: tuple[str, ...], output: str
) -> None:
    """Say why KIND/NAME… is where it is, or why it still waits."""
    pairs = session.split_names(what)
    if any(not name for _, name in pairs):
        raise click.UsageError("name the objects: KIND NAME… or KIND/NAME…")

    async def verb(opened: session.Session) -> int:
        found = []
        for word, name in pairs:
            kind = await opened.kind(word)
            ask = TABLE.get(kind.qualified, anything.ask)
            found.append((kind, await ask(opened, kind, name)))
        if output:
            answers = [(kind, answer.document) for kind, answer in found]
            terminal.write(documents.render(output, answers, single=True))
        else:
            terminal.echo("\n\n".join(_text(answer) for _, answer in found))
        return 0

    session.run(around, target, verb)


def _text(answer: Answer) -> str:
    return "\n".join(answer.lines)
