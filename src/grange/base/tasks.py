"""Who owns a task: every task is a child of one nursery, and a nursery ends with its children.

``asyncio.TaskGroup`` keeps its children in a set and cancels them by memory address, which makes a
simulated trace depend on the allocator. A ``Nursery`` keeps insertion order and so the same seed
gives the same trace. Its laws are structured concurrency's: leaving the block waits for all
children; the first failure cancels the rest, youngest first; nothing outlives its block.

Cancellation in asyncio is an edge, not a level: it is delivered once, at one await. An
await that raises another error (a child that fails while it cleans up, for instance) would lose it,
and a worker that survives errors would then never end. Here such a cancellation is delivered again.
"""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.log import Logger

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Child(Protocol[T_co]):
    """A started child. Not awaitable: the nursery waits for it and raises its failure."""

    def cancel(self) -> bool:
        """Ask it to end; False if it has ended already."""

    def done(self) -> bool:
        """Whether it has ended."""

    def cancelled(self) -> bool:
        """Whether it ended by cancellation."""

    def result(self) -> T_co:
        """What it returned; only after its end."""


class Nursery:
    """An insertion-ordered group of child tasks.

    ::

        async with Nursery("agent") as nursery:
            nursery.start(renew_lease())
            nursery.start(watch_pods())

    Raises:
        BaseExceptionGroup: on exit, when the body or a child failed: the body's own exception
            first, then the children's in the order of their failing. ``KeyboardInterrupt`` and
            ``SystemExit`` pass bare. A child that was cancelled has not failed.
        CancelledError: the owner was cancelled; the children were, too, and have ended. If one of
            them failed meanwhile, the group is raised and the cancellation arrives at the owner's
            next await.
    """

    def __init__(self, name: str = "nursery") -> None:
        self.name = name
        self._children: dict[asyncio.Task[Any], None] = {}
        self._errors: list[BaseException] = []
        self._owner: asyncio.Task[Any] | None = None
        self._requests = 0  # cancellations of the owner that were pending when it entered
        self._in_body = False
        self._closed = False
        self._aborted = False
        self._cancelled_owner = False
        self._idle: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._children)

    def __bool__(self) -> bool:
        return True  # an empty nursery is still a nursery

    async def __aenter__(self) -> Self:
        if self._owner is not None:
            raise RuntimeError(f"{self.name}: a nursery is entered once")
        self._owner = _current_task()
        self._requests = self._owner.cancelling()
        self._in_body = True
        return self

    def start(
        self, coroutine: Coroutine[object, object, T], *, name: str | None = None
    ) -> Child[T]:
        """Start a child; it is cancelled with the nursery and its failure fails the nursery.

        The body may, and so may every child until the last has ended. In a nursery that is being
        cancelled the child is cancelled before its first step.

        Raises:
            RuntimeError: before the block or after its end.
        """
        if self._owner is None or self._closed:
            coroutine.close()
            raise RuntimeError(f"{self.name}: start() outside the nursery's block")
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._children[task] = None
        task.add_done_callback(self._on_done)
        if self._aborted:
            task.cancel()
        return task

    def cancel(self) -> None:
        """Cancel the children, youngest first, and the body; the block then ends without an error.

        Called by the body itself, it lets the body go on to its end.
        """
        self._abort()
        if self._in_body and not self._cancelled_owner and self._owner is not None:
            if asyncio.current_task() is self._owner:
                return
            self._cancelled_owner = True
            self._owner.cancel()

    def _abort(self) -> None:
        self._aborted = True
        for task in reversed(list(self._children)):
            task.cancel()

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._children.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._errors.append(error)
            if not self._aborted:
                self.cancel()
        if not self._children and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._in_body = False
        cancelled = error if isinstance(error, asyncio.CancelledError) else None
        if self._cancelled_owner and _current_task().uncancel() <= self._requests:
            cancelled = None  # the request was this nursery's own and no other's
        if error is not None and not self._aborted:
            self._abort()
        cancelled = await self._wait_children() or cancelled
        self._closed = True
        errors = self._errors
        self._errors = []
        if error is not None and not isinstance(error, (asyncio.CancelledError, GeneratorExit)):
            errors.insert(0, error)
        try:
            if errors:
                _redeliver(self._requests)
                raise _bare(errors) or BaseExceptionGroup(
                    f"{self.name}: {len(errors)} failed", errors
                )
            if cancelled is not None:
                raise cancelled
            return isinstance(error, asyncio.CancelledError)
        finally:
            del errors, error, cancelled  # or the raised error refers to itself through this frame

    async def _wait_children(self) -> asyncio.CancelledError | None:
        """Wait for the last child; the owner's cancellation meanwhile is handed back."""
        cancelled: asyncio.CancelledError | None = None
        while self._children:
            self._idle = asyncio.get_running_loop().create_future()
            try:
                await self._idle
            except asyncio.CancelledError as outer:
                cancelled = outer
                self._abort()
        return cancelled


