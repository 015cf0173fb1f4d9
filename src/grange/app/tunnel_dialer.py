"""Connections of Services to pods on other machines: to their agents, or through the API server."""

from contextlib import AsyncExitStack

from grange.agent.service_proxy.routes import UDP, Endpoint
from grange.api.http import SUBPROTOCOL, WEBSOCKET, Request
from grange.api.status import ApiError, from_status
from grange.api.stream_requests import DATAGRAM_PROTOCOL, TUNNEL, TUNNEL_PROTOCOL
from grange.app.agent_endpoints import UID
from grange.app.node_connections import NodeConnections
from grange.app.node_revocations import NodeRevocations
from grange.base.bounded import BoundedDict
from grange.base.clock import Clock
from grange.base.message_socket import MessageSocket, Upgrade
from grange.client.transport import Transport

_DIRECT_S = 1.5
_AVOIDED_S = 30.0
_NODES_MAX = 4096


class TunnelDialer:
    """Dials for a service proxy.

    Args:
        connections: to agents.
        via: leads to the API server, which reaches what agents do not; None in its own process.
        revocations: the nodes that are not connected to.
        clock: time.
    """

    def __init__(
        self,
        connections: NodeConnections,
        via: Transport | None,
        revocations: NodeRevocations,
        clock: Clock,
    ) -> None:
        self._connections = connections
        self._via = via
        self._revocations = revocations
        self._clock = clock
        self._avoided: BoundedDict[str, float] = BoundedDict(_NODES_MAX)

    async def dial(self, endpoint: Endpoint, protocol: str) -> Upgrade:
        """Connect to an endpoint over TCP or UDP; what is returned must be called.

        Raises:
            ConnectionError: that fails.
        """
        node = endpoint.node
        try:
            await self._revocations.check(node)
        except ApiError as error:
            raise ConnectionError(str(error)) from error
        upgrade = await self._dial(node, _request(endpoint, protocol))

        async def serve(socket: MessageSocket) -> None:
            await self._revocations.serve(node, upgrade(socket))
            await socket.close()

        return serve

    async def _dial(self, node: str, request: Request) -> Upgrade:
        until = self._avoided.get(node)
        if self._via is None or until is None or until <= self._clock.monotonic():
            try:
                async with self._clock.timeout(_DIRECT_S):
                    return await self._direct(node, request)
            except (ApiError, TimeoutError) as error:
                if self._via is None:
                    raise ConnectionError(str(error)) from error
                self._avoided[node] = self._clock.monotonic() + _AVOIDED_S
        return await self._through(self._via, request)

    async def _direct(self, node: str, request: Request) -> Upgrade:
        async with AsyncExitStack() as opening:
            agent = await opening.enter_async_context(self._connections.open(node))
            answer = await agent.send(request)
            opened, stack = answer.upgrade, opening.pop_all()

        async def serve(socket: MessageSocket) -> None:
            async with stack:
                if opened is not None:
                    await opened(socket)
            await socket.close()

        return serve

    async def _through(self, via: Transport, request: Request) -> Upgrade:
        try:
            answer = await via.send(request)
        except ApiError as error:
            raise ConnectionError(str(error)) from error
        if answer.upgrade is None:
            raise ConnectionError(str(from_status(answer.status, answer.body)))
        return answer.upgrade


def _request(endpoint: Endpoint, protocol: str) -> Request:
    if endpoint.pod is None:
        raise ConnectionError(f"{endpoint.address} is of no pod")
    namespace, name, uid = endpoint.pod
    spoken = DATAGRAM_PROTOCOL if protocol == UDP else TUNNEL_PROTOCOL
    return Request(
        "GET",
        f"/api/v1/namespaces/{namespace}/pods/{name}/{TUNNEL}",
        {"port": str(endpoint.port), UID: uid},
        {"connection": "upgrade", "upgrade": WEBSOCKET, SUBPROTOCOL: spoken},
    )
