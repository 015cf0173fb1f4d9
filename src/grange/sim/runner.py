"""Runs coroutines on one loop from outside of it, and reports what they left behind."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Generic, TypeVar

from grange.base.errors import GrangeError
from grange.sim.loop import HORIZON_S, VirtualLoop, where

T = TypeVar("T")


class Leak(GrangeError):
    """Something outlived its owner: tasks, threads, descriptors, or errors that were not retrieved."""


class Runner:
    """One loop, many runs; ``close`` ends whatever is left and reports it.

    Args:
        loop: the loop to use; a fresh ``VirtualLoop`` by default. The runner closes it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop or VirtualLoop()
        self._complaints: list[str] = []
        self._alarm: BaseException | None = None
        self.loop.set_exception_handler(self._complain)

    def _complain(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, Exception):
            # An alarm (e.g. a test's real-time limit) went off inside a callback: the loop would
            # only call the handler and go on.
            self._alarm = error
            self.loop.stop()
        detail = f": {type(error).__name__}: {error}" if error is not None else ""
        self._complaints.append(f"{context['message']}{detail}")

    def run(self, coroutine: Coroutine[Any, Any, T], *, name: str = "main") -> T:
        """Run to the end and return the result.

        Whatever stops the loop itself (``Deadlock``, ``KeyboardInterrupt``) is raised after the
        coroutine was cancelled, so that it could clean up.
        """
        __tracebackhide__ = True
        task = self.loop.create_task(coroutine, name=name)
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                self._end([task])
            if self._alarm is not None:
                alarm, self._alarm = self._alarm, None
                raise alarm from None
            raise

    def open(self, generator: AsyncGenerator[T, None], *, name: str) -> "OpenGenerator[T]":
        """Run an asynchronous generator to its only ``yield``, in a separate task.

        The task lives until the block is finished, so that a nursery around the ``yield`` has one
        owner from beginning to end.
        """
        ready: asyncio.Future[T] = self.loop.create_future()
        finish = asyncio.Event()
        task = self.loop.create_task(_hold(generator, ready, finish), name=name)
        task.add_done_callback(lambda _: ready.cancel())

        async def value() -> T:
            try:
                return await ready
            except asyncio.CancelledError:
                if task.done():
                    await task  # raises why
                raise

        try:
            result = self.run(value(), name=f"{name}.ready")
        except BaseException:
            if not task.done():
                self._end([task])
            raise
        return OpenGenerator(self, task, finish, result)

    def close(self) -> None:
        """Cancel what is left, close the loop.

        Raises:
            Leak: tasks were left, or errors that were not retrieved.
        """
        if self.loop.is_closed():
            return
        self.loop.run_until_complete(_settle())
        left = self.tasks()
        complaints = [f"task left running: {where(task)}" for task in left]
        self._end(left)
        if isinstance(self.loop, VirtualLoop) and not left:
            complaints += [f"generator left open: {one}" for one in self.loop.open_generators()]
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        complaints += self._complaints
        if complaints:
            raise Leak("; ".join(complaints))

    def tasks(self) -> list[asyncio.Task[Any]]:
        """The unfinished tasks, oldest first where the loop knows."""
        if isinstance(self.loop, VirtualLoop):
            return self.loop.tasks()
        return sorted(asyncio.all_tasks(self.loop), key=lambda task: task.get_name())

    def _end(self, tasks: list[asyncio.Task[Any]]) -> None:
        for task in reversed(tasks):
            task.cancel()
        try:
            for task in reversed(tasks):
                self.loop.run_until_complete(_ended(task))
        except GrangeError as stuck:  # a task that answers cancellation by waiting forever
            self._complaints.append(f"does not end when cancelled: {stuck}")


class OpenGenerator(Generic[T]):
    """An opened generator: its value, and how to finish it.

    Attributes:
        value: what it yielded.
        task: the task in which it waits.
    """

    def __init__(
        self, runner: Runner, task: asyncio.Task[None], finish: asyncio.Event, value: T
    ) -> None:
        self._runner = runner
        self._finish = finish
        self.task = task
        self.value = value

    def close(self) -> None:
        """Run the generator to its end and raise what it raises."""

        async def end() -> None:
            self._finish.set()
            await self.task

        self._runner.run(end(), name=f"{self.task.get_name()}.finish")


async def _hold(
    generator: AsyncGenerator[T, None], ready: "asyncio.Future[T]", finish: asyncio.Event
) -> None:
    ready.set_result(await anext(generator))
    try:
        await finish.wait()
    except asyncio.CancelledError as cancelled:
        # The present owner of this task (a nursery around the yield) must see the cancellation there.
        try:
            await generator.athrow(cancelled)
        except StopAsyncIteration:
            return
    else:
        try:
            await anext(generator)
        except StopAsyncIteration:
            return
    await generator.aclose()
    raise RuntimeError("the generator must yield exactly once")


async def _ended(task: asyncio.Task[Any]) -> None:
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # looked at: the caller already raises something better


async def _settle() -> None:
    """Let callbacks of finished tasks run before anybody is called a leak."""
    for _ in range(3):
        await asyncio.sleep(0)


def run(coroutine: Coroutine[Any, Any, T], *, horizon_s: float = HORIZON_S) -> T:
    """Run a coroutine on a fresh virtual loop from time zero and return its result.

    Raises:
        Deadlock, Livelock: it would never end.
        Leak: it ended but left tasks or unseen errors behind.
    """
    runner = Runner(VirtualLoop(horizon_s=horizon_s))
    try:
        result = runner.run(coroutine)
    except BaseException:
        with contextlib.suppress(Leak):  # the first error is more specific
            runner.close()
        raise
    runner.close()
    return result
