"""The scheduler's metrics, once for each registry (a registry refuses a name twice)."""

from grange.base.metrics import CollectorRegistry, Counter, Gauge, QuickHistogram, once_per_registry

_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0)


class SchedulerMetrics:
    """What the scheduler counts.

    Attributes:
        attempts: grange_scheduler_attempts_total by result (scheduled, unschedulable, error).
        bindings: grange_scheduler_bindings_total by result (bound, conflict, gone, failed).
        pending: grange_scheduler_pending_pods by pool.
        seconds: grange_scheduler_pod_seconds, from being queued to being bound.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.attempts = Counter(
            "grange_scheduler_attempts",
            "Scheduling attempts, by result.",
            ["result"],
            registry=registry,
        )
        self.bindings = Counter(
            "grange_scheduler_bindings",
            "Bindings written, by result.",
            ["result"],
            registry=registry,
        )
        self.pending = Gauge(
            "grange_scheduler_pending_pods",
            "Pods that wait, by pool.",
            ["pool"],
            registry=registry,
        )
        self.seconds = QuickHistogram(
            "grange_scheduler_pod_seconds",
            "From being queued to being bound.",
            buckets=_BUCKETS,
            registry=registry,
        ).series()


instruments = once_per_registry(SchedulerMetrics)
"""The instruments of a registry; the same object for the same registry."""
