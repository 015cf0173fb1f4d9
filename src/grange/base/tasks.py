"""Who owns a task: every task is a child of one nursery, and a nursery ends with its children.

``asyncio.TaskGroup`` keeps its children in a set and cancels them by memory address, which makes a
simulated trace depend on the allocator. A ``Nursery`` keeps insertion order and so the same seed
gives the same trace. Its laws are structured concurrency's: leaving the block waits for all
children; the first failure cancels the rest, youngest first; nothing outlives its block.
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

    def get_name(self) -> str:
        """Its name."""


class Nursery:
    """An insertion-ordered group of child tasks.

    Raises:
        BaseExceptionGroup: on exit, with every child's failure in start order; the body's own
            exception comes first. Cancellation of the owner cancels the children and passes on.
    """

    def __init__(self, name: str = "nursery") -> None:
        self.name = name
        self._children: dict[asyncio.Task[Any], None] = {}
        self._errors: list[BaseException] = []
        self._owner: asyncio.Task[object] | None = None
        self._closing = False
        self._aborted = False
        self._cancelled_owner = False
        self._idle: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._children)

    async def __aenter__(self) -> Self:
        self._owner = asyncio.current_task()
        return self

    def start(
        self, coroutine: Coroutine[object, object, T], *, name: str | None = None
    ) -> Child[T]:
        """Start a child; it is cancelled with the nursery and its failure fails the nursery."""
        if self._owner is None or (self._closing and not self._children) or self._aborted:
            coroutine.close()
            raise RuntimeError(f"{self.name}: start() outside the nursery's block")
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._children[task] = None
        task.add_done_callback(self._on_done)
        return task

    def cancel(self) -> None:
        """Cancel all children, youngest first; the block then ends without an error."""
        self._aborted = True
        for task in reversed(list(self._children)):
            task.cancel()

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._children.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._errors.append(error)
            if not self._aborted:
                self.cancel()
                if not self._closing and self._owner is not None:
                    self._cancelled_owner = True
                    self._owner.cancel()
        if not self._children and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._closing = True
        cancelled: asyncio.CancelledError | None = None
        if isinstance(error, asyncio.CancelledError):
            own = self._cancelled_owner and self._owner is not None and self._owner.uncancel() == 0
            cancelled = None if own else error
        if error is not None and not self._aborted:
            self.cancel()
        while self._children:
            self._idle = asyncio.get_running_loop().create_future()
            try:
                await self._idle
            except asyncio.CancelledError as outer:
                cancelled = outer
                self.cancel()
        errors = list(self._errors)
        if error is not None and not isinstance(error, asyncio.CancelledError):
            errors.insert(0, error)
        if cancelled is not None and not errors:
            raise cancelled
        if errors:
            raise BaseExceptionGroup(f"{self.name}: {len(errors)} failed", errors)
        return error is not None


async def cleanup(
    coroutine: Coroutine[object, object, object], *, limit_s: float, clock: Clock, log: Logger
) -> None:
    """Run cleanup that must await even while cancelled, shielded and bounded by ``limit_s``.

    An overrun is logged and cancelled; a failure is raised. A cancellation that arrives meanwhile
    is passed on after the cleanup has ended.
    """
    task = asyncio.get_running_loop().create_task(coroutine)
    deadline = clock.monotonic() + limit_s
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            async with clock.timeout(max(0.0, deadline - clock.monotonic())):
                await asyncio.shield(task)
        except TimeoutError:
            log.warning("cleanup overran", limit_s=limit_s)
            task.cancel()
            break
        except asyncio.CancelledError as outer:
            if task.cancelled():
                raise
            cancelled = outer
    if task.done() and not task.cancelled() and (error := task.exception()) is not None:
        raise error
    if cancelled is not None:
        raise cancelled


async def supervise(
    name: str,
    run: Callable[[], Coroutine[object, object, None]],
    *,
    clock: Clock,
    log: Logger,
    backoff: Exponential | None = None,
) -> None:
    """Keep a service running: a crash is logged and it starts again after a capped backoff.

    Returns when ``run`` returns. Cancellation passes through.
    """
    delays = backoff or Exponential(initial_s=0.2, cap_s=10.0)
    failures = 0
    while True:
        started = clock.monotonic()
        try:
            return await run()
        except Exception as error:  # noqa: BLE001  one of the three supervision points
            if clock.monotonic() - started > delays.cap_s:
                failures = 0
            failures += 1
            log.error("service crashed", service=name, attempt=failures, error=error)
        await clock.sleep(delays.delay(failures))
