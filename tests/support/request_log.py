"""A wrapper around a server's handler that records requests and fails on demand."""

from collections.abc import Awaitable, Callable

import msgspec

from grange.api.http import Request, Response
from grange.api.status import ApiError


class RequestLog:
    """Passes requests on.

    Attributes:
        requests: "METHOD path" of each request.
        bodies: the decoded body of each write.
        error: answered instead, to requests for which ``fails`` holds.
        before: awaited before a request is passed on.
    """

    def __init__(self, handler: Callable[[Request], Awaitable[Response]]) -> None:
        self.requests: list[str] = []
        self.bodies: list[object] = []
        self.error: ApiError | None = None
        self.fails: Callable[[Request], bool] = lambda request: True
        self._handler = handler

    async def handle(self, request: Request) -> Response:
        self.requests.append(f"{request.method} {request.path}")
        if request.body:
            self.bodies.append(msgspec.json.decode(request.body))
        if self.error is not None and self.fails(request):
            body = msgspec.json.encode(self.error.status().document())
            return Response(self.error.code, body)
        return await self._handler(request)

    def writes(self) -> list[str]:
        """The requests that change something."""
        return [line for line in self.requests if not line.startswith("GET ")]
