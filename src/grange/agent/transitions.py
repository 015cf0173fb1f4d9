"""The life of a container and of a pod, as tables; nothing else decides what may follow what.

Theory of operation. Every container of a pod is a small machine. It waits until it may be created;
it may be *blocked* (what it needs is missing, or the runtime cannot do it now) and tries again; it
runs; it is asked to stop (SIGTERM) and, if it does not, killed (SIGKILL). When it has ended, the
restart policy chooses between *back-off*, from where it is created again, and *done*. The pod's
phase only ever goes forward; a finished pod stays finished.

``docs/reference/agent.md`` shows these tables as diagrams.
"""

from collections.abc import Mapping
from enum import Enum


class ContainerPhase(Enum):
    """Where a container is."""

    WAITING = "Waiting"
    BLOCKED = "Blocked"
    RUNNING = "Running"
    STOPPING = "Stopping"
    KILLING = "Killing"
    BACKOFF = "BackOff"
    DONE = "Done"


class ContainerEvent(Enum):
    """What happens to a container."""

    CREATED = "created"
    REFUSED = "cannot be created"
    STOP = "SIGTERM"
    KILL = "SIGKILL"
    ENDED_AGAIN = "ended, starts again"
    ENDED = "ended for good"
    ABANDONED = "no longer wanted"


class PodPhase(Enum):
    """``status.phase`` of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class PodPhaseEvent(Enum):
    """What happens to a pod."""

    STARTED = "every container was created"
    SUCCEEDED = "all ended well"
    FAILED = "one failed for good"


CONTAINER: Mapping[tuple[ContainerPhase, ContainerEvent], ContainerPhase] = {
    (ContainerPhase.WAITING, ContainerEvent.CREATED): ContainerPhase.RUNNING,
    (ContainerPhase.WAITING, ContainerEvent.REFUSED): ContainerPhase.BLOCKED,
    (ContainerPhase.WAITING, ContainerEvent.ABANDONED): ContainerPhase.DONE,
    # An agent that takes a pod over may find a container that ended while no agent ran.
    (ContainerPhase.WAITING, ContainerEvent.ENDED_AGAIN): ContainerPhase.BACKOFF,
    (ContainerPhase.WAITING, ContainerEvent.ENDED): ContainerPhase.DONE,
    (ContainerPhase.BLOCKED, ContainerEvent.CREATED): ContainerPhase.RUNNING,
    (ContainerPhase.BLOCKED, ContainerEvent.REFUSED): ContainerPhase.BLOCKED,
    (ContainerPhase.BLOCKED, ContainerEvent.ABANDONED): ContainerPhase.DONE,
    (ContainerPhase.RUNNING, ContainerEvent.STOP): ContainerPhase.STOPPING,
    (ContainerPhase.RUNNING, ContainerEvent.KILL): ContainerPhase.KILLING,
    (ContainerPhase.RUNNING, ContainerEvent.ENDED_AGAIN): ContainerPhase.BACKOFF,
    (ContainerPhase.RUNNING, ContainerEvent.ENDED): ContainerPhase.DONE,
    (ContainerPhase.STOPPING, ContainerEvent.KILL): ContainerPhase.KILLING,
    (ContainerPhase.STOPPING, ContainerEvent.ENDED_AGAIN): ContainerPhase.BACKOFF,
    (ContainerPhase.STOPPING, ContainerEvent.ENDED): ContainerPhase.DONE,
    (ContainerPhase.KILLING, ContainerEvent.ENDED_AGAIN): ContainerPhase.BACKOFF,
    (ContainerPhase.KILLING, ContainerEvent.ENDED): ContainerPhase.DONE,
    (ContainerPhase.BACKOFF, ContainerEvent.CREATED): ContainerPhase.RUNNING,
    (ContainerPhase.BACKOFF, ContainerEvent.REFUSED): ContainerPhase.BLOCKED,
    (ContainerPhase.BACKOFF, ContainerEvent.ABANDONED): ContainerPhase.DONE,
}

POD: Mapping[tuple[PodPhase, PodPhaseEvent], PodPhase] = {
    (PodPhase.PENDING, PodPhaseEvent.STARTED): PodPhase.RUNNING,
    (PodPhase.PENDING, PodPhaseEvent.SUCCEEDED): PodPhase.SUCCEEDED,
    (PodPhase.PENDING, PodPhaseEvent.FAILED): PodPhase.FAILED,
    (PodPhase.RUNNING, PodPhaseEvent.STARTED): PodPhase.RUNNING,
    (PodPhase.RUNNING, PodPhaseEvent.SUCCEEDED): PodPhase.SUCCEEDED,
    (PodPhase.RUNNING, PodPhaseEvent.FAILED): PodPhase.FAILED,
}

ALIVE = frozenset({ContainerPhase.RUNNING, ContainerPhase.STOPPING, ContainerPhase.KILLING})
STARTABLE = frozenset({ContainerPhase.WAITING, ContainerPhase.BLOCKED, ContainerPhase.BACKOFF})
FINISHED = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED})
