"""Pauses after refusals: while one lasts nothing is tried, and one that follows another is twice as long."""

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from grange.api import timestamps

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class RefusalPause:
    """A pause.

    Attributes:
        until: when it is over.
        seconds: how long it is.
        reason: of the refusal, for people.
    """

    until: datetime
    seconds: float
    reason: str

    @property
    def end(self) -> str:
        """When it is over. A moment, not the seconds that are left: texts with it stay the same until then."""
        return timestamps.rfc3339(self.until)


class RefusalPauses(Generic[K]):
    """Remembers pauses by what was refused; lost at a restart, by design.

    A pause is not extended while it lasts, since trying less is no evidence.

    Args:
        longest_s: no pause is longer.
        memory_s: a refusal so soon after the end of a pause follows it; at least as long as the pause was.
    """

    def __init__(self, longest_s: float, *, memory_s: float = 0.0) -> None:
        self._longest_s, self._memory_s = longest_s, memory_s
        self._known: dict[K, RefusalPause] = {}

    def refuse(self, key: K, first_s: float, reason: str, now: datetime) -> None:
        """Begin a pause; during one, another refusal changes nothing.

        Args:
            key: what was refused.
            first_s: length of a pause that follows none.
            reason: for people.
            now: wall time.
        """
        before, seconds = self._known.get(key), first_s
        if before is not None:
            if now < before.until:
                return
            if now < self._forgotten_at(before):
                seconds = min(self._longest_s, 2 * max(before.seconds, first_s))
        self._known[key] = RefusalPause(now + timedelta(seconds=seconds), seconds, reason)

    def allow(self, key: K) -> None:
        """End a pause, and forget it: what was refused was given."""
        self._known.pop(key, None)

    def find(self, key: K, now: datetime) -> RefusalPause | None:
        """The pause that lasts; None where there is none."""
        found = self._known.get(key)
        return found if found is not None and now < found.until else None

    def prune(self, now: datetime) -> None:
        """Forget pauses that are over for so long that they no longer double the next."""
        self._known = {
            key: one for key, one in self._known.items() if now < self._forgotten_at(one)
        }

    def _forgotten_at(self, pause: RefusalPause) -> datetime:
        return pause.until + timedelta(seconds=max(pause.seconds, self._memory_s))
