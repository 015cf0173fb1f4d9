"""The controller loop: keys in, one reconcile at a time for each, retries with growing delays.

A reconcile looks at the world and moves it one step towards what is wanted; it gets a key,
never what happened to it. It answers ``Done`` or ``Requeue``; it raises ``Terminal`` when trying
again cannot help until something changes; anything else it raises is tried again later. This loop
is the one layer that retries.
"""

import asyncio
import math
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from grange.api.meta import ObjectKey
from grange.api.status import ApiError, Conflict
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.metrics import CollectorRegistry, registry
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.reconcile.metrics import instruments
from grange.reconcile.outage import OUTAGE_CAP_S, ends_by_itself
from grange.reconcile.workqueue import ShutDown, WorkQueue


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to do until something changes."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """Look again after so many seconds, even if nothing changes; not a failure."""

    after_s: float


Result = Done | Requeue


class Terminal(GrangeError):
    """Trying again cannot help until the object changes: logged once, not retried."""


@dataclass(frozen=True, slots=True)
class ControllerStatistics:
    """Counts since the start."""

    done: int
    requeued: int
    terminal: int
    failed: int
    active: int


class Controller:
    """Runs a reconcile function over keys.

    Args:
        name: for logs and metrics.
        reconcile: brings one object a step closer; may be called for keys that are gone.
        queue: the work queue; its own by default, with the field's limits.
        workers: how many keys may be at work at once; never the same key twice.
        clock: time.
        rng: named stream (kept for reconcilers that ask the controller for one).
        log: where outcomes go.
        metrics: where counts go; a private registry by default.
    """

    def __init__(  # noqa: PLR0913  what it does, with what, and where it reports
        self,
        name: str,
        reconcile: Callable[[ObjectKey], Awaitable[Result]],
        *,
        queue: WorkQueue[ObjectKey] | None = None,
        workers: int = 1,
        clock: Clock,
        rng: Stream,
        log: Logger,
        metrics: CollectorRegistry | None = None,
    ) -> None:
        self.name = name
        self.rng = rng
        self.queue: WorkQueue[ObjectKey] = queue if queue is not None else WorkQueue(clock)
        self._reconcile = reconcile
        self._workers = workers
        self._clock = clock
        self._log = log.bind(controller=name)
        counters = instruments(metrics if metrics is not None else registry())
        self._counters = {
            outcome: counters.reconciles.labels(name, outcome)
            for outcome in ("done", "requeue", "terminal", "error")
        }
        self._seconds = counters.seconds.labels(name)
        counters.depth.labels(name).set_function(self.queue.__len__)
        self._counts = dict.fromkeys(self._counters, 0)
        self._active = 0

    def wrap(
        self,
        around: Callable[
            [Callable[[ObjectKey], Awaitable[Result]]], Callable[[ObjectKey], Awaitable[Result]]
        ],
    ) -> None:
        """Put something around every reconcile (e.g. the guard of a farm); before ``run``."""
        self._reconcile = around(self._reconcile)

    def enqueue(self, key: ObjectKey) -> None:
        """Have the key looked at soon."""
        self.queue.add(key)

    def enqueue_after(self, key: ObjectKey, seconds: float) -> None:
        """Have the key looked at after a delay; the earliest of several counts."""
        self.queue.add_after(key, seconds)

    def shut_down(self) -> None:
        """Take no more keys; ``run`` returns when those that wait have been looked at."""
        self.queue.shut_down()

    def statistics(self) -> ControllerStatistics:
        """Counts since the start."""
        return ControllerStatistics(
            done=self._counts["done"],
            requeued=self._counts["requeue"],
            terminal=self._counts["terminal"],
            failed=self._counts["error"],
            active=self._active,
        )

    async def run(self) -> None:
        """Work until cancelled, or until ``shut_down`` and drained."""
        async with Nursery(f"controller {self.name}") as nursery:
            for number in range(self._workers):
                nursery.start(self._work(), name=f"{self.name} worker {number}")

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except ShutDown:
                return
            self._active += 1
            try:
                await self._one(key)
            except asyncio.CancelledError:
                self.queue.add(key)  # to be reconciled when this loop runs again
                raise
            finally:
                self._active -= 1
                self.queue.done(key)
            # Neither the queue nor an in-process client need suspend: let the others run, too.
            await self._clock.sleep(0)

    async def _one(self, key: ObjectKey) -> None:
        started = self._clock.monotonic()
        error: Exception | None = None
        try:
            result = await self._reconcile(key)
        except Terminal as terminal:
            outcome, error = "terminal", terminal
            self.queue.forget(key)
        except Exception as failure:  # noqa: BLE001  supervision point: a crash costs one key a delay
            outcome, error = "error", failure
            cap_s = OUTAGE_CAP_S if ends_by_itself(failure) else math.inf
            self.queue.add_rate_limited(key, cap_s=cap_s)
        else:
            self.queue.forget(key)
            outcome = "done"
            if isinstance(result, Requeue):
                outcome = "requeue"
                self.queue.add_after(key, result.after_s)
        elapsed = self._clock.monotonic() - started
        self._counts[outcome] += 1
        self._counters[outcome].inc()
        self._seconds.observe(elapsed)
        self._report(key, outcome, elapsed, error)

    def _report(
        self, key: ObjectKey, outcome: str, elapsed: float, error: Exception | None
    ) -> None:
        """The one line of a reconcile; its level shows whether an operator should look."""
        facts: dict[str, object] = {
            "key": str(key),
            "outcome": outcome,
            "elapsed_s": round(elapsed, 6),
        }
        if error is None:
            self._log.debug("reconciled", **facts)
            return
        facts["error"] = error
        if outcome == "error":
            facts["attempt"] = self.queue.failures(key)
        if isinstance(error, Conflict):
            self._log.debug("reconciled", **facts)  # another client wrote first: the normal race
        elif isinstance(error, (ApiError, Terminal)):
            self._log.warning("reconciled", **facts)
        else:
            facts["trace"] = "".join(traceback.format_exception(error))
            self._log.error("reconciled", **facts)
