"""Connections to nodes that are revoked."""

import asyncio
import ssl

import pytest
from tests.unit.app.revocation_lists import RevocationList, followed

from grange.agent.service_proxy.routes import TCP, Endpoint, PodIdentity
from grange.api.http import Request, Response
from grange.api.status import Forbidden, ServiceUnavailable
from grange.app.node_connections import NodeConnections
from grange.app.node_revocations import NodeRevocations
from grange.app.tunnel_dialer import TunnelDialer
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.message_socket import MessageSocket, socket_pair
from grange.base.rng import Stream
from grange.base.tasks import Nursery

ENDPOINT = Endpoint("10.0.0.1", 8080, "far", PodIdentity("default", "web", "u1"))


class Server:
    """An API server that reaches every node, in place of a transport."""

    def __init__(self) -> None:
        self.asked = 0
        self.open = 0

    async def send(self, request: Request) -> Response:
        self.asked += 1
        return Response(101, upgrade=self._serve)

    async def close(self) -> None:
        """There is nothing to close."""

    async def _serve(self, socket: MessageSocket) -> None:
        self.open += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.open -= 1


def dialer(listed: RevocationList, server: Server, clock: Clock) -> TunnelDialer:
    connections = NodeConnections(lambda: listed.client, ssl.create_default_context, clock)
    return TunnelDialer(connections, server, listed.revocations, clock)


async def test_revoked_node_is_not_connected_to(clock: Clock, rng: Stream, log: Logger) -> None:
    async with followed(clock, rng, log) as listed:
        await listed.revoke("far")
        await clock.sleep(1)
        server = Server()
        with pytest.raises(ConnectionError, match=r"node far is revoked \(stolen\)"):
            await dialer(listed, server, clock).dial(ENDPOINT, TCP)
        assert server.asked == 0
        await listed.let_in("far")
        await clock.sleep(1)
        await dialer(listed, server, clock).dial(ENDPOINT, TCP)
        assert server.asked == 1


async def test_connections_to_a_node_end_when_it_is_revoked(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with followed(clock, rng, log) as listed, Nursery("tunnel") as nursery:
        server = Server()
        upgrade = await dialer(listed, server, clock).dial(ENDPOINT, TCP)
        here, there = socket_pair()
        nursery.start(upgrade(there), name="tunnel")
        await clock.sleep(60)
        assert server.open == 1
        await listed.revoke("another")
        await clock.sleep(60)
        assert server.open == 1
        await listed.revise({"far": "lost"})
        async with clock.timeout(2):
            assert await here.receive() is None  # closed
        assert server.open == 0


async def test_no_node_is_let_in_before_the_list_is_read(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    with pytest.raises(ServiceUnavailable, match="has not been read"):
        await NodeRevocations(clock).check("far")
    async with followed(clock, rng, log) as listed:
        await listed.revocations.check("far")
        await listed.revoke("far")
        await clock.sleep(1)
        with pytest.raises(Forbidden):
            await listed.revocations.check("far")
