"""Confirmation of actions that cannot be undone."""

import sys

import click

from grange.cli import terminal


class NotConfirmed(click.ClickException):
    """The action was not confirmed: the answer was no, or there is no terminal."""


def confirm(question: str, *, yes: bool) -> None:
    """Return if the user confirms.

    Args:
        question: what is about to happen.
        yes: confirmed on the command line.

    Raises:
        NotConfirmed: the answer was not yes, or there is no terminal to ask at.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise NotConfirmed(f"{question} There is no terminal to ask at; add --yes to confirm")
    if not click.confirm(terminal.cell(question), default=False, err=True):
        raise NotConfirmed("nothing was changed")
