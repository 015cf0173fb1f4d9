"""Errors as the command line shows them: one clear message, and an exit code."""

import contextlib
from collections.abc import Iterator
from typing import IO, Any

import click

from grange.api.status import ApiError
from grange.base.errors import GrangeError
from grange.cli import terminal
from grange.client.errors import Unreachable


class ServerError(click.ClickException):
    """An error that the API returned, in kubectl's form."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it on standard error."""
        terminal.echo(f"Error from server {self.format_message()}", err=True)


@contextlib.contextmanager
def exiting(code: int) -> Iterator[None]:
    """Show deliberate errors of a block and leave with an exit code; wrong usage passes.

    Raises:
        click.exceptions.Exit: with the code.
    """
    try:
        with deliberate():
            yield
    except click.UsageError:
        raise
    except click.ClickException as error:
        terminal.show(error)
        raise click.exceptions.Exit(code) from error


@contextlib.contextmanager
def deliberate() -> Iterator[None]:
    """Raise deliberate errors of a block as what click shows, with exit code 1.

    Raises:
        click.ClickException: a deliberate error, or of concurrent work the first one.
    """
    try:
        yield
    except GrangeError as error:
        raise _shown(error) from error
    except ExceptionGroup as group:
        first = _first(group)
        if isinstance(first, GrangeError):
            raise _shown(first) from group
        if isinstance(first, click.ClickException):
            raise first from group
        raise


def _first(group: ExceptionGroup[Exception]) -> BaseException | None:
    """The first deliberate error in a group of errors that are all deliberate."""
    found, others = group.split((GrangeError, click.ClickException))
    if found is None or others is not None:
        return None
    first: BaseException = found
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def _shown(error: GrangeError) -> click.ClickException:
    if isinstance(error, Unreachable):
        remedy = "start it with `grange up`, or choose another with --kubeconfig or --context"
        return click.ClickException(f"{error.message}; {remedy}")
    if isinstance(error, ApiError):
        return ServerError(explain(error))
    return click.ClickException(str(error))


def explain(error: ApiError) -> str:
    """Reason and message, and the fields that are wrong."""
    lines = [f"({error.reason}): {error.message}"]
    lines += [
        f"  {cause.field}: {cause.message}"
        for cause in error.causes
        if cause.field and cause.message not in error.message
    ]
    return "\n".join(lines)
