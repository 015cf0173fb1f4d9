"""A clock with an offset and a drift, as machines have them."""

from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta

from grange.base.clock import Clock


class SkewedClock:
    """A node's own idea of the time: offset and drift against another clock.

    Args:
        inner: the true clock.
        offset_s: seconds ahead of the true wall clock.
        drift: extra seconds per true second, both wall and monotonic; more than -1.
    """

    def __init__(self, inner: Clock, *, offset_s: float = 0.0, drift: float = 0.0) -> None:
        if drift <= -1.0:
            raise ValueError(f"drift {drift} would make time stand still or go back")
        self._inner = inner
        self._offset_s = offset_s
        self._drift = drift
        self._origin = inner.monotonic()
        self._began = inner.elapsed()

    def now(self) -> datetime:
        """The node's wall-clock time."""
        elapsed = self._inner.monotonic() - self._origin
        return self._inner.now() + timedelta(seconds=self._offset_s + elapsed * self._drift)

    def monotonic(self) -> float:
        """The node's monotonic time."""
        elapsed = self._inner.monotonic() - self._origin
        return self._origin + elapsed * (1.0 + self._drift)

    def elapsed(self) -> float:
        """The node's monotonic time, suspended or not."""
        elapsed = self._inner.elapsed() - self._began
        return self._began + elapsed * (1.0 + self._drift)

    async def sleep(self, seconds: float) -> None:
        """Wait so many of the node's seconds."""
        await self._inner.sleep(max(0.0, seconds) / (1.0 + self._drift))

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Bound a block in the node's seconds."""
        return self._inner.timeout(None if seconds is None else seconds / (1.0 + self._drift))
