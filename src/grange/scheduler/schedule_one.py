"""The task that decides: slice after slice, as long as there is something to decide."""

from dataclasses import replace

from grange.base.errors import InvariantError
from grange.scheduler.binder import Binder
from grange.scheduler.binding_result import BindingResults
from grange.scheduler.clusterevents import ASSIGNED_POD_DELETE
from grange.scheduler.cycle import Assumed, Batch, Dropped, Outcome, Unschedulable, Waiting
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.errors import CacheCorrupted
from grange.scheduler.framework import PostFilterResult
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.parts import Parts
from grange.scheduler.pod_conditions import SCHEDULER_ERROR, UNSCHEDULABLE
from grange.scheduler.preemption.evictor import Evictor

_BROKEN_MAX = 32  # pods in a row whose cycles meet a bug, before all starts anew


class SchedulingLoop:
    """Runs cycles in short slices, so that the loop stays responsive, and passes on what they say.

    Args:
        parts: of the scheduler.
        settler: queues again the pods that a Permit plugin refuses.
        binder: takes the placed pods.
        evictor: takes the preemptions.
    """

    def __init__(
        self, parts: Parts, settler: BindingResults, binder: Binder, evictor: Evictor
    ) -> None:
        attempts = parts.metrics.attempts
        self._attempts = {
            result: attempts.labels(result) for result in ("scheduled", "unschedulable", "error")
        }
        self._pending = parts.metrics.pending
        self._settler = settler
        self._binder = binder
        self._evictor = evictor
        self._config = parts.config
        self._gangs = parts.gangs
        self._gang_handlers = parts.gangs.handlers
        self._queue = parts.queue
        self._cycle = parts.cycle
        self._reporter = parts.reporter
        self._history = parts.history
        self._wake = parts.wake
        self._clock = parts.clock
        self._log = parts.log
        self._decided = 0  # of the running slice, not counted yet
        self._broken: dict[str, None] = {}  # pods whose cycles met a bug, with no other in between
        self._broken_at = 0  # decisions, when the last of them did

    async def run(self) -> None:
        """Decide until cancelled."""
        while True:
            now = self._clock.monotonic()
            self._queue.flush(now)
            self._permit(now)
            self._gang_handlers.tick(now)
            idle = self._decide_slice(now)
            if self._decided:
                self._attempts["scheduled"].inc(self._decided)
                self._decided = 0
            self._binder.work()
            if idle:
                await self._wait()
            else:
                await self._clock.sleep(0)

    def _decide_slice(self, now: float) -> bool:
        """Decide for a while; True when there is nothing left to do now."""
        limit = now + self._config.slice_s
        for _ in range(self._config.slice_pods):
            if self._binder.full:
                return True  # what follows from an outcome wakes us
            try:
                outcome = self._cycle.run_one(now)
            except (CacheCorrupted, InvariantError):
                raise  # what everybody is decided by is wrong
            except Exception as error:  # a bug that one pod meets costs it a backoff
                outcome = self._contain(error, now)
                if outcome is None:
                    raise
            if outcome is None:
                return True
            self._follow(outcome, now)
            now = self._clock.monotonic()
            if now >= limit:
                return False
        return False

    def _contain(self, error: Exception, now: float) -> Outcome | None:
        """Go on without the pod whose try ended in a bug; None when only a new start will do.

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
        outcome = self._cycle.contain(error, now)
        if outcome is not None:
            pod = str(queued.info.pod.key)
            if queued.errors == 1:
                self._log.crash("bug in a pod's cycle", error, pod=pod)
            else:
                self._log.warning("bug in a pod's cycle again", pod=pod, error=error)
        return outcome

    def _permit(self, now: float) -> None:
        """Go on with the pods that Permit plugins have decided on."""
        permits = self._cycle.permits
        if permits:
            permits.expire(now)
        released = permits.collect_released()
        for placed in released:
            self._follow(placed, now)
        self._gangs.permits_decided(released, now)
        for refused in permits.collect_refused():
            for placed in refused.pods:
                self._give_up(placed, refused.plugin, refused.reason)
            self._gangs.permits_decided(refused.pods, now)

    def _give_up(self, placed: Assumed, plugin: str, reason: str) -> None:
        """Take a held pod back, and try again later."""
        now = self._clock.monotonic()
        self._cycle.take_back(placed)
        self._queue.move(ASSIGNED_POD_DELETE, now, placed.info.pod, None)
        if self._settler.requeue(placed.info.pod, placed, rejector=plugin or "Permit"):
            rejection = Diagnosis(self._cycle.snapshot.num_nodes, pre_filter=reason)
            self._follow(Unschedulable(placed.queued, rejection), now)

    def _follow(self, outcome: Outcome, now: float) -> None:
        match outcome:
            case Assumed():
                self._decided += 1
                uid = outcome.info.uid
                self._history.scheduled(uid, outcome.node_name, outcome.state.score, now)
                self._binder.put(outcome)
            case Waiting():
                pass
            case Unschedulable(queued, rejection, room):
                nominated = self._cycle.nominator.node_of(queued.uid)
                if nominated:
                    rejection = replace(rejection, nominated=nominated)
                result = "error" if rejection.error else "unschedulable"
                self._attempts[result].inc()
                self._history.rejected(queued.uid, rejection, now)
                reason = SCHEDULER_ERROR if rejection.error else UNSCHEDULABLE
                self._reporter.unschedulable(
                    queued.info.pod,
                    rejection.message,
                    reason=reason,
                    event_after_s=rejection.event_after_s,
                )
                if room is not None:
                    self._evictor.put(queued.info, self._reject_held(queued.info, room))
            case Batch(outcomes):
                for one in outcomes:
                    self._follow(one, now)
            case Dropped():
                pass

    def _reject_held(self, pod: PodInfo, room: PostFilterResult) -> PostFilterResult:
        """Victims that are held run nowhere yet: they lose their place and need not be deleted."""
        permits = self._cycle.permits
        held = [victim.uid for victim in room.victims if victim.uid in permits]
        for uid in held:
            permits.reject(uid, "", f"pod {pod.pod.key} preempts")
        left = tuple(victim for victim in room.victims if victim.uid not in held)
        return replace(room, victims=left)

    async def _wait(self) -> None:
        """Until an event, or until the queue has something to do by itself."""
        statistics = self._queue.statistics()
        self._pending.labels("active").set(statistics.active)
        self._pending.labels("backoff").set(statistics.backoff)
        self._pending.labels("unschedulable").set(statistics.unschedulable)
        self._wake.clear()
        wait_s: float | None = None
        now = self._clock.monotonic()
        deadlines = [self._cycle.permits.next_deadline(), self._gang_handlers.next_deadline(now)]
        if not self._binder.full:
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
