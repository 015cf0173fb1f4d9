"""Schedules one pod: the next of the queue, a decision, an assumption, or what follows from none.

What takes time (binding) starts from the ``Assumed`` that comes out; ``service`` calls this again
and again.
"""

from dataclasses import replace

from grange.scheduler.clusterevents import ASSIGNED_POD_DELETE
from grange.scheduler.cycle import Assumed, Cycle, Dropped, Outcome, Unschedulable, Waiting
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.framework import CycleState
from grange.scheduler.gangs.coscheduling import Coscheduling
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.queued_pods import QueuedPod

_ERROR_MAX = 200  # characters of an error, in a condition


class ScheduleOne:
    """Takes pods from a queue and schedules them, one at a time."""

    def __init__(
        self, cycle: Cycle, queue: SchedulingQueue, gangs: Coscheduling | None = None
    ) -> None:
        self._cycle = cycle
        self._cache = cycle.cache
        self._queue = queue
        self._gangs = gangs

    def schedule_one(self, now: float) -> Outcome | None:
        """Schedule the next pod; None when none may be tried now."""
        queued = self._queue.pop(now)
        if queued is None:
            return None
        info = queued.info
        if info.pod.metadata.deletion_timestamp or self._cache.tracks(info.uid):
            self._queue.done(queued)
            return Dropped(queued)
        if self._gangs is not None:
            admitted = self._gangs.admit(queued, now)
            if not isinstance(admitted, PodInfo):
                return admitted
            info = admitted
        state = CycleState()
        found = self._cycle.decide(info, state)
        if isinstance(found, Diagnosis):
            return self._handle_failure(queued, info, state, found, now)
        return self._assume(queued, found, state, now)

    def _assume(self, queued: QueuedPod, node_name: str, state: CycleState, now: float) -> Outcome:
        result = self._cycle.assume(queued, node_name, state)
        if isinstance(result, Diagnosis):
            if result.error:
                self._queue.fail(queued, now)
            else:
                self._queue.mark_unschedulable(queued, result.plugins, now, pending=result.pending)
            return Unschedulable(queued, result)
        assumed, waits = result
        self._queue.done(queued)
        if self._gangs is not None:
            self._gangs.assume(assumed)
        if waits:
            self._cycle.waiting_pods.hold((assumed,), {assumed.uid: waits}, now)
            return Waiting((assumed,))
        return assumed

    def _handle_failure(
        self, queued: QueuedPod, info: PodInfo, state: CycleState, found: Diagnosis, now: float
    ) -> Outcome:
        """Run PostFilter (preemption) for a pod without a node, and queue it again."""
        if found.error:
            self._queue.fail(queued, now)
            return Unschedulable(queued, found)
        result, why_not = self._cycle.run_post_filter(info, state, found)
        if why_not and found.num_nodes:
            found = replace(found, post_filter=why_not)
        if result is not None and result.victims and self._gangs is not None:
            result = replace(result, victims=self._gangs.gang_victims(result.victims, info))
        self._queue.mark_unschedulable(queued, found.plugins, now, pending=found.pending)
        if result is not None and result.nominated == "":
            # Its nomination is withdrawn: pods of up to its priority may use the resources.
            self._queue.move(ASSIGNED_POD_DELETE, now, info.pod, None)
        return Unschedulable(queued, found, result)

    def handle_bug(self, error: Exception, now: float) -> Outcome | None:
        """A bug, in a plugin perhaps, ended ``schedule_one``: only the pod that was tried suffers.

        What the decision holds is dropped; the pod takes the error backoff.

        Returns:
            What became of the pod; None when the state is not that of a pod being tried, so that
            only a new start will do.
        """
        queued = self._queue.in_flight()
        if queued is None or self._cache.tracks(queued.uid):
            return None
        self._cycle.reset()
        what = f"{type(error).__name__}: {error}"[:_ERROR_MAX]
        nodes = self._cycle.snapshot.num_nodes
        diagnosis = Diagnosis(nodes, waits=f"bug on the way: {what}", error=True)
        found = None if self._gangs is None else self._gangs.handle_bug(queued, diagnosis, now)
        if found is not None:
            return found
        self._queue.fail(queued, now)
        return Unschedulable(queued, diagnosis)

    def forget(self, assumed: Assumed) -> None:
        """Undo an assumption, for its gang and quota too."""
        still = self._cache.is_assumed_pod(assumed.info.pod)
        try:
            self._cycle.forget(assumed)
        finally:
            if still and self._gangs is not None:
                self._gangs.forget(assumed)
