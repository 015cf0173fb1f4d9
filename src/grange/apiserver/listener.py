"""HTTPS in front of a handler: sockets, TLS, limits and an orderly end.

The low-level server of aiohttp speaks HTTP/1.1; this module bounds what a connection may do (size of
head and body, time to send them, idle time), hands each request on as a ``wire.Request``, and pumps
chunks of streams. A client that goes away cancels its request, which closes its stream.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self, cast
from urllib.parse import parse_qsl, unquote

from aiohttp import HttpVersion11, web
from aiohttp.web_protocol import RequestHandler

from grange.api.status import ApiError, BadRequest, InternalError, Timeout, TooLarge, Unauthorized
from grange.api.wire import ANONYMOUS, JSON, Request, Response, User
from grange.apiserver.authn import Authenticator
from grange.apiserver.call import failure
from grange.base.clock import Clock
from grange.base.log import Logger

BODY_MAX_BYTES = 3 * 1024 * 1024  # the API server's limit in Kubernetes
_HEAD_LINE_MAX_BYTES = 16 * 1024
_HEADER_FIELD_MAX_BYTES = 16 * 1024
_ONE_WRITE_MAX_BYTES = 64 * 1024  # what a transport buffers before it asks writers to wait
_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}

Handler = Callable[[Request], Awaitable[Response]]

_FLUSH_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Limits:
    """What a connection may take.

    Attributes:
        body_bytes: size of a request's body.
        head_s: until the first request's head is complete.
        body_s: until a request's body is complete.
        idle_s: between requests; longer than the 90 s after which Go clients drop a connection
            themselves, so that the server does not close one that is about to be used.
        close_s: how long running requests may take to end when the listener closes.
        goodbye_s: how long a peer may take to answer the end of TLS.
    """

    body_bytes: int = BODY_MAX_BYTES
    head_s: float = 20.0
    body_s: float = 30.0
    idle_s: float = 120.0
    close_s: float = 5.0
    goodbye_s: float = 0.5


class Listener:
    """A TCP server for one handler.

    Args:
        handler: serves requests; raises only on cancellation.
        authenticator: turns credentials into users, refusing unknown ones with 401; None leaves
            every request anonymous.
        ssl_context: TLS; None serves plain HTTP.
        host: address to listen on.
        port: 0 takes a free one; see ``port``.
        drain: called when closing begins, to end streams in order.
        clock, log: as everywhere.
        limits: what a connection may take.
    """

    def __init__(  # noqa: PLR0913  everything is injected, and this is the seam
        self,
        handler: Handler,
        *,
        authenticator: Authenticator | None,
        ssl_context: ssl.SSLContext | None,
        clock: Clock,
        log: Logger,
        host: str = "127.0.0.1",
        port: int = 0,
        drain: Callable[[], None] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._handler = handler
        self._authenticator = authenticator
        self._ssl_context = ssl_context
        self._clock = clock
        self._log = log
        self._host = host
        self._wanted_port = port
        self._drain = drain
        self._limits = limits or Limits()
        self._server: _Server | None = None
        self._sockets: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port it listens on; 0 before ``start``."""
        if self._sockets is None or not self._sockets.sockets:
            return 0
        return int(self._sockets.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """Where clients find it."""
        scheme = "https" if self._ssl_context else "http"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self.port}"

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be had (in use, not permitted).
        """
        limits = self._limits
        self._server = _Server(self._serve, limits, self._log)
        loop = asyncio.get_running_loop()
        self._sockets = await loop.create_server(
            self._server,
            self._host,
            self._wanted_port,
            ssl=self._ssl_context,
            ssl_handshake_timeout=limits.head_s if self._ssl_context else None,
            # A peer that keeps an idle connection in a pool does not answer a goodbye.
            ssl_shutdown_timeout=limits.goodbye_s if self._ssl_context else None,
            backlog=1024,
        )

    async def close(self) -> None:
        """Refuse new connections, end streams, give running requests their time; idempotent."""
        if self._sockets is not None:
            self._sockets.close()
        if self._drain is not None:
            self._drain()
        if self._server is not None:
            self._server.pre_shutdown()
            transports = [peer.transport for peer in self._server.connections if peer.transport]
            await self._server.shutdown(self._limits.close_s)
            await self._cut(transports)
        if self._sockets is not None:
            await self._sockets.wait_closed()
        self._server = self._sockets = None

    async def _cut(self, transports: Sequence[asyncio.Transport]) -> None:
        """End connections whose peers do not answer the end of TLS, once all is sent."""
        deadline = self._clock.monotonic() + self._limits.goodbye_s
        while self._clock.monotonic() < deadline and any(
            transport.get_write_buffer_size() for transport in transports
        ):
            await self._clock.sleep(_FLUSH_POLL_S)
        for transport in transports:
            transport.abort()
        await self._clock.sleep(0)  # the loop closes what was aborted in its next turn

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _serve(self, incoming: web.BaseRequest) -> web.StreamResponse:
        try:
            user = self._user(incoming.headers)
            body = await self._body(incoming) if incoming.body_exists else b""
            request = Request(
                incoming.method,
                *_target(incoming.raw_path),
                headers=incoming.headers,
                body=body,
                user=user,
            )
        except ApiError as error:
            return _plain(failure(error))
        response = await self._handler(request)
        if response.chunks is not None:
            return await self._stream(incoming, response, response.chunks)
        if (
            len(response.body) <= _ONE_WRITE_MAX_BYTES
            and incoming.keep_alive
            and incoming.method != "HEAD"
            and incoming.version == HttpVersion11
        ):
            return _OneWrite(response)
        return _plain(response)

    def _user(self, headers: Mapping[str, str]) -> User:
        if self._authenticator is None:
            return ANONYMOUS
        user = self._authenticator.authenticate(headers)
        if user is None and headers.get("authorization"):
            raise Unauthorized("the credential in the Authorization header is not known")
        return user or ANONYMOUS

    async def _body(self, incoming: web.BaseRequest) -> bytes:
        limit = self._limits.body_bytes
        if (incoming.content_length or 0) > limit:
            raise _too_large(limit)
        if incoming.content.is_eof():  # it came with the head, as small bodies do
            body = incoming.content.read_nowait()
            if len(body) > limit:
                raise _too_large(limit)
            return body
        if incoming.headers.get("expect", "").lower() == "100-continue" and incoming.transport:
            incoming.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            async with self._clock.timeout(self._limits.body_s):
                return await incoming.read()
        except web.HTTPRequestEntityTooLarge:
            raise _too_large(limit) from None
        except TimeoutError:
            raise Timeout(
                f"the body did not arrive within {self._limits.body_s:g} s; nothing was done"
            ) from None

    async def _stream(
        self, incoming: web.BaseRequest, response: Response, chunks: AsyncIterator[bytes]
    ) -> web.StreamResponse:
        outgoing = web.StreamResponse(
            status=response.status,
            headers={**response.headers, "Content-Type": response.content_type},
        )
        if incoming.version >= HttpVersion11:
            outgoing.enable_chunked_encoding()
        try:
            await outgoing.prepare(incoming)
            async for chunk in chunks:
                if chunk:
                    await outgoing.write(chunk)
            await outgoing.write_eof()
        except ApiError as error:
            # The head is out: all that can be done is to end the stream short, and say so here.
            self._log.warning("stream broke off", path=incoming.path, error=error)
            if incoming.transport is not None:
                incoming.transport.abort()
        except ConnectionError:
            self._log.debug("client went away", path=incoming.path)
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
        return outgoing


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body of the request is too large: at most {limit} bytes are taken")


def _target(raw: str) -> tuple[str, Mapping[str, str]]:
    """Decoded path and query of a request line's target."""
    path, _, query = raw.partition("?")
    if "%" in path:
        path = unquote(path)
    if not path.startswith("/"):
        raise BadRequest(f"cannot read the path {raw[:200]!r}")
    return path, (dict(parse_qsl(query, keep_blank_values=True)) if query else {})


