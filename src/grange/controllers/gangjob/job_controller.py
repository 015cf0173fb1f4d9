"""The library that an operator for a kind of job is built on.

A ``JobController`` watches jobs, their pods and their Services, keeps expectations by the job's
UID, claims what belongs to a job, and calls the operator's ``reconcile_job`` when the caches show
all that was written for it. The operator decides; its writes go through the methods here.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from grange.api import timestamps
from grange.api.conditions import set_condition
from grange.api.kinds import POD, SERVICE
from grange.api.kinds.pod import Pod, is_ready
from grange.api.kinds.service import Service
from grange.api.meta import Condition, Document, ObjectKey, Resource, preconditions
from grange.api.scheme import AnyKind
from grange.base.errors import GrangeError
from grange.base.tasks import Nursery
from grange.controllers.gangjob import job_names, job_rejection
from grange.controllers.gangjob.controller_interface import (
    ControllerInterface,
    JobControllerConfiguration,
)
from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.job_operations import JobOperations
from grange.controllers.gangjob.owned_replicas import OwnedReplicas
from grange.reconcile import unanswered
from grange.reconcile.control import covers
from grange.reconcile.controller import Controller, Done, Requeue, Result
from grange.reconcile.deps import Deps
from grange.reconcile.expectations import Expectations
from grange.reconcile.indexer import Indexer
from grange.reconcile.informer import Informer
from grange.reconcile.owner_handler import DeletedFinalStateUnknown
from grange.reconcile.recorder import WARNING, Recorder
from grange.reconcile.write_tracker import WriteTracker

J = TypeVar("J", bound=Resource)

_EXPECTED: dict[str, AnyKind] = {POD.plural: POD, SERVICE.plural: SERVICE}


class CachesNotSynced(GrangeError):
    """The informers did not show a complete state in time; the message names them."""


class JobController(JobOperations[J]):
    """Runs an operator over the jobs of its kind.

    Args:
        controller: the operator.
        deps: client, informers, clock, randomness, log, metrics.
        config: settings.

    Attributes:
        controller: the operator.
        config: settings.
        client: to the API.
        jobs: informer of the jobs.
        pods: informer of pods.
        services: informer of Services.
        pod_control: creates and deletes pods of jobs.
        service_control: creates and deletes Services of jobs.
        expectations: what each job waits to see in the caches, by the job's UID.
        recorder: of events on the jobs.
        loop: the queue of the jobs' keys and the workers over it.
    """

    def __init__(
        self,
        controller: ControllerInterface[J],
        deps: Deps,
        config: JobControllerConfiguration | None = None,
    ) -> None:
        name, informers = controller.controller_name, deps.informers
        log = deps.log.bind(controller=name)
        self.expectations = Expectations(deps.clock)
        self.recorder = Recorder(
            deps.client, name, clock=deps.clock, rng=deps.rng, log=deps.log, metrics=deps.metrics
        )
        self.jobs: Informer[J] = informers.informer(controller.kind)
        config = config or JobControllerConfiguration()
        self.loop = Controller(
            name,
            self._reconcile,
            workers=config.workers,
            clock=deps.clock,
            rng=deps.rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        pods: OwnedReplicas[Pod, J] = OwnedReplicas(
            controller,
            deps.client,
            informers.informer(POD),
            self.jobs,
            expectations=self.expectations,
            recorder=self.recorder,
            enqueue=self.loop.enqueue,
            is_ready=is_ready,
            log=log,
        )
        services: OwnedReplicas[Service, J] = OwnedReplicas(
            controller,
            deps.client,
            informers.informer(SERVICE),
            self.jobs,
            expectations=self.expectations,
            recorder=self.recorder,
            enqueue=self.loop.enqueue,
            is_ready=lambda _: True,
            log=log,
        )
        super().__init__(controller, config, deps.client, pods=pods, services=services, log=log)
        self._caches: dict[str, Indexer[Any]] = {
            POD.plural: self.pods.store,
            SERVICE.plural: self.services.store,
        }
        self._clock = deps.clock
        self._written = WriteTracker(deps.clock)
        self.jobs.add_handler(self._job_added, self._job_updated, self._job_deleted)
        self.pods.add_handler(self.add_pod, self.update_pod, self.delete_pod)
        self.services.add_handler(self.add_service, self.update_service, self.delete_service)

    async def run(self) -> None:
        """Work until cancelled, or until ``shut_down`` and drained.

        Raises:
            CachesNotSynced: the API does not answer.
        """
        watched: tuple[Informer[Resource], ...] = (self.jobs, self.pods, self.services)  # type: ignore[assignment]  # read only
        limit_s = self.config.cache_sync_timeout_s
        try:
            async with self._clock.timeout(limit_s):
                for informer in watched:
                    await informer.synced.wait()
        except TimeoutError as error:
            missing = ", ".join(one.kind.qualified for one in watched if not one.has_synced)
            raise CachesNotSynced(
                f"{self.loop.name}: no complete list of {missing} after {limit_s:g} s; "
                "check that the API server answers and that the operator may list them"
            ) from error
        async with Nursery(f"job controller {self.loop.name}") as nursery:
            nursery.start(self.recorder.run())
            await self.loop.run()
            nursery.cancel()

    def shut_down(self) -> None:
        """Take no more jobs; ``run`` returns when those that wait are reconciled."""
        self.loop.shut_down()

    # --- jobs ----------------------------------------------------------------------------------

    def get_job_from_informer_cache(self, namespace: str, name: str) -> J | None:
        """A job as the cache has it."""
        return self.jobs.store.get(ObjectKey(namespace, name))

    async def get_job_from_api_client(self, namespace: str, name: str) -> J:
        """A job as the server has it.

        Raises:
            NotFound: there is none.
        """
        return await self.client.get(self.controller.kind, name, namespace)

    def unsatisfied_keys(self, job: J) -> tuple[str, ...]:
        """The expectation keys of what the caches do not show yet, for logs and explanations."""
        return job_names.unsatisfied_keys(job.key, self.expectations.unsettled(job.metadata.uid))

    async def update_job_status(self, job: J, status: Document) -> J:
        """Merge fields into the job's status, if the job is as it was read.

        Nothing is sent where the status has all of them. The next reconcile of the job starts when
        the cache has what is written here.

        Raises:
            Conflict: the job has changed; try again with what it is now.
        """
        meta, kind = job.metadata, self.controller.kind
        if covers(msgspec.to_builtins(job).get("status"), status):
            return job
        patch: Document = {"metadata": preconditions(meta), "status": status}
        subresource = "status" if kind.has_status else ""
        written = await self.client.patch(
            kind, meta.name, meta.namespace, patch=patch, subresource=subresource
        )
        self._written.wrote(written)
        return written

    def updated_conditions(
        self, conditions: Sequence[Condition], *new: Condition
    ) -> list[Document]:
        """Conditions of a job with some set, for ``update_job_status``.

        ``lastTransitionTime`` is now where the status of a condition is another than before.
        """
        now = timestamps.rfc3339(self._clock.now())
        for condition in new:
            conditions = set_condition(conditions, condition, now)
        return [msgspec.to_builtins(condition) for condition in conditions]

    # --- events -------------------------------------------------------------------------------

    def add_pod(self, obj: Pod) -> None:
        """Tick off the creation of a pod and enqueue its job, or the job that might adopt it."""
        self._pods.handlers.added(obj)

    def update_pod(self, old: Pod, cur: Pod) -> None:
        """Enqueue the jobs that a changed pod belonged and belongs to."""
        self._pods.handlers.updated(old, cur)

    def delete_pod(self, obj: Pod | DeletedFinalStateUnknown[Pod]) -> None:
        """Tick off the deletion of a pod and enqueue its job."""
        self._pods.handlers.deleted(obj)

    def add_service(self, obj: Service) -> None:
        """Tick off the creation of a Service and enqueue its job, or the one that might adopt it."""
        self._services.handlers.added(obj)

    def update_service(self, old: Service, cur: Service) -> None:
        """Enqueue the jobs that a changed Service belonged and belongs to."""
        self._services.handlers.updated(old, cur)

    def delete_service(self, obj: Service | DeletedFinalStateUnknown[Service]) -> None:
        """Tick off the deletion of a Service and enqueue its job."""
        self._services.handlers.deleted(obj)

    def _job_added(self, job: J) -> None:
        self.loop.enqueue(job.key)

    def _job_updated(self, old: J, new: J) -> None:
        if old.metadata.generation != new.metadata.generation:
            self.loop.queue.forget(new.key)  # a new spec deserves a prompt first attempt
        if _wanted(old) != _wanted(new) or self._written.awaited(new.metadata.uid):
            self.loop.enqueue(new.key)

    def _job_deleted(self, job: J) -> None:
        self.expectations.forget(job.metadata.uid)
        self._written.forget(job.metadata.uid)

    # --- one job ------------------------------------------------------------------------------

    async def _reconcile(self, key: ObjectKey) -> Result:
        job = self.jobs.store.get(key)
        if job is None:
            return Done()
        wait_s = self._written.remaining_s(job)
        if wait_s <= 0:
            wait_s = await unanswered.wait_s(
                self.client, self.expectations, job, _EXPECTED, caches=self._caches
            )
        if wait_s > 0:
            self._log.debug("job waits", key=str(key), expected=self.unsatisfied_keys(job))
            return Requeue(wait_s)
        try:
            if job.metadata.deletion_timestamp:
                result = await self.controller.finalize_job(job)
            else:
                result = await self.controller.reconcile_job(job)
        except InvalidJob as error:
            await self._reject(job, error)
            return Done()
        period_s = self.config.reconciler_sync_loop_period_s
        if isinstance(result, Done) and period_s is not None:
            return Requeue(period_s)
        return result

    async def _reject(self, job: J, error: InvalidJob) -> None:
        kind, now = self.controller.kind, self._clock.now()
        written = await job_rejection.mark_failed(self.client, kind, job, error, now)
        if written is not None:
            self._written.wrote(written)
        self.recorder.event(job, WARNING, "InvalidJobSpec", str(error), kind=kind)


def _wanted(job: Resource) -> object:
    """What a pass depends on, besides pods and Services.

    Not the status, which the operator writes itself: every write would bring about a pass.
    """
    meta = job.metadata
    if not meta.generation:  # a kind whose spec the server does not count
        return meta.resource_version
    return meta.generation, meta.labels, meta.annotations, meta.deletion_timestamp
