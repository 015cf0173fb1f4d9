"""Alerts: what an operator must hear of, once for each object and reason, until it is over."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from grange.base.log import Logger
from grange.base.metrics import CollectorRegistry, Gauge, once_per_registry

_gauge = once_per_registry(
    lambda registry: Gauge(
        "grange_alert_active",
        "Alerts that go on.",
        ["about", "reason", "urgency"],
        registry=registry,
    )
)

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

    @property
    def key(self) -> str:
        """What is the same for all words about one trouble, whoever says them."""
        return f"{self.about}/{self.reason}"


class Alerter(Protocol):
    """Takes alerts to people; must not block and must not raise."""

    def raised(self, alert: Alert) -> None:
        """An alert begins."""

    def resolved(self, alert: Alert) -> None:
        """It is over."""


class LogAlerter:
    """Alerts as log records: information when they are over, and when they begin as their urgency is.

    One of high urgency is an error; one of low urgency can wait for the morning and is a warning.
    """

    def __init__(self, log: Logger) -> None:
        self._log = log

    def raised(self, alert: Alert) -> None:
        """An alert begins."""
        tell = self._log.error if alert.urgency == HIGH else self._log.warning
        tell(
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


class GaugeAlerter:
    """Alerts as a Prometheus gauge: 1 while they last, gone afterwards.

    Args:
        registry: where it is shown, as ``grange_alert_active`` by about, reason and urgency.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._active = _gauge(registry)

    def raised(self, alert: Alert) -> None:
        """An alert begins."""
        self._active.labels(alert.about, alert.reason, alert.urgency).set(1)

    def resolved(self, alert: Alert) -> None:
        """It is over."""
        with suppress(KeyError):
            self._active.remove(alert.about, alert.reason, alert.urgency)


class Several:
    """One alert to several places; a place that fails does not keep it from the others.

    Args:
        alerters: where to, in order.
        log: where failures go.
    """

    def __init__(self, alerters: Sequence[Alerter], log: Logger) -> None:
        self._alerters = tuple(alerters)
        self._log = log

    def raised(self, alert: Alert) -> None:
        """An alert begins."""
        self._tell(alert, lambda alerter: alerter.raised(alert))

    def resolved(self, alert: Alert) -> None:
        """It is over."""
        self._tell(alert, lambda alerter: alerter.resolved(alert))

    def _tell(self, alert: Alert, tell: Callable[[Alerter], object]) -> None:
        for alerter in self._alerters:
            try:
                tell(alerter)
            except Exception as error:  # noqa: BLE001  what raises alerts must not suffer from it
                kind = type(alerter).__name__
                self._log.error("alert not passed on", to=kind, reason=alert.reason, error=error)


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