def _bare(errors: list[BaseException]) -> BaseException | None:
    """The error that must not be wrapped because the interpreter itself waits for it."""
    return next((e for e in errors if isinstance(e, (KeyboardInterrupt, SystemExit))), None)


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("needs a running task")
    return task


def _redeliver(requests: int) -> None:
    """Cancel the current task once more, at its next await, if more than ``requests`` are pending.

    Decided only then, because a timeout further out may withdraw its request on the way.
    """
    task = _current_task()
    if task.cancelling() <= requests:
        return

    def deliver() -> None:
        if not task.done() and task.cancelling() > requests:
            task.uncancel()
            task.cancel()

    task.get_loop().call_soon(deliver)


async def cleanup(
    coroutine: Coroutine[object, object, object], *, limit_s: float, clock: Clock, log: Logger
) -> None:
    """Run cleanup that must await even while cancelled, shielded and bounded by ``limit_s``.

    An overrun is logged and cancelled; what ignores that for ``limit_s`` more is logged again and
    left to the loop. A failure is raised. A cancellation that arrives meanwhile is passed on after
    the cleanup has ended.
    """
    requests = _current_task().cancelling()
    task = asyncio.get_running_loop().create_task(coroutine, name="cleanup")
    cancelled = await _outlast(task, limit_s, clock)
    if not task.done():
        log.warning("cleanup overran", limit_s=limit_s)
        task.cancel()
        cancelled = await _outlast(task, limit_s, clock) or cancelled
        if not task.done():
            log.error("cleanup ignores cancellation", limit_s=limit_s)
    if task.done() and not task.cancelled() and (error := task.exception()) is not None:
        _redeliver(requests)
        raise error
    if cancelled is not None:
        raise cancelled


async def _outlast(
    task: asyncio.Task[Any], limit_s: float, clock: Clock
) -> asyncio.CancelledError | None:
    """Wait until the task is done or the limit is over, whatever happens to the caller.

    Returns:
        The caller's cancellation, if one arrived.
    """
    deadline = clock.monotonic() + limit_s
    cancelled: asyncio.CancelledError | None = None
    ended = asyncio.Event()
    task.add_done_callback(lambda _: ended.set())
    while not task.done():
        try:
            async with clock.timeout(max(0.0, deadline - clock.monotonic())):
                await ended.wait()
        except TimeoutError:
            break
        except asyncio.CancelledError as outer:
            cancelled = outer
    return cancelled


class ServiceStates(Protocol):
    """What supervision keeps up to date. ``supervision.Services`` loads a library of metrics."""

    def started(self, name: str, now: float) -> None:
        """The service starts, at a monotonic time in seconds."""

    def crashed(self, name: str, error: BaseException, attempt: int) -> None:
        """It crashed, for the nth time in a row, and waits for its restart."""

    def ended(self, name: str) -> None:
        """It is done or was cancelled."""


async def supervise(
    name: str,
    run: Callable[[], Coroutine[object, object, None]],
    *,
    clock: Clock,
    log: Logger,
    backoff: Exponential | None = None,
    services: ServiceStates | None = None,
) -> None:
    """Keep a service running: a crash is logged and it starts again after a capped backoff.

    A service that ran longer than the cap before it crashed starts from the first delay. Returns
    when ``run`` returns. Cancellation passes through, also when ``run`` answers it with a crash.
    ``services`` is kept up to date, for health checks.
    """
    try:
        await _supervise(name, run, clock=clock, log=log, backoff=backoff, services=services)
    finally:
        if services is not None:
            services.ended(name)


async def _supervise(
    name: str,
    run: Callable[[], Coroutine[object, object, None]],
    *,
    clock: Clock,
    log: Logger,
    backoff: Exponential | None,
    services: ServiceStates | None,
) -> None:
    delays = backoff or Exponential(initial_s=0.2, cap_s=10.0)
    requests = _current_task().cancelling()
    failures = 0
    while True:
        started = clock.monotonic()
        if services is not None:
            services.started(name, started)
        try:
            return await run()
        except Exception as error:  # noqa: BLE001  one of the three supervision points
            if clock.monotonic() - started > delays.cap_s:
                failures = 0
            failures += 1
            log.crash("service crashed", error, service=name, attempt=failures)
            if services is not None:
                services.crashed(name, error, failures)
        if _current_task().cancelling() > requests:
            raise asyncio.CancelledError
        await clock.sleep(delays.delay(failures))
