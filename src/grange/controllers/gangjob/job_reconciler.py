"""One reconcile of one job: observe → plan (pure) → write the status → write pods and Services.

The status is written first, under compare-and-set: what is counted there may then be deleted, so a
reconcile may end at any await and the next one continues from what is stored.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, TypeVar

import msgspec

from grange.api.job_status import JobStatus
from grange.api.kinds import CONFIGMAP, POD, SERVICE
from grange.api.kinds.pod import Pod
from grange.api.kinds.service import Service
from grange.api.meta import Document, ObjectKey, Resource, controller_of, preconditions
from grange.api.patch import merge_patch
from grange.api.scheme import KindInfo
from grange.api.status import AlreadyExists, ApiError, Conflict, NotFound
from grange.base.errors import GrangeError
from grange.base.first_few import first_few
from grange.controllers.gangjob import frameworks, logic
from grange.controllers.gangjob.adapter import JobAdapter
from grange.controllers.gangjob.config import GangJobConfig
from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.gang_control import RETRY_S, GangControl
from grange.controllers.gangjob.gang_members import without_finished
from grange.controllers.gangjob.job_context import JobContext
from grange.controllers.gangjob.job_listers import JobListers
from grange.controllers.gangjob.job_metrics import JobInstruments, instruments
from grange.controllers.gangjob.job_names import role_selector
from grange.controllers.gangjob.job_pace import JobPace
from grange.controllers.gangjob.job_pod_control import (
    PODS,
    SERVICES,
    TRACKED_KINDS,
    JobPodControl,
)
from grange.controllers.gangjob.job_pods import job_pod
from grange.controllers.gangjob.job_reasons import JobReason
from grange.controllers.gangjob.job_services import files_document, service_document
from grange.controllers.gangjob.model import (
    Creation,
    GangBackend,
    JobInputs,
    JobModel,
    JobPlan,
    JobPod,
    SchedulingPolicy,
)
from grange.controllers.gangjob.peers import PeerDirectory
from grange.controllers.gangjob.pod_template import pod_document
from grange.controllers.gangjob.restart_backoff import RestartBackoff
from grange.reconcile import owners, unanswered
from grange.reconcile.controller import Done, Requeue, Result, Terminal
from grange.reconcile.deps import Deps
from grange.reconcile.expectations import Expectations
from grange.reconcile.indexer import Indexer
from grange.reconcile.recorder import Recorder
from grange.reconcile.write_tracker import WriteTracker

R = TypeVar("R", bound=Resource)
C = TypeVar("C", bound=Resource)

_READ_SINGLY = 5  # more pods than that are listed rather than read one by one
_NAMED = 3  # nodes that a message lists
_AGAIN_S = 1.0  # after losing a race; events of the winner's change usually come sooner


@dataclass(frozen=True, slots=True)
class _Converted:
    """What a version of a pod was converted to.

    Attributes:
        version: its resourceVersion.
        owner: UID of the job that controls it and whose labels it has; else empty.
        view: of the pod.
    """

    version: str
    owner: str
    view: JobPod


@dataclass(frozen=True, slots=True)
class _Observed(Generic[R]):
    """A job and what was found of it."""

    job: R
    model: JobModel
    inputs: JobInputs
    pods: Mapping[str, Pod]  # by UID
    services: Mapping[str, Service]  # by name, those that stay
    gang: Resource | None  # the object of the gang's name


class JobReconciler(Generic[R]):
    """Reconciles any number of jobs of one kind concurrently.

    Args:
        deps: client, clock, log, metrics.
        adapter: of the kind.
        listers: jobs, pods, Services.
        expectations: what each job waits to see in the cache.
        recorder: records events for users.
        config: settings.

    Attributes:
        pace: how soon each job is planned again.
    """

    def __init__(
        self,
        deps: Deps,
        adapter: JobAdapter[R],
        listers: JobListers[R],
        *,
        expectations: Expectations,
        recorder: Recorder,
        config: GangJobConfig,
    ) -> None:
        self._client = deps.client
        self._clock = deps.clock
        self._adapter = adapter
        self._kind = adapter.kind
        self._listers = listers
        self._expectations = expectations
        self._recorder = recorder
        self._config = config
        self._written = WriteTracker(deps.clock)
        self._backoff = RestartBackoff(config.replacement, config.replacement_reset_s)
        self.gang: GangControl[R] = GangControl(deps.client, deps.informers)
        self.peers = PeerDirectory()
        self._files: dict[
            str, Document
        ] = {}  # data of ConfigMaps that were written, by UID of the job
        self._gone: dict[str, set[str]] = {}  # UIDs of pods that were seen to go, by UID of the job
        self._control = JobPodControl(deps.client, adapter.kind, expectations, recorder)
        self.instruments = JobInstruments(instruments(deps.metrics), adapter.kind.kind)
        self._separated: set[str] = set()  # UIDs of jobs that have an event about it
        self.pace = JobPace(deps.clock, expectations)
        self._converted: dict[str, _Converted] = {}  # pods by UID

    def forget(self, job: R) -> None:
        """The job is gone."""
        uid = job.metadata.uid
        self.pace.forget(job.key)
        self._expectations.forget(uid)
        self._written.forget(uid)
        self._backoff.forget(uid)
        self._files.pop(uid, None)
        self._gone.pop(uid, None)
        self.peers.forget(uid)
        self._separated.discard(uid)
        self.gang.forget(uid)
        self.instruments.forget(uid)

    def forget_pod(self, pod: Pod) -> None:
        """The pod is gone."""
        self._converted.pop(pod.metadata.uid, None)
        reference = controller_of(pod.metadata)
        if reference is None:
            return
        job = self._listers.jobs.store.get(ObjectKey(pod.metadata.namespace, reference.name))
        if job is not None and job.metadata.uid == reference.uid:
            self._gone.setdefault(reference.uid, set()).add(pod.metadata.uid)

    def awaits(self, job: R) -> bool:
        """Whether a reconcile waits for the cache to show this object's last write."""
        return self._written.awaited(job.metadata.uid)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring one job a step closer to its spec.

        Raises:
            Terminal: the spec cannot be acted on.
            GrangeError: a write failed; to be tried again.
        """
        job = self._listers.jobs.store.get(key)
        if job is None or not self._adapter.manages(job):
            return Done()
        refused: InvalidJob | None = None
        try:
            model = frameworks.completed(self._adapter.model(job))
        except InvalidJob as error:
            model, refused = self._without_spec(job), error
        if (wait_s := self._written.remaining_s(job)) > 0:
            return Requeue(wait_s)
        caches: Mapping[str, Indexer[Any]] = {
            PODS: self._listers.pods.store,
            SERVICES: self._listers.services.store,
        }
        unsettled_s = await unanswered.wait_s(
            self._client, self._expectations, job, TRACKED_KINDS, caches=caches
        )
        if unsettled_s > 0:
            return Requeue(unsettled_s)
        started = self._clock.monotonic()
        observed = await self._observe(job, model)
        if refused is not None:
            return await self._refuse(observed, refused)
        if not await self._sees_counted_pods(observed):
            return Requeue(_AGAIN_S)
        plan = logic.plan(observed.inputs)
        left = max(len(plan.delete), len(plan.create)) > self._config.burst
        left_of = job.metadata.uid if left else ""
        self.pace.planned(key, self._clock.monotonic() - started, left_of=left_of)
        if not await self._exist(job, plan.first_counted):
            return Requeue(_AGAIN_S)
        return await self._apply(observed, plan)

    async def _observe(self, job: R, model: JobModel) -> _Observed[R]:
        pods, uid = self._listers.candidate_pods(job), job.metadata.uid
        converted = self._convert(job, pods)
        if any(item.owner != uid for item in converted):
            pods = await self._claim(job, POD, pods)
            converted = self._convert(job, pods)
        services = await self._claim(job, SERVICE, self._listers.candidate_services(job))
        staying = {
            item.metadata.name: item for item in services if not item.metadata.deletion_timestamp
        }
        gang = await self.gang.find(model)
        inputs = JobInputs(
            model=model,
            status=self._adapter.status(job),
            pods=tuple(item.view for item in converted),
            services=frozenset(staying),
            gang=self.gang.state(model, gang),
            now=self._clock.now(),
            held=self._backoff.held(uid, self._clock.monotonic()),
        )
        return _Observed(job, model, inputs, {pod.metadata.uid: pod for pod in pods}, staying, gang)

    async def _sees_counted_pods(self, observed: _Observed[R]) -> bool:
        """Whether each counted pod is in the cache or was deleted.

        A pod that is counted and not in the cache leaves the status. Where the cache of pods is
        behind the one of jobs (after a take-over), the pod would appear later and be counted again.
        """
        job, counted = observed.job, set(observed.inputs.status.counted_pods)
        gone = self._gone.get(job.metadata.uid)
        if gone is not None:
            gone &= counted
        missing = counted - observed.pods.keys() - (gone or set())
        if not missing:
            return True
        existing = await self._live_pods(job)
        self._gone.setdefault(job.metadata.uid, set()).update(missing - existing)
        return not missing & existing

    async def _exist(self, job: R, pods: Sequence[JobPod]) -> bool:
        """Whether pods that are to be counted for the first time are there.

        The cache may still show one that another member of the farm has counted, deleted and forgotten.
        """
        if len(pods) > _READ_SINGLY:
            return {pod.uid for pod in pods} <= await self._live_pods(job)
        for pod in pods:
            try:
                live = await self._client.get(POD, pod.name, job.metadata.namespace)
            except NotFound:
                return False
            if live.metadata.uid != pod.uid:
                return False
        return True

    async def _live_pods(self, job: R) -> set[str]:
        """The UIDs of the pods with the job's labels, as the server has them."""
        operator, value = self._adapter.labels.operator
        selector = f"{operator}={value},{self._adapter.labels.job}={job.metadata.name}"
        live = await self._client.list(POD, job.metadata.namespace, labels=selector)
        return {pod.metadata.uid for pod in live.items}

    async def _claim(self, job: R, kind: KindInfo[C], candidates: list[C]) -> list[C]:
        """Adopt and release; the objects that the job controls."""
        matches = self._listers.matches(job)
        if all(owners.is_controlled_by(obj, job) and matches(obj) for obj in candidates):
            return candidates
        manager = owners.RefManager(
            self._client,
            owner=job,
            owner_kind=self._kind,
            kind=kind,
            matches=matches,
            can_adopt=owners.live_check(self._client, self._kind, job),
        )
        claims = await manager.claim(candidates)
        if claims.errors:
            raise claims.errors[0]
        return claims.objects

    def _convert(self, job: R, pods: Iterable[Pod]) -> list[_Converted]:
        """The views of pods; each version of a pod is looked at once."""
        known, matches = self._converted, self._listers.matches(job)
        result = []
        for pod in pods:
            meta = pod.metadata
            found = known.get(meta.uid)
            if found is None or found.version != meta.resource_version:
                fits = owners.is_controlled_by(pod, job) and matches(pod)
                view = job_pod(pod, self._adapter.labels)
                found = _Converted(meta.resource_version, job.metadata.uid if fits else "", view)
                known[meta.uid] = found
            result.append(found)
        return result

    async def _apply(self, observed: _Observed[R], plan: JobPlan) -> Result:
        job, uid = observed.job, observed.job.metadata.uid
        status = self._with_selectors(job, plan.status)
        failure = await self._delete_other_gangs(observed) if plan.gang is not None else None
        if failure is not None:  # by the name, the next reconcile looks again
            group = observed.inputs.status.pod_group
            status = msgspec.structs.replace(status, pod_group=group)
        if status != observed.inputs.status:
            if not await self._write_status(job, observed.inputs.status, status):
                return Requeue(_AGAIN_S)  # an event of it may come sooner
            for member in plan.ends:
                self._backoff.failed(uid, member, self._clock.monotonic())
        self.instruments.observe(job, observed.inputs.status, status, observed.inputs.now)
        for event in plan.events:
            self._recorder.event(job, event.type, event.reason, event.message, kind=self._kind)
        self._report_separated(observed)
        error = await self._carry_out(observed, plan) or failure
        if error is not None:
            self.pace.failed(job.key)
            raise error
        if plan.delete_job:
            with suppress(NotFound, Conflict):
                await self._client.delete(
                    self._kind, job.metadata.name, job.metadata.namespace, uid=uid
                )
            return Done()
        again_s = self._gang_retry_s(observed, plan)
        if plan.requeue_s is not None:
            again_s = min(again_s, plan.requeue_s)
        return Done() if again_s == inf else Requeue(again_s)

    async def _delete_other_gangs(self, observed: _Observed[R]) -> ApiError | None:
        """Delete what the job has of backends that it does not name; the error if that failed.

        A refused spec names no backend, and a controller may have died between its creation of the
        object and of the status.
        """
        job, model, gang = observed.job, observed.model, observed.inputs.gang
        missing = not gang.exists and bool(observed.inputs.status.pod_group or not model.roles)
        try:
            events = await self.gang.delete_others(job, model, live=missing)
        except ApiError as error:
            return error
        for event in events:
            self._recorder.event(job, *event, kind=self._kind)
        return None

    def _report_separated(self, observed: _Observed[R]) -> None:
        """Record once that members that know of each other run where they do not reach each other."""
        uid = observed.job.metadata.uid
        if not observed.model.framework or uid in self._separated:
            return
        nodes = self.peers.separated(observed.pods.values())
        if nodes:
            self._separated.add(uid)
            message = (
                f"pods on {first_few(nodes, _NAMED)} do not reach each other: the addresses of their "
                "machines' pods lead nowhere else; keep the job on one machine, by "
                "schedulingPolicy.topology or a nodeSelector"
            )
            self._recorder.event(
                observed.job, "Warning", JobReason.PEERS_UNREACHABLE, message, kind=self._kind
            )

    def _gang_retry_s(self, observed: _Observed[R], plan: JobPlan) -> float:
        """When to try again where the server refused the gang's object: at once for the status."""
        refused = self.gang.refusal(observed.model.uid) if plan.gang else None
        if refused is None:
            return inf
        shown = observed.inputs.gang
        return RETRY_S if (shown.admitted, shown.reason) == (False, refused.reason) else 0.0

    def _with_selectors(self, job: R, status: JobStatus) -> JobStatus:
        """The status with the label selector of each role, for ``scale`` and for clients."""
        labels, name = self._adapter.labels, job.metadata.name
        roles = {
            role: item
            if item.selector
            else msgspec.structs.replace(item, selector=role_selector(labels, name, role))
            for role, item in status.replica_statuses.items()
        }
        return msgspec.structs.replace(status, replica_statuses=roles)

    async def _carry_out(self, observed: _Observed[R], plan: JobPlan) -> GrangeError | None:
        """Every write but the status; the first error, after all parts were tried."""
        job, burst = observed.job, self._config.burst
        control = self._control
        going = {item.pod.uid for item in plan.delete}
        counted = {item.uid for item in plan.release}
        error: GrangeError | None = await control.delete_pods(job, plan.delete[:burst], counted)
        staying = [observed.pods[item.uid] for item in plan.release if item.uid not in going]
        error = await control.release(staying) or error
        try:
            await self._create(observed, plan)
        except (ApiError, InvalidJob) as failure:
            error = error or failure
        services = [observed.services[name] for name in plan.delete_services]
        return await control.delete_services(job, services) or error

    async def _create(self, observed: _Observed[R], plan: JobPlan) -> None:
        """The gang's object, Services, files, and then pods.

        Raises:
            ApiError, InvalidJob: the first failure; what comes after it is not created.
        """
        job, adapter = observed.job, self._adapter
        context = JobContext(
            observed.model,
            adapter.labels,
            owners.owner_reference(self._kind, job),
            self.peers.peers(observed.model, self._pod_name(observed.model)),
        )
        if plan.gang is not None:
            members = without_finished(observed.model, plan.status, observed.inputs.pods)
            of_gang = dataclasses.replace(context, model=members)
            event = await self.gang.ensure(job, of_gang, observed.gang, wanted=plan.gang)
            if event is not None:
                self._recorder.event(job, *event, kind=self._kind)
            if plan.gang and self.gang.refusal(observed.model.uid) is not None:
                return
        services = plan.create_services
        if error := await self._control.create(
            job, SERVICE, services, lambda name: service_document(context, name)
        ):
            raise error
        if not observed.model.deleting and (plan.create or observed.inputs.pods):
            await self._write_files(observed, context)
        names = {
            adapter.pod_name(observed.model, item.role, item.index): item
            for item in plan.create[: self._config.burst]
        }
        if error := await self._control.create(
            job, POD, [*names], lambda name: self._pod_document(job, context, names[name])
        ):
            raise error

    def _pod_document(self, job: R, context: JobContext, item: Creation) -> Document:
        made = pod_document(context, item.role, item.index, item.attempt)
        if item.index == 0:  # the same is true of every pod of the role
            for event in made.events:
                self._recorder.event(job, event.type, event.reason, event.message, kind=self._kind)
        return made.document

    def _pod_name(self, model: JobModel) -> Callable[[str, int], str]:
        return lambda role, index: self._adapter.pod_name(model, role, index)

    async def _write_files(self, observed: _Observed[R], context: JobContext) -> None:
        """Create or update the ConfigMap of the job's files, if they have changed."""
        running = frozenset(
            (item.role, item.index)
            for item in observed.inputs.pods
            if item.phase == "Running" and not item.deleting
        )
        document = files_document(context, running)
        uid, namespace = observed.job.metadata.uid, observed.job.metadata.namespace
        if document is None or self._files.get(uid) == document["data"]:
            return
        try:
            await self._client.create(CONFIGMAP, document, namespace)
        except AlreadyExists:
            name = document["metadata"]["name"]
            patch = {"data": document["data"]}
            await self._client.patch(CONFIGMAP, name, namespace, patch=patch)
        self._files[uid] = document["data"]

    async def _write_status(self, job: R, old: JobStatus, new: JobStatus) -> bool:
        """Write the status under compare-and-set; False if the job changed meanwhile or is gone."""
        meta = job.metadata
        change = merge_patch.difference(
            {} if old == JobStatus() else self._adapter.status_document(old),
            self._adapter.status_document(new),
        )
        patch: Document = {"metadata": preconditions(meta), "status": change}
        try:
            written = await self._client.patch(
                self._kind, meta.name, meta.namespace, patch=patch, subresource="status"
            )
        except (NotFound, Conflict):
            return False
        self._written.wrote(written)
        return True

    def _without_spec(self, job: R) -> JobModel:
        """Who a job is whose spec cannot be acted on."""
        meta = job.metadata
        return JobModel(
            self._kind.kind,
            meta.namespace,
            meta.name,
            meta.uid,
            roles=(),
            generation=meta.generation,
            deleting=meta.deletion_timestamp is not None,
            scheduling=SchedulingPolicy(backend=GangBackend.NONE),
        )

    async def _refuse(self, observed: _Observed[R], error: InvalidJob) -> Result:
        """Write a Failed condition that states why the spec cannot be acted on, and clean up.

        Raises:
            Terminal: that is done.
        """
        result = await self._apply(observed, logic.reject(observed.inputs, str(error)))
        if isinstance(result, Requeue):
            return result
        raise Terminal(f"{observed.job.key}: {error}") from error
