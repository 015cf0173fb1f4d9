"""Gates of a small world's server: what they make fail."""

from collections.abc import Callable

from grange.api.http import Request
from grange.api.status import ApiError, InternalError
from grange.base.tasks import Nursery


def any_write(request: Request) -> bool:
    """Events do not count: whether they are written changes nothing."""
    return request.method != "GET" and "/events" not in request.path


def dies_after(
    count: int, owner: Nursery, counted: Callable[[Request], bool] = any_write
) -> Callable[[Request], ApiError | None]:
    """The owner ends when it is about to write once more.

    Args:
        count: so many of its writes arrive.
        owner: in which it runs.
        counted: which requests are such writes; the others pass.
    """
    writes = 0

    def gate(request: Request) -> ApiError | None:
        nonlocal writes
        if not counted(request):
            return None
        writes += 1
        if writes > count:
            owner.cancel()
            return InternalError("dying")
        return None

    return gate
