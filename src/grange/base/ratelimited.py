"""A logger for what strangers can cause: so many records a minute, and how many were left out."""

from grange.base.clock import Clock
from grange.base.log import Logger

_PERIOD_S = 60.0


class RateLimitedLogger:
    """Passes a bounded number of records on to a logger.

    Args:
        log: where the records go.
        clock: counts the minutes.
        per_minute: how many records may pass in a minute, of all levels.
    """

    def __init__(self, log: Logger, clock: Clock, *, per_minute: int = 60) -> None:
        self._log = log
        self._clock = clock
        self._per_minute = per_minute
        self._until = 0.0
        self._passed = self._left_out = 0

    def warning(self, event: str, /, **facts: object) -> None:
        """Log a warning, if there is room for it."""
        if self._has_room():
            self._log.warning(event, **facts)

    def error(self, event: str, /, **facts: object) -> None:
        """Log an error, if there is room for it."""
        if self._has_room():
            self._log.error(event, **facts)

    def _has_room(self) -> bool:
        now = self._clock.monotonic()
        if now >= self._until:
            if self._left_out:
                self._log.warning("log records left out", count=self._left_out)
            self._until = now + _PERIOD_S
            self._passed = self._left_out = 0
        if self._passed >= self._per_minute:
            self._left_out += 1
            return False
        self._passed += 1
        return True
