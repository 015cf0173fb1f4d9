"""Sinks inside the process: the log, a metric, and several at once."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from grange.alerts.alerts import HIGH, Alert, AlertSink
from grange.base.log import Logger
from grange.base.metrics import CollectorRegistry, Gauge, once_per_registry

_gauge = once_per_registry(
    lambda registry: Gauge(
        "grange_alert_active",
        "Active alerts that this process reports.",
        ["about", "reason", "urgency"],
        registry=registry,
    )
)


class LogSink:
    """Logs alerts: an error for high urgency, a warning for low, information at the end."""

    def __init__(self, log: Logger) -> None:
        self._log = log

    def raised(self, alert: Alert) -> None:
        """Log the beginning."""
        write = self._log.error if alert.urgency == HIGH else self._log.warning
        write(
            "alert",
            about=alert.about,
            reason=alert.reason,
            urgency=alert.urgency,
            message=alert.message,
        )

    def resolved(self, alert: Alert) -> None:
        """Log the end."""
        self._log.info("alert resolved", about=alert.about, reason=alert.reason)

    def released(self, alert: Alert) -> None:
        """Log that the log of another process continues."""
        self._log.info("alert released", about=alert.about, reason=alert.reason)


class MetricSink:
    """Shows active alerts as the gauge ``grange_alert_active``: 1 while active, absent otherwise."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._active = _gauge(registry)

    def raised(self, alert: Alert) -> None:
        """Add the series."""
        self._active.labels(alert.about, alert.reason, alert.urgency).set(1)

    def resolved(self, alert: Alert) -> None:
        """Remove the series."""
        with suppress(KeyError):
            self._active.remove(alert.about, alert.reason, alert.urgency)

    def released(self, alert: Alert) -> None:
        """Remove the series: the owner shows it."""
        self.resolved(alert)


class MultiSink:
    """Passes each alert to several sinks; one that fails does not keep it from the others.

    Args:
        sinks: in this order.
        log: where failures go.
    """

    def __init__(self, sinks: Sequence[AlertSink], log: Logger) -> None:
        self._sinks = tuple(sinks)
        self._log = log

    def raised(self, alert: Alert) -> None:
        """The alert begins."""
        self._each(alert, lambda sink: sink.raised(alert))

    def resolved(self, alert: Alert) -> None:
        """The alert is over."""
        self._each(alert, lambda sink: sink.resolved(alert))

    def released(self, alert: Alert) -> None:
        """Another process reports the alert from now on."""
        self._each(alert, lambda sink: sink.released(alert))

    def _each(self, alert: Alert, call: Callable[[AlertSink], object]) -> None:
        for sink in self._sinks:
            try:
                call(sink)
            except Exception as error:  # noqa: BLE001  a broken sink must not stop its caller
                name = type(sink).__name__
                self._log.error("alert sink failed", sink=name, reason=alert.reason, error=error)
