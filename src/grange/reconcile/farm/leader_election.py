"""Services that one member at a time runs: whole, because their work is not that of single objects.

Each is an object of a separate farm: a Lease named ``grange-service-NAME``, claimed, released and
handed over like any other object. The member that has the claim runs the service as one long pass under it,
so that its writes are fenced and it ends before another member's begins.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

from grange.api.farm_protocol import SERVICE_LABEL
from grange.api.kinds import LEASE
from grange.api.meta import Document, ObjectKey
from grange.api.status import AlreadyExists, ApiError
from grange.base import supervision
from grange.base.tasks import Nursery, supervise
from grange.reconcile.controller import Done, Result
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.farm.deletion_guard import DeletionGuardConfig, RequiredObjects
from grange.reconcile.farm.fenced_client import at_work
from grange.reconcile.farm.member import Member

FARM = "services"
PREFIX = "grange-service-"

_AGAIN_S = 30.0  # an object that was deleted is recreated after so long at most


class ElectedService(Protocol):
    """Something that works until it is cancelled; it may be run again after that."""

    def run(self) -> Coroutine[Any, Any, None]:
        """Work; returns only by cancellation."""


class LeaderElectedServices:
    """Some services, each run by one member of the farm at a time.

    Args:
        member: this process's.
        config: of the member.
        deps: the tools of each service, by its name; clients not fenced.
        services: how each is made, by its name. Made once, at once; run while it is ours.
        deletion guard: what counts as too many deletions of theirs.
        required_objects: what lives without what it needs, for the deletion guard's first look.
    """

    def __init__(
        self,
        member: Member,
        config: FarmConfig,
        deps: Callable[[str], Deps],
        services: Mapping[str, Callable[[Deps], ElectedService]],
        deletion_guard: DeletionGuardConfig | None = None,
        *,
        required_objects: RequiredObjects | None = None,
    ) -> None:
        tools = deps(FARM)
        self._config = config
        self._client = tools.client
        self._clock = tools.clock
        self._states = supervision.services(tools.metrics)
        self._log = tools.log
        self.farm = member.farm(
            FARM,
            LEASE,
            namespace=config.namespace,
            labels=SERVICE_LABEL,
            selector=f"{SERVICE_LABEL} in ({','.join(sorted(services))})",
            reconcile=self._serve,
            workers=max(1, len(services)),
            deletion_guard=deletion_guard,
            required_objects=required_objects,
        )
        self._services = {
            name: factory(self.farm.fence(deps(name))) for name, factory in services.items()
        }

    async def run(self) -> None:
        """Keep the services' objects there, until cancelled."""
        while True:
            for name in self._services:
                await self._ensure(name)
            await self._clock.sleep(_AGAIN_S)

    async def _ensure(self, name: str) -> None:
        document: Document = {
            "metadata": {
                "name": f"{PREFIX}{name}",
                "namespace": self._config.namespace,
                "labels": {SERVICE_LABEL: name},
            }
        }
        key = ObjectKey(self._config.namespace, f"{PREFIX}{name}")
        if self.farm.knows(key):
            return
        try:
            await self._client.create(LEASE, document, self._config.namespace)
        except AlreadyExists:
            return
        except ApiError as error:
            self._log.warning("service cannot be shared yet", service=name, error=error)

    async def _serve(self, key: ObjectKey) -> Result:
        """Run a service until the claim on its object retires or ends."""
        name = key.name.removeprefix(PREFIX)
        service, claim = self._services.get(name), at_work.get()
        if service is None or claim is None:
            return Done()
        async with Nursery(f"service {name}") as nursery:
            nursery.start(_end_with(claim.retiring.wait, nursery), name=f"{name} guard")
            await supervise(
                name, service.run, clock=self._clock, log=self._log, services=self._states
            )
            nursery.cancel()
        return Done()


async def _end_with(retiring: Callable[[], Awaitable[object]], nursery: Nursery) -> None:
    await retiring()
    nursery.cancel()
