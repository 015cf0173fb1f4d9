"""Connections that end with their request, or with the right of its sender to write.

A request that is given up leaves a connection that no other can use. Closing it in order takes an answer
to the end of TLS, which a server that works on the request sends late: the connection would outlast the
transport and its loop. So it is aborted.

A fenced write may be under way for as long as its sender's session lasts. What the kernel of this
machine still holds of it by then must not leave it: not when the sender is stopped, nor when it has
ended. So the kernel gives up data that is not acknowledged when the session would be over
(``TCP_USER_TIMEOUT``), and drops what it holds when the connection is closed by either side, also at
the end of the process (``SO_LINGER`` of zero: an abortive close). What is on its way beyond this
machine is refused by preconditions (ADR 10).
"""

import asyncio
import socket
import struct
from contextvars import ContextVar

import aiohttp
from aiohttp.connector import Connection

_USER_TIMEOUT = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux has it
_ABORTIVE = struct.pack("ii", 1, 0)


class BoundedExchange:
    """One request and the connection that carries it.

    Args:
        within_s: how long it may be under way; None for no such bound.
    """

    def __init__(self, within_s: float | None) -> None:
        self._within_ms = None if within_s is None else max(1, int(within_s * 1000))
        self._transport: asyncio.WriteTransport | None = None

    def take(self, transport: asyncio.WriteTransport) -> None:
        """The request is about to be written here."""
        self._transport = transport
        opened: socket.socket | None = transport.get_extra_info("socket")
        if opened is None or self._within_ms is None:
            return
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORTIVE)
        if _USER_TIMEOUT is not None:
            opened.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, self._within_ms)

    def finish(self) -> None:
        """The answer is there: others may use the connection from now on."""
        self._transport = None

    def abort(self) -> None:
        """Drop the connection and all that is not sent yet; nothing if there is none any more."""
        if self._transport is not None:
            self._transport.abort()


bound: ContextVar[BoundedExchange | None] = ContextVar("grange_http_bound", default=None)
"""The request that the running task sends."""


class BoundRequest(aiohttp.ClientRequest):
    """A request that passes its connection to its exchange."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """Write the request."""
        if (present := bound.get()) is not None and conn.transport is not None:
            present.take(conn.transport)
        return await super().send(conn)
