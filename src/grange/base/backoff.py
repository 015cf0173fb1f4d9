"""How long to wait before trying again: pure values, no clock and no task."""

import math
from dataclasses import dataclass

from grange.base.rng import Stream


@dataclass(frozen=True, slots=True)
class Exponential:
    """Doubling delays with a cap and optional full jitter.

    Attributes:
        initial_s: the delay after the first failure.
        cap_s: no delay is longer.
        jitter: fraction of the delay that is random, 0 to 1.
    """

    initial_s: float = 0.005
    cap_s: float = 1000.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if self.initial_s < 0.0 or self.cap_s < 0.0 or not 0.0 <= self.jitter <= 1.0:
            raise ValueError(f"{self}: delays are not negative and jitter is a fraction")

    def delay(self, failures: int, stream: Stream | None = None) -> float:
        """Seconds to wait after so many consecutive failures; zero for none."""
        if failures <= 0:
            return 0.0
        plain = min(self.cap_s, self.initial_s * 2.0 ** min(failures - 1, 62))
        if stream is None or self.jitter == 0.0:
            return plain
        return plain * (1.0 - self.jitter) + stream.uniform(0.0, plain * self.jitter)


class TokenBucket:
    """A rate with a burst; every reservation returns how long to wait.

    Args:
        rate_per_s: tokens that arrive each second, more than 0.
        burst: tokens that can gather, at least 1; the bucket starts full.
    """

    def __init__(self, *, rate_per_s: float, burst: int) -> None:
        if rate_per_s <= 0.0 or burst < 1:
            raise ValueError(f"rate {rate_per_s}/s, burst {burst}: both must be positive")
        self._rate = rate_per_s
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at: float | None = None

    def reserve(self, now: float) -> float:
        """Take one token and return the seconds until it is really there (zero if it is)."""
        if self._at is not None:
            now = max(now, self._at)
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        self._tokens -= 1.0
        return 0.0 if self._tokens >= 0.0 else -self._tokens / self._rate

    def try_take(self, now: float) -> bool:
        """Take one token if it is there; whether it was."""
        if self.reserve(now) == 0.0:
            return True
        self._tokens += 1.0
        return False


class FailureLimiter:
    """Per-item exponential delays and one bucket shared by all items: the longer wait wins.

    The defaults are those of the field's work queue: 5 ms to 1000 s an item, 10/s with bursts of 100.
    """

    def __init__(
        self, *, exponential: Exponential | None = None, bucket: TokenBucket | None = None
    ) -> None:
        self._exponential = exponential or Exponential()
        self._bucket = bucket or TokenBucket(rate_per_s=10.0, burst=100)
        self._failures: dict[object, int] = {}

    def when(self, item: object, now: float, *, cap_s: float = math.inf) -> float:
        """Count one more failure of the item and return the seconds to wait.

        Args:
            item: what failed.
            now: monotonic seconds.
            cap_s: the item's own delay is not longer this time.
        """
        failures = self._failures.get(item, 0) + 1
        self._failures[item] = failures
        delay_s = min(cap_s, self._exponential.delay(failures))
        return max(delay_s, self._bucket.reserve(now))

    def failures(self, item: object) -> int:
        """Consecutive failures of the item so far."""
        return self._failures.get(item, 0)

    def forget(self, item: object) -> None:
        """The item succeeded: its next failure starts from the first delay."""
        self._failures.pop(item, None)
