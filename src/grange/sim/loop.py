"""A virtual-time event loop: hours pass in milliseconds, and the same input gives the same trace.

The one idea: an asyncio loop only learns of time from its own ``time()`` and only waits in its
selector. Here the selector does not wait; when nothing is ready it moves the clock to the next
timer. The ready queue of asyncio is first in, first out, and timers with equal deadlines fire in the
order in which they were set, so nothing is left to chance but what the program itself asks of
``base.rng``.

What the loop cannot foresee is real work: a call in a thread, a real file descriptor. While a call
started by ``run_in_executor`` is running, time stands still.

A program that waits for nothing that could ever happen gets ``Deadlock``, and one that
ticks on without end, or spins without letting time pass, is stopped (``Livelock``).
"""

import asyncio
import gc
import heapq
import selectors
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import AsyncGeneratorType, CoroutineType
from typing import Any, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary, WeakSet

from grange.base.errors import GrangeError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

HORIZON_S = 30 * 24 * 3600.0  # a test that needs more than a month is waiting for nothing
BUSY_ROUNDS = 500_000  # a few seconds of real time in which nothing waits for anything
_FOREIGN_THREADS_S = 5.0  # real seconds for threads that the loop did not start to speak up


class Deadlock(GrangeError):
    """Nothing is runnable, no timer is set: the waiting tasks would wait forever."""


class Livelock(GrangeError):
    """The program goes on without end: past the horizon, or busy while time stands still."""


# Simulations make and cancel handles by the hundred thousand. These two do it as asyncio does, without
# asking the loop each time whether it is debugged.


