"""Accepting connections one by one, so that they are counted before TLS is spoken."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from grange.apiserver.connections import Connection, Connections
from grange.apiserver.protocol import Protocol
from grange.base.tasks import Child, Nursery

_BACKLOG = 1024
_AT_ONCE = 64  # accepted in one turn of the loop
_PAUSE_S = 0.1  # after the system refused a descriptor


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen, and how.

    Attributes:
        host: a name or an address; all addresses of a name are listened on.
        port: 0 takes a free one.
        ssl_context: TLS; None speaks plain.
        handshake_s: until TLS is spoken.
        goodbye_s: until a peer has answered the end of TLS.
    """

    host: str
    port: int
    ssl_context: ssl.SSLContext | None
    handshake_s: float
    goodbye_s: float


class Acceptor:
    """Listening sockets, and the handshakes of what came in; made by ``open``."""

    def __init__(
        self,
        sockets: list[socket.socket],
        address: Address,
        make: Callable[[], Protocol],
        connections: Connections,
        handshakes: Nursery,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._address = address
        self._make = make
        self._connections = connections
        self._handshakes = handshakes
        self._resumption: asyncio.TimerHandle | None = None
        self.port = int(sockets[0].getsockname()[1])
        self._resume()

    @classmethod
    async def open(
        cls,
        address: Address,
        make: Callable[[], Protocol],
        connections: Connections,
        handshakes: Nursery,
    ) -> "Acceptor":
        """Listen on all addresses of a host.

        Args:
            address: where.
            make: makes the protocol of a connection.
            connections: decides which stay.
            handshakes: owns the handshakes.

        Raises:
            OSError: the address cannot be had.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            address.host or None,
            address.port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )
        sockets: list[socket.socket] = []
        try:
            for family, _, _, _, bound in dict.fromkeys(found):
                sockets.append(_listening(family, bound))
        except BaseException:
            for each in sockets:
                each.close()
            raise
        return cls(sockets, address, make, connections, handshakes)

    def _resume(self) -> None:
        self._resumption = None
        for each in self._sockets:
            self._loop.add_reader(each, self._accept, each)

    def _pause(self) -> None:
        for each in self._sockets:
            self._loop.remove_reader(each)
        if self._resumption is None:
            self._resumption = self._loop.call_later(_PAUSE_S, self._resume)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                incoming, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor, or no memory: nothing is lost, it waits in the backlog
                self._connections.make_room()
                self._pause()
                return
            incoming.settimeout(0)
            self._begin(incoming, str(address[0]))

    def _begin(self, incoming: socket.socket, peer: str) -> None:
        protocol = self._make()
        handshake: Child[None] | None = None

        def close() -> None:
            if protocol.transport is not None:
                protocol.abort()
            elif handshake is not None:
                handshake.cancel()

        connection = Connection(peer, close)
        if not self._connections.add(connection):
            incoming.close()
            return
        protocol.attach(connection, lambda: self._connections.remove(connection))
        handshake = self._handshakes.start(
            self._handshake(protocol, incoming, connection), name="handshake"
        )

    async def _handshake(
        self, protocol: Protocol, incoming: socket.socket, connection: Connection
    ) -> None:
        address = self._address
        tls = address.ssl_context
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                incoming,
                ssl=tls,
                ssl_handshake_timeout=address.handshake_s if tls else None,
                ssl_shutdown_timeout=address.goodbye_s if tls else None,
            )
        except BaseException as error:
            self._connections.remove(connection)
            incoming.close()
            # The peer speaks no TLS, not ours, or nothing in time; nothing of it may end the server.
            if not isinstance(error, Exception):
                raise

    def stop(self) -> None:
        """Accept no more; idempotent."""
        if self._resumption is not None:
            self._resumption.cancel()
            self._resumption = None
        listening, self._sockets = self._sockets, []
        for each in listening:
            self._loop.remove_reader(each)
            each.close()


def _listening(family: int, address: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            made.bind(address)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise OSError(error.errno, f"cannot listen on {address}: {reason}") from error
        made.listen(_BACKLOG)
        made.settimeout(0)
    except BaseException:
        made.close()
        raise
    return made
