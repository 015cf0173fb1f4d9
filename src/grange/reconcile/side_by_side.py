"""Requests about several objects side by side: all are tried, and the first error is raised."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from grange.api.status import ApiError
from grange.base.tasks import Nursery

T = TypeVar("T")

_AT_ONCE = 32  # requests under way for one caller


async def side_by_side(items: Iterable[T], act: Callable[[T], Awaitable[None]]) -> None:
    """Act on all items, on a bounded number at a time; an error does not stop the others.

    Raises:
        ApiError: the first one, after all were tried.
    """
    waiting = list(items)
    turns, errors = iter(waiting), list[ApiError]()

    async def work() -> None:
        for item in turns:
            try:
                await act(item)
            except ApiError as error:
                errors.append(error)

    async with Nursery("side by side") as nursery:
        for _ in range(min(_AT_ONCE, len(waiting))):
            nursery.start(work())
    if errors:
        raise errors[0]
