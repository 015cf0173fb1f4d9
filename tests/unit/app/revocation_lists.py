"""The list of revoked nodes on an API server in memory, and what follows it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from grange.api.http import ADMIN
from grange.api.kinds import BUILT_IN, CONFIGMAP
from grange.api.revoked_nodes import NAME, NAMESPACE
from grange.api.scheme import Scheme
from grange.apiserver.application import Application
from grange.app.node_revocations import NodeRevocations
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.reconcile.informer import InformerFactory
from grange.store.memory import MemoryStore


@dataclass
class RevocationList:
    """The list, and what follows it.

    Attributes:
        client: of the server.
        revocations: up to date within a moment.
    """

    client: Client
    revocations: NodeRevocations

    async def revoke(self, node: str, reason: str = "stolen") -> None:
        """Make the list, with one node on it."""
        document = {"metadata": {"name": NAME}, "data": {node: reason}}
        await self.client.create(CONFIGMAP, document, NAMESPACE)

    async def revise(self, changes: Mapping[str, str | None]) -> None:
        """Put nodes on the list, or take them off."""
        await self.client.patch(CONFIGMAP, NAME, NAMESPACE, patch={"data": dict(changes)})

    async def let_in(self, node: str) -> None:
        """Take a node off the list."""
        await self.revise({node: None})


@asynccontextmanager
async def followed(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[RevocationList]:
    """A server without a list, and what follows it."""
    application = Application(MemoryStore(), Scheme(BUILT_IN), clock=clock, rng=rng, log=log)
    await application.bootstrap()
    client = Client(InProcess(application.handle, ADMIN), clock=clock)
    informers = InformerFactory(client, clock=clock, rng=rng, log=log)
    made = RevocationList(client, NodeRevocations(clock))
    made.revocations.follow(informers)
    async with Nursery("informers") as nursery:
        nursery.start(informers.run(), name="informers")
        yield made
        nursery.cancel()
