"""HTTPS in front of a handler: requests, answers, limits and an orderly end.

The low-level server of aiohttp speaks HTTP/1.1 (``protocol``), connections are accepted by
``acceptor``; this module bounds what a request may do (size of its body, time to send it and to take
the answer), hands it on as a ``wire.Request``, and pumps chunks of streams. A client that goes away
cancels its request, which closes its stream.

What a stranger sends is decided on its head: without a credential no body is read, and with one only
after the request is authorized. Bodies of all connections share one budget.
"""

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Self, cast
from urllib.parse import parse_qsl, unquote

from aiohttp import HttpVersion11, web
from aiohttp.helpers import rfc822_formatted_time

from grange.api.http import ANONYMOUS, JSON, Request, Response, User
from grange.api.status import ApiError, BadRequest, Unauthorized
from grange.apiserver.acceptor import Acceptor, Address
from grange.apiserver.authn import Authenticator
from grange.apiserver.bodies import Body, BodyBudget
from grange.apiserver.connections import ConnectionLimits, Connections
from grange.apiserver.error_response import failure
from grange.apiserver.protocol import Protocol, Server
from grange.apiserver.request_audit import CLIENT_GONE, RequestAudit
from grange.apiserver.websockets import WebSocketLimits, WebSockets
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.ratelimited import RateLimitedLogger
from grange.base.tasks import Nursery

BODY_MAX_BYTES = 3 * 1024 * 1024  # the API server's limit in Kubernetes
_ONE_WRITE_MAX_BYTES = 64 * 1024  # what a transport buffers before it asks writers to wait
_GZIP_MIN_BYTES = 128 * 1024  # as in Kubernetes, and so is the level: the fastest
_GZIP_LEVEL = 1
_GZIP_FORMAT = 16  # added to the size of the window
_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}

Handler = Callable[[Request], Awaitable[Response]]
Drained = Callable[[Protocol], Awaitable[None]]

_FLUSH_POLL_S = 0.01


class _ExpiredCertificate(Unauthorized):
    """The certificate of a connection ended; a new connection may have another one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a connection may take.

    Attributes:
        body_bytes: size of a request's body.
        bodies_bytes: of the bodies of all requests that are read or served at a time.
        connections: how many there may be.
        head_s: until the first request's head is complete.
        body_s: until a request's body is complete.
        idle_s: between requests; longer than the 90 s after which Go clients drop a connection
            themselves, so that the server does not close one that is about to be used.
        close_s: how long running requests may take to end when the listener closes.
        goodbye_s: how long a peer may take to answer the end of TLS.
        stall_s: how long a peer may take nothing of an answer that is not a stream.
        websockets: what upgraded connections may take.
    """

    body_bytes: int = BODY_MAX_BYTES
    bodies_bytes: int = 64 * 1024 * 1024
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    head_s: float = 20.0
    body_s: float = 30.0
    idle_s: float = 120.0
    close_s: float = 5.0
    goodbye_s: float = 0.5
    stall_s: float = 60.0
    websockets: WebSocketLimits = field(default_factory=WebSocketLimits)


