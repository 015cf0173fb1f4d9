"""Names of objects where only one kind can be meant, in every form in which they are printed."""

from typing import Any

import click

from grange.api.scheme import AnyKind
from grange.cli import completers


class ObjectName(click.ParamType[str]):
    """The name of an object of one kind.

    It takes ``web``, ``grc/web`` and ``replicationcontroller.grange.dev/web``, and refuses what is
    empty or the name of an object of another kind.

    Args:
        kind: the kind.
    """

    name = "name"

    def __init__(self, kind: AnyKind) -> None:
        self._kind = kind

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name alone."""
        return name_of(self._kind, value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[Any]:
        """The names of the objects of the kind."""
        from click.shell_completion import CompletionItem

        found = completers.of_kind(self._kind)(ctx, param, incomplete)
        return [CompletionItem(name) for name in found]


def name_of(kind: AnyKind, word: str) -> str:
    """The name alone.

    Raises:
        click.BadParameter: it is empty, or the name of an object of another kind.
    """
    before, slash, name = word.rpartition("/")
    if slash and not kind.is_called(before):
        raise click.BadParameter(f"{word}: not a {kind.kind}; give the name of one")
    if not name:
        raise click.BadParameter(f"the name is empty; give the name of a {kind.kind}")
    return name
