"""Connections to one address of a Service."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator

from grange.agent.service_proxy import tunnel
from grange.agent.service_proxy.balancer import Balancer
from grange.agent.service_proxy.relay import RelaySide
from grange.agent.service_proxy.routes import TCP, Endpoint, Frontend, Route
from grange.agent.service_proxy.tunnel import Dial
from grange.base.clock import Clock

_CONNECT_S = 3.0
_BACKLOG = 512


class TcpListener:
    """Serves one address; connections outlive the listening.

    Args:
        route: where it leads.
        start: runs what connects a client.
        clock: time.
        dial: connects to endpoints on other machines; None where there are none.
    """

    def __init__(
        self,
        route: Route,
        start: Callable[[Coroutine[object, object, None]], object],
        clock: Clock,
        dial: Dial | None = None,
    ) -> None:
        self._balancer = Balancer(route)
        self._start = start
        self._clock = clock
        self._dial = dial
        self._server: asyncio.Server | None = None
        self._clients: dict[RelaySide, Endpoint | None] = {}  # None: not connected yet

    async def open(self, frontend: Frontend) -> None:
        """Listen, unless it does.

        Raises:
            OSError: it cannot be listened on.
        """
        if self._server is None:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: RelaySide(self._accept, self._lose),
                frontend.host,
                frontend.port,
                backlog=_BACKLOG,
            )

    def lead_to(self, route: Route) -> None:
        """Follow a change."""
        self._balancer.route = route

    def shut(self) -> None:
        """Stop listening; connections go on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def endpoints(self) -> Iterator[Endpoint]:
        """Those of all connections."""
        return (endpoint for endpoint in self._clients.values() if endpoint is not None)

    def abort(self, endpoint: Endpoint | None = None) -> None:
        """Reset the connections to an endpoint, or all."""
        for client, found in list(self._clients.items()):
            if endpoint is None or found == endpoint:
                client.abort_both()

    def _accept(self, client: RelaySide) -> None:
        self._clients[client] = None
        self._start(self._connect(client))

    def _lose(self, client: RelaySide) -> None:
        self._clients.pop(client, None)

    async def _connect(self, client: RelaySide) -> None:
        """Connect a client to the first endpoint that accepts it, or reset it."""
        peer = client.transport.get_extra_info("peername") if client.transport else None
        tried: frozenset[Endpoint] = frozenset()
        while client.is_connected():
            endpoint = self._balancer.choose(
                peer[0] if peer else "", self._clock.monotonic(), tried
            )
            if endpoint is None:
                break
            tried |= {endpoint}
            try:
                async with self._clock.timeout(_CONNECT_S):
                    server = await self._open(endpoint)
            except (OSError, TimeoutError):
                continue
            if not client.is_connected():  # it went away meanwhile
                server.abort()
                return
            self._clients[client] = endpoint
            server.join(client)
            return
        client.abort()

    async def _open(self, endpoint: Endpoint) -> RelaySide:
        """Connect to an endpoint.

        Raises:
            OSError: it does not accept, or cannot be reached.
        """
        loop = asyncio.get_running_loop()
        if not endpoint.node:
            _, server = await loop.create_connection(_server_side, endpoint.address, endpoint.port)
            return server
        if self._dial is None:
            raise ConnectionRefusedError(f"nothing leads to node {endpoint.node}")
        upgrade = await self._dial(endpoint, TCP)
        ours, theirs = socket.socketpair()
        self._start(tunnel.enter(theirs, upgrade))
        _, server = await loop.create_unix_connection(_server_side, sock=ours)
        return server


def _server_side() -> RelaySide:
    return RelaySide(lambda _: None, lambda _: None)
