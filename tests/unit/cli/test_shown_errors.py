"""Deliberate errors of concurrent work are shown as one line, and all others as they are."""

import click
import pytest

from grange.api.status import NotFound
from grange.base.tasks import Nursery
from grange.cli import shown_errors


async def failing(error: Exception) -> None:
    async with Nursery("outer"), Nursery("inner") as nursery:
        nursery.start(_raise(error))


async def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (click.ClickException("cannot run nothing: No such file or directory"), 1),
        (click.UsageError("no such role"), 2),
        (NotFound("gone"), 1),
    ],
)
async def test_error_of_concurrent_work_is_shown(error: Exception, code: int) -> None:
    """``grange lease acquire --hold -- nonsense`` ended with a traceback."""
    with pytest.raises(click.ClickException) as caught, shown_errors.deliberate():
        await failing(error)
    assert str(error) in caught.value.format_message()
    assert caught.value.exit_code == code


async def test_defect_in_concurrent_work_passes() -> None:
    with pytest.raises(ExceptionGroup), shown_errors.deliberate():
        await failing(ZeroDivisionError("defect"))
