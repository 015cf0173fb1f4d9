"""Watches the disk of a node and the pods that fill it; decides by ``eviction_ranking``.

As a kubelet does it: every ten seconds pods beyond their limits are evicted. While the disk is below a
threshold, the files of finished pods are deleted, and where that is not enough one more pod is evicted. Pressure lasts until the disk was above it for five minutes, so that
a node does not go back and forth.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from grange.agent import eviction_ranking, eviction_thresholds
from grange.agent.eviction_ranking import PodUsage
from grange.agent.eviction_thresholds import Threshold
from grange.agent.node_disk import FileSystemStats, NodeDisk
from grange.api.kinds.pod import Pod
from grange.base.clock import Clock
from grange.base.log import Logger

PERIOD_S = 10.0
TRANSITION_S = 300.0


class DiskPressure(NamedTuple):
    """The node's condition.

    Attributes:
        is_pressure: whether there is some.
        message: what was found.
    """

    is_pressure: bool
    message: str


class DiskMonitor:
    """The disk of one node.

    Args:
        disk: that its pods write to.
        thresholds: of pressure; empty for none.
        pods: the pods of the node that run.
        finished: UIDs of the pods of which nothing runs any more.
        evict: evicts a pod, for a reason that people read.
        clock, log: time and the node's logger.
    """

    def __init__(
        self,
        disk: NodeDisk,
        thresholds: Sequence[Threshold],
        pods: Callable[[], Sequence[Pod]],
        finished: Callable[[], Collection[str]],
        evict: Callable[[Pod, str], None],
        *,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._disk = disk
        self._thresholds = thresholds
        self._pods = pods
        self._finished = finished
        self._evict = evict
        self._clock = clock
        self._log = log
        self._met_at: float | None = None
        self._evicted: set[str] = set()  # UIDs of pods that are on their way out
        self._discarded: set[str] = set()  # UIDs of finished pods whose files are deleted
        self._message = "the disk was not measured yet" if thresholds else "it is not watched"

    @property
    def pressure(self) -> DiskPressure:
        """What the node's condition is now."""
        return DiskPressure(self._met_at is not None, self._message)

    async def run(self) -> None:
        """Measure every period until cancelled."""
        while True:
            await self.measure()
            await self._clock.sleep(PERIOD_S)

    async def measure(self) -> None:
        """Measure now, and evict what has to go."""
        try:
            stats = await self._disk.stats()
            met = eviction_thresholds.first_met(self._thresholds, stats)
            self._take_note(stats, met)
            await self._evict_pods(stats, met)
        except OSError as error:
            self._log.warning("cannot measure the disk", error=error)

    def _take_note(self, stats: FileSystemStats, met: Threshold | None) -> None:
        now, had_pressure = self._clock.monotonic(), self._met_at is not None
        if met is not None:
            self._met_at = now
            self._message = f"{met.signal} is {met.left(stats)}, less than {met.text}"
        elif self._met_at is not None and now - self._met_at >= TRANSITION_S:
            self._met_at = None
        if self._thresholds and self._met_at is None:
            self._message = "the disk has room"
        if (self._met_at is not None) != had_pressure:
            self._log.warning("disk pressure changed", pressure=not had_pressure, why=self._message)

    async def _evict_pods(self, stats: FileSystemStats, met: Threshold | None) -> None:
        there = self._pods()
        self._evicted &= {pod.metadata.uid for pod in there}
        pods = [
            pod
            for pod in there
            if pod.metadata.uid not in self._evicted
            and (met is not None or eviction_ranking.is_limited(pod))
        ]
        storage = await self._disk.usage([pod.metadata.uid for pod in pods]) if pods else {}
        used = [
            PodUsage(pod, storage[pod.metadata.uid]) for pod in pods if pod.metadata.uid in storage
        ]
        beyond = [(item.pod, why) for item in used if (why := eviction_ranking.over_limit(item))]
        for pod, why in beyond:
            self._go(pod, why)
        if met is None or beyond:  # what they free may be enough
            return
        if await self._discard_finished():
            stats = await self._disk.stats()
            met = eviction_thresholds.first_met(self._thresholds, stats)
            if met is None:
                return
        chosen = eviction_ranking.first_to_evict(used)
        if chosen is None and pods:
            self._log.warning("disk pressure, and no pod that may be evicted", why=self._message)
        elif chosen is not None:
            self._go(chosen.pod, eviction_ranking.pressure_message(chosen, met, stats))

    async def _discard_finished(self) -> int:
        """Delete the files of finished pods; answers how many pods had not been looked at yet."""
        finished = self._finished()
        self._discarded.intersection_update(finished)
        left = [uid for uid in finished if uid not in self._discarded]
        for uid in left:
            await self._disk.discard(uid)
            self._discarded.add(uid)
        if left:
            self._log.info("files of finished pods deleted", pods=len(left))
        return len(left)

    def _go(self, pod: Pod, why: str) -> None:
        self._evicted.add(pod.metadata.uid)
        self._evict(pod, why)
