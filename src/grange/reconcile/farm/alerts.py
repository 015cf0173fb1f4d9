"""Alerts: what an operator must hear of, once for each object and reason, until it is over."""

from dataclasses import dataclass
from typing import Protocol

from grange.base.log import Logger

HIGH = "high"
LOW = "low"


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that needs a person.

    Attributes:
        about: what it is about, e.g. ``farm/replication`` or an object's key.
        reason: one word, stable, for programs.
        message: one sentence for people, with the remedy.
        urgency: ``high`` or ``low``.
    """

    about: str
    reason: str
    message: str
    urgency: str = LOW


class Alerter(Protocol):
    """Takes alerts to people; must not block and must not raise."""

    def raised(self, alert: Alert) -> None:
        """An alert begins."""

    def resolved(self, alert: Alert) -> None:
        """It is over."""


class LogAlerter:
    """Alerts as log records: errors when they begin, information when they are over."""

    def __init__(self, log: Logger) -> None:
        self._log = log

    def raised(self, alert: Alert) -> None:
        """An alert begins."""
        self._log.error(
            "alert",
            about=alert.about,
            reason=alert.reason,
            urgency=alert.urgency,
            message=alert.message,
        )

    def resolved(self, alert: Alert) -> None:
        """It is over."""
        self._log.info("alert resolved", about=alert.about, reason=alert.reason)


class MemoryAlerter:
    """Keeps alerts for those who ask later.

    Attributes:
        active: those that go on.
        history: ``("raised" | "resolved", alert)``, in order.
    """

    def __init__(self) -> None:
        self.active: list[Alert] = []
        self.history: list[tuple[str, Alert]] = []

    def raised(self, alert: Alert) -> None:
        """An alert begins."""
        self.active.append(alert)
        self.history.append(("raised", alert))

    def resolved(self, alert: Alert) -> None:
        """It is over."""
        self.active.remove(alert)
        self.history.append(("resolved", alert))


class Alerts:
    """Passes each alert on once while it lasts, and its end once.

    Args:
        alerter: where to.
    """

    def __init__(self, alerter: Alerter) -> None:
        self._alerter = alerter
        self._active: dict[tuple[str, str], Alert] = {}

    def fire(self, alert: Alert) -> bool:
        """The condition holds; whether that is news."""
        identity = (alert.about, alert.reason)
        if identity in self._active:
            return False
        self._active[identity] = alert
        self._alerter.raised(alert)
        return True

    def clear(self, about: str, reason: str) -> bool:
        """The condition does not hold (any more); whether that is news."""
        alert = self._active.pop((about, reason), None)
        if alert is None:
            return False
        self._alerter.resolved(alert)
        return True

    def active(self) -> list[Alert]:
        """Those that go on, oldest first."""
        return list(self._active.values())
