"""Unary gRPC calls over a local socket: HTTP/2 by the library h2, without threads.

One connection carries all calls, which take turns at nothing but the flow control. It is made with
the first call, and again after it was lost.
"""

import asyncio
import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import unquote

from grange.base.clock import Clock
from grange.base.errors import GrangeError

CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
    *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    "UNAUTHENTICATED",
)
"""Names of the status codes, by number."""

_WINDOW = 4 * 1024 * 1024
_PREFIX = 5  # a byte for compression, four for the length
_STATUS_MAX = 8192


class GrpcStatusError(GrangeError):
    """A call failed.

    Args:
        code: one of ``CODES``.
        message: the server's.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message or code


class _Call:
    """One call that waits for its answer."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[bytes] = loop.create_future()
        self.window = asyncio.Event()
        self.body = bytearray()
        self.headers: dict[str, str] = {}

    def fail(self, code: str, message: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(GrpcStatusError(code, message))
            self.answer.exception()  # the caller may be gone
        self.window.set()

    def finish(self) -> None:
        """Everything has come."""
        if self.answer.done():
            return
        status = self.headers.get("grpc-status", "")
        if status != "0":
            http = self.headers.get(":status", "")
            message = unquote(self.headers.get("grpc-message", "")) or f"HTTP status {http}"
            number = int(status) if status.isascii() and status.isdigit() else 2
            self.fail(CODES[number] if number < len(CODES) else "UNKNOWN", message[:_STATUS_MAX])
        elif len(self.body) < _PREFIX or self.body[0] != 0:
            self.fail("INTERNAL", "the answer has no message that can be read")
        else:
            (size,) = struct.unpack(">I", self.body[1:_PREFIX])
            if len(self.body) != _PREFIX + size:
                self.fail("INTERNAL", "the answer ends too early")
            else:
                self.answer.set_result(bytes(self.body[_PREFIX:]))


class _Connection(asyncio.Protocol):
    """The protocol of one connection; callbacks, so that no task reads."""

    def __init__(self, message_max: int) -> None:
        from h2.config import H2Configuration
        from h2.connection import H2Connection

        config = H2Configuration(client_side=True, header_encoding="utf-8")
        self._h2 = H2Connection(config)
        self._calls: dict[int, _Call] = {}
        self._message_max = message_max
        self._transport: asyncio.Transport | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        from h2.settings import SettingCodes

        self._transport = cast("asyncio.Transport", transport)  # of a stream
        self._h2.local_settings[SettingCodes.INITIAL_WINDOW_SIZE] = _WINDOW
        self._h2.local_settings[SettingCodes.ENABLE_PUSH] = 0
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW)
        self._flush()

    def data_received(self, data: bytes) -> None:
        from h2.exceptions import ProtocolError

        try:
            events = self._h2.receive_data(data)
            for event in events:
                self._take(event)
        except ProtocolError as error:
            self._end(f"the server does not speak HTTP/2: {error}")
            return
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc) if exc is not None else "the connection was closed")

    def close(self) -> None:
        self._end("the connection was closed")

    def _end(self, why: str) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.fail("UNAVAILABLE", why)

    def _take(self, event: Any) -> None:
        name = type(event).__name__
        call = self._calls.get(getattr(event, "stream_id", None) or 0)
        if name == "WindowUpdated":
            for waiting in self._calls.values():
                waiting.window.set()
        elif name == "ConnectionTerminated":
            self._end("the server closes the connection")
        elif name == "DataReceived":
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if call is not None:
                call.body += event.data
                if len(call.body) > self._message_max + _PREFIX:
                    call.fail("RESOURCE_EXHAUSTED", "the answer is too long")
        elif call is None:
            return
        elif name in {"ResponseReceived", "TrailersReceived"}:
            call.headers |= dict(event.headers)
        elif name == "StreamEnded":
            self._calls.pop(event.stream_id, None)
            call.finish()
        elif name == "StreamReset":
            self._calls.pop(event.stream_id, None)
            call.fail("UNAVAILABLE", f"the server gave the call up ({event.error_code})")

    def _flush(self) -> None:
        if self._transport is not None:
            self._transport.write(self._h2.data_to_send())

    async def unary(self, path: str, body: bytes, metadata: Mapping[str, str]) -> bytes:
        """Make a call; leaving it early cancels it."""
        call = _Call()
        stream = self._h2.get_next_available_stream_id()
        self._calls[stream] = call
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *metadata.items(),
        ]
        self._h2.send_headers(stream, headers)
        try:
            await self._send(stream, call, struct.pack(">BI", 0, len(body)) + body)
            return await call.answer
        finally:
            if self._calls.pop(stream, None) is not None and self.is_open:
                self._h2.reset_stream(stream, error_code=8)  # CANCEL
                self._flush()

    async def _send(self, stream: int, call: _Call, body: bytes) -> None:
        while not call.answer.done():
            room = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)
            piece, body = body[: max(0, room)], body[max(0, room) :]
            self._h2.send_data(stream, piece, end_stream=not body)
            self._flush()
            if not body:
                return
            if self._h2.local_flow_control_window(stream) <= 0:
                call.window.clear()
                await call.window.wait()


class GrpcChannel:
    """Makes calls.

    Args:
        socket: of the server.
        clock: for the limits.
        message_max: bytes of an answer.
    """

    def __init__(self, socket: Path, clock: Clock, *, message_max: int) -> None:
        self._socket = socket
        self._clock = clock
        self._message_max = message_max
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()

    async def unary(
        self,
        path: str,
        body: bytes,
        limit_s: float | None,
        metadata: Mapping[str, str] = MappingProxyType({}),
    ) -> bytes:
        """The answer to a message.

        Args:
            path: ``/package.Service/Method``.
            body: the message.
            limit_s: how long it may take; None for no limit.
            metadata: further headers.

        Raises:
            GrpcStatusError: the server refuses or fails, is too slow, or cannot be reached.
        """
        from h2.exceptions import ProtocolError

        try:
            async with self._clock.timeout(limit_s):
                connection = await self._connected()
                return await connection.unary(path, body, metadata)
        except TimeoutError as error:
            raise GrpcStatusError("DEADLINE_EXCEEDED", f"no answer within {limit_s:g}s") from error
        except (OSError, ProtocolError) as error:
            raise GrpcStatusError("UNAVAILABLE", str(error)) from error

    async def _connected(self) -> _Connection:
        async with self._connecting:
            if self._connection is None or not self._connection.is_open:
                _, self._connection = await asyncio.get_running_loop().create_unix_connection(
                    lambda: _Connection(self._message_max), str(self._socket)
                )
            return self._connection

    async def close(self) -> None:
        """Close the connection; calls that wait fail."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            await self._clock.sleep(0)
