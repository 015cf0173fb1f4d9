"""The farm's metrics, once for each registry."""

from grange.base.metrics import CollectorRegistry, Counter, Gauge, once_per_registry


class FarmInstruments:
    """What members count.

    Attributes:
        owned: grange_farm_owned by farm: objects that are this member's now.
        claims: grange_farm_claims_total by farm.
        losses: grange_farm_losses_total by farm: claims that ended, for whatever reason.
        lease_writes: grange_farm_lease_writes_total by outcome (ok, failed).
        refusals: grange_farm_fence_refusals_total by farm: writes that were not sent any more.
        held: grange_farm_deletions_held_total by farm.
        deletion guard: grange_farm_deletion_guard by farm: reasons for which deletions are held now.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.owned = Gauge(
            "grange_farm_owned",
            "Objects that this member owns.",
            ["farm"],
            registry=registry,
        )
        self.claims = Counter(
            "grange_farm_claims",
            "Objects claimed by this member.",
            ["farm"],
            registry=registry,
        )
        self.losses = Counter(
            "grange_farm_losses",
            "Claims of this member that ended: released, deleted, taken over, session lost.",
            ["farm"],
            registry=registry,
        )
        self.lease_writes = Counter(
            "grange_farm_lease_writes",
            "Writes of this member on its Lease, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self.refusals = Counter(
            "grange_farm_fence_refusals",
            "Writes that were not sent because the writer had no right to them any more.",
            ["farm"],
            registry=registry,
        )
        self.held = Counter(
            "grange_farm_deletions_held",
            "Deletions that the deletion guard held back.",
            ["farm"],
            registry=registry,
        )
        self.deletion_guard = Gauge(
            "grange_farm_deletion_guard",
            "Reasons for which the deletion guard holds deletions back; 0 is all is well.",
            ["farm"],
            registry=registry,
        )


instruments = once_per_registry(FarmInstruments)
"""The instruments of a registry; the same object for the same registry."""