def _ending(response: Response) -> bytes:
    """The newline that Kubernetes ends every JSON body with; stored bytes have none."""
    body = response.body
    return b"\n" if response.content_type == JSON and body.endswith(b"}") else b""


def _plain(response: Response) -> web.Response:
    headers = {**response.headers, "Content-Type": response.content_type}
    body = response.body + _ending(response)
    return web.Response(body=body, status=response.status, headers=headers)


class _OneWrite(web.StreamResponse):
    """A small answer, put together and written in one piece.

    ``web.Response`` prepares headers for every feature that it has, which costs a tenth of a whole
    create; answers that keep the connection open and need none of them go this way.
    """

    def __init__(self, response: Response) -> None:
        super().__init__(status=response.status)
        self._response = response

    @property
    def keep_alive(self) -> bool | None:
        """It is not used otherwise."""
        return True

    async def prepare(self, request: web.BaseRequest) -> None:
        """Write everything."""
        response, transport = self._response, request.transport
        ending = _ending(response)
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client went away")
        more = "".join(f"{name}: {value}\r\n" for name, value in response.headers.items())
        transport.write(
            b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b\r\n%b%b"
            % (
                response.status,
                _PHRASES.get(response.status, b"Status"),
                response.content_type.encode(),
                len(response.body) + len(ending),
                more.encode("latin-1"),
                response.body,
                ending,
            )
        )

    async def write_eof(self, data: bytes = b"") -> None:
        """It is written already."""


class _Connection(RequestHandler):
    """One connection; ends itself when its first request's head does not come in time."""

    def __init__(self, server: "_Server", limits: Limits, log: Logger, **settings: Any) -> None:
        super().__init__(server, **settings)
        self._limits = limits
        self._log = log

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        asyncio.get_running_loop().call_later(self._limits.head_s, self._check_first)

    def _check_first(self) -> None:
        if self._request_count == 0 and self.transport is not None:
            self.force_close()

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
            self._log.error("request failed", error=exc)
            error = InternalError("the server failed on this request; its log says why")
        if request.writer.output_size > 0:
            raise ConnectionError("the response was begun already")
        response = _plain(failure(error))
        response.force_close()
        return response


class _Server(web.Server):
    """Makes connections with our limits."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        limits: Limits,
        log: Logger,
    ) -> None:
        super().__init__(
            handler,
            request_factory=cast(Any, self._request),
            handler_cancellation=True,
            keepalive_timeout=limits.idle_s,
            max_line_size=_HEAD_LINE_MAX_BYTES,
            max_field_size=_HEADER_FIELD_MAX_BYTES,
            access_log=None,
            lingering_time=1.0,
        )
        self._limits = limits
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
            client_max_size=self._limits.body_bytes,
        )

    def __call__(self) -> RequestHandler:
        return _Connection(self, self._limits, self._log, loop=self._loop, **self._kwargs)
