"""What of a world is broken at a moment, for judges of how fast it recovers."""

from grange.base.clock import Clock


class Trouble:
    """What is broken now, and since when nothing is.

    Args:
        clock: the true time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[str, None] = {}
        self._over_at = clock.monotonic()

    def begin(self, what: str) -> None:
        """Something is broken from now on."""
        self._open[what] = None

    def end(self, what: str, *, after_s: float = 0.0) -> None:
        """It no longer is; nothing if it was not.

        Args:
            what: as in ``begin``.
            after_s: it ends by itself after so many seconds.
        """
        if what in self._open:
            del self._open[what]
            self._over_at = max(self._over_at, self._clock.monotonic() + after_s)

    def happened(self, what: str, *, lasts_s: float = 0.0) -> None:
        """Something went wrong that needs no mending."""
        self.begin(what)
        self.end(what, after_s=lasts_s)

    @property
    def over_at(self) -> float | None:
        """Monotonic seconds since when nothing is broken, or from when; None while something is."""
        return None if self._open else self._over_at