class Listener:
    """A TCP server for one handler.

    Args:
        handler: serves requests; raises only on cancellation.
        authenticator: turns credentials into users, refusing unknown ones with 401; None leaves
            every request anonymous.
        ssl_context: TLS; None serves plain HTTP. Where it asks for client certificates, their
            users come before those of other credentials.
        host: address to listen on.
        port: 0 takes a free one; see ``port``.
        drain: called when closing begins, to end streams in order.
        admit: decides on a request's head, raising ``ApiError``, before a body is waited for.
        audit: records every request; None for none.
        clock, log: of the process.
        limits: what a connection may take.

    Attributes:
        budget: the bodies that are held now.
        connections: those that are open now.
        websockets: those of them that are upgraded.
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
        admit: Callable[[Request], None] | None = None,
        audit: RequestAudit | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._handler = handler
        self._authenticator = authenticator
        self._ssl_context = ssl_context
        self._has_tls = ssl_context is not None
        self._clock = clock
        self._log = log
        self._errors = RateLimitedLogger(log, clock)
        self._host = host
        self._wanted_port = port
        self._drain = drain
        self._admit = admit
        self._audit = audit
        self._limits = limits or Limits()
        self.budget = BodyBudget(self._limits.bodies_bytes)
        self.connections = Connections(self._limits.connections)
        self.websockets = WebSockets(clock, self._errors, self._limits.websockets)
        self._server: Server | None = None
        self._acceptor: Acceptor | None = None
        self._owned = AsyncExitStack()

    @property
    def port(self) -> int:
        """The port it listens on; 0 before ``start``."""
        return 0 if self._acceptor is None else self._acceptor.port

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
        self._server = Server(
            self._serve,
            body_bytes=limits.body_bytes,
            head_s=limits.head_s,
            idle_s=limits.idle_s,
            log=self._errors,
        )
        address = Address(
            self._host,
            self._wanted_port,
            self._ssl_context,
            handshake_s=limits.head_s,
            # A peer that keeps an idle connection in a pool does not answer a goodbye.
            goodbye_s=limits.goodbye_s,
        )
        handshakes = await self._owned.enter_async_context(Nursery("handshakes"))
        self._owned.callback(handshakes.cancel)
        self._acceptor = await Acceptor.open(address, self._server, self.connections, handshakes)

    async def close(self) -> None:
        """Refuse new connections, end streams, give running requests their time; idempotent."""
        if self._acceptor is not None:
            self._acceptor.stop()
        if self._drain is not None:
            self._drain()
        self.websockets.close()
        if self._server is not None:
            self._server.pre_shutdown()
            transports = [peer.transport for peer in self._server.connections if peer.transport]
            await self._server.shutdown(self._limits.close_s)
            await self._cut(transports)
        await self._owned.aclose()
        self._server = self._acceptor = None

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
        if not incoming.body_exists:
            return await self._respond(incoming, b"")
        limits = self._limits
        with Body(
            incoming,
            self.budget,
            limit=limits.body_bytes,
            within_s=limits.body_s,
            clock=self._clock,
        ) as body:
            return await self._respond(incoming, body)

    async def _respond(self, incoming: web.BaseRequest, body: "Body | bytes") -> web.StreamResponse:
        started = self._clock.monotonic()
        request: Request | None = None
        try:
            user = self._user(incoming)
            path, query, repeated = _target(incoming.raw_path)
            request = Request(
                incoming.method,
                path,
                query,
                headers=incoming.headers,
                user=user,
                repeated=repeated,
            )
            if isinstance(body, Body):
                request.body = await self._body(request, body)
        except ApiError as error:
            response = failure(error)
            if self._audit is not None:
                request = request or Request(
                    incoming.method, incoming.path, headers=incoming.headers
                )
                self._record(self._audit, incoming, request, response, started)
            refusal = _plain(response)
            if isinstance(error, _ExpiredCertificate) or (
                isinstance(body, Body) and not body.is_here
            ):
                refusal.force_close()  # the rest of the body is of no use
            return refusal
        if self._audit is None:
            response = await self._handler(request)
        else:
            response = await self._recorded(self._audit, incoming, request, started)
        if response.upgrade is not None:
            try:
                return await self.websockets.serve(incoming, response, response.upgrade)
            except ApiError as error:
                return _plain(failure(error))
        if response.chunks is not None:
            return await self._stream(incoming, response, response.chunks)
        if incoming.method == "HEAD":
            return _plain(response)
        if len(response.body) > _ONE_WRITE_MAX_BYTES:
            return await self._pieces(incoming, response)
        if incoming.keep_alive and incoming.version == HttpVersion11:
            return _OneWrite(response, self._drained)
        return _plain(response)

    async def _recorded(
        self, audit: RequestAudit, incoming: web.BaseRequest, request: Request, started: float
    ) -> Response:
        """The answer of the handler, recorded."""
        response = Response(CLIENT_GONE)
        try:
            response = await self._handler(request)
        finally:  # also when it is cancelled
            self._record(audit, incoming, request, response, started)
        return response

    def _record(
        self,
        audit: RequestAudit,
        incoming: web.BaseRequest,
        request: Request,
        response: Response,
        started: float,
    ) -> None:
        elapsed_s = self._clock.monotonic() - started
        audit.record(request, incoming.remote or "", response, elapsed_s)

    async def _body(self, request: Request, body: Body) -> bytes:
        if self._authenticator is not None and request.user == ANONYMOUS:
            raise Unauthorized("a request with a body needs a credential")
        if body.is_here:
            return body.read_nowait()
        if self._admit is not None:
            self._admit(request)
        return await body.read()

    def _user(self, incoming: web.BaseRequest) -> User:
        protocol = cast("Protocol", incoming.protocol)
        user = self._certificate_user(protocol)
        if user is None and self._authenticator is not None:
            user = self._authenticator.authenticate(incoming.headers)
            if user is None:
                if incoming.headers.get("authorization"):
                    raise Unauthorized("the credential in the Authorization header is not known")
                return ANONYMOUS
        if protocol.connection is not None:
            self.connections.authenticate(protocol.connection)
        return user or ANONYMOUS

    def _certificate_user(self, protocol: Protocol) -> User | None:
        """The user of the peer's certificate, which may end while the connection lasts."""
        identity = protocol.identity if self._has_tls else None
        if identity is None:
            return None
        if identity.until <= self._clock.now().timestamp():
            raise _ExpiredCertificate("the client certificate has expired; connect with a new one")
        return identity.user

    async def _drained(self, protocol: Protocol) -> None:
        """Wait until the peer has taken enough of what was written; one that takes nothing is cut.

        Raises:
            ConnectionError: it went away, or was cut.
        """
        try:
            async with self._clock.timeout(self._limits.stall_s):
                await protocol.drained()
        except TimeoutError:
            protocol.abort()
            raise ConnectionResetError("the client does not read its answer") from None

    async def _pieces(self, incoming: web.BaseRequest, response: Response) -> web.StreamResponse:
        """A large answer, written no faster than the peer takes it."""
        outgoing = web.StreamResponse(
            status=response.status,
            headers={**response.headers, "Content-Type": response.content_type},
        )
        ending = _ending(response)
        body = memoryview(response.body)
        gzip = None
        if len(body) > _GZIP_MIN_BYTES and _takes_gzip(incoming):
            gzip = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS | _GZIP_FORMAT)
            outgoing.headers["Content-Encoding"] = "gzip"
            outgoing.headers["Vary"] = "Accept-Encoding"
            outgoing.enable_chunked_encoding()
        else:
            outgoing.content_length = len(body) + len(ending)
        await outgoing.prepare(incoming)
        for at in range(0, len(body), _ONE_WRITE_MAX_BYTES):
            if incoming.protocol.writing_paused:
                await self._drained(cast("Protocol", incoming.protocol))
            piece: bytes | memoryview = body[at : at + _ONE_WRITE_MAX_BYTES]
            if gzip is not None:
                piece = gzip.compress(piece)
                await self._clock.sleep(0)  # others have their turn between the pieces
            if piece:
                await outgoing.write(piece)
        if gzip is not None:
            ending = gzip.compress(ending) + gzip.flush()
        await outgoing.write_eof(ending)
        return outgoing

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
            # The head is out: all that can be done is to truncate the stream, and log it here.
            self._errors.warning("stream broke off", path=incoming.path, error=error)
            if incoming.transport is not None:
                incoming.transport.abort()
        except ConnectionError:
            self._log.debug("client went away", path=incoming.path)
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
        return outgoing


