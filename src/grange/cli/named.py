"""Names of objects where only one kind can be meant, in every form in which they are printed."""

from collections.abc import Callable

import click

from grange.api.scheme import AnyKind

Given = str | tuple[str, ...] | None


def named(kind: AnyKind) -> Callable[[click.Context, click.Parameter, Given], Given]:
    """A callback of click that makes names of what is given for objects of a kind.

    It takes ``web``, ``grc/web`` and ``replicationcontroller.grange.dev/web``, and refuses what is empty
    or the name of something else.
    """

    def check(_context: click.Context, _parameter: click.Parameter, given: Given) -> Given:
        if isinstance(given, tuple):
            return tuple(name_of(kind, word) for word in given)
        return None if given is None else name_of(kind, given)

    return check


def name_of(kind: AnyKind, word: str) -> str:
    """The name alone.

    Raises:
        click.BadParameter: it is empty, or the name of something else.
    """
    before, slash, name = word.rpartition("/")
    if slash and not kind.is_called(before):
        raise click.BadParameter(f"{word}: the name of a {kind.kind} is meant here")
    if not name:
        raise click.BadParameter(f"say the name of a {kind.kind}")
    return name
