"""The shell of the CronJob controller."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

import msgspec

from grange.api import conditions, timestamps
from grange.api.cron import InvalidSchedule, parse_schedule
from grange.api.kinds import CRONJOB, JOB
from grange.api.kinds.batchjob import BatchJob
from grange.api.kinds.cronjob import CronJob
from grange.api.meta import Document, ObjectKey, controller_of, preconditions
from grange.api.status import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    is_namespace_terminating,
)
from grange.base.tasks import Nursery
from grange.controllers.cronjob import logic
from grange.controllers.cronjob.logic import CronChild, CronSpec, CronState
from grange.reconcile import owners
from grange.reconcile.controller import Controller, Done, Requeue, Result, Terminal
from grange.reconcile.deps import Deps
from grange.reconcile.recorder import NORMAL, WARNING, Recorder
from grange.reconcile.write_tracker import WriteTracker

NAME = "cronjob"

SCHEDULED_ANNOTATION = "batch.kubernetes.io/cronjob-scheduled-timestamp"


class CronJobController:
    """Starts Jobs at the times of CronJobs; ``run`` it once per API server.

    Args:
        deps: client, informers, clock, randomness, log, metrics.
    """

    def __init__(self, deps: Deps) -> None:
        self._client = deps.client
        self._clock = deps.clock
        self._written = WriteTracker(deps.clock)
        # What the last pass over a CronJob recorded, by UID.
        self._recorded: dict[str, tuple[tuple[str, str, str], ...]] = {}
        self._recorder = Recorder(
            deps.client,
            "cronjob-controller",
            clock=deps.clock,
            rng=deps.rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._crons = deps.informers.informer(CRONJOB)
        self._jobs = deps.informers.informer(JOB)
        self._jobs.store.add_index(owners.CONTROLLER_UID, owners.controller_uid)
        self.loop = Controller(
            NAME,
            self.reconcile,
            clock=deps.clock,
            rng=deps.rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._crons.add_handler(self._seen, lambda _, new: self._seen(new), self._gone)
        self._jobs.add_handler(self._job, lambda _, new: self._job(new), self._job)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._crons.synced.wait()
        await self._jobs.synced.wait()
        async with Nursery(NAME) as nursery:
            nursery.start(self._recorder.run(), name="cronjob events")
            nursery.start(self.loop.run(), name="cronjob loop")

    def _seen(self, cron: CronJob) -> None:
        self.loop.enqueue(cron.key)

    def _gone(self, cron: CronJob) -> None:
        self._written.forget(cron.metadata.uid)
        self._recorded.pop(cron.metadata.uid, None)

    def _job(self, job: BatchJob) -> None:
        reference = controller_of(job.metadata)
        if reference is not None and reference.kind == CRONJOB.kind:
            self.loop.enqueue(ObjectKey(job.metadata.namespace, reference.name))

    async def reconcile(self, key: ObjectKey) -> Result:
        """Start, replace and prune the Jobs of one CronJob.

        Raises:
            Terminal: its schedule cannot be understood.
            ApiError: a write failed; to be tried again.
        """
        cron = self._crons.store.get(key)
        if cron is None or cron.metadata.deletion_timestamp:
            return Done()
        if (wait_s := self._written.remaining_s(cron)) > 0:
            return Requeue(wait_s)
        now = self._clock.now()
        jobs = self._jobs.store.by_index(owners.CONTROLLER_UID, cron.metadata.uid)
        state = _state(cron)
        created_at = timestamps.parse_or(cron.metadata.creation_timestamp, now)
        plan = logic.plan(
            self._spec(cron, state.last_schedule or created_at),
            state,
            [_child(job, now) for job in jobs],
            created_at=created_at,
            now=now,
        )
        recorded = self._recorded.get(cron.metadata.uid, ())
        for event in plan.events:
            if event not in recorded:
                self._recorder.event(cron, *event, kind=CRONJOB)
        self._recorded[cron.metadata.uid] = plan.events
        for child, reason in plan.delete:
            await self._delete(cron, child, reason)
        active = {job.metadata.uid: job for job in jobs if job.metadata.uid in plan.state.active}
        last = plan.state.last_schedule
        if plan.create_for is not None:
            created = await self._create(cron, plan.create_for)
            last = plan.create_for
            if created is not None:
                active[created.metadata.uid] = created
        await self._write(cron, [*active.values()], last, plan.state.last_successful)
        return Done() if plan.requeue_s is None else Requeue(plan.requeue_s)

    def _spec(self, cron: CronJob, since: datetime) -> CronSpec:
        spec = cron.spec
        try:
            schedule = parse_schedule(spec.schedule, spec.time_zone or "", since=since)
        except InvalidSchedule as error:
            message = f"spec.schedule {spec.schedule!r}: {error}"
            self._recorder.event(cron, WARNING, "UnparseableSchedule", message, kind=CRONJOB)
            raise Terminal(f"{cron.key}: {message}") from error
        return CronSpec(
            schedule,
            concurrency=spec.concurrency_policy,
            suspend=bool(spec.suspend),
            starting_deadline_s=spec.starting_deadline_seconds,
            keep_successful=spec.successful_jobs_history_limit,
            keep_failed=spec.failed_jobs_history_limit,
        )

    async def _create(self, cron: CronJob, due: datetime) -> BatchJob | None:
        """Create the Job of a time; None if its name is another object's."""
        name = logic.job_name(cron.metadata.name, due)
        document = _job_document(cron, name, due)
        try:
            created = await self._client.create(JOB, document, cron.metadata.namespace)
        except AlreadyExists:
            live = await self._client.get(JOB, name, cron.metadata.namespace)
            if owners.is_controlled_by(live, cron):
                return None if live.metadata.deletion_timestamp else live
            message = f"Job {name} exists and does not belong to the CronJob; delete it"
            self._recorder.event(cron, WARNING, "FailedCreate", message, kind=CRONJOB)
            return None
        except (BadRequest, Forbidden, Invalid) as error:
            if not is_namespace_terminating(error):
                message = f"Job {name} was not created: {error.message}"
                self._recorder.event(cron, WARNING, "FailedCreate", message, kind=CRONJOB)
            raise
        self._recorder.event(cron, NORMAL, "SuccessfulCreate", f"Created job {name}", kind=CRONJOB)
        return created

    async def _delete(self, cron: CronJob, child: CronChild, reason: str) -> None:
        with suppress(NotFound, Conflict):
            await self._client.delete(
                JOB,
                child.name,
                cron.metadata.namespace,
                uid=child.uid,
                propagation="Background",
            )
            message = f"Deleted job {child.name}: {reason}"
            self._recorder.event(cron, NORMAL, "SuccessfulDelete", message, kind=CRONJOB)

    async def _write(
        self,
        cron: CronJob,
        active: Sequence[BatchJob],
        last_schedule: datetime | None,
        last_successful: datetime | None,
    ) -> None:
        status: Document = {
            "active": [_reference(job) for job in active] or None,
            "lastScheduleTime": last_schedule and timestamps.rfc3339(last_schedule),
            "lastSuccessfulTime": last_successful and timestamps.rfc3339(last_successful),
        }
        held = cron.status
        if (
            {item.uid for item in held.active} == {job.metadata.uid for job in active}
            and (held.last_schedule_time or None) == status["lastScheduleTime"]
            and (held.last_successful_time or None) == status["lastSuccessfulTime"]
        ):
            return
        meta = cron.metadata
        patch = {"metadata": preconditions(meta), "status": status}
        with suppress(NotFound):
            written = await self._client.patch(
                CRONJOB, meta.name, meta.namespace, patch=patch, subresource="status"
            )
            self._written.wrote(written)


