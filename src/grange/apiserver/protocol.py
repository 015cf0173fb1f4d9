"""One connection that speaks HTTP/1.1: aiohttp's, with our bounds and our words for what is malformed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from grange.api.status import ApiError, BadRequest, InternalError
from grange.apiserver.client_certificates import PeerIdentity, identify
from grange.apiserver.connections import Connection
from grange.apiserver.error_response import failure
from grange.base.ratelimited import RateLimitedLogger

_HEAD_LINE_MAX_BYTES = 16 * 1024
_HEADER_FIELD_MAX_BYTES = 16 * 1024
_READ_BUFFER_BYTES = 64 * 1024  # of a body that is not read: twice as much is held at most
_LINGERING_S = 1.0
MALFORMED = (HttpProcessingError, web.RequestPayloadError, web.PayloadAccessError)
"""What reading a body raises that the client has spoiled."""


class Protocol(RequestHandler):
    """One connection; ends itself when its first request's head does not come in time.

    Attributes:
        connection: its place among the connections of the listener.
    """

    __slots__ = ("_errors", "_head_s", "_identity", "_lost", "connection")

    def __init__(
        self, server: "Server", head_s: float, errors: RateLimitedLogger, **settings: Any
    ) -> None:
        super().__init__(server, **settings)
        self._head_s = head_s
        self._errors = errors
        self._lost: Callable[[], None] | None = None
        self._identity: PeerIdentity | bool | None = False
        self.connection: Connection | None = None

    @property
    def identity(self) -> PeerIdentity | None:
        """Whom the peer's certificate names; None without one that names a user."""
        if isinstance(self._identity, bool):  # not read yet
            transport = self.transport
            certificate = transport.get_extra_info("peercert") if transport is not None else None
            self._identity = identify(certificate)
        return self._identity

    def attach(self, connection: Connection, lost: Callable[[], None]) -> None:
        """Give it its place, and what to call when it has ended."""
        self.connection = connection
        self._lost = lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        super().connection_made(transport)
        asyncio.get_running_loop().call_later(self._head_s, self._check_first)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        super().connection_lost(exc)
        if self._lost is not None:
            self._lost()

    def _check_first(self) -> None:
        if self._request_count == 0 and self.transport is not None:
            self.force_close()

    async def drained(self) -> None:
        """Wait until the peer has taken enough of what was written.

        Raises:
            ConnectionError: it went away.
        """
        await self._drain_helper()

    def abort(self) -> None:
        """End the connection, whatever was not sent yet."""
        if self.transport is not None:
            self.transport.abort()

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """A failure outside of a request, which aiohttp would log with its trace each time."""
        error = kw.get("exc_info") or args[:1]
        if not isinstance(error, MALFORMED):
            self._errors.error("connection failed", error=error)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """A ``Status`` body for what aiohttp itself refuses; the connection is closed after it."""
        error: ApiError
        if status < 500:
            text = (message or "malformed HTTP").strip().splitlines()[0]
            error = BadRequest(f"cannot read the request: {text[:500]}")
        else:
            self._errors.error("request failed", error=exc)
            error = InternalError("the server failed on this request; see its log")
        if request.writer.output_size > 0:
            raise ConnectionError("the response was begun already")
        answer = failure(error)
        headers = {**answer.headers, "Content-Type": answer.content_type}
        response = web.Response(body=answer.body + b"\n", status=answer.status, headers=headers)
        response.force_close()
        return response


class Server(web.Server):
    """Makes connections with our limits.

    Args:
        handler: answers requests.
        body_bytes: size of a request's body.
        head_s: until the first request's head is complete.
        idle_s: between requests.
        log: for failures.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        *,
        body_bytes: int,
        head_s: float,
        idle_s: float,
        log: RateLimitedLogger,
    ) -> None:
        super().__init__(
            handler,
            request_factory=cast(Any, self._request),
            handler_cancellation=True,
            keepalive_timeout=idle_s,
            max_line_size=_HEAD_LINE_MAX_BYTES,
            max_field_size=_HEADER_FIELD_MAX_BYTES,
            read_bufsize=_READ_BUFFER_BYTES,
            access_log=None,
            lingering_time=_LINGERING_S,
            auto_decompress=False,  # bodies are decompressed within bounds, once the caller is known
        )
        self._body_bytes = body_bytes
        self._head_s = head_s
        self._log = log

    def _request(
        self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any
    ) -> web.BaseRequest:
        return web.BaseRequest(
            message,
            payload,
            protocol,
            writer,
            task,
            self._loop,
            client_max_size=self._body_bytes,
        )

    def __call__(self) -> Protocol:
        """A connection to be."""
        return Protocol(self, self._head_s, self._log, loop=self._loop, **self._kwargs)
