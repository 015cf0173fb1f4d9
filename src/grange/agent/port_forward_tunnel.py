"""Serves ``portforward`` in a tunnel: SPDY inside of a WebSocket, as kubectl does it."""

from collections.abc import Awaitable, Callable

from grange.agent.container_runtime import RuntimeFailedError
from grange.agent.container_streams import PortConnection
from grange.agent.port_relay import relay_port
from grange.api import port_forward
from grange.api.port_forward import DATA, ERROR
from grange.base.message_socket import MessageSocket
from grange.base.spdy_connection import SpdyConnection, SpdyStream
from grange.base.tasks import Nursery

Connect = Callable[[int], Awaitable[PortConnection]]


class PortForwardTunnel:
    """The connections of one client.

    Args:
        socket: to the client; closed by its owner.
        connect: connects to a port of the pod; raises ``RuntimeFailedError``.
    """

    def __init__(self, socket: MessageSocket, connect: Connect) -> None:
        self._spdy = SpdyConnection(socket, is_server=True)
        self._connect = connect
        self._waiting: dict[tuple[str, str], SpdyStream] = {}

    async def run(self) -> None:
        """Serve until the client goes away.

        Raises:
            ConnectionError: the client is gone.
        """
        async with Nursery("tunnel") as nursery:
            await self._spdy.run(lambda stream: self._accept(stream, nursery))
            nursery.cancel()

    def _accept(self, stream: SpdyStream, nursery: Nursery) -> None:
        found = port_forward.read_headers(stream.headers)
        if found is None:
            nursery.start(stream.close(), name="refused")
            return
        kind, port, request = found
        other = self._waiting.pop((ERROR if kind == DATA else DATA, request), None)
        if other is None:
            former = self._waiting.pop((kind, request), None)
            if former is not None:
                nursery.start(former.close(), name="replaced")
            self._waiting[kind, request] = stream
            return
        data, errors = (stream, other) if kind == DATA else (other, stream)
        nursery.start(self._forward(port, data, errors), name=f"port {port}")

    async def _forward(self, port: int, data: SpdyStream, errors: SpdyStream) -> None:
        """Serve one connection; a client that resets it ends it and no other."""
        try:
            try:
                connection = await self._connect(port)
            except RuntimeFailedError as error:
                await errors.write(str(error).encode())
            else:
                try:
                    await relay_port(connection, data, data.write)
                finally:
                    await connection.close()
            await data.end_output()
            await errors.end_output()
            await data.close()
        except* ConnectionResetError:
            pass  # it was reset, or the client is gone
