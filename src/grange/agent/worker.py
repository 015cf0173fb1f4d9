"""One worker a pod: performs what ``lifecycle`` decides and reports what became of it.

The worker is serial: it collects what happened, decides, acts, reports, and then sleeps until it
is woken (by the pod's object, an ended run or a probe) or until the decision asks to be made again.
Coalescing comes from that: whatever happens meanwhile goes into the next report.
"""

import asyncio
import signal
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from grange.agent import (
    image_program,
    lifecycle,
    pod_progress,
    pod_status,
    postmortem,
    probe_workers,
    resource_allocation,
    take_over,
    transitions,
)
from grange.agent.container_runtime import (
    COMPLETED,
    ERROR,
    STATUS_UNKNOWN,
    PodRecord,
    Run,
    RuntimeFailedError,
    Sandbox,
)
from grange.agent.errors import NotCreatableError, NotWantedError
from grange.agent.events import AgentReason
from grange.agent.eviction_ranking import EVICTED
from grange.agent.hooks import Hooks
from grange.agent.image_puller import ImageNotReadyError
from grange.agent.lifecycle import (
    Abandon,
    EndHook,
    LifecycleDecision,
    ManagedContainer,
    PodTermination,
    Role,
    Signal,
    Start,
)
from grange.agent.pod_resizer import PodResizer
from grange.agent.pod_status import PodPlace
from grange.agent.probe_answer import ProbeTarget
from grange.agent.probe_workers import Probing
from grange.agent.status_writer import PodStatusWriter, WriteOutcome
from grange.agent.token_renewal import TokenRenewal
from grange.agent.transitions import ContainerPhase
from grange.agent.worker_tools import Tools
from grange.api import interrupted_restarts, timestamps, unsupported
from grange.api.kinds import POD
from grange.api.kinds.pod import Pod, is_finished
from grange.api.meta import Document
from grange.api.pod_requests import Resources
from grange.api.status import ApiError, Conflict, NotFound
from grange.base.tasks import Nursery
from grange.reconcile.recorder import NORMAL, WARNING

_OWN_WORDS = (COMPLETED, ERROR)  # their messages are the program's
_ROUNDS = 20  # more decisions in a row without a wait are a bug


class _Tasks(NamedTuple):
    """What runs concurrently with the worker, as children of its nursery."""

    probing: Probing
    hooks: Hooks


