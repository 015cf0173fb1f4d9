"""The toolkit's metrics, once for each registry (a registry refuses a name twice)."""

from grange.base.metrics import CollectorRegistry, Counter, Gauge, Histogram, once_per_registry

_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0)


class ReconcileMetrics:
    """What controllers and recorders count.

    Attributes:
        reconciles: grange_reconcile_total by controller and outcome (done, requeue, terminal,
            error).
        seconds: grange_reconcile_seconds by controller.
        depth: grange_workqueue_depth by controller.
        events: grange_recorder_events_total by component and outcome (sent, counted, dropped,
            failed).
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reconciles = Counter(
            "grange_reconcile",
            "Reconciles, by controller and outcome.",
            ["controller", "outcome"],
            registry=registry,
        )
        self.seconds = Histogram(
            "grange_reconcile_seconds",
            "Duration of one reconcile.",
            ["controller"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.depth = Gauge(
            "grange_workqueue_depth",
            "Keys that wait for a worker, delayed ones not counted.",
            ["controller"],
            registry=registry,
        )
        self.events = Counter(
            "grange_recorder_events",
            "Events recorded, by component and outcome.",
            ["component", "outcome"],
            registry=registry,
        )


instruments = once_per_registry(ReconcileMetrics)
"""The instruments of a registry; the same object for the same registry."""
