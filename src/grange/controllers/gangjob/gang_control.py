"""Creates, updates and deletes the object that stands for a job's gang."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from grange.api.kinds import PODDISRUPTIONBUDGET, PODGROUP, PRIORITYCLASS
from grange.api.meta import Document, ObjectKey, Resource
from grange.api.scheme import AnyKind
from grange.api.status import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
)
from grange.client.client import Client
from grange.controllers.gangjob.gang_backends import (
    BACKENDS,
    gang_document,
    gang_of,
    gang_patch,
    gang_state,
)
from grange.controllers.gangjob.job_context import JobContext
from grange.controllers.gangjob.model import GangState, JobModel
from grange.reconcile.informer import Informer, InformerFactory
from grange.reconcile.owners import is_controlled_by
from grange.reconcile.recorder import NORMAL, WARNING

R = TypeVar("R", bound=Resource)

RETRY_S = 30.0
"""After so long the object is created once more where the server refused it."""
_REFUSALS = (BadRequest, Forbidden, Invalid, NotFound)


class GangControl(Generic[R]):
    """The gangs of all jobs of one kind.

    Args:
        client: to the API.
        informers: of the backends that every server has.
    """

    def __init__(self, client: Client, informers: InformerFactory) -> None:
        self._client = client
        self._factory = informers
        self.groups = informers.informer(PODGROUP)
        self.budgets = informers.informer(PODDISRUPTIONBUDGET)
        self._priorities = informers.informer(PRIORITYCLASS)
        self._watched: dict[AnyKind, Informer[Any]] = {
            PODGROUP: self.groups,
            PODDISRUPTIONBUDGET: self.budgets,
        }
        self._refused: dict[str, GangState] = {}  # by UID of the job, why it has no object
        self.follow: Callable[[Informer[Any]], None] = lambda informer: None

    async def wait_synced(self) -> None:
        """Wait until each informer has listed its collection."""
        for informer in (self.groups, self.budgets, self._priorities):
            await informer.synced.wait()

    async def find(self, model: JobModel) -> Resource | None:
        """The object of the gang's name, of any owner; None where there is none."""
        gang = gang_of(model)
        if gang is None:
            return None
        if gang.kind not in self._watched:  # it is one that only some clusters have
            informer = self._watched[gang.kind] = self._factory.informer(gang.kind)
            self.follow(informer)
        return await self._read(gang.kind, ObjectKey(model.namespace, gang.name(model)))

    async def _read(self, kind: AnyKind, key: ObjectKey) -> Resource | None:
        informer = self._watched.get(kind)
        if informer is not None and informer.synced.is_set():
            found: Resource | None = informer.store.get(key)
            return found
        with suppress(NotFound, Forbidden):
            live: Resource = await self._client.get(kind, key.name, key.namespace)
            return live
        return None

    def state(self, model: JobModel, found: Resource | None) -> GangState:
        """What the object states, or why it could not be created."""
        state = gang_state(model, found)
        refused = self._refused.get(model.uid)
        return state if state.exists or refused is None else refused

    def refusal(self, uid: str) -> GangState | None:
        """Why the last write of a job's object was refused, if it was."""
        return self._refused.get(uid)

    def forget(self, uid: str) -> None:
        """The job is gone, or its object is not refused any more."""
        self._refused.pop(uid, None)

    async def delete_others(
        self, job: R, model: JobModel, *, live: bool
    ) -> list[tuple[str, str, str]]:
        """Delete the objects that the job has of backends which it does not name; the events to record.

        Args:
            job: the job.
            model: of the job.
            live: whether kinds are read that are not watched.

        Raises:
            ApiError: a read or a write failed.
        """
        own = gang_of(model)
        events = []
        for gang in BACKENDS.values():
            if own is not None and gang.kind == own.kind:
                continue
            if gang.kind not in self._watched and not live:
                continue
            found = await self._read(gang.kind, ObjectKey(model.namespace, gang.name(model)))
            event = await self._delete(job, model, gang.kind, found)
            if event is not None:
                events.append(event)
        return events

    async def ensure(
        self, job: R, context: JobContext, found: Resource | None, *, wanted: bool
    ) -> tuple[str, str, str] | None:
        """Create or update the object, or delete it; the event to record, if there is one.

        Raises:
            ApiError: the write failed.
        """
        model = context.model
        gang = gang_of(model)
        if gang is None:
            return None
        kind, name = gang.kind, gang.name(model)
        if not wanted:
            self.forget(model.uid)
            return await self._delete(job, model, kind, found)
        priorities = {item.metadata.name: item.value for item in self._priorities.store.list()}
        if found is None:
            document = gang_document(model, context.labels, context.owner, priorities)
            return None if document is None else await self._create(model, kind, document)
        self.forget(model.uid)
        if not is_controlled_by(found, job):
            message = f"{kind.kind} {name} exists and does not belong to the job; delete it"
            return WARNING, f"FailedCreate{kind.kind}", message
        patch = gang_patch(model, context.labels, found, priorities)
        if patch is not None:
            with suppress(NotFound):
                await self._client.patch(kind, name, model.namespace, patch=patch)
        return None

    async def _delete(
        self, job: R, model: JobModel, kind: AnyKind, found: Resource | None
    ) -> tuple[str, str, str] | None:
        if found is None or not is_controlled_by(found, job) or found.metadata.deletion_timestamp:
            return None
        name = found.metadata.name
        with suppress(NotFound, Conflict):
            await self._client.delete(kind, name, model.namespace, uid=found.metadata.uid)
        return NORMAL, f"SuccessfulDelete{kind.kind}", f"Deleted {kind.kind} {name}"

    async def _create(
        self, model: JobModel, kind: AnyKind, document: Document
    ) -> tuple[str, str, str]:
        try:
            await self._client.create(kind, document, model.namespace)
        except AlreadyExists:
            pass  # the cache shows it soon
        except _REFUSALS as error:
            return self._refuse(model, kind, error)
        self.forget(model.uid)
        name = document["metadata"]["name"]
        return NORMAL, f"SuccessfulCreate{kind.kind}", f"Created {kind.kind} {name}"

    def _refuse(self, model: JobModel, kind: AnyKind, error: ApiError) -> tuple[str, str, str]:
        reason = f"FailedCreate{kind.kind}"
        message = f"{kind.qualified} was not created: {error.message}"
        if isinstance(error, NotFound):
            message = (
                f"{kind.qualified} was not created: the server does not serve the kind; install "
                "it, or name another backend in schedulingPolicy"
            )
        state = GangState(admitted=False, reason=reason, message=message)
        self._refused[model.uid] = state
        return WARNING, reason, message
