"""The queue of sessions that wait for machines: first in, first out, as far as machines are free. Pure.

A session whose machines are not free is passed by later ones that fit. That would keep a large session
waiting as long as small ones arrive, so one that has waited for long closes the pools that it needs:
no later session gets machines of these, and what is given back adds up for it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from grange.api.kinds.testsession import TestSession
from grange.placement.machine_pools import (
    PoolAvailabilityError,
    ReservationError,
    ReservationTracker,
)


@dataclass(frozen=True, slots=True)
class QueuedSession:
    """A session that waits.

    Attributes:
        session: which.
        need: machines by pool.
        since_s: when it was enqueued, in seconds of a monotonic clock.
    """

    session: TestSession
    need: Mapping[str, int]
    since_s: float

    @property
    def name(self) -> str:
        """The name of the session."""
        return self.session.metadata.name


class SessionQueue:
    """Sessions that wait, and a ledger of the machines of those that do not any more.

    Args:
        tracker: reserves machines.
        aging_s: how long a session waits until later ones may not take what it needs.
    """

    def __init__(self, tracker: ReservationTracker, *, aging_s: float) -> None:
        self._tracker = tracker
        self._aging_s = aging_s
        self._waiting: dict[str, QueuedSession] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._waiting

    @property
    def count(self) -> int:
        """How many sessions wait."""
        return len(self._waiting)

    def waiting(self) -> tuple[QueuedSession, ...]:
        """Those that wait, the oldest first."""
        return tuple(self._waiting.values())

    def enqueue(self, session: TestSession, need: Mapping[str, int], now_s: float) -> None:
        """Append a session; its name must not be among those that wait."""
        entry = QueuedSession(session, dict(need), now_s)
        self._waiting[entry.name] = entry

    def dequeue(self, now_s: float) -> QueuedSession | None:
        """Remove the first session whose machines are free, with a reservation; None for none.

        The caller owes one ``done``. Sessions that can never run are passed; see ``take_impossible``.
        """
        closed: set[str] = set()
        for entry in self._waiting.values():
            if not closed.isdisjoint(entry.need):
                continue
            try:
                self._tracker.reserve(entry.name, entry.need)
            except PoolAvailabilityError:
                if now_s - entry.since_s >= self._aging_s:
                    closed.update(entry.need)
            except ReservationError:
                continue
            else:
                del self._waiting[entry.name]
                return entry
        return None

    def take_impossible(
        self, selected: Callable[[QueuedSession], bool] = lambda entry: True
    ) -> list[tuple[QueuedSession, ReservationError]]:
        """Remove the sessions that no release of machines can help, and why.

        Args:
            selected: whether to look at a session.
        """
        found: list[tuple[QueuedSession, ReservationError]] = []
        for entry in self.waiting():
            if not selected(entry):
                continue
            try:
                self._tracker.reserve(entry.name, entry.need)
            except PoolAvailabilityError:
                continue
            except ReservationError as error:
                del self._waiting[entry.name]
                found.append((entry, error))
            else:
                self._tracker.unreserve(entry.name)
        return found

    def remove(self, name: str) -> QueuedSession | None:
        """Take a session out; None if it does not wait."""
        return self._waiting.pop(name, None)

    def done(self, name: str) -> None:
        """Give back the machines of a session; harmless where it has none."""
        self._tracker.unreserve(name)
