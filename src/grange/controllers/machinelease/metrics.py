"""Metrics of machine leases, once for each registry (a registry refuses a name twice)."""

from grange.base.metrics import CollectorRegistry, Counter, Gauge, Histogram, once_per_registry

_BUCKETS = (0.1, 1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 24 * 3600.0)


class MachineLeaseMetrics:
    """What the controller counts.

    Attributes:
        waiting: grange_machinelease_waiting by pool.
        wait_seconds: grange_machinelease_wait_seconds by pool, from creation to grant.
        machines: grange_machinelease_machines by pool and state (free, leased, dirty, busy,
            unusable).
        outcomes: grange_machinelease_outcomes_total by outcome (granted, rejected, expired,
            released, claim_failed).
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.waiting = Gauge(
            "grange_machinelease_waiting",
            "Leases that wait for machines, by pool.",
            ["pool"],
            registry=registry,
        )
        self.wait_seconds = Histogram(
            "grange_machinelease_wait_seconds",
            "From the creation of a lease to its grant, by pool.",
            ["pool"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.machines = Gauge(
            "grange_machinelease_machines",
            "Machines, by pool and state.",
            ["pool", "state"],
            registry=registry,
        )
        self.outcomes = Counter(
            "grange_machinelease_outcomes",
            "What became of leases, by outcome.",
            ["outcome"],
            registry=registry,
        )


instruments = once_per_registry(MachineLeaseMetrics)
"""The instruments of a registry; the same object for the same registry."""
