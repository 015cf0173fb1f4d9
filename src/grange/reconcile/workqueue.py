"""The work queue: every key at most once in the queue and at most once at work.

Theory of operation. A key is *dirty* while it has to be processed, and *processing* while a
worker looks at it. Adding a clean key makes it dirty and queues it, unless it is processing: then
it only becomes dirty, and ``done`` queues it again. So adds during processing collapse into
exactly one more run, nothing is lost, and no key is ever with two workers.

``Core`` is pure (``now`` is an argument); ``WorkQueue`` adds waiting.
"""

import asyncio
import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from grange.base.backoff import Exponential, FailureLimiter, TokenBucket
from grange.base.clock import Clock
from grange.base.errors import GrangeError

T = TypeVar("T", bound=Hashable)

_TICK_S = 1e-6  # a clock of another pace leaves rests too small for the loop's time to move


class ShutDown(GrangeError):
    """The queue is shut down and empty: the worker ends."""


def field_limiter() -> FailureLimiter:
    """The field's default: 5 ms·2ⁿ up to 1000 s for an item, 10/s after a burst of 100 overall."""
    return FailureLimiter()


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts of a queue: waiting, processing and delayed now; adds and retries since the start."""

    depth: int
    processing: int
    delayed: int
    adds: int
    retries: int


class Core(Generic[T]):
    """The queue without waiting; every method is instantaneous.

    Args:
        limiter: how long failed items wait.
    """

    def __init__(self, limiter: FailureLimiter) -> None:
        self._limiter = limiter
        self._queue: deque[T] = deque()
        self._dirty: set[T] = set()  # only membership is asked, so its order never shows
        self._processing: set[T] = set()
        self._ready_at: dict[T, float] = {}
        self._heap: list[tuple[float, int, T]] = []
        self._sequence = 0
        self._adds = 0
        self._retries = 0
        self.shutting_down = False

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, item: T) -> bool:
        """Want the item looked at; whether it is newly in the queue."""
        if self.shutting_down or item in self._dirty:
            return False
        self._adds += 1
        self._dirty.add(item)
        if item in self._processing:
            return False
        self._queue.append(item)
        return True

    def add_after(self, item: T, seconds: float, now: float) -> bool:
        """Add the item after a delay; of several delays the earliest end counts."""
        if self.shutting_down:
            return False
        if seconds <= 0:
            return self.add(item)
        at = now + seconds
        known = self._ready_at.get(item)
        if known is None or at < known:
            self._ready_at[item] = at
            self._sequence += 1
            heappush(self._heap, (at, self._sequence, item))
        return False

    def add_rate_limited(self, item: T, now: float, *, cap_s: float = math.inf) -> bool:
        """Count a failure of the item and add it after the delay it has earned, capped."""
        if self.shutting_down:
            return False
        self._retries += 1
        return self.add_after(item, self._limiter.when(item, now, cap_s=cap_s), now)

    def forget(self, item: T) -> None:
        """The item's next failure counts as its first."""
        self._limiter.forget(item)

    def failures(self, item: T) -> int:
        """Consecutive failures of the item."""
        return self._limiter.failures(item)

    def promote(self, now: float) -> int:
        """Add the delayed items whose time has come; how many are newly in the queue."""
        count = 0
        while self._heap and self._heap[0][0] <= now:
            at, _, item = heappop(self._heap)
            if self._ready_at.get(item) != at:
                continue  # superseded by an earlier time, already served
            del self._ready_at[item]
            count += self.add(item)
        return count

    def next_deadline(self) -> float | None:
        """When the next delayed item is due; None when none is delayed."""
        while self._heap and self._ready_at.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop(self) -> T | None:
        """Take the oldest item to work on it; None when the queue is empty."""
        if not self._queue:
            return None
        item = self._queue.popleft()
        self._dirty.discard(item)
        self._processing.add(item)
        return item

    def done(self, item: T) -> bool:
        """The worker is through with the item; whether it is in the queue again."""
        self._processing.discard(item)
        if item not in self._dirty:
            return False
        self._queue.append(item)
        return True

    def shut_down(self) -> None:
        """Ignore further adds and forget the delayed ones; queued items can still be taken."""
        self.shutting_down = True
        self._ready_at.clear()
        self._heap.clear()

    @property
    def drained(self) -> bool:
        """Shut down, and nothing left to take."""
        return self.shutting_down and not self._queue

    def statistics(self) -> Statistics:
        """Counts, now and since the start."""
        return Statistics(
            depth=len(self._queue),
            processing=len(self._processing),
            delayed=len(self._ready_at),
            adds=self._adds,
            retries=self._retries,
        )


