"""One TCP connection as messages, to a pod on another machine and there from them.

A message that is not empty carries bytes; an empty one ends its direction, as TCP does. Closing the
socket before both directions have ended resets the connection.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from grange.agent.service_proxy.routes import Endpoint
from grange.base.errors import GrangeError
from grange.base.message_socket import MessageSocket, Upgrade, socket_pair
from grange.base.tasks import Nursery

CHUNK_BYTES = 128 * 1024
BUFFER_BYTES = 2 * CHUNK_BYTES

Dial = Callable[[Endpoint, str], Awaitable[Upgrade]]
"""Connects to an endpoint on another machine, over TCP or UDP; raises ``OSError`` where that fails."""


class TunnelEnd:
    """Carries bytes between a TCP connection and messages, until both directions have ended.

    Args:
        messages: the other end's.
        reader, writer: of the connection.
    """

    def __init__(
        self,
        messages: MessageSocket,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._messages = messages
        self._reader = reader
        self._writer = writer
        self._is_sent = self._is_received = False

    async def run(self) -> None:
        """Carry; both ends are closed when it returns."""
        try:
            async with Nursery("tunnel") as nursery:
                nursery.start(self._send(), name="bytes to messages")
                await self._receive()
                if not self._is_complete():
                    nursery.cancel()
        finally:
            if self._is_complete():
                self._writer.close()
            else:
                self._writer.transport.abort()
            await self._messages.close()

    def _is_complete(self) -> bool:
        return self._is_sent and self._is_received

    async def _send(self) -> None:
        with suppress(ConnectionError):
            while data := await self._reader.read(CHUNK_BYTES):
                await self._messages.send(data)
            self._is_sent = True  # the peer may close before the next line returns
            await self._messages.send(b"")
        if self._is_complete() or not self._is_sent:
            await self._messages.close()  # ends _receive

    async def _receive(self) -> None:
        with suppress(ConnectionError):
            while (data := await self._messages.receive()) is not None:
                if data:
                    self._writer.write(data)
                    await self._writer.drain()
                    continue
                self._is_received = True
                if self._writer.can_write_eof():
                    self._writer.write_eof()
                if self._is_sent:
                    return


async def enter(connection: socket.socket, upgrade: Upgrade) -> None:
    """Serve the near end of a tunnel.

    Args:
        connection: one of a pair; the other is the client's.
        upgrade: leads to the far end.
    """
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=BUFFER_BYTES)
    near, far = socket_pair()
    try:
        async with Nursery("tunnel") as nursery:
            nursery.start(upgrade(far), name="connection to the other machine")
            await TunnelEnd(near, reader, writer).run()
    except* (OSError, GrangeError):
        pass  # the other machine is gone, and the client's connection has been reset
