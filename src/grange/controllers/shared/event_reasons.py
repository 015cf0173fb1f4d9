"""Reasons of events on ReplicationControllers and RollingUpdates."""

from enum import StrEnum


class Reason(StrEnum):
    """The reason of an event; the message has the names."""

    CREATED = "SuccessfulCreate"
    CREATE_FAILED = "FailedCreate"
    DELETED = "SuccessfulDelete"
    DELETE_FAILED = "FailedDelete"
    ADOPTED = "Adopted"
    RELEASED = "Released"
    REPAIRED = "LabelsRepaired"
    REPAIR_FAILED = "FailedRepair"
    INSUFFICIENT_NODES = "InsufficientNodes"
    INVALID = "InvalidController"
    ROLLOUT_STARTED = "RolloutStarted"
    ROLLOUT_PAUSED = "RolloutPaused"
    ROLLOUT_RESUMED = "RolloutResumed"
    CANARY_REACHED = "CanaryReached"
    ROLLOUT_COMPLETE = "RolloutComplete"
    ROLLOUT_FAILED = "RolloutFailed"
    ROLLING_BACK = "RollingBack"
    ROLLED_BACK = "RolledBack"
    ROLLOUT_REFUSED = "RolloutRefused"
    AUDIT_FAILED = "FailedAudit"


FAILURES = frozenset(
    {
        Reason.ROLLOUT_FAILED,
        Reason.ROLLOUT_REFUSED,
        Reason.ROLLING_BACK,
        Reason.ROLLED_BACK,
    }
)
"""Reasons of a rollout that are warnings."""


INVALID_ANNOTATION = "InvalidAnnotation"
"""Reason of a condition: an annotation that carries an operation is malformed, which blocks it."""
