"""Connections of Services from other machines to pods of this one."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from grange.agent.container_runtime import PodRuntime
from grange.agent.service_proxy.datagram_tunnel import exit_datagrams
from grange.agent.service_proxy.routes import TCP, UDP
from grange.agent.service_proxy.tunnel import BUFFER_BYTES, TunnelEnd
from grange.api.http import SUBPROTOCOL, Response
from grange.api.meta import Document
from grange.api.status import BadRequest, Forbidden, NotFound
from grange.api.stream_requests import DATAGRAM_PROTOCOL, TUNNEL, TUNNEL_PROTOCOL, StreamRequest
from grange.base.clock import Clock
from grange.base.message_socket import MessageSocket

_CONNECT_S = 3.0
_PROTOCOLS = {TUNNEL_PROTOCOL: TCP, DATAGRAM_PROTOCOL: UDP}


class StreamOpener(Protocol):
    """Opens connections into pods."""

    async def open(self, pod: Document, request: StreamRequest) -> Response:
        """Open a connection; see the API server's seam."""


class PodTunnels:
    """Opens tunnels to the ports that Services lead to, and leaves other connections to another.

    Args:
        streams: opens those.
        runtime: where the pods run.
        clock: time.

    Attributes:
        exposes: whether a Service leads to the pod of a UID, a port and a protocol; set when that is
            known.
    """

    def __init__(self, streams: StreamOpener, runtime: PodRuntime, clock: Clock) -> None:
        self._streams = streams
        self._runtime = runtime
        self._clock = clock
        self.exposes: Callable[[str, int, str], bool] = lambda uid, port, protocol: False

    async def open(self, pod: Document, request: StreamRequest) -> Response:
        """Open a connection.

        Raises:
            Forbidden: no Service leads to the port.
            ApiError: it cannot be opened.
        """
        if request.operation != TUNNEL:
            return await self._streams.open(pod, request)
        name, uid = str(pod["metadata"]["name"]), str(pod["metadata"]["uid"])
        spoken = next((item for item in request.protocols if item in _PROTOCOLS), "")
        if not spoken or len(request.ports) != 1:
            known = " or ".join(_PROTOCOLS)
            raise BadRequest(f"{TUNNEL} needs a WebSocket with the protocol {known}")
        port, protocol = request.ports[0], _PROTOCOLS[spoken]
        if not self.exposes(uid, port, protocol):
            raise Forbidden(f"no Service leads to port {port}/{protocol} of pod {name}")
        found = self._runtime.pods(uid)
        if not found:
            raise NotFound(f'pod "{name}" does not run on this node', name=name, kind="pods")
        address = found[0].sandbox.address

        async def serve(socket: MessageSocket) -> None:
            if protocol == UDP:
                await self._serve_datagrams(socket, address, port)
            else:
                await self._serve(socket, address, port)

        return Response(101, headers={SUBPROTOCOL: spoken}, upgrade=serve)

    async def _serve_datagrams(self, socket: MessageSocket, address: str, port: int) -> None:
        try:
            await exit_datagrams(socket, address, port, self._clock)
        finally:
            await socket.close()

    async def _serve(self, socket: MessageSocket, address: str, port: int) -> None:
        try:
            with suppress(OSError, TimeoutError):
                async with self._clock.timeout(_CONNECT_S):
                    reader, writer = await asyncio.open_connection(
                        address, port, limit=BUFFER_BYTES
                    )
                await TunnelEnd(socket, reader, writer).run()
        finally:
            await socket.close()
