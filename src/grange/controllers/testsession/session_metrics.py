"""Metrics of test sessions."""

from grange.base.metrics import CollectorRegistry, Counter, Gauge, Histogram, once_per_registry

_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)


class SessionMetrics:
    """The instruments of one registry.

    Attributes:
        phases: grange_testsession_phase by phase: sessions that this process works on.
        verdicts: grange_testsession_verdicts_total by verdict and reason.
        retries: grange_testsession_retries_total by reason.
        queue: grange_testsession_queue_seconds: until an attempt has its machines.
        provision: grange_testsession_provision_seconds: until all components are ready.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.phases = Gauge(
            "grange_testsession_phase",
            "Test sessions that this process works on and that have not ended, by phase.",
            ["phase"],
            registry=registry,
        )
        self.verdicts = Counter(
            "grange_testsession_verdicts",
            "Test sessions that ended, by verdict and reason.",
            ["verdict", "reason"],
            registry=registry,
        )
        self.retries = Counter(
            "grange_testsession_retries",
            "Attempts of test sessions that were repeated, by reason.",
            ["reason"],
            registry=registry,
        )
        self.queue = Histogram(
            "grange_testsession_queue_seconds",
            "Time that an attempt of a test session was queued.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.provision = Histogram(
            "grange_testsession_provision_seconds",
            "Time from the machines of an attempt to its run.",
            buckets=_SECONDS,
            registry=registry,
        )


instruments = once_per_registry(SessionMetrics)
"""The instruments of a registry; the same object for the same registry."""
