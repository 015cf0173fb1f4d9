"""How long the place of a failed pod stays empty."""

from dataclasses import dataclass

from grange.base.backoff import Exponential

Member = tuple[str, int]
"""A role in lower case and an index."""


@dataclass(slots=True)
class _Failures:
    """How often an index failed in a row, and until when its place stays empty (monotonic)."""

    rounds: int = 0
    last: float = 0.0
    until: float = 0.0


class RestartBackoff:
    """How long the places of failed pods stay empty, by job, role and index; kept in memory.

    Args:
        backoff: the wait by how often the index failed in a row.
        reset_s: an index that failed last so long ago starts with the first wait.
    """

    def __init__(self, backoff: Exponential, reset_s: float) -> None:
        self._backoff = backoff
        self._reset_s = reset_s
        self._jobs: dict[str, dict[Member, _Failures]] = {}

    def failed(self, uid: str, member: Member, now: float) -> None:
        """Record a failure of an index."""
        found = self._jobs.setdefault(uid, {}).setdefault(member, _Failures())
        if now - found.last > self._reset_s:
            found.rounds = 0
        found.until = now + self._backoff.delay(found.rounds)
        found.rounds += 1
        found.last = now

    def held(self, uid: str, now: float) -> dict[Member, float]:
        """Seconds for which each place is held; places that are free are not in it."""
        found = self._jobs.get(uid, {})
        return {member: item.until - now for member, item in found.items() if item.until > now}

    def forget(self, uid: str) -> None:
        """The job is gone or finished."""
        self._jobs.pop(uid, None)
