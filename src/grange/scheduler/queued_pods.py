"""The parts of the scheduling queue: pools, the pods in them, heaps, and the events of pods in flight."""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from typing import Any

import msgspec

from grange.scheduler.clusterevents import ClusterEvent, Object
from grange.scheduler.podinfo import PodInfo

Key = tuple[float, ...]
# Pods with the same rejectors and signature get the same verdict on every event. No signature where
# some rejector's hints are not functions of it.
GroupKey = tuple[frozenset[str], int | None]


class SubQueue(Enum):
    """Where a pod waits."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    ERROR_BACKOFF = "error-backoff"
    UNSCHEDULABLE = "unschedulable"
    IN_FLIGHT = "in-flight"

    __hash__ = object.__hash__  # members are singletons; the inherited one is slow


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """How long failing pods wait.

    Attributes:
        backoff_initial_s: after the first failure; doubles with each.
        backoff_max_s: no wait is longer; 0 means no backoff at all.
        leftover_s: an unschedulable pod without any event is tried again after so long.
        leftover_check_s: how often that is looked at.
        early_per_s: how many pods a second may leave backoff early when nothing is active.
    """

    backoff_initial_s: float = 1.0
    backoff_max_s: float = 10.0
    leftover_s: float = 300.0
    leftover_check_s: float = 30.0
    early_per_s: int = 200


class QueuedPod(msgspec.Struct, eq=False, gc=False):
    """A pod on its way through the queue.

    Attributes:
        errors: failures by error in a row; a plain diagnosis ends the row.
        pending: its rejectors recognise what they wait for.
        gate: the PreEnqueue plugin that holds it; empty when none does.
        gone: it was deleted or assigned by others while in flight.
    """

    info: PodInfo
    timestamp: float
    first_queued: float
    attempts: int = 0
    unschedulable_count: int = 0
    errors: int = 0
    rejectors: frozenset[str] = frozenset()
    pending: bool = False
    gate: str = ""
    pool: SubQueue = SubQueue.UNSCHEDULABLE
    gone: bool = False
    ticket: int = 0
    group: GroupKey | None = None

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return self.info.uid


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """How many pods wait where."""

    active: int
    backoff: int
    unschedulable: int
    gated: int
    in_flight: int


class Heap:
    """A heap with lazy removal: a pod that left, or came back, has another ticket."""

    __slots__ = ("_entries", "pool")

    def __init__(self, pool: SubQueue) -> None:
        self.pool = pool
        # Key, ticket, pod; flat, since nested tuples take four times as long to compare.
        self._entries: list[tuple[Any, ...]] = []

    def push(self, key: Key, ticket: int, pod: QueuedPod) -> None:
        """Put a pod in; an entry that it already has becomes void."""
        pod.pool = self.pool
        pod.ticket = ticket
        heappush(self._entries, (*key, ticket, pod))

    def head(self) -> tuple[float, QueuedPod] | None:
        """The first number of the smallest key, and its pod; None when the heap is empty."""
        entries = self._entries
        while entries:
            entry = entries[0]
            pod = entry[-1]
            if pod.ticket == entry[-2]:
                return entry[0], pod
            heappop(entries)
        return None

    def pop(self) -> QueuedPod | None:
        """Take the head out."""
        head = self.head()
        if head is None:
            return None
        heappop(self._entries)
        return head[1]


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event that came while a pod was in flight; ``uid`` is the only pod it concerns, or empty."""

    event: ClusterEvent
    before: Object
    after: Object
    uid: str


class InFlightEvents:
    """The pods in flight, and the events since the oldest of them was popped."""

    __slots__ = ("_begun", "_log", "_start")

    def __init__(self) -> None:
        self._begun: dict[str, int] = {}  # UID to its place in the log, oldest first
        self._log: deque[LoggedEvent] = deque()
        self._start = 0

    def __len__(self) -> int:
        """How many events are logged."""
        return len(self._log)

    def begin(self, uid: str) -> None:
        """A pod is in flight."""
        self._begun[uid] = self._start + len(self._log)

    def note(self, event: ClusterEvent, before: Object, after: Object, uid: str) -> None:
        """Log an event, if any pod is in flight."""
        if self._begun:
            self._log.append(LoggedEvent(event, before, after, uid))

    def newest(self) -> str | None:
        """The pod that was popped last; None without any."""
        return next(reversed(self._begun), None)

    def end(self, uid: str) -> list[LoggedEvent]:
        """A pod is in flight no longer; return the events since it was popped, and trim the log."""
        place = self._begun.pop(uid, None)
        if place is None or not self._log:
            return []
        end = self._start + len(self._log)
        since = [] if place == end else list(self._log)[place - self._start :]
        oldest = next(iter(self._begun.values()), end)
        while self._start < oldest:
            self._log.popleft()
            self._start += 1
        return since

    def clear(self) -> None:
        """Forget all pods and events."""
        self._begun.clear()
        self._start += len(self._log)
        self._log.clear()
