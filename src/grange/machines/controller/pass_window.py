"""When a pass over the pools begins: soon after changes, and periodically without any."""


class PassWindow:
    """Gathers changes into passes. All times are monotonic seconds.

    Args:
        idle_s: a pass begins when nothing has changed for so long.
        max_s: and no later than so long after the first change.
        interval_s: and at least so often.
        now: when the first interval begins.
    """

    def __init__(self, *, idle_s: float, max_s: float, interval_s: float, now: float) -> None:
        self._idle_s, self._max_s, self._interval_s = idle_s, max_s, interval_s
        self._passed = now
        self._first: float | None = None
        self._last = now

    def changed(self, now: float) -> None:
        """Something changed that a pass may act on."""
        if self._first is None:
            self._first = now
        self._last = now

    @property
    def due(self) -> float:
        """When the next pass begins, as far as is known now."""
        periodic = self._passed + self._interval_s
        if self._first is None:
            return periodic
        return min(periodic, self._last + self._idle_s, self._first + self._max_s)

    def begin(self, now: float) -> None:
        """A pass begins; what changes from now on is for the next one."""
        self._passed, self._first = now, None
