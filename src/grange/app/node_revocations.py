"""Which nodes are revoked, as a watch has it: their certificates open no connections between machines."""

import asyncio
from collections.abc import Coroutine, Mapping

from grange.api import revoked_nodes
from grange.api.kinds import CONFIGMAP
from grange.api.kinds.configmap import ConfigMap
from grange.api.meta import ObjectKey
from grange.api.status import Forbidden, ServiceUnavailable
from grange.base.clock import Clock
from grange.base.tasks import Nursery
from grange.reconcile.informer import Informer, InformerFactory

_KEY = ObjectKey(revoked_nodes.NAMESPACE, revoked_nodes.NAME)
_KNOWN_S = 1.5


class NodeRevocations:
    """The list of revoked nodes.

    Until it has been read, no node is let in: an agent that starts does not know who is locked out. It stays as it was
    read last while the API cannot be asked.

    Args:
        clock: time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._informer: Informer[ConfigMap] | None = None
        self._changed = asyncio.Event()

    def follow(self, informers: InformerFactory) -> None:
        """Watch the list."""
        self._informer = informers.informer(
            CONFIGMAP, namespace=_KEY.namespace, fields=f"metadata.name={_KEY.name}"
        )
        self._informer.add_handler(self._touch, self._touch, self._touch)
        self._touch()

    def refusal(self, node: str) -> str:
        """Why a node may do nothing; empty if it is not known to be revoked."""
        listed = None if self._informer is None else self._informer.store.get(_KEY)
        data: Mapping[str, str] = {} if listed is None else listed.data
        return revoked_nodes.refusal(data, node)

    async def check(self, node: str) -> None:
        """Return if the node is not revoked.

        Raises:
            Forbidden: it is.
            ServiceUnavailable: the list has not been read yet.
        """
        try:
            async with self._clock.timeout(_KNOWN_S):
                while self._informer is None:
                    await self._changed.wait()
                await self._informer.synced.wait()
        except TimeoutError as error:
            raise ServiceUnavailable("the list of revoked nodes has not been read yet") from error
        if why := self.refusal(node):
            raise Forbidden(why)

    async def serve(self, node: str, connection: Coroutine[object, object, None]) -> None:
        """Serve a connection with a node to its end; it is cancelled when the node is revoked."""
        async with Nursery(f"connection with {node}") as nursery:
            nursery.start(self._cut(node, nursery), name="revocation")
            await connection
            nursery.cancel()

    async def _cut(self, node: str, connections: Nursery) -> None:
        while not self.refusal(node):
            await self._changed.wait()
        connections.cancel()

    def _touch(self, *_: object) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
