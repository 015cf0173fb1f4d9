"""Answers ``exec``, ``attach`` and ``portforward`` from a runtime."""

from collections.abc import Awaitable, Callable

from grange.agent.container_logs import waiting_reason
from grange.agent.container_runtime import ContainerID, PodRuntime, RuntimeFailedError
from grange.agent.container_streams import ContainerStream, PortConnection, StreamOptions
from grange.agent.port_forward_channels import PortForwardChannels
from grange.agent.port_forward_tunnel import PortForwardTunnel
from grange.agent.remote_command_session import RemoteCommandSession
from grange.api import port_forward, remote_command
from grange.api.http import SUBPROTOCOL, Response
from grange.api.meta import Document
from grange.api.status import BadRequest, InternalError
from grange.api.stream_requests import EXEC, PORT_FORWARD, StreamRequest
from grange.base.message_socket import MessageSocket


class AgentStreams:
    """Opens connections into the pods of a runtime; has the shape of the API server's seam.

    Args:
        runtime: where the pods run.
    """

    def __init__(self, runtime: PodRuntime) -> None:
        self._runtime = runtime

    async def open(self, pod: Document, request: StreamRequest) -> Response:
        """Open a connection.

        Raises:
            BadRequest: the container does not run, or the client speaks no protocol of these.
        """
        if request.operation == PORT_FORWARD:
            return self._forward(pod, request)
        target = self._running(pod, request.container)
        protocol = _protocol(request, remote_command.PROTOCOLS)
        options = StreamOptions(request.stdin, request.stdout, request.stderr, request.tty)

        def start() -> Awaitable[ContainerStream]:
            if request.operation == EXEC:
                return self._runtime.exec(target, request.command, options)
            return self._runtime.attach(target, options)

        async def serve(socket: MessageSocket) -> None:
            await _serve_command(socket, start, options, protocol)

        return Response(101, headers={SUBPROTOCOL: protocol}, upgrade=serve)

    def _forward(self, pod: Document, request: StreamRequest) -> Response:
        name, uid = str(pod["metadata"]["name"]), str(pod["metadata"]["uid"])
        if not any(run.running for record in self._runtime.pods(uid) for run in record.runs):
            phase = (pod.get("status") or {}).get("phase") or "Pending"
            text = f'nothing runs in pod "{name}": its phase is {phase}'
            raise BadRequest(text, kind="pods", name=name)
        protocol = _protocol(request, port_forward.FORWARD_PROTOCOLS)
        if protocol != port_forward.TUNNEL and not request.ports:
            raise BadRequest(f"ports: the protocol {protocol} needs at least one port")

        def connect(port: int) -> Awaitable[PortConnection]:
            return self._runtime.connect(uid, port)

        async def serve(socket: MessageSocket) -> None:
            try:
                if protocol == port_forward.TUNNEL:
                    await PortForwardTunnel(socket, connect).run()
                else:
                    await PortForwardChannels(socket, connect, request.ports).run()
            finally:
                await socket.close()

        return Response(101, headers={SUBPROTOCOL: protocol}, upgrade=serve)

    def _running(self, pod: Document, container: str) -> ContainerID:
        """The running attempt of a container."""
        name, uid = str(pod["metadata"]["name"]), str(pod["metadata"]["uid"])
        runs = [
            run
            for record in self._runtime.pods(uid)
            for run in record.runs
            if run.id.container == container
        ]
        newest = max(runs, key=lambda run: run.id, default=None)
        if newest is not None and newest.running:
            return newest.id
        if newest is None:
            why = f"it is waiting to start: {waiting_reason(pod, container)}"
        else:
            why = f"it ended with exit code {newest.exit_code}"
        text = f'container "{container}" in pod "{name}" is not running: {why}'
        raise BadRequest(text, kind="pods", name=name)


def _protocol(request: StreamRequest, known: tuple[str, ...]) -> str:
    """The best subprotocol that both sides speak.

    Raises:
        BadRequest: there is none.
    """
    for protocol in known:
        if protocol in request.protocols:
            return protocol
    offered = f", not {', '.join(request.protocols)}" if request.protocols else ""
    raise BadRequest(
        f"{request.operation} needs a WebSocket with a protocol of {', '.join(known)}{offered}; "
        "use a newer client, e.g. kubectl 1.31"
    )


async def _serve_command(
    socket: MessageSocket,
    start: Callable[[], Awaitable[ContainerStream]],
    options: StreamOptions,
    protocol: str,
) -> None:
    try:
        stream = await start()
    except RuntimeFailedError as error:
        await socket.send(remote_command.failed(InternalError(str(error))))
        await socket.close()
        return
    try:
        await RemoteCommandSession(socket, stream, options, protocol).run()
    finally:
        await stream.close()
        await socket.close()
