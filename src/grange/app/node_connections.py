"""Connections to the agents of other machines, from the API server or from other agents."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime

from grange.api import timestamps
from grange.api.http import Request, Response
from grange.api.kinds import NODE
from grange.api.kinds.node import Node, address_of
from grange.api.node_identity import serving_name
from grange.api.status import ApiError, BadRequest, NotFound, ServiceUnavailable, from_status
from grange.base.clock import Clock
from grange.client.client import Client
from grange.client.errors import Unreachable
from grange.client.transport import Transport
from grange.client.transports.http_transport import HTTP

ANSWER_MAX_BYTES = 8 * 1024 * 1024
"""Of an answer that is not a stream: an agent is another machine, and may be a hostile one."""

_ANSWER_S = 20.0
_YOUNG_S = 30.0
_NEW_S = 5.0
_RETRY_S = 0.1


class NoSuchNode(ServiceUnavailable):
    """The node of a pod does not exist, for the moment or any more."""


class NodeConnections:
    """Connects to agents as their Nodes publish them.

    Args:
        client: gives the client that reads Nodes.
        context: gives the TLS of the caller, who is the API server or a node.
        clock: time.
    """

    def __init__(
        self, client: Callable[[], Client], context: Callable[[], ssl.SSLContext], clock: Clock
    ) -> None:
        self._client = client
        self._context = context
        self._clock = clock

    @asynccontextmanager
    async def open(self, node: str) -> AsyncIterator["AgentConnection"]:
        """Connect to the agent of a node; its certificate must be that of the node.

        Raises:
            NoSuchNode: there is none of that name.
            ServiceUnavailable: its agent serves nothing.
        """
        try:
            found = await self._client().get(NODE, node)
        except NotFound as error:
            raise NoSuchNode(f"there is no node {node} to ask") from error
        host, port = _address(found)
        base = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        transport = HTTP(
            base,
            ssl_context=self._context(),
            server_name=serving_name(node),
            request_s=_ANSWER_S,
            answer_max_bytes=ANSWER_MAX_BYTES,
            clock=self._clock,
        )
        try:
            patience_s = _NEW_S if _is_new(found, self._clock.now()) else 0.0
            yield AgentConnection(node, transport, self._clock, patience_s)
        finally:
            await transport.close()


class AgentConnection:
    """A transport to one agent.

    Args:
        node: its node.
        transport: leads there.
        clock: time.
        patience_s: for so long an agent that cannot be reached is tried again: it gets its serving
            certificate while it registers.
    """

    def __init__(self, node: str, transport: Transport, clock: Clock, patience_s: float) -> None:
        self._node = node
        self._transport = transport
        self._clock = clock
        self._until = clock.monotonic() + patience_s

    async def send(self, request: Request) -> Response:
        """The agent's answer, with status 101 if an upgrade was asked for and 200 if not.

        Raises:
            BadRequest, NotFound: what is asked for is not there.
            ServiceUnavailable: the agent cannot be reached, or fails.
        """
        while True:
            try:
                answer = await self._transport.send(request)
            except ApiError as error:
                if not isinstance(error, Unreachable) or self._clock.monotonic() >= self._until:
                    raise ServiceUnavailable(f"the agent of node {self._node}: {error}") from error
                await self._clock.sleep(_RETRY_S)
                continue
            wanted = 101 if request.wants_websocket else 200
            if answer.status == wanted:
                return answer
            found = from_status(answer.status, answer.body)
            if isinstance(found, BadRequest | NotFound):
                raise found
            raise ServiceUnavailable(f"the agent of node {self._node} refuses: {found}")


def _address(node: Node) -> tuple[str, int]:
    host, port = address_of(node), node.status.daemon_endpoints.kubelet_endpoint.port
    if not host or not 0 < port < 65536:
        raise ServiceUnavailable(
            f"the agent of node {node.metadata.name} serves no port: is it there, and as new as "
            "the control plane?"
        )
    return host, port


def _is_new(node: Node, now: datetime) -> bool:
    """Whether the node became Ready within a moment."""
    for item in node.status.conditions:
        if item.type == "Ready" and item.last_transition_time:
            with suppress(timestamps.TimestampError):
                since = timestamps.parse(item.last_transition_time)
                return (now - since).total_seconds() < _YOUNG_S
    return False
