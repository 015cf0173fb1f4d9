"""Connections into pods on all nodes: of this machine in the process, of others through their agents."""

from collections.abc import Callable, Collection

import msgspec

from grange.api.http import SUBPROTOCOL, WEBSOCKET, Response
from grange.api.meta import Document
from grange.api.status import ServiceUnavailable
from grange.api.stream_requests import StreamRequest
from grange.apiserver.pod_streams import PodStreams
from grange.app.agent_endpoints import STREAM, pod_request
from grange.app.node_connections import NodeConnections
from grange.base.message_socket import MessageSocket


class NodeStreams:
    """Opens connections into pods for the API server.

    Args:
        local: into the pods of this machine; None where it runs no agent.
        local_nodes: gives the names of the nodes of this machine.
        connections: to the agents of other machines.
    """

    def __init__(
        self,
        local: PodStreams | None,
        local_nodes: Callable[[], Collection[str]],
        connections: NodeConnections,
    ) -> None:
        self._local = local
        self._local_nodes = local_nodes
        self._connections = connections

    async def open(self, pod: Document, request: StreamRequest) -> Response:
        """Open a connection; the agent checks it first, and is connected to when it is served.

        Raises:
            ApiError: it cannot be opened.
        """
        node = str(pod["spec"]["nodeName"])
        if self._local is not None and node in self._local_nodes():
            return await self._local.open(pod, request)
        query = {STREAM: msgspec.json.encode(request).decode()}
        async with self._connections.open(node) as agent:
            answer = await agent.send(pod_request(pod, request.operation, query))
        protocol = answer.headers.get(SUBPROTOCOL, "")
        if protocol not in request.protocols:
            raise ServiceUnavailable(f"the agent of node {node} chose no protocol of the client's")
        upgrade = {"connection": "upgrade", "upgrade": WEBSOCKET, SUBPROTOCOL: protocol}

        async def serve(socket: MessageSocket) -> None:
            try:
                async with self._connections.open(node) as agent:
                    opened = await agent.send(pod_request(pod, request.operation, query, upgrade))
                    if opened.upgrade is not None:
                        await opened.upgrade(socket)
            finally:
                await socket.close()

        return Response(101, headers={SUBPROTOCOL: protocol}, upgrade=serve)
