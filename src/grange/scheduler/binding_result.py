"""What becomes of pods that were given a node: bound, refused, or never heard of again."""

from collections.abc import Sequence

from grange.api.kinds.pod import Pod
from grange.scheduler.binder import Outcome
from grange.scheduler.clusterevents import ASSIGNED_POD_DELETE
from grange.scheduler.cycle import Assumed
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.parts import Parts
from grange.scheduler.pod_conditions import SCHEDULER_ERROR

_SWEEP_S = 1.0


class BindingResults:
    """Takes note of bindings, and queues again what has to be placed again.

    Args:
        parts: of the scheduler.
    """

    def __init__(self, parts: Parts) -> None:
        bindings = parts.metrics.bindings
        self._outcomes = {outcome: bindings.labels(outcome.value) for outcome in Outcome}
        self._seconds = parts.metrics.seconds
        self._ttl_s = parts.config.assume_ttl_s
        self._pods = parts.informers.pods.store
        self._handlers = parts.handlers
        self._gang_handlers = parts.gangs.handlers
        self._cache = parts.cache
        self._queue = parts.queue
        self._cycle = parts.cycle
        self._reporter = parts.reporter
        self._history = parts.history
        self._wake = parts.wake
        self._clock = parts.clock
        self._log = parts.log

    def settle(self, group: Sequence[Assumed], outcome: Outcome, told: str) -> None:
        """What follows from how bindings ended."""
        self._outcomes[outcome].inc(len(group))
        now = self._clock.monotonic()
        if outcome is Outcome.BOUND:
            if self._ttl_s:
                for placed in group:
                    self._cache.finish_binding(placed.info.pod, now)
            self._seconds.observe([now - placed.queued.first_queued for placed in group])
            self._reporter.scheduled([placed.info.pod for placed in group])
        else:
            for placed in group:
                # If it is not assumed any more, the informer has told what became of it.
                if self._cache.is_assumed_pod(placed.info.pod):
                    self._take_back(placed, now, gone=outcome is Outcome.GONE, told=told)
                elif not self._cache.is_on(placed.uid, placed.node_name):
                    self._cycle.unreserve(placed)
        self._wake.set()  # there is room for more

    async def sweep(self) -> None:
        """Take back, until cancelled, what was bound and is not confirmed in time."""
        while True:
            await self._clock.sleep(_SWEEP_S)
            for pod in self._cache.cleanup(self._clock.monotonic()):
                self._log.warning("assumption expired", pod=str(pod.key), node=pod.spec.node_name)
                self._gang_handlers.forget_pod(pod)
                self.requeue(pod, None)

    def requeue(self, pod: Pod, placed: Assumed | None, rejector: str = "") -> bool:
        """Queue a pod whose assumption was taken back; False if it does not wait for a node."""
        live = self._pods.get(pod.key)
        if live is None or live.metadata.uid != pod.metadata.uid or live.spec.node_name:
            return False
        info = self._handlers.info(live)
        self._cycle.nominator.seen(info, None)
        queued = placed.queued if placed is not None else None
        self._queue.take_back(info, self._clock.monotonic(), tried=queued, rejector=rejector)
        self._wake.set()
        return True

    def _take_back(self, placed: Assumed, now: float, *, gone: bool, told: str) -> None:
        self._cycle.take_back(placed)
        self._queue.move(ASSIGNED_POD_DELETE, now, placed.info.pod, None)
        if not gone and self.requeue(placed.info.pod, placed):
            self._gang_handlers.bind_failed(placed.info.pod, placed.queued, now)
            if told:
                why = f"the binding to {placed.node_name} was refused: {told}"
                rejection = Diagnosis(1, waits=why, error=True)
                self._history.rejected(placed.uid, rejection, now)
                self._reporter.unschedulable(placed.queued.info.pod, why, reason=SCHEDULER_ERROR)
