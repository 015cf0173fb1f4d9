"""Settings of the audit controller."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """Which records are kept.

    Attributes:
        keep: this many of the newest records of every controller are kept.
        max_age_s: records older than this are deleted, in seconds.
        sweep_s: seconds between two passes.
    """

    keep: int = 200
    max_age_s: float = 90 * 86_400.0
    sweep_s: float = 3600.0
