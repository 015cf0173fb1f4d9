"""Requests over HTTP/1.1 and TLS: any API server, near or far.

One pool of connections, reused. Requests are bounded in time, streams (watch, log) only until
their answer starts: whether a silent stream is dead is for its reader to judge. Writes
are sent once; a read whose reused connection turns out to be closed is sent once more. Tokens are
in no message and no log.
"""

import asyncio
import os
import ssl
import tempfile
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Self
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import yarl

from grange.api.http import JSON, SUBPROTOCOL, Request, Response
from grange.api.status import ApiError, BadRequest, ServiceUnavailable, Timeout
from grange.base.clock import Clock, LoopClock
from grange.base.message_socket import MessageSocket, relay
from grange.client.access import Access
from grange.client.errors import KubeconfigError, StreamBroken, Unreachable
from grange.client.transports.bounds import BoundedExchange, BoundRequest, bound

_CONNECT_S = 5.0
_REQUEST_S = 60.0  # as long as servers of the field work on one request
_PIECEWISE_BYTES = 512 * 1024
_USER_AGENT = "grange"
_MESSAGE_MAX_BYTES = 1024 * 1024
_OF_UPGRADE = frozenset({"connection", "upgrade", SUBPROTOCOL})
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


class HTTP:
    """Carries requests to one base URL.

    Args:
        base_url: ``https://host:port``, with or without a path.
        token: bearer token.
        ca_file: trust only the certificates in this file; None trusts the system's.
        ssl_context: how to do TLS, instead of ``ca_file``.
        token_file: read the token from here, again whenever the file changes.
        server_name: the name to expect in the server's certificate; empty is the URL's host.
        request_s: no answer after so many seconds is a ``Timeout``.
        answer_max_bytes: a longer answer that is not a stream is an error; None for no bound.
        clock: for the bound on the start of streams.

    Raises:
        BadRequest: the URL is none, or the token cannot stand in a header.
        KubeconfigError: the CA file cannot be read.
    """

    def __init__(  # noqa: PLR0913  what a kubeconfig can hold, and two bounds
        self,
        base_url: str,
        token: str = "",
        *,
        ca_file: Path | None = None,
        ssl_context: ssl.SSLContext | None = None,
        token_file: Path | None = None,
        server_name: str = "",
        request_s: float = _REQUEST_S,
        answer_max_bytes: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise BadRequest(f"{base_url!r} is not an http(s) URL")
        self._base = base_url.rstrip("/")
        # On one machine compression costs more than it saves.
        local = urlsplit(base_url).hostname in _LOCAL_HOSTS
        self._headers = {"accept-encoding": "identity"} if local else {}
        self._token = _checked(token)
        self._token_file = token_file
        self._token_at = 0
        self._server_name = server_name or None
        self._request_s = request_s
        self._answer_max_bytes = answer_max_bytes
        self._clock = clock or LoopClock()
        self._tls = ssl_context
        if self._tls is None and base_url.startswith("https://"):
            self._tls = tls_context(_read(ca_file) if ca_file is not None else b"")
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    @classmethod
    def from_access(cls, access: Access, *, clock: Clock | None = None) -> Self:
        """The transport that a kubeconfig's context describes.

        Raises:
            KubeconfigError: its certificates or key are not usable.
        """
        tls = None
        if access.server.startswith("https://"):
            tls = tls_context(
                access.ca_pem,
                certificate_pem=access.certificate_pem,
                key_pem=access.key_pem,
                insecure=access.insecure,
            )
        return cls(
            access.server,
            access.token,
            ssl_context=tls,
            token_file=access.token_file,
            server_name=access.server_name,
            clock=clock,
        )

    async def send(self, request: Request) -> Response:
        """Send the request and return the answer, whatever its status.

        Raises:
            ServiceUnavailable: there is no connection, or a read's connection broke.
            Timeout: no answer in time, or a write's connection broke: the outcome is unknown.
        Cancellation: closes the connection; the server may have acted. A request that is bound
            (``within_s``) leaves nothing in this machine that could still be sent.
        """
        if self._closed:
            raise ServiceUnavailable(f"the connection to {self._base} is closed")
        reads = request.method in {"GET", "HEAD"}
        exchange = BoundedExchange(request.within_s)
        bound.set(exchange)
        try:
            try:
                return await self._send(request, exchange)
            except aiohttp.ServerDisconnectedError:
                if not reads:
                    raise
                # The server closed an idle connection just as we used it.
                return await self._send(request, exchange)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            exchange.abort()
            raise self._translated(error, reads=reads) from error
        except asyncio.CancelledError:
            exchange.abort()
            raise

    async def close(self) -> None:
        """Close all connections, streams included; idempotent."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def _send(self, request: Request, exchange: BoundedExchange) -> Response:
        url = self._url(request)
        headers = {"user-agent": _USER_AGENT, **self._headers, **request.headers}
        token = self._current_token()
        if token:
            headers["authorization"] = f"Bearer {token}"
        if request.wants_websocket:
            return await self._open_websocket(url, request, headers, exchange)
        streams = _streams(request)
        limits = aiohttp.ClientTimeout(
            total=None if streams else self._request_s, sock_connect=_CONNECT_S
        )
        async with self._clock.timeout(self._request_s if streams else None):
            response = await self._open_session().request(
                request.method,
                url,
                data=_payload(request.body),
                headers=headers,
                timeout=limits,
                allow_redirects=False,  # a redirect would carry the token elsewhere
                server_hostname=self._server_name,
            )
        answer = Response(
            response.status,
            content_type=response.headers.get("Content-Type", JSON),
            headers={name.lower(): value for name, value in response.headers.items()},
        )
        if "warning" in answer.headers:  # Kubernetes sends one header for each
            answer.headers = {
                **answer.headers,
                "warning": ", ".join(response.headers.getall("Warning")),
            }
        if streams and 200 <= response.status < 300:
            exchange.finish()  # the stream ends its connection itself
            answer.chunks = self._chunks(response)
            return answer
        async with response:
            answer.body = await self._body(response)
            exchange.finish()
        return answer

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        if self._answer_max_bytes is None:
            return await response.read()
        pieces, size = [], 0
        async for piece in response.content.iter_any():
            size += len(piece)
            if size > self._answer_max_bytes:
                response.close()
                raise ServiceUnavailable(
                    f"{self._base}: the answer is longer than {self._answer_max_bytes} bytes"
                )
            pieces.append(piece)
        return b"".join(pieces)

    def _url(self, request: Request) -> yarl.URL:
        parameters = {**request.query, **request.repeated}
        query = f"?{urlencode(parameters, doseq=True)}" if parameters else ""
        return yarl.URL(f"{self._base}{quote(request.path)}{query}", encoded=True)

    async def _open_websocket(
        self,
        url: yarl.URL,
        request: Request,
        headers: Mapping[str, str],
        exchange: BoundedExchange,
    ) -> Response:
        kept = {name: value for name, value in headers.items() if name not in _OF_UPGRADE}
        try:
            async with self._clock.timeout(self._request_s):
                found = await self._open_session().ws_connect(
                    url,
                    method=request.method,
                    protocols=request.subprotocols,
                    headers=kept,
                    max_msg_size=_MESSAGE_MAX_BYTES,
                    server_hostname=self._server_name,
                )
        except aiohttp.WSServerHandshakeError as error:
            return await self._refusal(replace(request, headers=kept), exchange, error.status)
        exchange.finish()
        protocol = {SUBPROTOCOL: found.protocol} if found.protocol else {}
        return Response(101, headers=protocol, upgrade=lambda ours: _serve(found, ours))

    async def _refusal(self, request: Request, exchange: BoundedExchange, status: int) -> Response:
        """Why the server opens no WebSocket: the library drops the body of that answer.

        The same request without the upgrade is refused for the same reason, as servers check what
        it asks for before how.
        """
        answer = await self._send(request, exchange)
        if answer.status == status:
            return answer
        text = f"{self._base}: the server opens no WebSocket: it answered {status}"
        return Response(status, text.encode(), "text/plain")

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise StreamBroken(f"{self._base}: the stream broke: {_text(error)}") from error
        finally:
            # The end of a stream is not worth a TLS shutdown, which may outlast the loop.
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()
            response.close()

    def _open_session(self) -> aiohttp.ClientSession:
        """The session, made on the loop that uses it."""
        if self._session is None:
            # Every watch holds a connection, so a limit would let watches starve requests.
            connector = (
                aiohttp.TCPConnector(limit=0, ssl=self._tls)
                if self._tls is not None
                else aiohttp.TCPConnector(limit=0)
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                request_class=BoundRequest,
            )
            # The library would send PUT and DELETE again after a broken connection; a write that
            # happened twice answers wrongly (NotFound, Conflict). It has no public switch.
            self._session._retry_connection = False
        return self._session

    def _current_token(self) -> str:
        if self._token_file is not None:
            try:
                changed = self._token_file.stat().st_mtime_ns
                if changed != self._token_at:
                    self._token = _checked(self._token_file.read_text().strip())
                    self._token_at = changed
            except OSError as error:
                if not self._token:
                    raise KubeconfigError(
                        f"{self._token_file}: cannot read the token: {error.strerror}"
                    ) from error
        return self._token

    def _translated(self, error: Exception, *, reads: bool) -> ApiError:
        """What a failure to get an answer means."""
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return Unreachable(f"{self._base}: no connection within {_CONNECT_S:g} s")
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            why = getattr(error.certificate_error, "verify_message", "") or _text(error)
            return Unreachable(
                f"{self._base}: the server's certificate is not trusted: {why} (is it another "
                "server than the kubeconfig means?)"
            )
        if isinstance(error, aiohttp.ClientConnectorError):
            number = error.os_error.errno
            why = os.strerror(number) if number and number > 0 else _text(error)
            return Unreachable(f"{self._base}: cannot connect: {why}")
        if isinstance(error, TimeoutError):
            return Timeout(f"{self._base}: no answer within {self._request_s:g} s")
        if reads:
            return ServiceUnavailable(f"{self._base}: the connection broke: {_text(error)}")
        return Timeout(
            f"{self._base}: the connection broke before the answer, so whether the write "
            f"happened is not known: {_text(error)}"
        )


class _ClientSocket:
    """A WebSocket of the library as a ``MessageSocket``."""

    def __init__(self, inner: aiohttp.ClientWebSocketResponse[bool]) -> None:
        self._inner = inner

    async def receive(self) -> bytes | None:
        message = await self._inner.receive()
        if message.type is aiohttp.WSMsgType.TEXT:
            return str(message.data).encode()
        return bytes(message.data) if message.type is aiohttp.WSMsgType.BINARY else None

    async def send(self, message: bytes) -> None:
        await self._inner.send_bytes(message)

    async def close(self) -> None:
        await self._inner.close()


async def _serve(inner: aiohttp.ClientWebSocketResponse[bool], ours: MessageSocket) -> None:
    await relay(_ClientSocket(inner), ours)


def _trusting(ca_pem: bytes) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=ca_pem.decode("ascii") if ca_pem else None)
    except (ssl.SSLError, ValueError) as error:
        raise KubeconfigError("the certificate authority is not PEM") from error


def tls_context(
    ca_pem: bytes = b"",
    *,
    certificate_pem: bytes = b"",
    key_pem: bytes = b"",
    insecure: bool = False,
) -> ssl.SSLContext:
    """TLS for a client.

    Args:
        ca_pem: trust these certificates and no others; empty trusts the system's.
        certificate_pem: client certificate.
        key_pem: its key.
        insecure: trust anything.

    Raises:
        KubeconfigError: a certificate or key cannot be read.
    """
    if insecure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # loads no authorities: 0.04 s
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context = _trusting(ca_pem)
    if certificate_pem:
        # The library takes a file only; this one is private (0600) and gone before we return.
        with tempfile.NamedTemporaryFile(prefix="grange-client-") as file:
            file.write(certificate_pem + b"\n" + key_pem)
            file.flush()
            try:
                context.load_cert_chain(file.name)
            except (ssl.SSLError, OSError) as error:
                raise KubeconfigError(
                    "the client certificate and its key are not PEM or do not belong together"
                ) from error
    return context


def _payload(body: bytes) -> bytes | BytesIO | None:
    """The body as the library wants it: big ones in pieces, so that they do not hold the loop."""
    if len(body) > _PIECEWISE_BYTES:
        return BytesIO(body)
    return body or None


def _streams(request: Request) -> bool:
    """Whether the answer arrives over time."""
    if request.method != "GET":
        return False
    return request.query.get("watch") in {"true", "1"} or request.path.endswith("/log")


def _checked(token: str) -> str:
    if not token.isascii() or not token.isprintable():
        raise BadRequest("the bearer token contains characters that a header cannot carry")
    return token


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"{path}: cannot read it: {error.strerror or error}") from error


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