class WorkQueue(Generic[T]):
    """The queue that workers wait on.

    Args:
        clock: for delays.
        limiter: how long failed items wait; the field's default unless given.
    """

    def __init__(self, clock: Clock, limiter: FailureLimiter | None = None) -> None:
        self._clock = clock
        self._core: Core[T] = Core(limiter or field_limiter())
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None

    def __len__(self) -> int:
        """Items that wait for a worker, delayed ones not counted."""
        return len(self._core)

    def add(self, item: T) -> None:
        """Want the item looked at; ignored after ``shut_down``."""
        if self._core.add(item):
            self._wake(1)

    def add_after(self, item: T, seconds: float) -> None:
        """Add the item after a delay; of several delays the earliest end counts."""
        if self._core.add_after(item, seconds, self._clock.monotonic()):
            self._wake(1)
        else:
            self._arm()

    def add_rate_limited(self, item: T, *, cap_s: float = math.inf) -> None:
        """Count a failure of the item and add it after the delay it has earned, capped."""
        if self._core.add_rate_limited(item, self._clock.monotonic(), cap_s=cap_s):
            self._wake(1)
        else:
            self._arm()

    def forget(self, item: T) -> None:
        """The item's next failure counts as its first."""
        self._core.forget(item)

    def failures(self, item: T) -> int:
        """Consecutive failures of the item."""
        return self._core.failures(item)

    async def get(self) -> T:
        """Take the oldest item, waiting for one; call ``done`` with it afterwards.

        Raises:
            ShutDown: the queue is shut down and drained.
        Cancellation: no item is lost.
        """
        while True:
            item = self._core.pop()
            if item is not None:
                return item
            if self._core.drained:
                raise ShutDown("the work queue is shut down")
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                # Woken and cancelled in one turn: the wake-up belongs to another worker.
                if waiter.done() and not waiter.cancelled():
                    self._wake(1)
                raise

    def done(self, item: T) -> None:
        """The worker is through with the item; wanted again meanwhile, it is queued again."""
        if self._core.done(item):
            self._wake(1)

    def shut_down(self) -> None:
        """Ignore further adds; waiting workers drain what is queued and then get ``ShutDown``."""
        self._core.shut_down()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake(len(self._waiters))

    def statistics(self) -> Statistics:
        """Counts, now and since the start."""
        return self._core.statistics()

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    def _arm(self) -> None:
        """Have one timer for the next deadline."""
        deadline = self._core.next_deadline()
        if self._timer is not None:
            if deadline is not None and self._timer_at is not None and self._timer_at <= deadline:
                return
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer_at = deadline
            delay = max(_TICK_S, deadline - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._due)

    def _due(self) -> None:
        self._timer = None
        self._wake(self._core.promote(self._clock.monotonic()))
        self._arm()


def rate_limited_queue(
    clock: Clock, retries: Exponential, *, rate_per_s: float = 1000.0, burst: int = 10_000
) -> WorkQueue[Any]:
    """A queue whose failed items wait longer from time to time, and together at most at a rate.

    Args:
        clock: time.
        retries: how long an item waits after each of its failures in a row.
        rate_per_s: of the retries of all items.
        burst: retries before that rate holds; enough for very many items that fail at once.
    """
    bucket = TokenBucket(rate_per_s=rate_per_s, burst=burst)
    return WorkQueue(clock, FailureLimiter(exponential=retries, bucket=bucket))
