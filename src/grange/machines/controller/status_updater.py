"""Writes the status of machines: single fields, from the version that was read, with a history.

A phase changes by an event of ``api.machine_phases`` and in no other way. Each event also writes the
fields that must change with the phase, so that no reader sees one without the other. A conflict is the
caller's: another one has written, and the next look at the machine decides again.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from grange.api import conditions, timestamps
from grange.api.kinds import MACHINE
from grange.api.kinds.machine import (
    HISTORY_MAX,
    INITIALIZED_CONDITION,
    LAUNCHED_CONDITION,
    Machine,
    MachineHistoryEntry,
)
from grange.api.machine_phases import TRANSITIONS, MachineEvent
from grange.api.meta import Document, preconditions
from grange.api.status import Conflict
from grange.base import statemachine
from grange.base.clock import Clock
from grange.client.client import Client
from grange.machines.controller.machine_lifecycle import BOOTING

_E = MachineEvent
_FREED = frozenset({_E.RETURNED_UNUSED, _E.CLEANED})
_STARTED = frozenset({_E.LAUNCHED, _E.RESUMED})
_TRIES = 4
_VERDICTS = {  # conditions that an event decides
    _E.LAUNCHED: {LAUNCHED_CONDITION: "True"},
    _E.LAUNCH_REFUSED: {LAUNCHED_CONDITION: "False"},
    _E.JOINED: {LAUNCHED_CONDITION: "True", INITIALIZED_CONDITION: "True"},
    _E.PARKED: {INITIALIZED_CONDITION: "False"},
}
_HOLDER = (
    "boundPodName",
    "boundPodUID",
    "holder",
    "holderUID",
    "holderEpoch",
    "requestID",
    "claimGeneration",
)


class StatusUpdater:
    """Patches machines.

    Args:
        client: of the API server.
        clock: time.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def move(
        self,
        machine: Machine,
        event: MachineEvent,
        *,
        reason: str,
        message: str = "",
        fields: Document | None = None,
    ) -> Machine:
        """Write an event and return the machine in its new phase.

        Args:
            machine: as it was read.
            event: what happened.
            reason: as one word.
            message: for people.
            fields: of the status, to be written with it; None removes one.

        Raises:
            InvariantError: the event cannot happen in the machine's phase; nothing is written.
            ApiError: it changed, or is gone, or the request failed.
        """
        now = self._clock.now()
        patch = {**event_fields(machine, event, reason, message, now), **(fields or {})}
        return await self._write(machine, patch)

    async def report(
        self,
        machine: Machine,
        event: MachineEvent,
        *,
        reason: str,
        message: str = "",
        fields: Document | None = None,
    ) -> Machine:
        """Write what a provider has answered, which stands whatever else was written meanwhile.

        Raises:
            InvariantError: the event cannot happen in the machine's phase any more.
            ApiError: it is gone, changes all the time, or the request failed.
        """
        for _ in range(_TRIES):
            try:
                return await self.move(
                    machine, event, reason=reason, message=message, fields=fields
                )
            except Conflict:
                found = await self._client.get(MACHINE, machine.metadata.name)
                same = found.metadata.uid == machine.metadata.uid
                if not same or found.phase is not machine.phase:
                    raise
                machine = found
        return await self.move(machine, event, reason=reason, message=message, fields=fields)

    async def update(self, machine: Machine, fields: Document) -> Machine:
        """Write fields and return the machine, whose phase stays as it is.

        Raises:
            ApiError: it changed, or is gone, or the request failed.
        """
        return await self._write(machine, {**_first_fields(machine, self._clock.now()), **fields})

    async def _write(self, machine: Machine, fields: Document) -> Machine:
        meta = machine.metadata
        patch = {
            "metadata": preconditions(meta),
            "status": {"observedGeneration": meta.generation, **fields},
        }
        return await self._client.patch(MACHINE, meta.name, patch=patch, subresource="status")


def event_fields(
    machine: Machine, event: MachineEvent, reason: str, message: str, now: datetime
) -> Document:
    """The fields of the status that an event changes; None removes one.

    Raises:
        InvariantError: the event cannot happen in the machine's phase.
    """
    following = statemachine.advance(TRANSITIONS, machine.phase, event)
    at = timestamps.rfc3339(now)
    entry = MachineHistoryEntry(at, following.value, reason, message)
    fields: Document = {
        "phase": following.value,
        "history": msgspec.to_builtins((*machine.status.history, entry)[-HISTORY_MAX:]),
        "stage": BOOTING if event in _STARTED else None,
    }
    if (verdicts := _VERDICTS.get(event)) is not None:
        fields |= condition_fields(machine, verdicts, reason, message, now)
    if event is _E.RESUMED:
        fields["launchTime"] = at  # its boot deadline counts from here
    if event is _E.JOINED:
        fields |= {"nodeName": machine.node, "availableTime": at, "lastError": None}
    if event in _FREED:
        fields |= {"availableTime": at, **dict.fromkeys(_HOLDER)}
    if event is _E.LAUNCH_REFUSED:
        fields["lastError"] = message
    return fields


def condition_fields(
    machine: Machine, verdicts: Mapping[str, str], reason: str, message: str, now: datetime
) -> Document:
    """The field of the status in which conditions are set.

    Args:
        machine: as it was read.
        verdicts: status of each condition, by its type.
        reason: as one word.
        message: for people.
        now: wall time.
    """
    found, generation = machine.status.conditions, machine.metadata.generation
    for kind, status in verdicts.items():
        found = conditions.set_status(
            found, kind, (status, reason, message or reason), generation=generation, now=now
        )
    return {"conditions": msgspec.to_builtins(found)}


def _first_fields(machine: Machine, now: datetime) -> Document:
    """What a first write adds: the phase that a machine without a status is in."""
    if machine.status.phase:
        return {}
    entry = MachineHistoryEntry(timestamps.rfc3339(now), machine.phase.value, "Ordered")
    return {"phase": machine.phase.value, "history": [msgspec.to_builtins(entry)]}
