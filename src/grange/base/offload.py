"""Blocking work away from the loop: a thread pool in production, inline in simulation."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Offload(Protocol):
    """Runs a blocking call somewhere that does not hold the loop."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run and return the result; the call itself is never interrupted by cancellation."""

    def close(self) -> None:
        """Wait for running work and refuse more."""


class Threads:
    """A named pool of threads; one worker gives a strictly ordered lane.

    Args:
        name: prefix of the threads' names.
        workers: how many calls may run at once.
    """

    def __init__(self, name: str, workers: int = 1) -> None:
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix=name)

    async def run(self, work: Callable[[], T]) -> T:
        """Run in the pool."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Wait for running work and end the threads."""
        self._pool.shutdown(wait=True)


class Inline:
    """Runs the work at once, on the caller: for simulation and tests."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run now; yields once first so that callers interleave as they would with threads."""
        await asyncio.sleep(0)
        return work()

    def close(self) -> None:
        """Nothing to end."""
