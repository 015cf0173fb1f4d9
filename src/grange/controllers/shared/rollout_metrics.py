"""Metrics of rollouts, node transfers and skips."""

from grange.base.metrics import CollectorRegistry, Counter, once_per_registry


class RolloutMetrics:
    """The instruments of one registry.

    Attributes:
        rollouts: grange_replication_rollouts_total by event (the reasons of ``events``).
        transfers: grange_replication_transfers_total by event (what the audit calls it).
        skips: grange_replication_skips_total by reason: how often a controller came to be held up
            for it (see ``condition_types``).
        steps: grange_replication_rollout_steps_total: intents written.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.rollouts = Counter(
            "grange_replication_rollouts",
            "What rollouts of ReplicationControllers came to, within one and between two, by event.",
            ["event"],
            registry=registry,
        )
        self.transfers = Counter(
            "grange_replication_transfers",
            "Node transfers that began, were completed or were rolled back, by event.",
            ["event"],
            registry=registry,
        )
        self.skips = Counter(
            "grange_replication_skips",
            "How often a ReplicationController came to be held up, by reason.",
            ["reason"],
            registry=registry,
        )
        self.steps = Counter(
            "grange_replication_rollout_steps",
            "Steps of rollouts that were written down.",
            registry=registry,
        )


instruments = once_per_registry(RolloutMetrics)
"""The instruments of a registry; the same object for the same registry."""
