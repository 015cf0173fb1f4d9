"""Connections to pods through the API server, for verbs."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

from grange.api.http import SUBPROTOCOL, WEBSOCKET, Request
from grange.api.kinds import POD
from grange.api.meta import Document
from grange.api.status import InternalError
from grange.base.message_socket import MessageSocket, socket_pair
from grange.base.tasks import Nursery
from grange.cli.session import ApiSession


@asynccontextmanager
async def pod_connection(
    opened: ApiSession,
    pod: Document,
    operation: str,
    protocols: Sequence[str],
    query: Mapping[str, Sequence[str]],
) -> AsyncGenerator[tuple[MessageSocket, str], None]:
    """A connection and its subprotocol, closed at the end of the block.

    Args:
        opened: the session.
        pod: that it leads to.
        operation: a subresource of pods, e.g. ``exec``.
        protocols: that can be spoken, best first.
        query: values of each parameter.

    Raises:
        ApiError: the server refuses it.
    """
    metadata = pod["metadata"]
    headers = {"upgrade": WEBSOCKET, "connection": "Upgrade", SUBPROTOCOL: ", ".join(protocols)}
    request = Request(
        "GET",
        POD.path(metadata["namespace"], metadata["name"], operation),
        {name: values[-1] for name, values in query.items() if values},
        headers,
        repeated={name: values for name, values in query.items() if len(values) > 1},
    )
    response = await opened.fetch(request)
    protocol = response.headers.get(SUBPROTOCOL, "")
    if response.upgrade is None or protocol not in protocols:
        raise InternalError(
            f"pod {metadata['name']}: the server answered {operation} without a WebSocket that "
            f"speaks {' or '.join(protocols)}; it may be too old"
        )
    ours, theirs = socket_pair()
    async with Nursery("connection") as nursery:
        nursery.start(response.upgrade(theirs), name="transport")
        try:
            yield ours, protocol
        finally:
            await ours.close()
