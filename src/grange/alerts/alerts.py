"""An alert, the sinks that take it, and the set of alerts that a process reports."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import CollectorRegistry
from grange.base.rng import Stream

HIGH = "high"
LOW = "low"


@dataclass(frozen=True, slots=True)
class Alert:
    """A condition that needs an operator.

    Attributes:
        about: the object, e.g. ``farm/replication`` or ``replicationcontroller/default/web``.
        reason: one stable word, for programs.
        message: one sentence with the remedy.
        urgency: ``high`` or ``low``.
    """

    about: str
    reason: str
    message: str
    urgency: str = LOW

    @property
    def key(self) -> str:
        """Identifies the alert in every process; receivers deduplicate by it."""
        return f"{self.about}/{self.reason}"


class AlertSink(Protocol):
    """Takes alerts to operators. Its methods neither block nor raise."""

    def raised(self, alert: Alert) -> None:
        """The alert begins, as far as this process knows."""

    def resolved(self, alert: Alert) -> None:
        """The alert is over."""

    def released(self, alert: Alert) -> None:
        """The alert may go on, but this process does not report it any more."""


@runtime_checkable
class RunningSink(AlertSink, Protocol):
    """A sink that needs a task of its process, e.g. to deliver over the network."""

    async def run(self) -> None:
        """Deliver until cancelled."""


@dataclass(frozen=True, slots=True)
class SinkTools:
    """What a process gives to its sinks: time, randomness, log, metrics."""

    clock: Clock
    rng: Stream
    log: Logger
    metrics: CollectorRegistry


class Alerts:
    """The active alerts of a process; its sink receives changes only.

    Args:
        sink: receives each beginning and each end once.
        changed: called after each change of the set.
    """

    def __init__(self, sink: AlertSink, *, changed: Callable[[], object] = lambda: None) -> None:
        self._sink = sink
        self._changed = changed
        self._active: dict[str, dict[str, Alert]] = {}  # by about and reason

    def fire(self, alert: Alert) -> bool:
        """Raise the alert unless it is active.

        Returns:
            Whether it was not active.
        """
        reasons = self._active.setdefault(alert.about, {})
        if alert.reason in reasons:
            return False
        reasons[alert.reason] = alert
        self._sink.raised(alert)
        self._changed()
        return True

    def clear(self, about: str, reason: str) -> bool:
        """Resolve the alert if it is active.

        Returns:
            Whether it was active.
        """
        alert = self._remove(about, reason)
        if alert is None:
            return False
        self._sink.resolved(alert)
        self._changed()
        return True

    def replace(self, about: str, alerts: Iterable[Alert]) -> None:
        """Make these the only active alerts of one object: raise new ones, resolve the others."""
        wanted = {alert.reason: alert for alert in alerts}
        for reason in [reason for reason in self._active.get(about, ()) if reason not in wanted]:
            self.clear(about, reason)
        for alert in wanted.values():
            self.fire(alert)

    def release(self, about: str) -> None:
        """Stop reporting the alerts of one object, which another process owns from now on."""
        released = self._active.pop(about, {})
        for alert in released.values():
            self._sink.released(alert)
        if released:
            self._changed()

    def active(self) -> list[Alert]:
        """The active alerts, grouped by object."""
        return [alert for reasons in self._active.values() for alert in reasons.values()]

    def _remove(self, about: str, reason: str) -> Alert | None:
        reasons = self._active.get(about, {})
        alert = reasons.pop(reason, None)
        if not reasons:
            self._active.pop(about, None)
        return alert