def _target(raw: str) -> tuple[str, Mapping[str, str], Mapping[str, Sequence[str]]]:
    """Decoded path and query of a request line's target, and what the query gives repeatedly."""
    path, _, query = raw.partition("?")
    if "%" in path:
        path = unquote(path)
    if not path.startswith("/"):
        raise BadRequest(f"cannot read the path {raw[:200]!r}")
    if not query:
        return path, {}, {}
    pairs = parse_qsl(query, keep_blank_values=True)
    found = dict(pairs)
    repeated: dict[str, list[str]] = {}
    if len(found) < len(pairs):
        for name, value in pairs:
            repeated.setdefault(name, []).append(value)
    return path, found, {name: values for name, values in repeated.items() if len(values) > 1}


def _takes_gzip(incoming: web.BaseRequest) -> bool:
    if incoming.version < HttpVersion11:
        return False  # it has no chunks
    codings = incoming.headers.get("accept-encoding", "").lower().split(",")
    return any(
        coding.partition(";")[0].strip() == "gzip" and not coding.replace(" ", "").endswith("q=0")
        for coding in codings
    )


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

    def __init__(self, response: Response, drained: Drained) -> None:
        super().__init__(status=response.status)
        self._response = response
        self._drained = drained
        self._protocol: Protocol | None = None

    @property
    def keep_alive(self) -> bool | None:
        """It is not used otherwise."""
        return True

    async def prepare(self, request: web.BaseRequest) -> None:
        """Write everything."""
        response, transport = self._response, request.transport
        self._protocol = cast("Protocol", request.protocol)
        ending = _ending(response)
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client went away")
        more = "".join(f"{name}: {value}\r\n" for name, value in response.headers.items())
        transport.write(
            b"HTTP/1.1 %d %b\r\nDate: %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b\r\n%b%b"
            % (
                response.status,
                _PHRASES.get(response.status, b"Status"),
                rfc822_formatted_time().encode(),
                response.content_type.encode(),
                len(response.body) + len(ending),
                more.encode("latin-1"),
                response.body,
                ending,
            )
        )

    async def write_eof(self, data: bytes = b"") -> None:
        """It is written already; the next answer waits until the peer has taken enough of it."""
        if self._protocol is not None and self._protocol.writing_paused:
            await self._drained(self._protocol)
