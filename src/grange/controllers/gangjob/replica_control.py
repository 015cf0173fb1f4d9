"""Every write of an operator to a pod or a Service: expected first, fenced, recorded on the job.

Many go in batches of 1, 2, 4, … that stop at the first error, so that a template that the server
refuses costs one request and not a thousand.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Generic, TypeVar

from grange.api.meta import Document, Resource
from grange.api.scheme import AnyKind, KindInfo
from grange.api.status import AlreadyExists, ApiError, is_namespace_terminating
from grange.client.client import Client
from grange.reconcile.control import create_owned, delete_object, find_owned, slow_start
from grange.reconcile.expectations import Expectations, ExpectedWrites
from grange.reconcile.owners import owner_reference
from grange.reconcile.recorder import NORMAL, WARNING, Recorder

R = TypeVar("R", bound=Resource)


class ReplicaReason(StrEnum):
    """Reasons of the events that ``ReplicaControl`` records on a job."""

    POD_CREATED = "SuccessfulCreatePod"
    POD_CREATE_FAILED = "FailedCreatePod"
    POD_DELETED = "SuccessfulDeletePod"
    POD_DELETE_FAILED = "FailedDeletePod"
    SERVICE_CREATED = "SuccessfulCreateService"
    SERVICE_CREATE_FAILED = "FailedCreateService"
    SERVICE_DELETED = "SuccessfulDeleteService"
    SERVICE_DELETE_FAILED = "FailedDeleteService"


class ReplicaControl(Generic[R]):
    """Creates and deletes the pods, or the Services, of jobs.

    Args:
        client: where to.
        kind: Pod or Service.
        job_kind: of the jobs.
        expectations: what each job waits to see in the cache; noted under the kind's plural.
        recorder: of events on the jobs.
    """

    def __init__(
        self,
        client: Client,
        kind: KindInfo[R],
        job_kind: AnyKind,
        *,
        expectations: Expectations,
        recorder: Recorder,
    ) -> None:
        self._client = client
        self._kind = kind
        self._job_kind = job_kind
        self._expectations = expectations
        self._recorder = recorder

    async def create(self, job: Resource, document: Document) -> R:
        """Create one object of a job and return it.

        An object of the job that has the name already is returned as it is: an earlier request did
        create it, and the cache will show it.

        Raises:
            InvalidReference, NoLabels: nothing was sent.
            Conflict: the name is held by one of the job's that is being deleted; try again.
            ApiError: the server's answer.
        """
        (made,) = await self.create_all(job, [document])
        return made

    async def create_all(self, job: Resource, documents: Sequence[Document]) -> list[R]:
        """Create objects of a job, in order, and return them.

        Raises:
            ApiError: the first error; objects after its batch were not tried.
        """
        uid, names = job.metadata.uid, [document["metadata"]["name"] for document in documents]
        made: dict[str, R] = {}

        async def create(document: Document) -> None:
            name = document["metadata"]["name"]
            made[name] = await self._create(job, name, document, writes)

        with self._expectations.creating(uid, names, kind=self._kind.plural) as writes:
            error = await slow_start(documents, create)
        if error is not None:
            raise error
        return [made[name] for name in names]

    async def delete(self, job: Resource, obj: R, why: str) -> None:
        """Delete one object of a job; one that is gone or on its way is left alone.

        Raises:
            ApiError: the server's answer.
        """
        await self.delete_all(job, [(obj, why)])

    async def delete_all(self, job: Resource, objects: Sequence[tuple[R, str]]) -> None:
        """Delete objects of a job, each with the reason that its event has.

        Raises:
            ApiError: the first error; objects after its batch were not tried.
        """
        uid = job.metadata.uid
        going = [(obj, why) for obj, why in objects if not obj.metadata.deletion_timestamp]
        names = {obj.metadata.uid: obj.metadata.name for obj, _ in going}

        async def delete(item: tuple[R, str]) -> None:
            await self._delete(job, *item, writes)

        with self._expectations.deleting(uid, names, kind=self._kind.plural) as writes:
            error = await slow_start(going, delete)
        if error is not None:
            raise error

    async def _create(
        self, job: Resource, name: str, document: Document, writes: ExpectedWrites
    ) -> R:
        document = {
            **document,
            "metadata": {**document["metadata"], "namespace": job.metadata.namespace},
        }
        try:
            with writes.sending(name):
                made = await create_owned(
                    self._client, self._kind, document, owner_reference(self._job_kind, job)
                )
        except ApiError as error:
            if isinstance(error, AlreadyExists):
                found = await find_owned(self._client, self._kind, name, job)
                if found is not None:
                    return found
            if not is_namespace_terminating(error):
                self._record(job, WARNING, "FailedCreate", f"cannot create {name}: {error.message}")
            raise
        self._record(job, NORMAL, "SuccessfulCreate", f"created {name}")
        return made

    async def _delete(self, job: Resource, obj: R, why: str, writes: ExpectedWrites) -> None:
        meta = obj.metadata
        try:
            with writes.sending(meta.uid):
                deleted = await delete_object(self._client, self._kind, obj)
        except ApiError as error:
            message = f"cannot delete {meta.name}: {error.message}"
            self._record(job, WARNING, "FailedDelete", message)
            raise
        if deleted:
            self._record(job, NORMAL, "SuccessfulDelete", f"deleted {meta.name}: {why}")
        else:
            self._expectations.deletion_observed(job.metadata.uid, meta.uid)

    def _record(self, job: Resource, event_type: str, outcome: str, message: str) -> None:
        reason = ReplicaReason(f"{outcome}{self._kind.kind}")
        self._recorder.event(job, event_type, reason, message, kind=self._job_kind)