class _Handle(asyncio.Handle):
    """A call that is made soon."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[object, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback: Callable[..., object] | None = callback
        self._args: Any = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class _Timer(asyncio.TimerHandle):
    """A timer whose ties are broken by the order of setting."""

    __slots__ = ("order",)

    _loop: "VirtualLoop"

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        loop: "VirtualLoop",
        context: Context | None,
        order: int,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback: Callable[..., object] | None = callback
        self._args: Any = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = True
        self.order = order

    def cancel(self) -> None:
        """Do not call; the loop removes it from its heap when there are many such."""
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None
            if self._scheduled:
                self._loop._timer_cancelled_count += 1

    def __lt__(self, other: "_Timer") -> bool:  # type: ignore[override]  # only ever in one heap
        # Asked for more often than anything else in a simulation.
        return self.order < other.order if self._when == other._when else self._when < other._when


class _Selector(selectors.DefaultSelector):
    """Asks the loop what to do instead of waiting."""

    _fd_to_key: dict[int, selectors.SelectorKey]

    def __init__(self) -> None:
        super().__init__()
        self.idle: Callable[[], float | None] = lambda: None
        self.stuck: Callable[[], None] = lambda: None
        self.busy: Callable[[], None] = lambda: None

    @property
    def real(self) -> bool:
        """Whether more is registered than the loop's own wake-up pipe."""
        return len(self._fd_to_key) > 1

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Poll real descriptors if there are any; with nothing ready, let the loop move time."""
        if timeout is not None and timeout <= 0:
            self.busy()
            return super().select(0) if self.real else []
        if self.real and (events := super().select(0)):
            return events
        wait = self.idle()
        if wait == 0.0:
            return []
        events = super().select(wait)
        if not events and wait is not None:
            self.stuck()
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop on virtual time, which starts at zero.

    Args:
        horizon_s: virtual seconds after which ``Livelock`` is raised.

    Raises:
        Deadlock, Livelock: out of ``run_until_complete``; both name the waiting tasks.
    """

    _ready: deque[asyncio.Handle]
    _scheduled: list[_Timer]
    _timer_cancelled_count: int
    _debug: bool
    _closed: bool
    _asyncgens: WeakSet[AsyncGeneratorType[object, None]]

    def __init__(self, *, horizon_s: float = HORIZON_S) -> None:
        self._virtual_now = 0.0
        self._bystanders = frozenset(threading.enumerate())
        selector = _Selector()
        super().__init__(selector)
        selector.idle = self._idle
        selector.stuck = self._stuck
        selector.busy = self._busy
        self._real = selector
        self._horizon_s = horizon_s
        self._threads = 0
        self._busy_at = 0.0
        self._rounds = 0
        self._timers = 0
        self._born = 0
        self._births: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        # Adding less than a float's spacing changes nothing, and then a due timer never fires.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual_now

    def _idle(self) -> float | None:
        """Nothing is ready: move time, or return how long to wait for the real world (None: forever)."""
        if self._threads:
            return None
        if self._scheduled:
            self._virtual_now = max(self._virtual_now, self._scheduled[0].when())
            if self._virtual_now > self._horizon_s:
                raise Livelock(
                    f"virtual time passed {self._horizon_s:.0f} s and these tasks still wait:"
                    f"{self.describe_tasks()}"
                )
            return 0.0
        if self._real.real:
            return None
        if not self._bystanders.issuperset(threading.enumerate()):
            return _FOREIGN_THREADS_S
        self._stuck()
        return 0.0

    def _busy(self) -> None:
        """Something is ready: count the rounds in which time stands still.

        Timers within the resolution are run although something is ready. It is their time then: code
        that looks whether its time has come would otherwise set such a timer again and again.
        """
        if self._scheduled:
            due = self._scheduled[0].when()
            if self._virtual_now < due < self._virtual_now + self._clock_resolution:
                self._virtual_now = due
        if self._virtual_now != self._busy_at:
            self._busy_at, self._rounds = self._virtual_now, 0
        self._rounds += 1
        if self._rounds > BUSY_ROUNDS:
            self._rounds = 0
            raise Livelock(
                f"time has stood still at virtual second {self._virtual_now:g} for {BUSY_ROUNDS} "
                f"rounds of the loop; these tasks are there:{self.describe_tasks()}"
            )

    def _stuck(self) -> None:
        if not self._ready:
            raise Deadlock(
                f"nothing is runnable and no timer is set, at virtual second "
                f"{self._virtual_now:g}; these tasks wait forever:{self.describe_tasks()}"
            )

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call at a virtual time; equal times in the order of asking."""
        if self.is_closed():
            raise RuntimeError("the event loop is closed")
        self._timers += 1
        timer = _Timer(when, callback, args, self, context, self._timers)
        heapq.heappush(self._scheduled, timer)
        return timer

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Call in the next round."""
        if self._debug or self._closed:
            return super().call_soon(callback, *args, context=context)
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call after so many virtual seconds."""
        return self.call_at(self._virtual_now + delay, callback, *args, context=context)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Start a task; unnamed ones are numbered by the loop, not by the process."""
        self._born += 1
        task = super().create_task(
            coro,
            name=f"task-{self._born}" if name is None else str(name),
            context=context,
        )
        self._births[task] = self._born
        return task

    def run_in_executor(
        self, executor: Any, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run in a thread; virtual time stands still until the call has ended."""
        future: asyncio.Future[T] = super().run_in_executor(executor, func, *args)
        self._threads += 1
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _: object) -> None:
        self._threads -= 1

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[object, None]) -> None:
        # A generator that is left to the collector is cleaned up at a random time.
        self.call_exception_handler(
            {
                "message": f"{agen!r} was dropped before its end: use contextlib.aclosing()",
                "asyncgen": agen,
            }
        )
        super()._asyncgen_finalizer_hook(agen)  # type: ignore[misc]  # typeshed leaves it out

    def tasks(self) -> list[asyncio.Task[Any]]:
        """The unfinished tasks, oldest first."""
        return sorted(asyncio.all_tasks(self), key=lambda task: self._births.get(task, 0))

    def open_generators(self) -> list[str]:
        """Asynchronous generators that were begun and neither ended nor closed."""
        return sorted(repr(agen) for agen in self._asyncgens if agen.ag_frame is not None)

    def describe_tasks(self) -> str:
        """The unfinished tasks and where each waits, a line each."""
        return "".join(f"\n  {where(task)}" for task in self.tasks()) or " (none)"


def where(task: asyncio.Task[Any]) -> str:
    """A task's name and the chain of calls at which it waits, outermost first."""
    chain: list[str] = []
    awaited: object = task.get_coro()
    while awaited is not None:
        if isinstance(awaited, CoroutineType):
            frame, code, awaited = awaited.cr_frame, awaited.cr_code, awaited.cr_await
        elif isinstance(awaited, AsyncGeneratorType):
            frame, code, awaited = awaited.ag_frame, awaited.ag_code, awaited.ag_await
        else:  # the awaitable of anext(generator) has no name for its generator
            awaited = next(
                (r for r in gc.get_referents(awaited) if isinstance(r, AsyncGeneratorType)), None
            )
            continue
        line = frame.f_lineno if frame is not None else code.co_firstlineno
        chain.append(f"{code.co_qualname} ({code.co_filename.rpartition('/')[2]}:{line})")
    return f"{task.get_name()}: {' → '.join(chain) or 'not started'}"
