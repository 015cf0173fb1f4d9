"""Blocking work away from the loop: a thread pool in production, inline in simulation."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Offload(Protocol):
    """Runs a blocking call somewhere that does not hold the loop."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run and return the result, or raise what it raises.

        Cancellation: a call that has begun goes on to its end and its result is dropped; one that
        has not begun may never begin.
        """

    def close(self) -> None:
        """Wait, blocking, for work that was asked for, and refuse more; idempotent."""


class Threads:
    """A named pool of threads; one worker gives a strictly ordered lane.

    Args:
        name: prefix of the threads' names.
        workers: how many calls may run at once.
    """

    def __init__(self, name: str, workers: int = 1) -> None:
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix=name)

    async def run(self, work: Callable[[], T]) -> T:
        """Run in the pool; ``RuntimeError`` after ``close``."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Wait for the work and end the threads."""
        self._pool.shutdown(wait=True)


class Inline:
    """Runs the work at once, on the caller: for simulation and tests."""

    def __init__(self) -> None:
        self._closed = False

    async def run(self, work: Callable[[], T]) -> T:
        """Run now; yields once first so that callers interleave as they would with threads."""
        if self._closed:
            raise RuntimeError("cannot run: closed")
        await asyncio.sleep(0)
        return work()

    def close(self) -> None:
        """Refuse more."""
        self._closed = True
