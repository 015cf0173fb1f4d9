"""Serves ``portforward`` in channels: one connection for each port of the request."""

from collections.abc import Awaitable, Callable, Sequence

from grange.agent.container_runtime import RuntimeFailedError
from grange.agent.container_streams import PortConnection
from grange.agent.port_relay import relay_port
from grange.api import port_forward
from grange.base.message_socket import MessageSocket, socket_pair
from grange.base.tasks import Nursery


class PortForwardChannels:
    """The connections of one client.

    Args:
        socket: to the client; closed by its owner.
        connect: connects to a port of the pod; raises ``RuntimeFailedError``.
        ports: that are wanted.
    """

    def __init__(
        self,
        socket: MessageSocket,
        connect: Callable[[int], Awaitable[PortConnection]],
        ports: Sequence[int],
    ) -> None:
        self._socket = socket
        self._connect = connect
        self._ports = ports
        self._pairs = [socket_pair() for _ in ports]

    async def run(self) -> None:
        """Serve until all connections have ended or the client goes away.

        Raises:
            ConnectionError: the client is gone.
        """
        for greeting in port_forward.greetings(self._ports):
            await self._socket.send(greeting)
        async with Nursery("channels") as outer:
            outer.start(self._take_input(outer), name="input")
            async with Nursery("ports") as nursery:
                for at, port in enumerate(self._ports):
                    nursery.start(self._forward(at, port), name=f"port {port}")
            outer.cancel()

    async def _take_input(self, nursery: Nursery) -> None:
        while (message := await self._socket.receive()) is not None:
            at, is_error = divmod(message[0], 2) if message else (0, 1)
            if is_error or at >= len(self._ports) or len(message) < 2:
                continue
            try:
                await self._pairs[at][0].send(message[1:])
            except ConnectionError:
                continue  # this connection has ended
        nursery.cancel()

    async def _forward(self, at: int, port: int) -> None:
        ours, theirs = self._pairs[at]

        async def send(data: bytes) -> None:
            await self._socket.send(bytes((2 * at,)) + data)

        try:
            connection = await self._connect(port)
        except RuntimeFailedError as error:
            await self._socket.send(bytes((2 * at + 1,)) + str(error).encode())
        else:
            try:
                await relay_port(connection, _PairInput(theirs), send)
            finally:
                await connection.close()
        finally:
            await ours.close()
            await theirs.close()


class _PairInput:
    """Messages as ``ClientInput``."""

    def __init__(self, socket: MessageSocket) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        """The next message; they are never empty."""
        return await self._socket.receive() or b""
