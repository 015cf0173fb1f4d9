"""The pods, or the Services, of all jobs of a kind: watched, claimed, and kept one for each index."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Generic, TypeVar

from grange.api.meta import Document, ObjectKey, Resource, controller_of
from grange.api.scheme import KindInfo
from grange.api.status import ApiError, Conflict
from grange.base.log import Logger
from grange.client.client import Client
from grange.controllers.gangjob import job_names, replica_slices
from grange.controllers.gangjob.controller_interface import ControllerInterface
from grange.controllers.gangjob.replica_control import ReplicaControl
from grange.reconcile.expectations import Expectations
from grange.reconcile.informer import Informer
from grange.reconcile.owner_handler import Dependents
from grange.reconcile.owners import RefManager, live_check
from grange.reconcile.recorder import Recorder

R = TypeVar("R", bound=Resource)
J = TypeVar("J", bound=Resource)

_OWNED = "controller-uid"


class OwnedReplicas(Generic[R, J]):
    """One kind of object that jobs own.

    Args:
        controller: the operator.
        client: where to.
        informer: of the objects.
        jobs: informer of the jobs.
        expectations: what each job waits to see; noted under the kind's plural.
        recorder: of events on the jobs.
        enqueue: wakes a job.
        is_ready: whether an object works, for the choice between two of one index.
        log: where objects without a usable index are reported.

    Attributes:
        kind: of the objects.
        informer: of the objects.
        control: creates and deletes them.
        handlers: what is done with the events of the informer.
    """

    def __init__(  # noqa: PLR0913  what it is about, and the tools that jobs share
        self,
        controller: ControllerInterface[J],
        client: Client,
        informer: Informer[R],
        jobs: Informer[J],
        *,
        expectations: Expectations,
        recorder: Recorder,
        enqueue: Callable[[ObjectKey], object],
        is_ready: Callable[[R], bool],
        log: Logger,
    ) -> None:
        self.kind: KindInfo[R] = informer.kind
        self.informer = informer
        self.control: ReplicaControl[R] = ReplicaControl(
            client, self.kind, controller.kind, expectations=expectations, recorder=recorder
        )
        self.handlers: Dependents[R, J] = Dependents(
            owner_kind=controller.kind,
            owners=jobs.store,
            expectations=expectations,
            enqueue=enqueue,
            log=log,
            kind=self.kind.plural,
            accepts=lambda obj: controller.labels.role in obj.metadata.labels,
            candidates=self._adopters,
        )
        self._controller = controller
        self._client = client
        self._is_ready = is_ready
        self._log = log
        self._orphans = f"orphans of {controller.kind.qualified}"
        informer.store.add_index(_OWNED, _controller_uid)
        informer.store.add_index(self._orphans, self._adoptable_by)

    async def claim(self, job: J) -> list[R]:
        """The objects that the job controls, after adopting and releasing.

        Objects of the job that no longer have its labels are released; orphans that have them are
        adopted if the server, not the cache, has the job and does not delete it.

        Raises:
            Conflict: the job must not adopt; it is being deleted, or another has its name by now.
            ApiError: the first of the errors; the other objects were still claimed.
        """
        meta = job.metadata
        selected = job_names.gen_labels(self._controller.labels, meta.name).items()
        store = self.informer.store
        orphans = store.by_index(self._orphans, str(job.key))
        manager = RefManager(
            self._client,
            owner=job,
            owner_kind=self._controller.kind,
            kind=self.kind,
            matches=lambda obj: selected <= obj.metadata.labels.items(),
            can_adopt=live_check(self._client, self._controller.kind, job),
        )
        claims = await manager.claim(chain(store.by_index(_OWNED, meta.uid), orphans))
        if claims.errors:
            raise _answer(claims.errors[0])
        return claims.objects

    async def keep(
        self,
        job: J,
        objects: Iterable[R],
        replica_type: str,
        replicas: int,
        make: Callable[[int], Document],
    ) -> list[R | None]:
        """Have one object for each index of a role; create what is missing, delete the others.

        Args:
            job: whose.
            objects: that the job controls, as ``claim`` returned them.
            replica_type: the role.
            replicas: how many.
            make: the object of an index.

        Returns:
            By index, the object that was there; it may be finished or on its way out. None where
            there was none.

        Raises:
            ApiError: something could not be created or deleted.
        """
        labels, found = self._controller.labels, [*objects]
        members = replica_slices.filter_for_replica_type(labels, found, replica_type)
        slices = replica_slices.replica_slices(labels, members, replicas, self._log)
        kept = [
            replica_slices.best_replica(alike, self._is_ready) if alike else None
            for alike in slices[:replicas]
        ]
        keep = {obj.metadata.uid for obj in kept if obj is not None}
        surplus = {
            obj.metadata.uid: (obj, self._surplus_reason(obj, replicas))
            for obj in members
            if obj.metadata.uid not in keep
        }
        missing = {
            document["metadata"]["name"]: document
            for document in (make(index) for index, obj in enumerate(kept) if obj is None)
        }
        for obj in found:  # relabelled since: its name is needed, and is not free while it exists
            name = obj.metadata.name
            if missing.pop(name, None) is not None:
                surplus[obj.metadata.uid] = (obj, "its labels are not those of its name")
        await self.control.delete_all(job, [*surplus.values()])
        await self.control.create_all(job, [*missing.values()])
        return kept

    def _surplus_reason(self, obj: R, replicas: int) -> str:
        try:
            index = job_names.replica_index(self._controller.labels, obj)
        except job_names.InvalidReplicaLabel as error:
            return str(error)
        if index >= replicas:
            return f"index {index} is not below the {replicas} replicas"
        return f"another object has index {index}"

    def _adoptable_by(self, obj: R) -> Iterator[str]:
        """The job that might adopt the object, as text: it has no controller and the job's labels."""
        if controller_of(obj.metadata) is None:
            for key in self._adopters(obj):
                yield str(key)

    def _adopters(self, obj: R) -> Sequence[ObjectKey]:
        labels, (key, value) = obj.metadata.labels, self._controller.labels.operator
        name = labels.get(self._controller.labels.job)
        if name is None or labels.get(key) != value:
            return ()
        return (ObjectKey(obj.metadata.namespace, name),)


def _controller_uid(obj: Resource) -> Sequence[str]:
    reference = controller_of(obj.metadata)
    return () if reference is None else (reference.uid,)


def _answer(error: Exception) -> ApiError:
    """The server's answer behind an error of a claim; where there is none, the cache is behind."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, ApiError):
            return found
        found = found.__cause__
    return Conflict(str(error))
