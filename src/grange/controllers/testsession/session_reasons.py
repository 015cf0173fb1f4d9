"""Reasons in the status, the events and the Events of sessions."""

from enum import StrEnum


class SessionReason(StrEnum):
    """Why a session is where it is, as one word. Those of its lease come from the lease."""

    ACCEPTED = "Accepted"
    PROVISIONING = "Provisioning"
    RUNNING = "Running"
    PASSED = "Passed"
    RETRY = "Retry"
    CANCELLED = "Cancelled"
    SUPERSEDED = "Superseded"
    TEST_FAILED = "TestFailed"
    WORKER_FAILED = "WorkerFailed"
    RUN_TIMEOUT = "RunTimeout"
    MACHINE_LOST = "MachineLost"
    POD_LOST = "PodLost"
    START_FAILED = "StartFailed"
    PROVISION_TIMEOUT = "ProvisionTimeout"
    QUEUE_TIMEOUT = "QueueTimeout"
    INVALID_SPEC = "InvalidSpec"
    INVALID_POD = "InvalidPod"
    NAME_TAKEN = "NameTaken"
    CONCURRENCY = "Concurrency"
    COLLECT_FAILED = "CollectFailed"
    COLLECT_TIMEOUT = "CollectTimeout"
    CLEANUP_TIMEOUT = "CleanupTimeout"


OF_THE_TEST = frozenset(
    {SessionReason.TEST_FAILED, SessionReason.WORKER_FAILED, SessionReason.RUN_TIMEOUT}
)
"""Ends that ``retries.failure`` is about."""

OF_THE_INFRASTRUCTURE = frozenset(
    {
        SessionReason.MACHINE_LOST,
        SessionReason.POD_LOST,
        SessionReason.START_FAILED,
        SessionReason.PROVISION_TIMEOUT,
    }
)
"""Ends that ``retries.infrastructure`` is about; others would be the same in another attempt."""
