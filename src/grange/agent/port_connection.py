"""Connections to ports of pods, for port-forward."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv6Address, ip_address

from grange.agent.container_runtime import ListeningSocket, RuntimeFailedError, nothing_listens
from grange.base.clock import Clock

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
    address: str, port: int, own: Sequence[ListeningSocket], clock: Clock
) -> SocketConnection:
    """Connect to a port that a pod listens on.

    Only the pod's own listeners are connected to: the machine's addresses are everyone's.

    Args:
        address: of the pod.
        port: that is wanted.
        own: what the pod listens on.
        clock: bounds the connect.

    Raises:
        RuntimeFailedError: nothing listens there, or it does not accept.
    """
    found = [item.address for item in own if item.port == port]
    if not found:
        raise RuntimeFailedError(nothing_listens(port, own))
    host = address if address in found else _reached_by(found[0], address)
    try:
        async with clock.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(host, port, limit=_BUFFER_BYTES)
    except TimeoutError as error:
        raise RuntimeFailedError(f"port {port}: {host} does not accept connections") from error
    except OSError as error:
        why = error.strerror or str(error)
        raise RuntimeFailedError(f"port {port}: cannot connect to {host}: {why}") from error
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return SocketConnection(reader, writer)


def _reached_by(listens: str, address: str) -> str:
    """Where to connect to for a program that listens on an address."""
    place = ip_address(listens)
    if isinstance(place, IPv6Address) and place.ipv4_mapped is not None:
        place = place.ipv4_mapped
    return address if place.is_unspecified else str(place)
