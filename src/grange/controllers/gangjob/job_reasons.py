"""Reasons of a job's conditions and events that do not begin with its kind."""

from enum import StrEnum


class JobReason(StrEnum):
    """Why a job ended, lost an index, had containers restarted, or may hang."""

    COMPLETIONS = "CompletionsReached"
    SUCCESS_POLICY = "SuccessPolicy"
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
