"""Connections from the API server to the agents of other machines."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from grange.api.kinds import NODE
from grange.api.kinds.node import address_of
from grange.api.node_identity import serving_name
from grange.api.status import NotFound, ServiceUnavailable
from grange.app.pki import Keys
from grange.base.clock import Clock
from grange.client.client import Client
from grange.client.transports.http_transport import HTTP

ANSWER_MAX_BYTES = 8 * 1024 * 1024
"""Of an answer that is not a stream: an agent is another machine, and may be a hostile one."""

_ANSWER_S = 20.0


class NodeConnections:
    """Connects to agents as their Nodes publish them.

    Args:
        client: gives the client that reads Nodes.
        keys: the certificate of the API server, and the authority of the nodes.
        clock: time.
    """

    def __init__(self, client: Callable[[], Client], keys: Keys, clock: Clock) -> None:
        self._client = client
        self._keys = keys
        self._clock = clock

    @asynccontextmanager
    async def open(self, node: str) -> AsyncIterator[HTTP]:
        """A transport to the agent of a node; its certificate must be that of the node.

        Raises:
            ServiceUnavailable: there is no such node, or its agent serves nothing.
        """
        host, port = await self._address(node)
        base = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        transport = HTTP(
            base,
            ssl_context=self._keys.client_context(),
            server_name=serving_name(node),
            request_s=_ANSWER_S,
            answer_max_bytes=ANSWER_MAX_BYTES,
            clock=self._clock,
        )
        try:
            yield transport
        finally:
            await transport.close()

    async def _address(self, node: str) -> tuple[str, int]:
        try:
            found = await self._client().get(NODE, node)
        except NotFound as error:
            raise ServiceUnavailable(f"there is no node {node} to ask") from error
        host, port = address_of(found), found.status.daemon_endpoints.kubelet_endpoint.port
        if not host or not 0 < port < 65536:
            raise ServiceUnavailable(
                f"the agent of node {node} serves no port: is it there, and as new as the control "
                "plane?"
            )
        return host, port
