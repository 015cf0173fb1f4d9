"""Requests as function calls: the API server's handler in the same process."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from grange.api.http import Request, Response, User
from grange.api.status import ServiceUnavailable


class InProcess:
    """Hands requests to a handler, as a fixed user.

    Args:
        handler: what answers, e.g. ``Application.handle``.
        user: who asks, on every request.
    """

    def __init__(self, handler: Callable[[Request], Awaitable[Response]], user: User) -> None:
        self._handler = handler
        self._user = user
        self._closed = False

    async def send(self, request: Request) -> Response:
        """Call the handler. Cancellation reaches the handler; a write is atomic all the same.

        Raises:
            ServiceUnavailable: the transport is closed.
        """
        if self._closed:
            raise ServiceUnavailable("the connection to the API server is closed")
        return await self._handler(replace(request, user=self._user))

    async def close(self) -> None:
        """Refuse further requests; streams that are open stay with their readers."""
        self._closed = True
