"""What the audit tells of: the types of its records, as records and outboxes name them."""

RETARGET = "Retarget"
TRANSFER_STARTED = "NodeTransferStarted"
TRANSFER_COMPLETED = "NodeTransferCompleted"
TRANSFER_ROLLED_BACK = "NodeTransferRolledBack"
ROLLOUT_STARTED = "RolloutStarted"
ROLLOUT_COMPLETED = "RolloutCompleted"
ROLLOUT_ROLLED_BACK = "RolloutRolledBack"
ROLLOUT_CANCELLED = "RolloutCancelled"
EVENTS = (
    RETARGET,
    TRANSFER_STARTED,
    TRANSFER_COMPLETED,
    TRANSFER_ROLLED_BACK,
    ROLLOUT_STARTED,
    ROLLOUT_COMPLETED,
    ROLLOUT_ROLLED_BACK,
    ROLLOUT_CANCELLED,
)
