"""Settings of the job controller."""

from dataclasses import dataclass, field

from grange.base.backoff import Exponential


@dataclass(frozen=True, slots=True)
class GangJobConfig:
    """How the controller works.

    Attributes:
        workers: jobs reconciled at the same time.
        burst: most pods created or deleted in one reconcile; the next follows when the cache shows them.
        replacement: how long the place of a pod that failed stays empty, by how often this index
            failed in a row.
        replacement_reset_s: an index that failed last so long ago is treated as one that never did.
    """

    workers: int = 8
    burst: int = 4000
    replacement: Exponential = field(
        default_factory=lambda: Exponential(initial_s=1.0, cap_s=360.0)
    )
    replacement_reset_s: float = 600.0
