"""Connections to ports of pods, for port-forward."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from ipaddress import IPv6Address, ip_address

from grange.agent.container_runtime import ListeningSocket, RuntimeFailedError, nothing_listens
from grange.base.clock import Clock

OpenSocket = Callable[[int], Awaitable[socket.socket]]
"""Opens a TCP socket of an address family."""
_CONNECT_S = 5.0
_READ_BYTES = 32 * 1024
_BUFFER_BYTES = 64 * 1024


class SocketConnection:
    """A TCP connection as a ``PortConnection``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """The next bytes; see ``PortConnection``."""
        return await self._reader.read(_READ_BYTES)

    async def write(self, data: bytes) -> None:
        """Send; see ``PortConnection``."""
        self._writer.write(data)
        await self._writer.drain()

    def end_output(self) -> None:
        """End what is sent; see ``PortConnection``."""
        with suppress(OSError):  # broken already: the reader learns of it
            if self._writer.can_write_eof() and not self._writer.is_closing():
                self._writer.write_eof()

    async def close(self) -> None:
        """Close; see ``PortConnection``."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


async def connect(
    address: str,
    port: int,
    own: Sequence[ListeningSocket],
    clock: Clock,
    open_socket: OpenSocket | None = None,
) -> SocketConnection:
    """Connect to a port that a pod listens on.

    Only the pod's own listeners are connected to: the machine's addresses are everyone's.

    Args:
        address: of the pod.
        port: that is wanted.
        own: what the pod listens on.
        clock: bounds the connect.
        open_socket: opens a socket in the network of the pod; None where it has the machine's.

    Raises:
        RuntimeFailedError: nothing listens there, or it does not accept.
    """
    found = [item.address for item in own if item.port == port]
    if not found:
        raise RuntimeFailedError(nothing_listens(port, own))
    host = address if address in found else _reached_by(found[0], address)
    try:
        async with clock.timeout(_CONNECT_S):
            if open_socket is None or host == address:
                reader, writer = await asyncio.open_connection(host, port, limit=_BUFFER_BYTES)
            else:
                reader, writer = await _connect_inside(await open_socket(_family(host)), host, port)
    except TimeoutError as error:
        raise RuntimeFailedError(f"port {port}: {host} does not accept connections") from error
    except OSError as error:
        why = error.strerror or str(error)
        raise RuntimeFailedError(f"port {port}: cannot connect to {host}: {why}") from error
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return SocketConnection(reader, writer)


async def _connect_inside(
    end: socket.socket, host: str, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        end.setblocking(False)  # noqa: FBT003  positional only
        await asyncio.get_running_loop().sock_connect(end, (host, port))
        return await asyncio.open_connection(sock=end, limit=_BUFFER_BYTES)
    except BaseException:
        end.close()
        raise


def _family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _reached_by(listens: str, address: str) -> str:
    """Where to connect to for a program that listens on an address."""
    place = ip_address(listens)
    if isinstance(place, IPv6Address) and place.ipv4_mapped is not None:
        place = place.ipv4_mapped
    return address if place.is_unspecified else str(place)
