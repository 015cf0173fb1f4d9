"""Connections to one address of a Service."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator

from grange.agent.service_proxy.balancer import Balancer
from grange.agent.service_proxy.relay import RelaySide
from grange.agent.service_proxy.routes import Endpoint, Frontend, Route
from grange.base.clock import Clock

_CONNECT_S = 3.0
_BACKLOG = 512


class TcpListener:
    """Serves one address; connections outlive the listening.

    Args:
        route: where it leads.
        start: runs what connects a client.
        clock: time.
    """

    def __init__(
        self, route: Route, start: Callable[[Coroutine[object, object, None]], object], clock: Clock
    ) -> None:
        self._balancer = Balancer(route)
        self._start = start
        self._clock = clock
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
        loop = asyncio.get_running_loop()
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
                    _, server = await loop.create_connection(
                        lambda: RelaySide(lambda _: None, lambda _: None), *endpoint
                    )
            except (OSError, TimeoutError):
                continue
            if not client.is_connected():  # it went away meanwhile
                server.abort()
                return
            self._clients[client] = endpoint
            server.join(client)
            return
        client.abort()
