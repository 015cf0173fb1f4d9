"""One scheduling cycle: the next pod, the newest snapshot, a decision, an assumption.

Synchronous from end to end, so nothing can change between the decision and the assumption that
records it. What takes time (binding) starts from the ``Placed`` that comes out.
"""

from dataclasses import dataclass

from grange.scheduler.cache import Cache
from grange.scheduler.decision import Rejection
from grange.scheduler.engine import Engine
from grange.scheduler.errors import SnapshotInconsistent
from grange.scheduler.framework import CycleState, Profile
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.pools import QueuedPod
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.snapshot import NodeInfoSnapshot


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod with a node, assumed in the cache, to be bound.

    Attributes:
        queued: the pod as it was popped.
        info: the assumed copy, whose ``nodeName`` is set.
        node_name: where.
        state: for the later extension points.
    """

    queued: QueuedPod
    info: PodInfo
    node_name: str
    state: CycleState


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A pod without a node; it is back in the queue.

    Attributes:
        queued: the pod.
        rejection: why.
    """

    queued: QueuedPod
    rejection: Rejection


@dataclass(frozen=True, slots=True)
class Dropped:
    """A pod that needs no node any more."""

    queued: QueuedPod


Outcome = Placed | Unplaced | Dropped


class Cycle:
    """Runs cycles over a queue and a cache.

    Args:
        profile: the plugins.
        cache: the state of the cluster.
        queue: the pods that wait.
    """

    def __init__(self, profile: Profile, cache: Cache, queue: SchedulingQueue) -> None:
        self._profile = profile
        self._cache = cache
        self._queue = queue
        self.snapshot = NodeInfoSnapshot()
        self.engine = Engine(profile, self.snapshot)

    def run_one(self, now: float) -> Outcome | None:
        """Try the next pod; None when none may be tried now.

        Args:
            now: monotonic seconds.
        """
        queued = self._queue.pop(now)
        if queued is None:
            return None
        pod = queued.info.pod
        if pod.metadata.deletion_timestamp or self._cache.tracks(queued.uid):
            self._queue.done(queued)
            return Dropped(queued)
        state = CycleState()
        try:
            self._cache.update_node_info_snapshot(self.snapshot)
        except SnapshotInconsistent as error:
            return self._fail(queued, str(error), now)
        found = self.engine.decide(queued.info, state)
        if isinstance(found, Rejection):
            if found.error:
                self._queue.fail(queued, now)
            else:
                self._queue.turn_down(queued, found.plugins, now)
            return Unplaced(queued, found)
        return self._assume(queued, found, state, now)

    def take_back(self, placed: Placed) -> None:
        """Undo an assumption: reservations in reverse order, then the charge."""
        for _, plugin in reversed(self._profile.reserve):
            plugin.unreserve(placed.state, placed.info, placed.node_name)
        if self._cache.is_assumed_pod(placed.info.pod):
            self._cache.forget_pod(placed.info.pod)

    def _assume(self, queued: QueuedPod, node_name: str, state: CycleState, now: float) -> Outcome:
        placed = Placed(queued, queued.info.on(node_name), node_name, state)
        self._cache.assume_pod(placed.info)
        for name, plugin in self._profile.reserve:
            status = plugin.reserve(state, placed.info, node_name)
            if not status.ok:
                return self._refuse(placed, name, status.reasons, now)
        for name, gate in self._profile.permit:
            status = gate.permit(state, placed.info, node_name)
            if not status.ok:
                return self._refuse(placed, name, status.reasons, now)
        self._queue.done(queued)
        return placed

    def _refuse(self, placed: Placed, plugin: str, reasons: tuple[str, ...], now: float) -> Outcome:
        self.take_back(placed)
        rejection = Rejection(
            self.snapshot.num_nodes,
            plugins=frozenset({plugin}),
            pre_filter=", ".join(reasons) or f"{plugin} rejected the pod",
        )
        self._queue.turn_down(placed.queued, rejection.plugins, now)
        return Unplaced(placed.queued, rejection)

    def _fail(self, queued: QueuedPod, reason: str, now: float) -> Outcome:
        self._queue.fail(queued, now)
        return Unplaced(queued, Rejection(self.snapshot.num_nodes, pre_filter=reason, error=True))
