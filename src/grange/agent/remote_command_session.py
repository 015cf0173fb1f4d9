"""Serves ``exec`` and ``attach``: messages of a WebSocket to the streams of a program and back."""

from grange.agent.container_streams import STDERR, ContainerStream, StreamEnd, StreamOptions
from grange.api import remote_command
from grange.api.remote_command import CLOSE, RESIZE, STDIN, V5
from grange.api.status import InternalError
from grange.base.message_socket import MessageSocket
from grange.base.tasks import Nursery


class RemoteCommandSession:
    """One client at the streams of a program.

    Args:
        socket: to the client.
        stream: of the program; closed by its owner.
        options: what the client asked for.
        protocol: the subprotocol.
    """

    def __init__(
        self,
        socket: MessageSocket,
        stream: ContainerStream,
        options: StreamOptions,
        protocol: str,
    ) -> None:
        self._socket = socket
        self._stream = stream
        self._options = options
        self._protocol = protocol

    async def run(self) -> None:
        """Serve until the program ends or the client goes away.

        Raises:
            ConnectionError: the client went away.
        """
        if not self._options.stdin:
            self._stream.end_input()
        async with Nursery("stream") as nursery:
            nursery.start(self._take_input(nursery), name="input")
            await self._send_output()
            await self._socket.send(self._last(await self._stream.wait()))
            nursery.cancel()

    async def _send_output(self) -> None:
        while (output := await self._stream.read()) is not None:
            await self._socket.send(remote_command.message(output.stream, output.data))
        end = await self._stream.wait()
        if end.exit_code is not None and end.message and self._options.stderr:
            await self._socket.send(remote_command.message(STDERR, f"{end.message}\n".encode()))

    def _last(self, end: StreamEnd) -> bytes:
        if end.exit_code is None and end.message:
            return remote_command.failed(InternalError(end.message))
        if end.exit_code:
            return remote_command.exited(end.exit_code)
        return remote_command.succeeded()

    async def _take_input(self, nursery: Nursery) -> None:
        while (received := await self._socket.receive()) is not None:
            if not received:
                continue
            channel, data = received[0], received[1:]
            if channel == STDIN and self._options.stdin:
                await self._stream.write(data)
            elif channel == RESIZE:
                size = remote_command.read_size(data)
                if size is not None:
                    self._stream.resize(*size)
            elif channel == CLOSE and self._protocol == V5 and data == bytes((STDIN,)):
                self._stream.end_input()
        nursery.cancel()  # the client is gone
