"""The names of Services, kept up to date from the API."""

from collections.abc import Callable

from grange.agent.cluster_dns.service_records import ServiceRecord, service_records
from grange.api.kinds import ENDPOINTSLICE, SERVICE
from grange.api.meta import ObjectKey
from grange.reconcile.informer import InformerFactory


class ServiceNames:
    """What the names of Services stand for now; one for all nodes of a process.

    Args:
        informers: of the process; they must be running.
    """

    def __init__(self, informers: InformerFactory) -> None:
        self._services = informers.informer(SERVICE)
        self._slices = informers.informer(ENDPOINTSLICE)
        self._records: dict[ObjectKey, ServiceRecord] | None = None
        self._listeners: list[Callable[[], object]] = []
        for informer in (self._services, self._slices):
            informer.add_handler(self._touch, self._touch, self._touch)

    async def synced(self) -> None:
        """Wait until the Services of the API are known."""
        await self._services.synced.wait()
        await self._slices.synced.wait()

    def listen(self, changed: Callable[[], object]) -> None:
        """Call back after every change."""
        self._listeners.append(changed)

    def records(self) -> dict[ObjectKey, ServiceRecord]:
        """By namespace and name of the Service; computed when it is first asked for after a change."""
        if self._records is None:
            self._records = service_records(self._services.store.list(), self._slices.store.list())
        return self._records

    def _touch(self, *_: object) -> None:
        self._records = None
        for changed in self._listeners:
            changed()
