"""Time as an argument: the only module that reads a clock.

Pure code takes ``now``; shells take a ``Clock``. Under the virtual loop of ``grange.sim`` the same
``LoopClock`` makes hours pass in milliseconds, because it asks the loop and never the system.
"""

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Wall time for people and objects, monotonic time for waiting."""

    def now(self) -> datetime:
        """Wall-clock time, aware, UTC."""

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything. Timers go by them."""

    def elapsed(self) -> float:
        """Seconds that never go back and that also count while the machine is suspended.

        For rights that others take away meanwhile. Timers stand still then, so this is no time to
        sleep until; only differences between its readings mean anything.
        """

    async def sleep(self, seconds: float) -> None:
        """Wait; returns at once (but yields) for zero or less. Cancellation ends the wait."""

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Bound a block: raises ``TimeoutError`` when it takes longer; None never does."""


# Linux's CLOCK_MONOTONIC stands still while the machine is suspended.
_SUSPENDED_TOO: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class LoopClock:
    """The running event loop's time; wall time from the system, or counted from an epoch.

    Args:
        epoch: where wall time starts when the loop's own time is virtual; None reads the system.
    """

    def __init__(self, epoch: datetime | None = None) -> None:
        self._epoch = epoch

    def now(self) -> datetime:
        """Wall-clock time, aware, UTC."""
        if self._epoch is None:
            return datetime.now(UTC)
        return self._epoch + timedelta(seconds=asyncio.get_running_loop().time())

    def monotonic(self) -> float:
        """Seconds that never go back."""
        if self._epoch is None:
            return time.monotonic()
        return asyncio.get_running_loop().time()

    def elapsed(self) -> float:
        """Seconds that never go back, suspended or not; as ``monotonic`` where no clock does so."""
        if self._epoch is None:
            return time.clock_gettime(_SUSPENDED_TOO)
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait on the running loop."""
        await asyncio.sleep(max(0.0, seconds))

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Bound a block on the running loop."""
        return asyncio.timeout(seconds)
