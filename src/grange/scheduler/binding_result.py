"""What becomes of pods that were given a node: bound, refused, or never confirmed."""

import asyncio
from collections.abc import Sequence

from grange.api.kinds.pod import Pod
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.reconcile.informer import Informer
from grange.scheduler.binder import Outcome
from grange.scheduler.cache import Cache
from grange.scheduler.clusterevents import ASSIGNED_POD_DELETE
from grange.scheduler.cycle import Assumed, Cycle
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.event_handlers import EventHandlers
from grange.scheduler.explain.attempt_history import AttemptHistory
from grange.scheduler.gangs.event_handlers import GangEventHandlers
from grange.scheduler.metrics import Instruments
from grange.scheduler.pod_conditions import SCHEDULER_ERROR, PodConditions
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.schedule_one import ScheduleOne

_SWEEP_S = 1.0


class BindingResults:
    """Takes note of bindings, and queues again the pods that need another node.

    Args:
        metrics: what is counted.
        pods: the pods as the informer shows them.
        handlers: know what a waiting pod asks for.
        cycle, schedule_one: undo assumptions.
        cache: the state of the cluster.
        queue: the pods that wait.
        gangs: gangs and quotas.
        conditions: of pods.
        history: the last attempts.
        wake: set when there may be something to decide.
        ttl_s: how long a written binding may stay unconfirmed; 0 for any time.
        clock: time.
        log: what went wrong.
    """

    def __init__(  # noqa: PLR0913  all that a binding's outcome concerns
        self,
        *,
        metrics: Instruments,
        pods: Informer[Pod],
        handlers: EventHandlers,
        cycle: Cycle,
        schedule_one: ScheduleOne,
        cache: Cache,
        queue: SchedulingQueue,
        gangs: GangEventHandlers,
        conditions: PodConditions,
        history: AttemptHistory,
        wake: asyncio.Event,
        ttl_s: float,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._outcomes = {outcome: metrics.bindings.labels(outcome.value) for outcome in Outcome}
        self._seconds = metrics.seconds
        self._pods = pods.store
        self._handlers = handlers
        self._cycle = cycle
        self._schedule_one = schedule_one
        self._cache = cache
        self._queue = queue
        self._gangs = gangs
        self._conditions = conditions
        self._history = history
        self._wake = wake
        self._ttl_s = ttl_s
        self._clock = clock
        self._log = log

    def complete(self, group: Sequence[Assumed], outcome: Outcome, message: str) -> None:
        """What follows from how bindings ended."""
        self._outcomes[outcome].inc(len(group))
        now = self._clock.monotonic()
        if outcome is Outcome.BOUND:
            if self._ttl_s:
                for assumed in group:
                    self._cache.finish_binding(assumed.info.pod, now)
            self._seconds.observe([now - assumed.queued.first_queued for assumed in group])
            self._conditions.scheduled([assumed.info.pod for assumed in group])
        else:
            for assumed in group:
                # If it is not assumed any more, the informer has shown what became of it.
                if self._cache.is_assumed_pod(assumed.info.pod):
                    self._retry(assumed, now, gone=outcome is Outcome.GONE, message=message)
                elif not self._cache.is_on(assumed.uid, assumed.node_name):
                    self._cycle.unreserve(assumed)
        self._wake.set()  # there is room for more

    async def sweep(self) -> None:
        """Forget, until cancelled, what was bound and is not confirmed in time."""
        while True:
            await self._clock.sleep(_SWEEP_S)
            for pod in self._cache.cleanup(self._clock.monotonic()):
                self._log.warning("assumption expired", pod=str(pod.key), node=pod.spec.node_name)
                self._gangs.forget_pod(pod)
                self.requeue(pod, None)

    def requeue(self, pod: Pod, assumed: Assumed | None, rejector: str = "") -> bool:
        """Queue a pod whose assumption was undone; False if it does not wait for a node."""
        live = self._pods.get(pod.key)
        if live is None or live.metadata.uid != pod.metadata.uid or live.spec.node_name:
            return False
        info = self._handlers.info(live)
        self._cycle.nominator.seen(info, None)
        queued = assumed.queued if assumed is not None else None
        self._queue.requeue(info, self._clock.monotonic(), tried=queued, rejector=rejector)
        self._wake.set()
        return True

    def _retry(self, assumed: Assumed, now: float, *, gone: bool, message: str) -> None:
        self._schedule_one.forget(assumed)
        self._queue.move(ASSIGNED_POD_DELETE, now, assumed.info.pod, None)
        if not gone and self.requeue(assumed.info.pod, assumed):
            self._gangs.bind_failed(assumed.info.pod, assumed.queued, now)
            if message:
                why = f"the binding to {assumed.node_name} was refused: {message}"
                diagnosis = Diagnosis(1, waits=why, error=True)
                self._history.rejected(assumed.uid, diagnosis, now)
                self._conditions.unschedulable(assumed.queued.info.pod, why, reason=SCHEDULER_ERROR)
