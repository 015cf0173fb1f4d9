"""Types of audit records, as records and outboxes name them."""

MEMBERSHIP_CHANGED = "MembershipChanged"
TRANSFER_STARTED = "NodeTransferStarted"
TRANSFER_COMPLETED = "NodeTransferCompleted"
TRANSFER_ROLLED_BACK = "NodeTransferRolledBack"
ROLLOUT_STARTED = "RolloutStarted"
ROLLOUT_COMPLETED = "RolloutCompleted"
ROLLOUT_ROLLED_BACK = "RolloutRolledBack"
ROLLOUT_CANCELLED = "RolloutCancelled"
EVENTS = (
    MEMBERSHIP_CHANGED,
    TRANSFER_STARTED,
    TRANSFER_COMPLETED,
    TRANSFER_ROLLED_BACK,
    ROLLOUT_STARTED,
    ROLLOUT_COMPLETED,
    ROLLOUT_ROLLED_BACK,
    ROLLOUT_CANCELLED,
)

OLD_MEMBERSHIP_CHANGED = "Retarget"
"""The name in earlier versions. It is accepted, because members of a farm may run such a version."""

ACCEPTED_EVENTS = (*EVENTS, OLD_MEMBERSHIP_CHANGED)


def current_name(event: str) -> str:
    """The name that this version gives to a type of records."""
    return MEMBERSHIP_CHANGED if event == OLD_MEMBERSHIP_CHANGED else event