class PodWorker:
    """Brings one pod from its binding to its end.

    Args:
        pod: the object as it is now.
        tools: of the node.

    Attributes:
        pod: the newest object.
    """

    def __init__(self, pod: Pod, tools: Tools) -> None:
        self.pod = pod
        self._tools = tools
        self._uid = pod.metadata.uid
        self._log = tools.log.bind(pod=str(pod.key), uid=self._uid)
        self._timing = tools.config.timing
        self._wake = asyncio.Event()
        self._vanished = False  # from the informer
        self._gone = False  # from an answer of the API; the informer follows
        self._containers = lifecycle.managed_containers(pod)
        self._by_name = {container.name: container for container in self._containers}
        for container in self._containers:
            resource_allocation.restore(container, pod)
        allocated = resource_allocation.request_of(pod, self._containers)
        self._resizer = PodResizer(tools, self._event, allocated)
        self._renewal = TokenRenewal(pod, tools.starter, self._log)
        self._sandbox: Sandbox | None = None
        self._unwatch: Callable[[], None] | None = None
        self._termination = PodTermination.NONE
        self._reporter = PodStatusWriter(
            pod, client=tools.client, metrics=tools.metrics, log=self._log
        )
        self._was_finished = is_finished(pod)
        self._interrupted_restarts = interrupted_restarts.count_of(pod.status.conditions)
        self._rejection: tuple[str, str] | None = None
        self._released = False
        self._failures = 0
        self._retry_at: datetime | None = None
        self._wall_origin = tools.clock.now()
        self._origin = tools.clock.monotonic()
        self._left_s = self._left_of_grace()
        self._fields_here = self._unsupported_here()
        self._eviction = ""
        self._grace_s: float | None = None  # of the whole pod, while it comes to its end

    # --- from outside --------------------------------------------------------------------------

    def update(self, pod: Pod) -> None:
        """The object changed."""
        self.pod = pod
        self._wake.set()

    def vanish(self) -> None:
        """The object is gone: the pod is stopped and forgotten."""
        self._vanished = True
        self._wake.set()

    def room_changed(self) -> None:
        """Another pod of the node holds something else now: a resize that waits for room goes on."""
        if self._resizer.is_deferred:
            self._wake.set()

    def evict(self, why: str) -> None:
        """The node needs what the pod uses: it is stopped, and fails."""
        if not self._eviction:
            self._eviction = why
            self._event(WARNING, AgentReason.EVICTED, why)
            self._wake.set()

    def _now(self) -> datetime:
        """The time that decisions go by: a step of the wall clock ends no grace and no back-off."""
        return self._wall_origin + timedelta(seconds=self._tools.clock.monotonic() - self._origin)

    def _is_wanted(self) -> bool:
        ends = self._vanished or self._gone or self._eviction
        return not (ends or self.pod.metadata.deletion_timestamp)

    def _left_of_grace(self) -> float | None:
        """Of a pod whose deletion began before this worker: seconds until its time is over."""
        due = _instant(self.pod.metadata.deletion_timestamp)
        return (due - self._wall_origin).total_seconds() if due is not None else None

    @property
    def is_behind(self) -> bool:
        """Whether the status has changed and is not written yet."""
        return self._reporter.is_behind

    @property
    def is_over(self) -> bool:
        """Whether nothing of the pod runs any more, nor will, and its object is still there."""
        return self._termination is not PodTermination.NONE and self._all_done()

    def again(self) -> "PodWorker":
        """A fresh worker for the same pod, after this one has failed."""
        worker = PodWorker(self.pod, self._tools)
        worker._eviction = self._eviction
        if self._vanished:
            worker.vanish()
        return worker

    @property
    def requested(self) -> Resources:
        """What the node has allocated for the pod."""
        return self._resizer.requested

    @property
    def holds_resources(self) -> bool:
        """Whether the pod counts against the node's capacity."""
        return self._rejection is None and not (
            self._reporter.status.phase in {"Succeeded", "Failed"} or self._released
        )

    async def run(self) -> None:
        """Work until nothing of the pod is left. Cancellation leaves its containers running."""
        async with Nursery(f"pod {self.pod.key}") as nursery:
            tasks = _Tasks(
                Probing(nursery, self._tools, self._wake.set),
                Hooks(nursery, self._tools, self._event, self._wake.set),
            )
            try:
                self._take_over(tasks)
                if pod_progress.is_reporting(self.pod):
                    nursery.start(self._follow_progress(), name="progress")
                while not await self._turn(tasks):
                    await self._wait()
            finally:
                self._tools.starter.forget(self._uid)
                if self._unwatch is not None:
                    self._unwatch()
            nursery.cancel()

    async def _follow_progress(self) -> None:
        tools = self._tools
        await pod_progress.follow(
            lambda: self.pod,
            runtime=tools.runtime,
            client=tools.client,
            clock=tools.clock,
            log=self._log,
        )

    # --- beginning -----------------------------------------------------------------------------

    def _take_over(self, tasks: _Tasks) -> None:
        """Pick up what the runtime knows of the pod, or what the status records if it knows nothing."""
        record = self._record()
        if record is not None:
            self._use(record.sandbox)
        runs = take_over.runs_by_container(
            self.pod, record, self._tools.config, self._tools.clock.now()
        )
        if not runs and not self._was_finished:
            self._rejection = self._tools.admit(self.pod)
        take_over.adopt_runs(self._containers, self.pod, runs, self._now(), self._timing)
        for container in self._containers:
            if container.phase is ContainerPhase.RUNNING:
                self._resume(container, tasks)
            if (
                container.latest is not None
                and container.latest.running
                and container.latest.message
            ):
                message = f"container {container.name}: {container.latest.message}"
                self._event(WARNING, AgentReason.SUPERVISOR_UNRESPONSIVE, message)

    def _resume(self, container: ManagedContainer, tasks: _Tasks) -> None:
        """A container that goes on: what its probes had found still holds until they ask again."""
        take_over.restore_readiness(container, self.pod)
        self._probe(container, tasks)

    def _lost(self, run: Run) -> Run:
        return pod_status.lost(run, self._tools.clock.now())

    def _record(self) -> PodRecord | None:
        return next(iter(self._tools.runtime.pods(self._uid)), None)

    def _use(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        if self._unwatch is None:
            self._unwatch = self._tools.runtime.watch(self._uid, self._wake.set)

    # --- one round -----------------------------------------------------------------------------

    async def _turn(self, tasks: _Tasks) -> bool:
        """A round; other pods of the node learn of it when this one then holds something else."""
        held = self.holds_resources, self.requested
        is_over = await self._round(tasks)
        if held != (self.holds_resources, self.requested):
            self._tools.room_changed()
        return is_over

    async def _round(self, tasks: _Tasks) -> bool:
        """Collect, decide, act, report; True when the pod is over and forgotten."""
        self._wake.clear()
        self._retry_at = None
        if self._rejection is not None:
            return await self._reject(self._rejection)
        for added in lifecycle.ephemeral_containers(self.pod, self._by_name):
            self._containers.append(added)
            self._by_name[added.name] = added
        decision = LifecycleDecision()
        for _ in range(_ROUNDS):
            now = self._now()
            await self._collect(now, tasks)
            await self._resize(now)
            decision = self._decide(now)
            for action in decision.actions:
                await self._perform(action, tasks)
            if not decision.actions:
                break
        if self._sandbox is not None and self._is_wanted() and not self._all_done():
            due = await self._renewal.step(self.pod, self._now())
            self._retry_at = _earlier(self._retry_at, due)
        await self._report()
        if self._all_done():
            if self._termination in {PodTermination.DELETED, PodTermination.VANISHED}:
                return await self._release()
            if self._termination is PodTermination.EVICTED:
                await self._tools.runtime.disk.discard(self._uid)
        self._retry_at = _earlier(self._retry_at, decision.wake_at)
        return False

    async def _resize(self, now: datetime) -> None:
        if self._termination is not PodTermination.NONE or not self._is_wanted():
            return
        before = self.requested
        retry_s = await self._resizer.step(self.pod, self._containers)
        if retry_s is not None:
            self._retry_at = _earlier(self._retry_at, now + timedelta(seconds=retry_s))
        if self.requested is not before:
            self._fields_here = self._unsupported_here()

    def _unsupported_here(self) -> str:
        features = image_program.features_for(self.pod, self._tools.config)
        return unsupported.on_node(self.pod.spec, features)

    async def _collect(self, now: datetime, tasks: _Tasks) -> None:
        """Take note of runs that have ended."""
        record = self._record()
        known = {run.id: run for run in record.runs} if record is not None else {}
        for container in self._containers:
            if container.phase not in transitions.ALIVE or container.latest is None:
                continue
            run = known.get(container.latest.id) or self._lost(container.latest)
            if not run.running:
                run, cause = await postmortem.explain(
                    self._tools.runtime,
                    run,
                    container.spec,
                    unasked=container.phase is ContainerPhase.RUNNING,
                )
                self._on_ended(container, run, now, tasks, cause)
                if cause:
                    message = f"container {container.name}: {cause}"
                    self._event(WARNING, AgentReason.ADDRESS_IN_USE, message)

    def _on_ended(
        self, container: ManagedContainer, run: Run, now: datetime, tasks: _Tasks, cause: str = ""
    ) -> None:
        tasks.probing.stop(container.name)
        tasks.hooks.stop(container.name)
        ends = self._termination is not PodTermination.NONE
        container.on_ended(run, now, self._timing, pod_ends=ends, cause=cause)
        self._tools.metrics.ends.labels(run.reason).inc()
        self._log.info(
            "container ended",
            container=container.name,
            attempt=run.id.attempt,
            exit_code=run.exit_code,
            reason=run.reason,
        )
        if run.message and run.reason not in _OWN_WORDS:
            kind = (
                AgentReason.STATUS_UNKNOWN if run.reason == STATUS_UNKNOWN else AgentReason.FAILED
            )
            self._event(WARNING, kind, f"container {container.name}: {run.message}")
        if container.phase is ContainerPhase.BACKOFF and container.due is not None:
            self._event(WARNING, AgentReason.BACK_OFF, container.message)

    def _decide(self, now: datetime) -> LifecycleDecision:
        expires = self._expires_at()
        found = lifecycle.termination_of(
            self.pod,
            self._containers,
            now,
            vanished=self._vanished or self._gone,
            evicted=bool(self._eviction),
            expired_at=expires,
        )
        if self._was_finished and found is PodTermination.NONE:
            found = PodTermination.FINISHED
        if (
            found in {PodTermination.DELETED, PodTermination.VANISHED}
            or self._termination is PodTermination.NONE
        ):
            if found is PodTermination.DEADLINE:
                self._event(NORMAL, AgentReason.DEADLINE_EXCEEDED, pod_status.DEADLINE_MESSAGE)
            self._termination = found
        grace_s = lifecycle.grace_of(
            self.pod,
            self._termination,
            self._timing,
            left_s=self._left_s,
            evicted=bool(self._eviction),
        )
        own_grace_s = float(self.pod.spec.termination_grace_period_seconds)
        self._grace_s = grace_s if self._termination is not PodTermination.NONE else None
        decision = lifecycle.decide(
            self._containers,
            now,
            termination=self._termination,
            grace_s=grace_s,
            spec_grace_s=own_grace_s,
        )
        if self._termination is PodTermination.NONE and expires is not None:
            wake_at = _earlier(decision.wake_at, expires)
            decision = LifecycleDecision(decision.actions, decision.termination, wake_at)
        return decision

    def _expires_at(self) -> datetime | None:
        limit = self.pod.spec.active_deadline_seconds
        began = _instant(self._reporter.status.start_time)
        if limit is None or began is None:
            return None
        return timestamps.shift(began, limit)

    def _all_done(self) -> bool:
        return all(container.phase is ContainerPhase.DONE for container in self._containers)

    async def _wait(self) -> None:
        delay = None
        if self._retry_at is not None:
            delay = max(0.0, (self._retry_at - self._now()).total_seconds())
        try:
            async with self._tools.clock.timeout(delay):
                await self._wake.wait()
        except TimeoutError:
            return

    # --- acting --------------------------------------------------------------------------------

    async def _perform(self, action: lifecycle.Action, tasks: _Tasks) -> None:
        container = self._by_name[action.container]
        match action:
            case Start():
                await self._start(container, tasks)
            case Abandon():
                container.on_abandoned()
            case EndHook():
                await tasks.hooks.give_up(container, self._pre_stopped)
            case Signal(number=number, why=why):
                tasks.probing.stop(container.name)
                tasks.hooks.stop(container.name)
                if number == signal.SIGKILL:
                    container.on_kill()
                else:
                    container.on_stop(self._now())
                    self._event(
                        NORMAL, AgentReason.KILLING, f"Stopping container {container.name}: {why}"
                    )
                    target = self._target(container)
                    if target and tasks.hooks.pre_stop(container, target, self._pre_stopped):
                        return
                if container.latest is not None:
                    number = number if number == signal.SIGKILL else container.stop_signal
                    await self._tools.runtime.signal(container.latest.id, number)

    def _target(self, container: ManagedContainer) -> ProbeTarget | None:
        if self._sandbox is None or container.latest is None:
            return None
        return ProbeTarget(self._sandbox.address, container.spec, container.latest.id)

    async def _pre_stopped(self, container: ManagedContainer) -> None:
        own_grace_s = float(self.pod.spec.termination_grace_period_seconds)
        grace_s = container.grace_of(own_grace_s) if self._grace_s is None else self._grace_s
        container.on_pre_stopped(self._now(), grace_s)
        self._wake.set()
        if container.latest is not None:
            await self._tools.runtime.signal(container.latest.id, container.stop_signal)

    async def _start(self, container: ManagedContainer, tasks: _Tasks) -> None:
        now, began = self._now(), self._tools.clock.monotonic()
        try:
            sandbox, run = await self._tools.starter.create(self.pod, container, self._is_wanted)
        except NotWantedError:
            return  # the next look brings the pod to its end
        except ImageNotReadyError as error:
            due = now + timedelta(seconds=error.retry_s)
            container.on_awaited(error.reason, error.message, due)
        except NotCreatableError as error:
            container.on_refused(
                error.reason, error.message, now, self._timing, lasting=error.lasting
            )
            self._tools.metrics.starts.labels("refused").inc()
            self._event(WARNING, AgentReason.FAILED, error.message)
        else:
            self._use(sandbox)
            self._renewal.written(now)
            self._tools.metrics.start_seconds.observe(self._tools.clock.monotonic() - began)
            self._tools.metrics.starts.labels("started" if run.running else "not_executable").inc()
            container.on_created(run)
            if run.running:
                self._event(NORMAL, AgentReason.STARTED, f"Started container {container.name}")
                target, probe = self._target(container), partial(self._probe, container, tasks)
                if not (target and tasks.hooks.post_start(container, target, probe)):
                    probe()
            else:
                self._on_ended(container, run, self._now(), tasks)

    def _probe(self, container: ManagedContainer, tasks: _Tasks) -> None:
        target = self._target(container)
        if target is not None and container.role is not Role.EPHEMERAL:
            tasks.probing.start(container, target, self.pod)

    # --- reporting -----------------------------------------------------------------------------

    def _event(self, kind: str, reason: AgentReason, message: str) -> None:
        self._tools.recorder.event(self.pod, kind, reason.value, message, kind=POD)

    async def _report(self) -> None:
        if self._vanished or self._gone or self._was_finished or self._released:
            return
        address = self._sandbox.address if self._sandbox is not None else ""
        document = pod_status.build(
            self._reporter.merged(self.pod),
            self._containers,
            PodPlace(
                self._tools.config.host_ip,
                address,
                runtime=self._tools.config.runtime,
                fields_here=self._fields_here,
                eviction=self._eviction if self._termination is PodTermination.EVICTED else "",
                resize=self._resizer.conditions,
                interrupted_restarts=self._interrupted_restarts,
            ),
            probe_workers.troubles(self._containers),
            termination=self._termination,
            now=self._tools.clock.now(),
        )
        await self._write(document)

    async def _write(self, document: Document) -> None:
        match await self._reporter.write(self.pod, document):
            case WriteOutcome.GONE:
                self._gone = True  # or another of the same name is in its place
                self._wake.set()
            case WriteOutcome.FAILED:
                self._try_again()
            case WriteOutcome.WRITTEN | WriteOutcome.UNCHANGED:
                self._failures = 0

    def _try_again(self) -> None:
        """The API or the runtime could not; another round after a wait that grows."""
        self._failures += 1
        delay_s = self._timing.retries.delay(self._failures)
        self._retry_at = self._now() + timedelta(seconds=delay_s)

    # --- ending --------------------------------------------------------------------------------

    async def _reject(self, rejection: tuple[str, str]) -> bool:
        if self._vanished:
            return True
        if self.pod.metadata.deletion_timestamp:  # it was deleted before this agent saw it
            return await self._release()
        reason, message = rejection
        first = not self._reporter.has_written
        now = self._tools.clock.now()
        host_ip = self._tools.config.host_ip
        pod = self._reporter.merged(self.pod)
        await self._write(pod_status.rejected(pod, reason, message, host_ip=host_ip, now=now))
        if first:
            kind = AgentReason.EVICTED if reason == EVICTED else AgentReason.FAILED
            self._event(WARNING, kind, message)
        return False

    async def _release(self) -> bool:
        """Everything has ended: forget the pod and let its object go. True when that is done."""
        meta = self.pod.metadata
        try:
            await self._tools.runtime.remove(self._uid)
            if not (self._vanished or self._gone or self._released):
                await self._tools.client.delete(
                    POD, meta.name, meta.namespace, uid=self._uid, grace_period_s=0
                )
        except (NotFound, Conflict):
            self._gone = True
        except (ApiError, RuntimeFailedError) as error:
            self._log.warning("pod not released", error=error)
            self._try_again()
            return False
        # The worker stays until the informer has seen the end, so that a late event of the same
        # object cannot bring the pod back. With finalizers that may take a while.
        self._released = True
        return self._vanished


def _instant(text: str | None) -> datetime | None:
    """A time of the object; None for one that is not set or cannot be read."""
    try:
        return timestamps.parse(text) if text else None
    except timestamps.TimestampError:
        return None


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    if one is None or other is None:
        return one or other
    return min(one, other)
