"""The seam under every verb: one request in, one response out."""

from typing import Protocol

from grange.api.http import Request, Response


class Transport(Protocol):
    """Carries requests to an API server.

    The contract (tests/contract): a server's answer is returned whatever its status; only failures
    to get an answer raise, as ``ServiceUnavailable`` (not sent, or refused) or ``Timeout`` (sent,
    outcome unknown). A response with ``chunks`` stays open until its generator is closed.
    """

    async def send(self, request: Request) -> Response:
        """Carry one request."""

    async def close(self) -> None:
        """Release connections; idempotent."""
