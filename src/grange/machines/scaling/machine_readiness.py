"""How soon a pod can be on a machine."""

from grange.api.kinds.machine import Machine
from grange.api.machine_phases import MachinePhase

_P = MachinePhase
_RANKS = {_P.CLAIMED: 0, _P.AVAILABLE: 0, _P.CREATED: 1, _P.STOPPED: 2, _P.CREATING: 3}
# By the text of the status, which is looked up for each machine: members of an enum hash slowly.
_READINESS = {"": _RANKS[_P.CREATING], **{phase.value: rank for phase, rank in _RANKS.items()}}

NOT_CONSIDERED = max(_RANKS.values()) + 1
"""Of machines that no pod can get."""


def readiness(machine: Machine) -> int:
    """The lower, the sooner a pod can be on it."""
    return _READINESS.get(machine.status.phase, NOT_CONSIDERED)


def readiest_first(machine: Machine) -> tuple[int, str, str]:
    """Sorts machines: the readiest first, of these the oldest."""
    created = machine.metadata.creation_timestamp or ""
    return (readiness(machine), created, machine.metadata.name)
