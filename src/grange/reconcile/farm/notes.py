"""Troubles that one of several processes tells of: each takes note of all, and one of them speaks.

Theory of operation. Every process sees the same troubles begin and end, but only the *teller* of a
trouble passes it on; who that is may change at any time, also by a crash. So whoever becomes the
teller knows what its predecessor knew, and for how long it has had the time to tell. What was long
ago has been told: it is adopted in silence, and its end will be told by us. What was only just now
may have died with the predecessor, so it is told again: the same words under the same key, which
does no harm where they have been heard.
"""

from collections.abc import Callable
from dataclasses import dataclass

from grange.base.clock import Clock
from grange.reconcile.farm.alerts import Alert, Alerts

UNSURE_S = 300.0
"""So long after a beginning or an end it is not sure that a teller that is gone has told of it."""


@dataclass(frozen=True, slots=True)
class _Note:
    """A trouble, and when it began or ended, in our monotonic seconds."""

    alert: Alert
    at: float


class Notes:
    """The troubles of one kind of thing, ours to tell of or not.

    Args:
        alerts: where we speak.
        clock: ours.
        others: whether other processes are there, who may have told what began before we were.
    """

    def __init__(
        self, alerts: Alerts, clock: Clock, others: Callable[[], bool] = lambda: False
    ) -> None:
        self._alerts = alerts
        self._clock = clock
        self._others = others
        self._on: dict[str, dict[str, _Note]] = {}  # by about and reason
        self._ended: dict[str, _Note] = {}  # by key, oldest first
        self._began = clock.monotonic()

    def goes_on(self, alert: Alert, *, ours: bool, age_s: float = 0.0) -> None:
        """There is a trouble.

        Args:
            alert: what to say of it.
            ours: whether we are its teller.
            age_s: how old it is, if we see it for the first time.
        """
        reasons = self._on.setdefault(alert.about, {})
        if alert.reason not in reasons:
            self._ended.pop(alert.key, None)
            reasons[alert.reason] = _Note(alert, self._clock.monotonic() - max(0.0, age_s))
        if ours:
            self._alerts.fire(alert)

    def is_over(self, about: str, reason: str) -> None:
        """There is no such trouble (any more); whoever has told of it tells of its end."""
        reasons = self._on.get(about, {})
        note = reasons.pop(reason, None)
        if not reasons:
            self._on.pop(about, None)
        told = self._alerts.clear(about, reason)
        if note is not None and not told:
            self._ended[note.alert.key] = _Note(note.alert, self._clock.monotonic())
        self._forget()

    def take(self, about: str = "", *, told: bool = False) -> None:
        """We are the teller from now on.

        Args:
            about: of this alone; empty means all.
            told: the last teller is still there, so that it has told, or will.
        """
        for thing in [about] if about else list(self._on):
            for note in self._on.get(thing, {}).values():
                if told or self._is_told(note.at):
                    self._alerts.adopt(note.alert)
                else:
                    self._alerts.fire(note.alert)
        self._forget()
        for key, note in list(self._ended.items()):
            if not about or note.alert.about == about:
                del self._ended[key]
                if not told:
                    self._alerts.adopt(note.alert)
                    self._alerts.clear(note.alert.about, note.alert.reason)

    def leave(self, about: str = "") -> None:
        """Somebody else is the teller from now on, or nobody yet."""
        for thing in [about] if about else list(self._on):
            for reason in self._on.get(thing, {}):
                self._alerts.leave(thing, reason)

    def _is_told(self, began: float) -> bool:
        """Whether people have heard of what began then."""
        if self._clock.monotonic() < began + UNSURE_S:
            return False
        # Older than we are: those who are there told it, or those before them.
        return began >= self._began or self._others()

    def _forget(self) -> None:
        until = self._clock.monotonic() - UNSURE_S
        while self._ended and next(iter(self._ended.values())).at <= until:
            del self._ended[next(iter(self._ended))]
