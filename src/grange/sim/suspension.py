"""A clock whose process can be made to stand still, as a stopped process or a sleeping machine does.

Nothing of a suspended process runs: its sleeps do not end and its timeouts do not fire before it goes
on. What it then finds depends on what was suspended. A *process* that was stopped finds every one of its timers
overdue. A *machine* that slept took its monotonic clock with it: timers go on with what was left of
them, and only ``elapsed`` and wall time show that time has passed.
"""

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from types import TracebackType

from grange.base.clock import Clock

_TICK_S = 1e-3  # as in all loops: well above the resolution of a loop


class SuspendableClock:
    """The true time as one process has it.

    Args:
        inner: the true clock; it goes by the running loop's time.
    """

    def __init__(self, inner: Clock) -> None:
        self._inner = inner
        self._awake = asyncio.Event()
        self._awake.set()
        self._stood_s = 0.0  # by which the monotonic clock is behind
        self._since: float | None = None  # when it began to stand
        self._timeouts: dict[_Timeout, None] = {}

    def now(self) -> datetime:
        """Wall-clock time: it is correct at the next reading."""
        return self._inner.now()

    def monotonic(self) -> float:
        """Seconds without those for which the machine slept."""
        return (self._inner.monotonic() if self._since is None else self._since) - self._stood_s

    def elapsed(self) -> float:
        """Seconds that go on during a suspension."""
        return self._inner.elapsed()

    async def sleep(self, seconds: float) -> None:
        """Wait; the wait ends when the time is over and the process runs."""
        until = self.monotonic() + max(0.0, seconds)
        left = self._some(seconds)
        while True:
            await self._inner.sleep(left)
            if not self._awake.is_set():  # few sleeps end in a suspension
                await self._awake.wait()
            if (left := until - self.monotonic()) <= 0.0:
                return
            left = max(left, _TICK_S)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Bound a block; it is not ended while the process stands still."""
        return _Timeout(None if seconds is None else self._some(seconds), self._timeouts)

    def _some(self, seconds: float) -> float:
        """Once two clocks differ, what rounding leaves over may be too little to move time at all."""
        return max(seconds, _TICK_S) if self._stood_s and seconds > 0.0 else seconds

    def suspend(self, *, machine: bool) -> None:
        """The process stands still from now on.

        Args:
            machine: the whole machine does, and its monotonic clock with it.
        """
        if not self._awake.is_set():
            return
        self._awake.clear()
        self._since = self._inner.monotonic() if machine else None
        for timeout in list(self._timeouts):
            timeout.hold()

    def resume(self) -> None:
        """It goes on; nothing if it runs."""
        if self._awake.is_set():
            return
        stood_s = 0.0 if self._since is None else self._inner.monotonic() - self._since
        self._stood_s += stood_s
        self._since = None
        self._awake.set()
        for timeout in list(self._timeouts):
            timeout.release(stood_s)


class _Timeout:
    """A timeout whose end can be put off."""

    def __init__(self, seconds: float | None, live: "dict[_Timeout, None]") -> None:
        self._seconds = seconds
        self._live = live
        self._when: float | None = None

    async def __aenter__(self) -> object:
        self._timeout = asyncio.timeout(self._seconds)  # noqa: TID251  one whose end can be moved
        await self._timeout.__aenter__()
        self._live[self] = None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del self._live[self]
        await self._timeout.__aexit__(kind, error, trace)

    def hold(self) -> None:
        if not self._timeout.expired():
            self._when = self._timeout.when()
            self._timeout.reschedule(None)

    def release(self, later_s: float) -> None:
        if self._when is not None and not self._timeout.expired():
            self._timeout.reschedule(self._when + later_s)
        self._when = None
