"""The reasons of the Events that the agent records, as Kubernetes names them."""

from enum import StrEnum


class Reason(StrEnum):
    """Why an Event was recorded."""

    STARTED = "Started"
    KILLING = "Killing"
    BACK_OFF = "BackOff"
    UNHEALTHY = "Unhealthy"
    PROBE_UNKNOWN = "ProbeUnknown"
    ADDRESS_IN_USE = "AddressInUse"
    FAILED = "Failed"
    FAILED_MOUNT = "FailedMount"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    STATUS_UNKNOWN = "ContainerStatusUnknown"
    SUPERVISOR_UNRESPONSIVE = "SupervisorUnresponsive"
    REGISTERED = "RegisteredNode"
