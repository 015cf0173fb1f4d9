"""The life of a container and of a pod, as tables; nothing else decides what may follow what.

Theory of operation. Every container of a pod is a small machine. It waits until it may be created;
it may be *blocked* (what it needs is missing, or the runtime cannot do it now) and tries again; it
runs; it is told to stop (SIGTERM) and, if it does not, killed (SIGKILL). When it has ended, the
restart policy chooses between *back-off*, from where it is created again, and *done*. The pod's
phase only ever goes forward; a finished pod stays finished.

``docs/reference/agent.md`` carries the diagrams that ``diagrams`` draws from these tables.
"""

from collections.abc import Mapping
from enum import Enum

from grange.base.statemachine import diagram


class State(Enum):
    """Where a container is."""

    WAITING = "Waiting"
    BLOCKED = "Blocked"
    RUNNING = "Running"
    STOPPING = "Stopping"
    KILLING = "Killing"
    BACKOFF = "BackOff"
    DONE = "Done"


class Event(Enum):
    """What happens to a container."""

    CREATED = "created"
    REFUSED = "cannot be created"
    STOP = "SIGTERM"
    KILL = "SIGKILL"
    ENDED_AGAIN = "ended, starts again"
    ENDED = "ended for good"
    ABANDONED = "no longer wanted"


class Phase(Enum):
    """``status.phase`` of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class PhaseEvent(Enum):
    """What happens to a pod."""

    STARTED = "every container was created"
    SUCCEEDED = "all ended well"
    FAILED = "one failed for good"


CONTAINER: Mapping[tuple[State, Event], State] = {
    (State.WAITING, Event.CREATED): State.RUNNING,
    (State.WAITING, Event.REFUSED): State.BLOCKED,
    (State.WAITING, Event.ABANDONED): State.DONE,
    # An agent that takes a pod over may find a container that ended while nobody looked.
    (State.WAITING, Event.ENDED_AGAIN): State.BACKOFF,
    (State.WAITING, Event.ENDED): State.DONE,
    (State.BLOCKED, Event.CREATED): State.RUNNING,
    (State.BLOCKED, Event.REFUSED): State.BLOCKED,
    (State.BLOCKED, Event.ABANDONED): State.DONE,
    (State.RUNNING, Event.STOP): State.STOPPING,
    (State.RUNNING, Event.KILL): State.KILLING,
    (State.RUNNING, Event.ENDED_AGAIN): State.BACKOFF,
    (State.RUNNING, Event.ENDED): State.DONE,
    (State.STOPPING, Event.KILL): State.KILLING,
    (State.STOPPING, Event.ENDED_AGAIN): State.BACKOFF,
    (State.STOPPING, Event.ENDED): State.DONE,
    (State.KILLING, Event.ENDED_AGAIN): State.BACKOFF,
    (State.KILLING, Event.ENDED): State.DONE,
    (State.BACKOFF, Event.CREATED): State.RUNNING,
    (State.BACKOFF, Event.REFUSED): State.BLOCKED,
    (State.BACKOFF, Event.ABANDONED): State.DONE,
}

POD: Mapping[tuple[Phase, PhaseEvent], Phase] = {
    (Phase.PENDING, PhaseEvent.STARTED): Phase.RUNNING,
    (Phase.PENDING, PhaseEvent.SUCCEEDED): Phase.SUCCEEDED,
    (Phase.PENDING, PhaseEvent.FAILED): Phase.FAILED,
    (Phase.RUNNING, PhaseEvent.STARTED): Phase.RUNNING,
    (Phase.RUNNING, PhaseEvent.SUCCEEDED): Phase.SUCCEEDED,
    (Phase.RUNNING, PhaseEvent.FAILED): Phase.FAILED,
}

ALIVE = frozenset({State.RUNNING, State.STOPPING, State.KILLING})
STARTABLE = frozenset({State.WAITING, State.BLOCKED, State.BACKOFF})
FINISHED = frozenset({Phase.SUCCEEDED, Phase.FAILED})


def diagrams() -> dict[str, str]:
    """Both diagrams by name, for the documentation."""
    return {
        "container": diagram(CONTAINER, State.WAITING, frozenset({State.DONE})),
        "pod": diagram(POD, Phase.PENDING, FINISHED),
    }
