"""An alert sink that keeps alerts in memory."""

from grange.alerts.alerts import Alert


class MemorySink:
    """Keeps alerts in memory, e.g. to assert on them.

    Attributes:
        active: the active alerts, oldest first.
        history: ``("raised" | "resolved" | "released", alert)``, in order.
    """

    def __init__(self) -> None:
        self.active: list[Alert] = []
        self.history: list[tuple[str, Alert]] = []

    def raised(self, alert: Alert) -> None:
        """Keep it as active."""
        self.active.append(alert)
        self.history.append(("raised", alert))

    def resolved(self, alert: Alert) -> None:
        """Keep it as history."""
        self.active.remove(alert)
        self.history.append(("resolved", alert))

    def released(self, alert: Alert) -> None:
        """Keep it as history."""
        self.active.remove(alert)
        self.history.append(("released", alert))
