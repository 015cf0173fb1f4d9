"""What a server refuses for one object of several, so that a verb goes on with the others."""

import contextlib
from collections.abc import Iterator

import click

from grange.api.status import ApiError, TooManyRequests, Unauthorized
from grange.cli import shown_errors, terminal
from grange.cli.confirm import NotConfirmed


class RefusedObjects:
    """Shows errors about single objects and counts them.

    Attributes:
        count: how many there were.
    """

    def __init__(self) -> None:
        self.count = 0

    @property
    def code(self) -> int:
        """The exit code: 1 where anything was refused."""
        return min(1, self.count)

    @contextlib.contextmanager
    def of_one(self) -> Iterator[None]:
        """Show why one object was refused, and leave the block.

        Errors that are about all objects pass: wrong usage, an answer that was no, a server that
        cannot be reached or does not know the user.
        """
        try:
            yield
        except ApiError as error:
            if not is_refusal(error):
                raise
            shown_errors.ServerError(shown_errors.explain(error)).show()
            self.count += 1
        except (click.UsageError, NotConfirmed):
            raise
        except click.ClickException as error:
            terminal.show(error)
            self.count += 1


def is_refusal(error: ApiError) -> bool:
    """Whether the server has refused one object, so that others may still be accepted."""
    of_all = isinstance(error, (Unauthorized, TooManyRequests))
    return 400 <= error.code < 500 and not of_all
