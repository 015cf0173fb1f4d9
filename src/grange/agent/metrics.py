"""The agent's metrics, once for each registry (a registry refuses a name twice)."""

from grange.base.metrics import CollectorRegistry, Counter, Histogram, once_per_registry

_BUCKETS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0)


class AgentMetrics:
    """What the agents of a process count.

    Attributes:
        starts: grange_agent_container_starts_total by outcome (started, refused, not_executable).
        ends: grange_agent_container_ends_total by reason (Completed, Error, OOMKilled,
            StartError, ContainerStatusUnknown).
        start_seconds: grange_agent_container_start_seconds: from the decision to the program.
        status_writes: grange_agent_status_writes_total by outcome (written, gone, failed).
        probes: grange_agent_probes_total by kind and outcome (ok, failed, unknown).
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.starts = Counter(
            "grange_agent_container_starts",
            "Starts of containers, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self.ends = Counter(
            "grange_agent_container_ends",
            "Ends of containers, by reason.",
            ["reason"],
            registry=registry,
        )
        self.start_seconds = Histogram(
            "grange_agent_container_start_seconds",
            "From the decision to start a container to its program.",
            buckets=_BUCKETS,
            registry=registry,
        )
        self.status_writes = Counter(
            "grange_agent_status_writes",
            "Writes of pod status, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self.probes = Counter(
            "grange_agent_probes",
            "Answers of probes, by kind and outcome.",
            ["kind", "outcome"],
            registry=registry,
        )


instruments = once_per_registry(AgentMetrics)
"""The instruments of a registry; the same object for the same registry."""
