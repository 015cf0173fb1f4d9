"""Asking before something is done that cannot be undone."""

import sys

import click

from grange.cli import terminal


class NotConfirmed(click.ClickException):
    """It was not done: the answer was no, or nobody could be asked."""


def confirm(question: str, *, yes: bool) -> None:
    """Go on if the person says so.

    Args:
        question: what is about to happen.
        yes: it was said on the command line already.

    Raises:
        NotConfirmed: the answer was not yes, or there is no terminal to ask at.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise NotConfirmed(f"{question} There is no terminal to ask at: say --yes if you mean it")
    if not click.confirm(terminal.cell(question), default=False, err=True):
        raise NotConfirmed("nothing was changed")
