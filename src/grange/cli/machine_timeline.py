"""The timeline of machines, from their records: a pure function."""

from collections.abc import Iterable
from datetime import datetime

from grange.api import timestamps
from grange.api.kinds.machine import Machine
from grange.api.machine_phases import MachinePhase
from grange.cli.timeline import TimelineSpan, TimelineStage

_P = MachinePhase
_ORDERED = TimelineStage(".", "#c8c8c8", "is ordered")
_BOOTS = TimelineStage("-", "#e6b450", "boots")
_AVAILABLE = TimelineStage("=", "#4caf6d", "is available")
_CLAIMED = TimelineStage("#", "#4a8fd4", "is claimed")
_CLEANED = TimelineStage("~", "#9c6fc4", "is cleaned")
_OFF = TimelineStage("_", "#8a8a8a", "is off")
_ENDS = TimelineStage("x", "#d9534f", "ends")
STAGES = (_ORDERED, _BOOTS, _AVAILABLE, _CLAIMED, _CLEANED, _OFF, _ENDS)
_STAGE_OF = {
    _P.CREATING: _ORDERED,
    _P.CREATED: _BOOTS,
    _P.AVAILABLE: _AVAILABLE,
    _P.CLAIMED: _CLAIMED,
    _P.CLEANING: _CLEANED,
    _P.STOPPING: _OFF,
    _P.STOPPED: _OFF,
    _P.TERMINATING: _ENDS,
}


def phases(machine: Machine, now: datetime) -> list[tuple[MachinePhase, datetime, datetime]]:
    """The phases that its history shows, each with start and end; the last one goes on until now."""
    created = timestamps.parse_or(machine.metadata.creation_timestamp, now)
    starts = [(_P.CREATING, created)]
    starts += [
        (MachinePhase(entry.phase), timestamps.parse(entry.time))
        for entry in machine.status.history
    ]
    ends = [at for _, at in starts[1:]] + [now]
    return [(phase, at, end) for (phase, at), end in zip(starts, ends, strict=True) if end > at]


def spans(machines: Iterable[Machine], now: datetime) -> list[TimelineSpan]:
    """A line a machine, the oldest first."""
    found = [(machine, phases(machine, now)) for machine in machines]
    found.sort(key=lambda one: (one[0].metadata.creation_timestamp or "", one[0].metadata.name))
    return [
        TimelineSpan(
            machine.metadata.name,
            tuple(
                (_STAGE_OF[phase], start, end) for phase, start, end in lived if phase in _STAGE_OF
            ),
            machine.phase.value if machine.phase is _P.TERMINATED else "",
        )
        for machine, lived in found
    ]
