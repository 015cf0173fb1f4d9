"""The life of a machine as one table; the API server refuses a status that it does not allow.

The phases are those of elotl/kip's nodes, and two for machines that are kept switched off. Two cells
differ from kip's table. A machine that was claimed and not touched goes back to ``Available``. A used
one does so only by ``CLEANED``: a restart, or a program on it that answers, never gives it back.
"""

from enum import Enum


class MachinePhase(Enum):
    """Where a machine is in its life.

    Attributes:
        CREATING: recorded; the provider was not asked yet, or its answer is not known.
        CREATED: the provider has an instance for it, which boots.
        AVAILABLE: its agent has joined and is healthy; nothing has claimed it.
        CLAIMED: it is one holder's.
        CLEANING: its holder has used it; it is being wiped or waits to be terminated.
        STOPPING: it is closed to pods and being switched off, to be kept.
        STOPPED: it is off and can be started again.
        TERMINATING: it is being ended; the provider still has it.
        TERMINATED: the provider has it no more.
    """

    CREATING = "Creating"
    CREATED = "Created"
    AVAILABLE = "Available"
    CLAIMED = "Claimed"
    CLEANING = "Cleaning"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"


class MachineEvent(Enum):
    """What happens to a machine.

    Attributes:
        LAUNCHED: the provider has accepted the launch and named an instance.
        LAUNCH_REFUSED: the provider will certainly not launch it.
        JOINED: its node is there, ready and of the right identity.
        CLAIM: a holder gets it.
        RETURNED_UNUSED: its holder never used it.
        RETURNED_USED: its holder has used it.
        CLEANED: all that its holder left is gone.
        PARK: a standby machine is to be switched off.
        PARKED: the provider has switched it off.
        RESUMED: it is to be on again, whether the provider has switched it off or not.
        END: it is surplus, failed, expired or asked to end.
        GONE: the provider has no such instance.
    """

    LAUNCHED = "launched"
    LAUNCH_REFUSED = "launch refused"
    JOINED = "joined"
    CLAIM = "claim"
    RETURNED_UNUSED = "returned unused"
    RETURNED_USED = "returned used"
    CLEANED = "cleaned"
    PARK = "park"
    PARKED = "parked"
    RESUMED = "resumed"
    END = "end"
    GONE = "gone"


_P, _E = MachinePhase, MachineEvent

TRANSITIONS: dict[tuple[MachinePhase, MachineEvent], MachinePhase] = {
    (_P.CREATING, _E.LAUNCHED): _P.CREATED,
    (_P.CREATING, _E.JOINED): _P.AVAILABLE,
    (_P.CREATING, _E.LAUNCH_REFUSED): _P.TERMINATED,
    (_P.CREATING, _E.END): _P.TERMINATING,
    (_P.CREATED, _E.JOINED): _P.AVAILABLE,
    (_P.CREATED, _E.END): _P.TERMINATING,
    (_P.CREATED, _E.GONE): _P.TERMINATED,
    (_P.AVAILABLE, _E.CLAIM): _P.CLAIMED,
    (_P.AVAILABLE, _E.PARK): _P.STOPPING,
    (_P.AVAILABLE, _E.END): _P.TERMINATING,
    (_P.AVAILABLE, _E.GONE): _P.TERMINATED,
    (_P.CLAIMED, _E.RETURNED_UNUSED): _P.AVAILABLE,
    (_P.CLAIMED, _E.RETURNED_USED): _P.CLEANING,
    (_P.CLAIMED, _E.END): _P.TERMINATING,
    (_P.CLAIMED, _E.GONE): _P.TERMINATED,
    (_P.CLEANING, _E.CLEANED): _P.AVAILABLE,
    (_P.CLEANING, _E.END): _P.TERMINATING,
    (_P.CLEANING, _E.GONE): _P.TERMINATED,
    (_P.STOPPING, _E.PARKED): _P.STOPPED,
    (_P.STOPPING, _E.RESUMED): _P.CREATED,
    (_P.STOPPING, _E.END): _P.TERMINATING,
    (_P.STOPPING, _E.GONE): _P.TERMINATED,
    (_P.STOPPED, _E.RESUMED): _P.CREATED,
    (_P.STOPPED, _E.END): _P.TERMINATING,
    (_P.STOPPED, _E.GONE): _P.TERMINATED,
    (_P.TERMINATING, _E.GONE): _P.TERMINATED,
}

PHASES = tuple(phase.value for phase in MachinePhase)
_ALLOWED = frozenset((before.value, after.value) for (before, _), after in TRANSITIONS.items())


def may_follow(before: str, after: str) -> bool:
    """Whether a status in phase ``after`` may replace one in phase ``before``.

    A machine without a phase is new: any may follow, as when a backup is restored. So it is where only another
    release knows the phase.
    """
    return before not in PHASES or before == after or (before, after) in _ALLOWED
