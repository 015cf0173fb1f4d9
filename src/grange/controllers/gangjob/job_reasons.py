"""Reasons of a job's conditions and events that do not begin with its kind."""

from enum import StrEnum


class JobReason(StrEnum):
    """Why a job failed, lost an index, had containers restarted, or may hang."""

    BACKOFF_LIMIT = "BackoffLimitExceeded"
    DEADLINE = "DeadlineExceeded"
    MAX_RESTARTS = "ReachedMaxRestarts"
    MAX_FAILED_INDEXES = "MaxFailedIndexesExceeded"
    FAILED_INDEXES = "FailedIndexes"
    POD_FAILURE_POLICY = "PodFailurePolicy"
    FAILED_INDEX = "FailedIndex"
    PEERS_UNREACHABLE = "PeersUnreachable"
    RESTARTED_IN_PLACE = "RestartedInPlace"
    INVALID = "InvalidJobSpec"
