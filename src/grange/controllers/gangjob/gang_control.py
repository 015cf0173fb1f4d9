"""Creates, updates and deletes the object that stands for a job's gang."""

from contextlib import suppress
from typing import Generic, TypeVar

from grange.api.kinds import PODDISRUPTIONBUDGET, PODGROUP, PRIORITYCLASS
from grange.api.meta import ObjectKey, Resource
from grange.api.status import AlreadyExists, Conflict, NotFound
from grange.client.client import Client
from grange.controllers.gangjob.gang_backends import (
    gang_document,
    gang_of,
    gang_patch,
    gang_state,
)
from grange.controllers.gangjob.job_context import JobContext
from grange.controllers.gangjob.model import GangState, JobModel
from grange.reconcile.informer import InformerFactory
from grange.reconcile.owners import is_controlled_by
from grange.reconcile.recorder import NORMAL, WARNING

R = TypeVar("R", bound=Resource)


class GangControl(Generic[R]):
    """The gangs of all jobs of one kind.

    Args:
        client: to the API.
        informers: of the backends that every server has.
    """

    def __init__(self, client: Client, informers: InformerFactory) -> None:
        self._client = client
        self.groups = informers.informer(PODGROUP)
        self.budgets = informers.informer(PODDISRUPTIONBUDGET)
        self._priorities = informers.informer(PRIORITYCLASS)

    async def wait_synced(self) -> None:
        """Wait until each informer has listed its collection."""
        for informer in (self.groups, self.budgets, self._priorities):
            await informer.synced.wait()

    async def find(self, model: JobModel) -> Resource | None:
        """The object of the gang's name, of any owner; None where there is none."""
        gang = gang_of(model)
        if gang is None:
            return None
        key = ObjectKey(model.namespace, gang.name(model))
        if gang.kind == PODGROUP:
            return self.groups.store.get(key)
        if gang.kind == PODDISRUPTIONBUDGET:
            return self.budgets.store.get(key)
        # Only some clusters have the kind, so it is read instead of watched.
        with suppress(NotFound):
            found: Resource = await self._client.get(gang.kind, key.name, key.namespace)
            return found
        return None

    @staticmethod
    def state(model: JobModel, found: Resource | None) -> GangState:
        """What the object states."""
        return gang_state(model, found)

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
            if found is None or not is_controlled_by(found, job):
                return None
            if found.metadata.deletion_timestamp:
                return None
            with suppress(NotFound, Conflict):
                await self._client.delete(kind, name, model.namespace, uid=found.metadata.uid)
            return NORMAL, f"SuccessfulDelete{kind.kind}", f"Deleted {kind.kind} {name}"
        priorities = {item.metadata.name: item.value for item in self._priorities.store.list()}
        if found is None:
            document = gang_document(model, context.labels, context.owner, priorities)
            if document is None:
                return None
            with suppress(AlreadyExists):  # the cache shows it soon
                await self._client.create(kind, document, model.namespace)
            return NORMAL, f"SuccessfulCreate{kind.kind}", f"Created {kind.kind} {name}"
        if not is_controlled_by(found, job):
            message = f"{kind.kind} {name} exists and does not belong to the job; delete it"
            return WARNING, f"FailedCreate{kind.kind}", message
        patch = gang_patch(model, context.labels, found, priorities)
        if patch is not None:
            with suppress(NotFound):
                await self._client.patch(kind, name, model.namespace, patch=patch)
        return None
