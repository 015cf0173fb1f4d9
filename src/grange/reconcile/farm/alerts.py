"""Alerts: what an operator must hear of, once for each object and reason, until it is over.

One process tells of a trouble at a time. Another may take over from it in the middle: the trouble is
then *adopted* by the one and *left* by the other, and nobody is told anything.
"""

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

    def adopted(self, alert: Alert) -> None:
        """It goes on, and people know of it from another process; we tell of its end."""

    def left(self, alert: Alert) -> None:
        """It goes on, and another process tells of its end."""

    def dropped(self, alert: Alert) -> None:
        """One that was left is over: what has not been delivered of it is not true any more."""


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

    def adopted(self, alert: Alert) -> None:
        """It goes on."""
        self._log.info("alert adopted", about=alert.about, reason=alert.reason)

    def left(self, alert: Alert) -> None:
        """It goes on elsewhere."""
        self._log.info("alert left to another", about=alert.about, reason=alert.reason)

    def dropped(self, alert: Alert) -> None:
        """Nothing waits here."""


class MemoryAlerter:
    """Keeps alerts for those who ask later.

    Attributes:
        active: those that go on.
        history: ``("raised" | "resolved" | "adopted" | "left", alert)``, in order.
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

    def adopted(self, alert: Alert) -> None:
        """It goes on."""
        self.active.append(alert)
        self.history.append(("adopted", alert))

    def left(self, alert: Alert) -> None:
        """It goes on elsewhere."""
        self.active.remove(alert)
        self.history.append(("left", alert))

    def dropped(self, alert: Alert) -> None:
        """Nothing waits here."""


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

    def adopted(self, alert: Alert) -> None:
        """It goes on."""
        self.raised(alert)

    def left(self, alert: Alert) -> None:
        """It is shown elsewhere."""
        self.resolved(alert)

    def dropped(self, alert: Alert) -> None:
        """Nothing waits here."""


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

    def adopted(self, alert: Alert) -> None:
        """It goes on."""
        self._tell(alert, lambda alerter: alerter.adopted(alert))

    def left(self, alert: Alert) -> None:
        """It goes on elsewhere."""
        self._tell(alert, lambda alerter: alerter.left(alert))

    def dropped(self, alert: Alert) -> None:
        """One that was left is over."""
        self._tell(alert, lambda alerter: alerter.dropped(alert))

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
        self._active: dict[str, Alert] = {}
        self._left: dict[str, Alert] = {}

    def fire(self, alert: Alert) -> bool:
        """The condition holds; whether that is news."""
        return self._begin(alert, self._alerter.raised)

    def adopt(self, alert: Alert) -> bool:
        """The condition holds, and another process has told of it; whether that is news."""
        return self._begin(alert, self._alerter.adopted)

    def clear(self, about: str, reason: str) -> bool:
        """The condition does not hold (any more); whether that is news."""
        key = f"{about}/{reason}"
        left, alert = self._left.pop(key, None), self._active.pop(key, None)
        if left is not None:
            self._alerter.dropped(left)
        if alert is None:
            return False
        self._alerter.resolved(alert)
        return True

    def leave(self, about: str, reason: str) -> None:
        """The condition may well hold, but to tell of it is another process's from now on."""
        alert = self._active.pop(f"{about}/{reason}", None)
        if alert is not None:
            self._left[alert.key] = alert
            self._alerter.left(alert)

    def active(self) -> list[Alert]:
        """Those that go on and are ours to tell of, oldest first."""
        return list(self._active.values())

    def _begin(self, alert: Alert, tell: Callable[[Alert], None]) -> bool:
        if alert.key in self._active:
            return False
        self._left.pop(alert.key, None)
        self._active[alert.key] = alert
        tell(alert)
        return True
