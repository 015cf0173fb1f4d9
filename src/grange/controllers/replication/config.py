"""Settings of the replication controller."""

from dataclasses import dataclass, field

from grange.base.backoff import Exponential


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """How the controller works.

    Attributes:
        workers: controllers reconciled at the same time.
        burst: most pods created or deleted in one reconcile; the next one follows at once.
        resync_s: every controller is reconciled again after so many seconds, also without events.
        replacement: delay before a finished pod is replaced, by how often pods of the controller finished in a
            row; the finished pod is kept for inspection meanwhile.
        replacement_reset_s: seconds without a finished pod after which the delay is reset.
        pool_sweep_s: seconds between two sweeps for machines whose holders are gone.
    """

    workers: int = 4
    burst: int = 500
    resync_s: float = 300.0
    replacement: Exponential = field(default_factory=lambda: Exponential(initial_s=1.0, cap_s=60.0))
    replacement_reset_s: float = 600.0
    pool_sweep_s: float = 300.0
