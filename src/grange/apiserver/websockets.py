"""WebSockets of the listener: the handshake, limits on messages and time, and an orderly end."""

from dataclasses import dataclass

from aiohttp import WSMsgType, web

from grange.api.http import SUBPROTOCOL, Response
from grange.api.status import BadRequest, TooManyRequests
from grange.base.clock import Clock
from grange.base.message_socket import Upgrade
from grange.base.ratelimited import RateLimitedLogger
from grange.base.tasks import Nursery

_WRITE_BUFFER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class WebSocketLimits:
    """What connections for messages may take.

    Attributes:
        message_bytes: size of a message.
        connections: how many there may be at a time.
        idle_s: without a message in either direction; as long as a kubelet's.
        close_s: how long a peer may take to answer the end.
    """

    message_bytes: int = 1024 * 1024
    connections: int = 512
    idle_s: float = 4 * 3600.0
    close_s: float = 2.0


class WebSockets:
    """Serves upgraded connections of one listener.

    Args:
        clock: time.
        errors: for failures.
        limits: what they may take.
    """

    def __init__(
        self, clock: Clock, errors: RateLimitedLogger, limits: WebSocketLimits | None = None
    ) -> None:
        self._clock = clock
        self._errors = errors
        self._limits = limits or WebSocketLimits()
        self._open: dict[Nursery, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """End all of them."""
        for nursery in list(self._open):
            nursery.cancel()

    async def serve(
        self, incoming: web.BaseRequest, response: Response, upgrade: Upgrade
    ) -> web.StreamResponse:
        """Upgrade a connection and serve it to its end.

        Raises:
            ApiError: the request is no WebSocket handshake, or there are too many connections.
        """
        limits = self._limits
        if len(self._open) >= limits.connections:
            raise TooManyRequests(
                f"{len(self._open)} connections for streams are open, as many as this server takes; "
                "close some and try again",
                retry_after_s=1,
            )
        inner = web.WebSocketResponse(
            timeout=limits.close_s,
            protocols=[found] if (found := response.headers.get(SUBPROTOCOL)) else [],
            compress=False,
            max_msg_size=limits.message_bytes + 1,  # the library refuses a message of this size
            writer_limit=_WRITE_BUFFER_BYTES,
            decode_text=False,
        )
        try:
            await inner.prepare(incoming)
        except web.HTTPBadRequest as error:
            raise BadRequest(f"cannot open a WebSocket: {error.text}") from error
        socket = _ServerSocket(inner, self._clock)
        nursery = Nursery("websocket")
        self._open[nursery] = None
        try:
            async with nursery:
                nursery.start(self._end_idle(socket), name="idle")
                await self._run(upgrade, socket, incoming.path)
                nursery.cancel()
        finally:
            del self._open[nursery]
            await socket.close()
        return inner

    async def _run(self, upgrade: Upgrade, socket: "_ServerSocket", path: str) -> None:
        try:
            await upgrade(socket)
        except* ConnectionError:
            pass  # the client is gone, and what was served has ended
        except* Exception as group:  # noqa: BLE001  the head is out: it can only be logged
            for error in group.exceptions:
                self._errors.error("stream failed", path=path, error=error)

    async def _end_idle(self, socket: "_ServerSocket") -> None:
        while (left := socket.used + self._limits.idle_s - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)
        await socket.close()


class _ServerSocket:
    """A WebSocket of the library as a ``MessageSocket``; knows when it was used last."""

    def __init__(self, inner: web.WebSocketResponse, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self.used = clock.monotonic()

    async def receive(self) -> bytes | None:
        message = await self._inner.receive()
        self.used = self._clock.monotonic()
        if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
            return bytes(message.data)
        return None

    async def send(self, message: bytes) -> None:
        await self._inner.send_bytes(message)
        self.used = self._clock.monotonic()

    async def close(self) -> None:
        await self._inner.close()
