"""Every write of the job controller to pods and Services.

Each is fenced: a deletion and the removal of a finalizer carry the UID and the resourceVersion that
the plan was made from, a creation has a name that is the same in every attempt. A late write of a
former owner is refused by that.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from grange.api.kinds import POD, SERVICE
from grange.api.kinds.pod import Pod
from grange.api.kinds.service import Service
from grange.api.meta import Document, Resource
from grange.api.scheme import AnyKind, KindInfo
from grange.api.status import (
    AlreadyExists,
    ApiError,
    Conflict,
    NotFound,
    is_namespace_terminating,
)
from grange.client.client import Client
from grange.controllers.gangjob.job_pods import TRACKING_FINALIZER
from grange.controllers.gangjob.model import Deletion
from grange.reconcile import finalizers, owners
from grange.reconcile.control import slow_start
from grange.reconcile.expectations import Expectations
from grange.reconcile.recorder import NORMAL, WARNING, Recorder

R = TypeVar("R", bound=Resource)
C = TypeVar("C", bound=Resource)

PODS, SERVICES = "pods", "services"
TRACKED_KINDS: Mapping[str, AnyKind] = {PODS: POD, SERVICES: SERVICE}
"""What expectations of jobs are about."""


class NameTaken(ApiError):
    """Another object has the name of a pod or Service of the job."""


class JobPodControl(Generic[R]):
    """Creates, deletes and releases pods, creates and deletes Services.

    Args:
        client: to the API.
        kind: of the jobs.
        expectations: what each job waits to see in the cache.
        recorder: records events for users.
    """

    def __init__(
        self,
        client: Client,
        kind: KindInfo[R],
        expectations: Expectations,
        recorder: Recorder,
    ) -> None:
        self._client = client
        self._kind = kind
        self._expectations = expectations
        self._recorder = recorder

    async def delete_pods(
        self, job: R, deletions: Sequence[Deletion], counted: Collection[str]
    ) -> ApiError | None:
        """Delete pods at the versions that were seen; returns the first error.

        Args:
            job: the owner.
            deletions: of which pods.
            counted: UIDs of pods whose tracking finalizer goes with them, in the same write where
                the server takes that. On others the pod is marked, and released when that is seen.
        """
        uid = job.metadata.uid
        names = {item.pod.uid: item.pod.name for item in deletions}

        async def act(item: Deletion) -> None:
            pod = item.pod
            try:
                with writes.sending(pod.uid):
                    await self._client.delete(
                        POD,
                        pod.name,
                        job.metadata.namespace,
                        uid=pod.uid,
                        resource_version=pod.resource_version,
                        finalizer=TRACKING_FINALIZER if pod.uid in counted else "",
                    )
            except (NotFound, Conflict):  # gone, or changed: an event of it is on its way
                return
            except ApiError as error:
                self._failed(job, "FailedDeletePod", f"deleting pod {pod.name}", error)
                raise
            message = f"Deleted pod {pod.name}: {item.reason}"
            self._event(job, NORMAL, "SuccessfulDeletePod", message)

        with self._expectations.deleting(uid, names, kind=PODS) as writes:
            return await slow_start(deletions, act)

    async def release(self, pods: Iterable[Pod]) -> ApiError | None:
        """Remove the tracking finalizer of counted pods; returns the first error."""

        async def act(pod: Pod) -> None:
            with suppress(NotFound, Conflict):
                await finalizers.remove(self._client, POD, pod, TRACKING_FINALIZER)

        return await slow_start([*pods], act)

    async def create(
        self,
        job: R,
        kind: KindInfo[C],
        names: Sequence[str],
        document: Callable[[str], Document],
    ) -> ApiError | None:
        """Create objects of these names; returns the first error.

        Args:
            job: the owner.
            kind: ``POD`` or ``SERVICE``.
            names: of the objects.
            document: makes the object of a name.
        """
        uid, namespace = job.metadata.uid, job.metadata.namespace

        async def act(name: str) -> None:
            try:
                with writes.sending(name):
                    await self._client.create(kind, document(name), namespace)
            except AlreadyExists:
                if not await self._has(job, kind, name):
                    raise  # what had the name has just gone; no event of it comes to this job
                return
            except ApiError as error:
                self._failed(job, f"FailedCreate{kind.kind}", f"creating {name}", error)
                raise
            event = f"SuccessfulCreate{kind.kind}"
            self._event(job, NORMAL, event, f"Created {kind.kind.lower()} {name}")

        with self._expectations.creating(uid, names, kind=kind.plural) as writes:
            return await slow_start(names, act)

    async def delete_services(self, job: R, services: Iterable[Service]) -> ApiError | None:
        """Delete Services of the job at the versions that were seen; returns the first error."""

        async def act(service: Service) -> None:
            name = service.metadata.name
            try:
                await self._client.delete_as_read(SERVICE, service)
            except (NotFound, Conflict):  # gone, or changed: an event of it is on its way
                return
            self._event(job, NORMAL, "SuccessfulDeleteService", f"Deleted service {name}")

        return await slow_start([*services], act)

    async def _has(self, job: R, kind: KindInfo[C], name: str) -> bool:
        """Whether an object of the job has the name: the cache shows it soon. False: none has it.

        Raises:
            NameTaken: another object has it.
        """
        try:
            live = await self._client.get(kind, name, job.metadata.namespace)
        except NotFound:
            return False
        if owners.is_controlled_by(live, job):
            return True
        message = f"{kind.kind.lower()} {name} exists and does not belong to the job; delete it"
        self._event(job, WARNING, f"FailedCreate{kind.kind}", message)
        raise NameTaken(message)

    def _failed(self, job: R, reason: str, what: str, error: ApiError) -> None:
        if not is_namespace_terminating(error):
            self._event(job, WARNING, reason, f"Error {what}: {error.message}")

    def _event(self, job: R, kind: str, reason: str, message: str) -> None:
        self._recorder.event(job, kind, reason, message, kind=self._kind)
