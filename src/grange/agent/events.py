"""The reasons of the Events that the agent records, as Kubernetes names them."""

from enum import StrEnum


class AgentReason(StrEnum):
    """Why an Event was recorded."""

    STARTED = "Started"
    PULLING = "Pulling"
    PULLED = "Pulled"
    KILLING = "Killing"
    BACK_OFF = "BackOff"
    UNHEALTHY = "Unhealthy"
    PROBE_UNKNOWN = "ProbeUnknown"
    ADDRESS_IN_USE = "AddressInUse"
    FAILED_POST_START_HOOK = "FailedPostStartHook"
    FAILED_PRE_STOP_HOOK = "FailedPreStopHook"
    FAILED = "Failed"
    EVICTED = "Evicted"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    RESIZE_STARTED = "ResizeStarted"
    RESIZE_COMPLETED = "ResizeCompleted"
    RESIZE_DEFERRED = "ResizeDeferred"
    RESIZE_INFEASIBLE = "ResizeInfeasible"
    RESIZE_ERROR = "ResizeError"
    STATUS_UNKNOWN = "ContainerStatusUnknown"
    SUPERVISOR_UNRESPONSIVE = "SupervisorUnresponsive"
    REGISTERED = "RegisteredNode"