def _child(job: BatchJob, now: datetime) -> CronChild:
    ended = job.status.completion_time
    return CronChild(
        name=job.metadata.name,
        uid=job.metadata.uid,
        created_at=timestamps.parse_or(job.metadata.creation_timestamp, now),
        succeeded=conditions.is_true(job.status.conditions, "Complete"),
        failed=conditions.is_true(job.status.conditions, "Failed"),
        completed_at=timestamps.parse_or(ended, now) if ended else None,
        scheduled=SCHEDULED_ANNOTATION in job.metadata.annotations,
    )


def _state(cron: CronJob) -> CronState:
    status = cron.status
    return CronState(
        active=tuple(item.uid for item in status.active),
        last_schedule=_time(status.last_schedule_time),
        last_successful=_time(status.last_successful_time),
    )


def _time(text: str | None) -> datetime | None:
    return timestamps.parse(text) if text else None


def _reference(job: BatchJob) -> Document:
    meta = job.metadata
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }


def _job_document(cron: CronJob, name: str, due: datetime) -> Document:
    template = cron.spec.job_template
    meta = template.get("metadata") or {}
    annotations = {
        **(meta.get("annotations") or {}),
        SCHEDULED_ANNOTATION: timestamps.rfc3339(due),
    }
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {
            "name": name,
            "namespace": cron.metadata.namespace,
            "labels": dict(meta.get("labels") or {}),
            "annotations": annotations,
            "ownerReferences": [msgspec.to_builtins(owners.owner_reference(CRONJOB, cron))],
        },
        "spec": template.get("spec") or {},
    }
