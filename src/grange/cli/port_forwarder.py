"""Local connections to ports of a pod, through one tunnel."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from grange.api.port_forward import DATA, ERROR, stream_headers
from grange.base.spdy_connection import SpdyConnection, SpdyStream
from grange.base.tasks import Nursery

_READ_BYTES = 32 * 1024


class PortForwarder:
    """Listens, and carries every connection to the pod.

    Args:
        tunnel: to the pod.
        nursery: for the connections.
        report: takes why a connection could not be carried.
    """

    def __init__(
        self, tunnel: SpdyConnection, nursery: Nursery, report: Callable[[str], None]
    ) -> None:
        self._tunnel = tunnel
        self._nursery = nursery
        self._report = report
        self._count = 0
        self._servers: list[asyncio.Server] = []

    async def listen(self, address: str, local: int, remote: int) -> int:
        """Forward a local port to one of the pod.

        Args:
            address: to listen on.
            local: port; zero for a free one.
            remote: port of the pod.

        Returns:
            The local port.

        Raises:
            OSError: it cannot be listened on.
        """

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._nursery.start(self._serve(reader, writer, remote), name=f"port {remote}")

        server = await asyncio.start_server(accept, address, local)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Listen no more."""
        for server in self._servers:
            server.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, remote: int
    ) -> None:
        self._count += 1
        number = self._count
        try:
            errors = await self._tunnel.open(stream_headers(ERROR, remote, number))
            await errors.end_output()
            data = await self._tunnel.open(stream_headers(DATA, remote, number))
            try:
                await _carry(reader, writer, data)
                if why := await errors.read():
                    self._report(why.decode(errors="replace"))
            finally:
                await data.close()
        except* ConnectionError:
            pass  # of this connection, or of the tunnel, whose reader learns of it
        finally:
            writer.close()


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: SpdyStream
) -> None:
    async with Nursery("connection") as nursery:
        nursery.start(_upload(reader, data), name="upload")
        while piece := await data.read():
            writer.write(piece)
            await writer.drain()
        nursery.cancel()


async def _upload(reader: asyncio.StreamReader, data: SpdyStream) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(_READ_BYTES):
            await data.write(piece)
        await data.end_output()
