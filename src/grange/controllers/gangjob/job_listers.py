"""What the job controller knows of the world: jobs, pods, Services and nodes."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from grange.api.kinds import NODE, POD, SERVICE
from grange.api.kinds.pod import Pod
from grange.api.kinds.service import Service
from grange.api.meta import ObjectKey, Resource, controller_of
from grange.controllers.gangjob.adapter import JobAdapter
from grange.reconcile import owners
from grange.reconcile.informer import InformerFactory

R = TypeVar("R", bound=Resource)


class JobListers(Generic[R]):
    """Objects as the informers showed them last.

    Args:
        informers: where they come from.
        adapter: of the kind of jobs.

    Attributes:
        jobs, pods, services, nodes: the informers.
    """

    def __init__(self, informers: InformerFactory, adapter: JobAdapter[R]) -> None:
        self._labels = adapter.labels
        self._orphans = f"gangjob/orphans-of-{adapter.kind.plural}.{adapter.kind.group}"
        self.jobs = informers.informer(adapter.kind)
        self.pods = informers.informer(POD)
        self.services = informers.informer(SERVICE)
        self.nodes = informers.informer(NODE)
        for informer in (self.pods, self.services):
            informer.store.add_index(owners.CONTROLLER_UID, owners.controller_uid)
            informer.store.add_index(self._orphans, self._orphan_of)

    async def wait_synced(self) -> None:
        """Wait until each informer has listed its collection."""
        for informer in (self.jobs, self.pods, self.services, self.nodes):
            await informer.synced.wait()

    def candidate_pods(self, job: R) -> list[Pod]:
        """The pods that the job controls, and the orphans that it may adopt."""
        meta = job.metadata
        return [
            *self.pods.store.by_index(owners.CONTROLLER_UID, meta.uid),
            *self.pods.store.by_index(self._orphans, str(job.key)),
        ]

    def candidate_services(self, job: R) -> list[Service]:
        """The Services that the job controls, and the orphans that it may adopt."""
        meta = job.metadata
        return [
            *self.services.store.by_index(owners.CONTROLLER_UID, meta.uid),
            *self.services.store.by_index(self._orphans, str(job.key)),
        ]

    def adopters(self, obj: Resource) -> Sequence[ObjectKey]:
        """The jobs that may adopt an orphan."""
        return [
            key
            for value in self._orphan_of(obj)
            if (key := ObjectKey(*value.split("/", 1))) in self.jobs.store
        ]

    def matches(self, job: R) -> Callable[[Resource], bool]:
        """Whether an object has the labels of the job's pods."""
        labels, name = self._labels, job.metadata.name

        def matching(obj: Resource) -> bool:
            held = obj.metadata.labels
            operator, value = labels.operator
            return held.get(labels.job) == name and held.get(operator) == value

        return matching

    def _orphan_of(self, obj: Resource) -> Sequence[str]:
        held = obj.metadata.labels
        operator, value = self._labels.operator
        if held.get(operator) != value or controller_of(obj.metadata) is not None:
            return ()
        name = held.get(self._labels.job)
        return (f"{obj.metadata.namespace}/{name}",) if name else ()
