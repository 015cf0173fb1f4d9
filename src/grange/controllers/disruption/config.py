"""Settings of the disruption controller."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DisruptionConfig:
    """How the controller works.

    Attributes:
        workers: budgets worked on at the same time.
        unseen_s: an eviction that was granted and did not happen for so long gives its allowance
            back; long enough for a deletion to be seen, short enough not to block the next.
    """

    workers: int = 2
    unseen_s: float = 120.0
