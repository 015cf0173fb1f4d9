"""The task that schedules: slice after slice, and what becomes of the pods that were decided."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from grange.base.clock import Clock
from grange.base.errors import InvariantError
from grange.base.log import Logger
from grange.client.client import Client
from grange.scheduler import binder
from grange.scheduler.binder import Binder, BindLimits
from grange.scheduler.cache import Cache
from grange.scheduler.clusterevents import ASSIGNED_POD_DELETE
from grange.scheduler.config import SchedulerConfig
from grange.scheduler.cycle import Assumed, Batch, Cycle, Dropped, Outcome, Unschedulable, Waiting
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.errors import CacheCorrupted
from grange.scheduler.event_handlers import InformerEventHandlers
from grange.scheduler.explain.attempt_history import AttemptHistory
from grange.scheduler.framework import Bind, PostFilterResult
from grange.scheduler.gangs.coscheduling import Coscheduling
from grange.scheduler.metrics import SchedulerMetrics
from grange.scheduler.pod_conditions import SCHEDULER_ERROR, UNSCHEDULABLE, PodConditions
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.preemption.evictor import Evictor
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.schedule_one import ScheduleOne

_BROKEN_MAX = 32  # pods in a row whose cycles meet a bug, before all starts again


class SchedulingLoop:
    """Schedules in short slices, so that the event loop stays responsive, and hands on what results.

    Attributes:
        binder: writes the bindings of assumed pods.
    """

    def __init__(  # noqa: PLR0913  all that the outcome of a cycle concerns
        self,
        *,
        config: SchedulerConfig,
        metrics: SchedulerMetrics,
        schedule_one: ScheduleOne,
        cycle: Cycle,
        cache: Cache,
        queue: SchedulingQueue,
        gangs: Coscheduling,
        handlers: InformerEventHandlers,
        client: Client,
        bind: Bind,
        evictor: Evictor,
        conditions: PodConditions,
        history: AttemptHistory,
        wake: asyncio.Event,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._attempts = {
            result: metrics.attempts.labels(result)
            for result in ("scheduled", "unschedulable", "error")
        }
        self._outcomes = {
            outcome: metrics.bindings.labels(outcome.value) for outcome in binder.BindOutcome
        }
        self._seconds = metrics.seconds
        for pool in ("active", "backoff", "unschedulable"):
            metrics.pending.labels(pool).set_function(partial(self._count_pending, pool))
        self._config = config
        self._schedule_one = schedule_one
        self._cycle = cycle
        self._queue = queue
        self._gangs = gangs
        self._gang_handlers = gangs.handlers
        self._cache = cache
        self._handlers = handlers
        self.binder = Binder(
            client,
            bind,
            cache,
            self._complete,
            limits=BindLimits(config.binders, config.binding_group, config.backlog),
            clock=clock,
            log=log,
        )
        self._evictor = evictor
        self._conditions = conditions
        self._history = history
        self._wake = wake
        self._clock = clock
        self._log = log
        self._decided = 0  # of the running slice, not counted yet
        self._broken: dict[str, None] = {}  # pods whose cycles met a bug, with no other in between
        self._broken_at = 0  # decisions, when the last of them did

    async def run(self) -> None:
        """Decide until cancelled."""
        while True:
            now = self._clock.monotonic()
            self._queue.flush(now)
            self._collect_permitted(now)
            self._gang_handlers.tick(now)
            idle = self._schedule_slice(now)
            if self._decided:
                self._attempts["scheduled"].inc(self._decided)
                self._decided = 0
            self.binder.work()
            if idle:
                await self._wait()
            else:
                await self._clock.sleep(0)

    def _schedule_slice(self, now: float) -> bool:
        """Decide for a while; True when there is nothing left to do now."""
        limit = now + self._config.slice_s
        for _ in range(self._config.slice_pods):
            if self.binder.full:
                return True  # what follows from an outcome wakes us
            try:
                outcome = self._schedule_one.schedule_one(now)
            except (CacheCorrupted, InvariantError):
                raise  # what every decision is based on is wrong
            except Exception as error:  # a bug that one pod meets costs it a backoff
                outcome = self._handle_bug(error, now)
                if outcome is None:
                    raise
            if outcome is None:
                return True
            self._handle(outcome, now)
            now = self._clock.monotonic()
            if now >= limit:
                return False
        return False

    def _handle_bug(self, error: Exception, now: float) -> Outcome | None:
        """Continue without the pod whose cycle ended in a bug; None when only a restart helps.

        That is so, too, when pod after pod meets one: what they share may be the reason.
        """
        queued = self._queue.in_flight()
        if queued is None:
            return None
        decisions = self._cycle.decisions
        if decisions > self._broken_at + 1:
            self._broken.clear()
        self._broken_at = decisions
        self._broken[queued.uid] = None
        if len(self._broken) > _BROKEN_MAX:
            self._broken.clear()
            return None
        outcome = self._schedule_one.handle_bug(error, now)
        if outcome is not None:
            pod = str(queued.info.pod.key)
            if queued.errors == 1:
                self._log.crash("bug in a pod's cycle", error, pod=pod)
            else:
                self._log.warning("bug in a pod's cycle again", pod=pod, error=error)
        return outcome

    def _collect_permitted(self, now: float) -> None:
        """Bind or requeue the pods that Permit plugins have decided on."""
        waiting_pods = self._cycle.waiting_pods
        if waiting_pods:
            waiting_pods.expire(now)
        released = waiting_pods.collect_released()
        for assumed in released:
            self._handle(assumed, now)
        self._gangs.permits_decided(released, now)
        for refused in waiting_pods.collect_refused():
            for assumed in refused.pods:
                self._reject(assumed, refused.plugin, refused.reason)
            self._gangs.permits_decided(refused.pods, now)

    def _reject(self, assumed: Assumed, plugin: str, reason: str) -> None:
        """Forget a held pod's assumption, and try again later."""
        now = self._clock.monotonic()
        self._schedule_one.forget(assumed)
        self._queue.move(ASSIGNED_POD_DELETE, now, assumed.info.pod, None)
        if self._handlers.requeue(assumed.info.pod, assumed, rejector=plugin or "Permit"):
            diagnosis = Diagnosis(self._cycle.snapshot.num_nodes, pre_filter=reason)
            self._handle(Unschedulable(assumed.queued, diagnosis), now)

    def _handle(self, outcome: Outcome, now: float) -> None:
        match outcome:
            case Assumed():
                self._decided += 1
                uid = outcome.info.uid
                self._history.scheduled(uid, outcome.node_name, outcome.state.score, now)
                self.binder.put(outcome)
            case Waiting():
                pass
            case Unschedulable(queued, diagnosis, post_filter):
                nominated = self._cycle.nominator.node_of(queued.uid)
                if nominated:
                    diagnosis = replace(diagnosis, nominated=nominated)
                result = "error" if diagnosis.error else "unschedulable"
                self._attempts[result].inc()
                self._history.rejected(queued.uid, diagnosis, now)
                reason = SCHEDULER_ERROR if diagnosis.error else UNSCHEDULABLE
                self._conditions.unschedulable(
                    queued.info.pod,
                    diagnosis.message,
                    reason=reason,
                    event_after_s=diagnosis.event_after_s,
                )
                if post_filter is not None:
                    self._evictor.put(queued.info, self._reject_held(queued.info, post_filter))
            case Batch(outcomes):
                for one in outcomes:
                    self._handle(one, now)
            case Dropped():
                pass

    def _reject_held(self, pod: PodInfo, result: PostFilterResult) -> PostFilterResult:
        """Reject victims that are held: they run nowhere yet, so they need not be deleted."""
        waiting_pods = self._cycle.waiting_pods
        held = [victim.uid for victim in result.victims if victim.uid in waiting_pods]
        for uid in held:
            waiting_pods.reject(uid, "", f"pod {pod.pod.key} preempts")
        left = tuple(victim for victim in result.victims if victim.uid not in held)
        return replace(result, victims=left)

    def _complete(
        self, group: Sequence[Assumed], outcome: binder.BindOutcome, message: str
    ) -> None:
        """Note how bindings ended; queue the pods again that need another node."""
        self._outcomes[outcome].inc(len(group))
        now = self._clock.monotonic()
        if outcome is binder.BindOutcome.BOUND:
            if self._config.assume_ttl_s:
                for assumed in group:
                    self._cache.finish_binding(assumed.info.pod, now)
            self._seconds.observe(*(now - assumed.queued.first_queued for assumed in group))
            self._conditions.scheduled([assumed.info.pod for assumed in group])
        else:
            for assumed in group:
                # If it is not assumed any more, the informer has shown what became of it.
                if self._cache.is_assumed_pod(assumed.info.pod):
                    self._retry(
                        assumed, now, gone=outcome is binder.BindOutcome.GONE, message=message
                    )
                elif not self._cache.is_on(assumed.uid, assumed.node_name):
                    self._cycle.unreserve(assumed)
        self._wake.set()  # the backlog has space

    def _retry(self, assumed: Assumed, now: float, *, gone: bool, message: str) -> None:
        self._schedule_one.forget(assumed)
        self._queue.move(ASSIGNED_POD_DELETE, now, assumed.info.pod, None)
        if not gone and self._handlers.requeue(assumed.info.pod, assumed):
            self._gang_handlers.bind_failed(assumed.info.pod, assumed.queued, now)
            if message:
                why = f"the binding to {assumed.node_name} was refused: {message}"
                diagnosis = Diagnosis(1, waits=why, error=True)
                self._history.rejected(assumed.uid, diagnosis, now)
                self._conditions.unschedulable(assumed.queued.info.pod, why, reason=SCHEDULER_ERROR)

    def _count_pending(self, pool: str) -> int:
        found: int = getattr(self._queue.statistics(), pool)
        return found

    async def _wait(self) -> None:
        """Until an event, or until the queue has something to do by itself."""
        self._wake.clear()
        wait_s: float | None = None
        now = self._clock.monotonic()
        deadlines = [
            self._cycle.waiting_pods.next_deadline(),
            self._gang_handlers.next_deadline(now),
        ]
        if not self.binder.full:
            deadlines.append(self._queue.next_deadline(now))
        deadline = min((found for found in deadlines if found is not None), default=None)
        if deadline is not None:
            wait_s = deadline - now
            if wait_s <= 0:
                return
        try:
            async with self._clock.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            pass
