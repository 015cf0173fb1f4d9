"""One run: a trace through the scheduler's own queue, framework and cache, in virtual time.

Nothing of the scheduler is imitated: pods come in through its handlers, its cycle decides, and a placed
pod is confirmed at once, as an informer would. Only the clock is made up: it jumps from one event to the
next, so a month passes as fast as its decisions can be made.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import msgspec

from grange.api import pod_requests
from grange.api.gpus import GPU_MILLI
from grange.api.kinds.pod import Pod
from grange.app.simulate.trace import Arrival, Trace, TraceError
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.placement import devices
from grange.placement.fragmentation import TargetWorkload
from grange.scheduler.cache import Cache
from grange.scheduler.component_config import Configured
from grange.scheduler.cycle import Assumed, Cycle, Unschedulable
from grange.scheduler.event_handlers import EventHandlers
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.schedule_one import ScheduleOne

_GAP_S = 0.001  # between arrivals of an inflation, so that a run ends before anything is retried
_SAMPLES = 200
_DRAWN_MAX = 2_000_000
_VAIN_MAX = 10_000  # consecutive waits for a backoff without a placement
_TURNS_MAX = 1_000_000  # of the scheduler at one moment, as a guard against a clock that stands


@dataclass(frozen=True, slots=True)
class ReplayPoint:
    """The cluster at one moment; shares are of what all nodes offer, 1.0 being all of it.

    Attributes:
        at_s: when.
        requested: what the pods that are there ask for, placed or not.
        allocated: what placed pods have.
        fragmented: what is free, but of no use to pods as the trace has them; GPUs only.
        waiting: pods without a node.
    """

    at_s: float
    requested: float
    allocated: float
    fragmented: float
    waiting: int


@dataclass(slots=True)
class ReplayRun:
    """What came of a run.

    Attributes:
        policy: its name.
        seed: of what was drawn.
        resource: what shares are of.
        points: in order.
        pods: how many came.
        placed: how many got a node.
        unplaced: how many were still waiting at the end.
        waits_s: of each placed pod, how long it waited.
        reasons: why pods waited at last, with how many did.
        decisions: how many were made.
        elapsed_s: real time that took.
    """

    policy: str
    seed: int
    resource: str
    points: list[ReplayPoint] = field(default_factory=list)
    pods: int = 0
    placed: int = 0
    unplaced: int = 0
    waits_s: list[float] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    decisions: int = 0
    elapsed_s: float = 0.0


def inflation(trace: Trace, seed: int, load: float) -> Iterator[Arrival]:
    """Pods drawn from the trace that never leave, until they ask for this share of the cluster.

    As Weng et al., USENIX ATC 2023, §6, evaluate policies (Monte Carlo workload inflation).

    Args:
        trace: where pods are drawn from, with putting back.
        seed: of the drawing.
        load: 1.3 for 130 %.

    Raises:
        TraceError: no number of pods, or too many, would ask for so much.
    """
    name, total = resource(trace)
    random = Stream(seed, "inflation")
    asked, pods = 0, [item.pod for item in trace.arrivals]
    amounts = [amount(pod, name) for pod in pods]
    if not any(amounts):
        raise TraceError(
            f"no pod asks for {name}, so pods cannot be drawn until they ask for enough"
        )
    expected = load * total * len(amounts) / sum(amounts)
    if expected > _DRAWN_MAX:
        raise TraceError(
            f"some {expected:,.0f} pods would have to be drawn, at most {_DRAWN_MAX:,} are possible: "
            "simulate fewer nodes, or less load"
        )
    for number in count():
        if asked >= load * total:
            return
        at = random.integer(0, len(pods) - 1)
        asked += amounts[at]
        meta = msgspec.structs.replace(pods[at].metadata, name=f"p{number}", uid=f"p{number}")
        yield Arrival(number * _GAP_S, msgspec.structs.replace(pods[at], metadata=meta))


def resource(trace: Trace) -> tuple[str, int]:
    """What load is measured in, and how much there is: GPUs, or CPUs where there are none."""
    offered = trace.offered()
    gpus = sum(item.scalars.get(GPU_MILLI, 0) for item in offered)
    return (GPU_MILLI, gpus) if gpus else ("cpu", sum(item.cpu_milli for item in offered))


def amount(pod: Pod, name: str) -> int:
    """How much of it a pod asks for."""
    request = pod_requests.pod_request(pod.spec)
    return devices.asked(request) if name == GPU_MILLI else request.resources.cpu_milli


class Replay:
    """Plays arrivals to a scheduler.

    Args:
        trace: the cluster.
        configured: the scheduler.
        workload: with regard to which free GPUs are fragmented; None where there are no GPUs.
        log: for what the scheduler cannot understand.
    """

    def __init__(
        self, trace: Trace, configured: Configured, workload: TargetWorkload | None, log: Logger
    ) -> None:
        self.now = 0.0
        self._workload = workload
        self.resource, self._total = resource(trace)
        profiles, config = configured.profiles, configured.config
        self._names = config.scheduler_names
        self.cache = Cache()
        self._queue = SchedulingQueue(profiles, config.queue)
        self._cycle = Cycle(profiles, self.cache)
        self._loop = ScheduleOne(self._cycle, self._queue)
        self._handlers = EventHandlers(
            self._cycle, self._queue, self._names, now=lambda: self.now, log=log
        )
        for node in trace.nodes:
            self._handlers.node_added(node)
        self._asked = self._given = 0
        self._waiting: dict[str, tuple[Arrival, float]] = {}
        self._leaving: list[tuple[float, int, Pod]] = []
        self._tickets = count()
        self._last: dict[str, str] = {}
        self._vain = 0

    def play(
        self,
        arrivals: Iterator[Arrival],
        run: ReplayRun,
        sample: Callable[["Replay"], bool],
    ) -> None:
        """Until no pod arrives or leaves any more.

        Args:
            arrivals: by time.
            run: what came of it.
            sample: asked after every event whether a point is wanted; there is one at the end.
        """
        coming = next(arrivals, None)
        while coming is not None or self._leaving or self._waiting:
            if not self._advance(coming):
                break
            while self._leaving and self._leaving[0][0] <= self.now:
                self._leave(heapq.heappop(self._leaving)[2])
            while coming is not None and coming.at_s <= self.now:
                self._come(coming, run)
                coming = next(arrivals, None)
                self._decide(run)
                if sample(self):
                    run.points.append(self.point())
            self._queue.flush(self.now)
            self._decide(run)
            if sample(self):
                run.points.append(self.point())
        end = self.point()
        if not run.points or run.points[-1] != end:
            run.points.append(end)
        run.unplaced = len(self._waiting)
        for uid in self._waiting:
            reason = self._last.get(uid, "")
            run.reasons[reason] = run.reasons.get(reason, 0) + 1
        run.decisions = self._cycle.decisions

    @property
    def requested(self) -> float:
        """What the pods that are there ask for, as a share."""
        return self._asked / self._total if self._total else 0.0

    def point(self) -> ReplayPoint:
        """The cluster now."""
        fragmented = 0.0
        if self._workload is not None and self._total:
            self._cycle.refresh()
            workload = self._workload
            nodes = self._cycle.snapshot.node_info_list
            lost = sum(workload.of_load(node.load) for node in nodes)
            fragmented = lost / self._workload.number / self._total
        given = self._given / self._total if self._total else 0.0
        return ReplayPoint(self.now, self.requested, given, fragmented, len(self._waiting))

    def _advance(self, coming: Arrival | None) -> bool:
        """To the next event; False when nothing can happen any more."""
        moments = [coming.at_s] if coming is not None else []
        if self._leaving:
            moments.append(self._leaving[0][0])
        if self._waiting and self._queue.statistics().backoff:
            due = self._queue.next_deadline(self.now)
            if due is not None and (moments or self._vain < _VAIN_MAX):
                self._vain += not moments
                moments.append(due)
        if not moments:
            return False  # pods that wait now wait to the end
        self.now = max(self.now, min(moments))
        return True

    def _come(self, arrival: Arrival, run: ReplayRun) -> None:
        pod = arrival.pod
        if pod.spec.scheduler_name not in self._names:
            spec = msgspec.structs.replace(pod.spec, scheduler_name=min(self._names))
            pod = msgspec.structs.replace(pod, spec=spec)
        run.pods += 1
        self._asked += amount(pod, self.resource)
        self._waiting[pod.metadata.uid] = (arrival, self.now)
        self._handlers.pod_added(pod)

    def _leave(self, pod: Pod) -> None:
        self._asked -= amount(pod, self.resource)
        self._given -= amount(pod, self.resource)
        self._handlers.pod_deleted(pod)

    def _decide(self, run: ReplayRun) -> None:
        for _ in range(_TURNS_MAX):
            outcome = self._loop.schedule_one(self.now)
            if outcome is None:
                return
            if isinstance(outcome, Assumed):
                self._settle(outcome, run)
            elif isinstance(outcome, Unschedulable):
                self._last[outcome.queued.uid] = _summary(outcome)

    def _settle(self, placed: Assumed, run: ReplayRun) -> None:
        pod = placed.info.pod
        arrival, since = self._waiting.pop(placed.uid)
        self._last.pop(placed.uid, None)
        self._handlers.pod_added(pod)
        self._given += amount(pod, self.resource)
        run.placed += 1
        self._vain = 0
        run.waits_s.append(self.now - since)
        if arrival.stays_s is not None:
            heapq.heappush(self._leaving, (self.now + arrival.stays_s, next(self._tickets), pod))


def _summary(outcome: Unschedulable) -> str:
    """The reason of most nodes."""
    diagnosis = outcome.diagnosis
    if diagnosis.pre_filter or not diagnosis.counts:
        return diagnosis.pre_filter or diagnosis.message
    return max(diagnosis.counts, key=lambda pair: (pair[1], pair[0]))[0]


def by_load(step: float = 0.01) -> Callable[[Replay], bool]:
    """A point whenever the requested load has grown by a step."""
    due = step

    def sample(replay: Replay) -> bool:
        nonlocal due
        if replay.requested < due:
            return False
        while due <= replay.requested:
            due += step
        return True

    return sample


def by_time(arrivals: Sequence[Arrival]) -> Callable[[Replay], bool]:
    """Some two hundred points over the time in which pods come."""
    last = max((item.at_s for item in arrivals), default=0.0)
    step = last / _SAMPLES
    due = 0.0

    def sample(replay: Replay) -> bool:
        nonlocal due
        if replay.now < due or replay.now > last:
            return False
        due = replay.now + step
        return True

    return sample
