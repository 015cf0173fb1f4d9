"""Reasons of the events that the controller records on a ReplicationController."""

from enum import StrEnum


class Reason(StrEnum):
    """One reason a kind of news; the message carries the names."""

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
