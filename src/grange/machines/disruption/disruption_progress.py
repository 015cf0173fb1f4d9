"""How far a decision is with each of its machines: kept on the Machine, so that a restart continues it."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum

import msgspec

from grange.api import timestamps
from grange.api.kinds.machine import Machine
from grange.api.kinds.node import Node
from grange.api.kinds.nodepool import PoolDisruption
from grange.api.machine_phases import MachinePhase
from grange.machines.disruption.disruption_plan import (
    DRIFTED,
    EXPIRED,
    INTERRUPTED,
    POOL_DELETED,
)
from grange.machines.disruption.node_drain import DISRUPTED_TAINT, drain_deadline

DISRUPTION_ANNOTATION = "grange.dev/disruption"
"""Annotation of machines that are disrupted: a ``DisruptionRecord`` as JSON."""

VALIDATE_S = 15.0
"""A decision is made again after so long, and falls if it would be another one."""

REPLACE_S = 1800.0
"""A decision whose replacements are not available after so long falls."""

ORDERED_S = 60.0
"""Records of replacements are there after so long, or the decision falls."""

DRAIN_MAX_S = 3600.0
"""A drain for the sake of price falls if pods hold it up for so long."""

PLAN_AGAIN_S = 10.0
"""So often it is looked for places for the pods of a machine that is taken away, until they have some."""

MARGIN_S = 10.0
"""Left between the end of the last pod and that of a machine that is taken away."""

_P = MachinePhase
_BOOTS = frozenset({_P.CREATING, _P.CREATED})
_ENDED = frozenset({_P.TERMINATING, _P.TERMINATED})


class DisruptionRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What was decided about a machine, and how far that is.

    Attributes:
        reason: of ``disruption_plan``.
        message: for people.
        decided: RFC 3339, when.
        together: names of all machines of the decision.
        forced: budgets of pods do not hold it up.
        validated: RFC 3339, when it was made again; empty before.
        replacements: names of machines that were ordered; once validated.
        drain_started: RFC 3339; empty before.
        deadline: RFC 3339, when the provider takes the machine away; empty for other reasons, and where
            it has only warned.
        unplaced: why not all pods have a place elsewhere yet; only where the provider takes it away.
    """

    reason: str
    message: str
    decided: str
    together: tuple[str, ...]
    forced: bool = False
    validated: str = ""
    replacements: tuple[str, ...] = ()
    drain_started: str = ""
    deadline: str = ""
    unplaced: str = ""

    def text(self) -> str:
        """The annotation."""
        return msgspec.json.encode(self).decode()


class DisruptionStep(Enum):
    """What is done next.

    Attributes:
        WAIT: nothing until something changes or the time comes.
        TAINT: give the node the taint.
        VALIDATE: make the decision again and order the replacements.
        BEGIN_DRAIN: record that the drain begins.
        DRAIN: take the next step of the drain.
        END: end the machine.
        UNDO: take off the taint and forget the decision.
    """

    WAIT = "wait"
    TAINT = "taint"
    VALIDATE = "validate"
    BEGIN_DRAIN = "begin drain"
    DRAIN = "drain"
    END = "end"
    UNDO = "undo"


def record_of(machine: Machine) -> DisruptionRecord | None:
    """The record of a machine; None for none, or one that is malformed (edited by a user)."""
    text = machine.metadata.annotations.get(DISRUPTION_ANNOTATION)
    if not text:
        return None
    try:
        record = msgspec.json.decode(text, type=DisruptionRecord)
        timestamps.parse(record.decided)
        for time in (record.validated, record.drain_started, record.deadline):
            timestamps.parse(time or record.decided)
    except (msgspec.DecodeError, timestamps.TimestampError):
        return None
    return record


def deleted_pool_record(machine: Machine, now: datetime) -> DisruptionRecord:
    """The record of a machine in use whose pool is deleted: a drain that goes on keeps its time."""
    known = record_of(machine) or DisruptionRecord("", "", timestamps.rfc3339(now), ())
    return msgspec.structs.replace(
        known,
        reason=POOL_DELETED,
        message=f"{POOL_DELETED}: pool {machine.spec.pool} is deleted",
        together=(machine.metadata.name,),
        forced=True,
    )


def is_disrupted(machine: Machine) -> bool:
    """Whether a decision about the machine is under way."""
    return DISRUPTION_ANNOTATION in machine.metadata.annotations


def replacing(machines: Iterable[Machine]) -> frozenset[str]:
    """Machines that replace others which have not ended yet: they are empty on purpose."""
    records = (record_of(machine) for machine in machines)
    return frozenset(
        name for record in records if record is not None for name in record.replacements
    )


def is_tainted(node: Node) -> bool:
    """Whether no more pods come to the node."""
    return any(taint.key == DISRUPTED_TAINT.key for taint in node.spec.taints)


def deadline_of(record: DisruptionRecord, disruption: PoolDisruption) -> datetime | None:
    """When the drain ends by force; None where nothing sets a time.

    A machine that must end by now has had its grace; one that ends for its price is left alone instead.
    """
    ends = []
    if record.deadline:
        ends.append(timestamps.parse(record.deadline) - timedelta(seconds=MARGIN_S))
    if record.reason in (DRIFTED, EXPIRED, POOL_DELETED) and record.drain_started:
        started, grace_s = record.drain_started, disruption.termination_grace_period_seconds
        end = drain_deadline(timestamps.parse(started), grace_s)
        ends += [] if end is None else [end]
    return min(ends, default=None)


def next_disruption(
    record: DisruptionRecord,
    machine: Machine,
    node: Node | None,
    replacements: Mapping[str, Machine | None],
    now: datetime,
    *,
    overdue: bool = False,
) -> DisruptionStep:
    """What a machine of a packed pool that is disrupted needs next.

    Args:
        record: of the machine.
        machine: its record.
        node: of the machine.
        replacements: the machines that replace it, by name; None for one that is gone.
        now: wall time.
        overdue: its pods need all the time that is left to them.
    """
    if record.reason == INTERRUPTED:
        step = _interrupted(machine, node)
        return step or _moved(record, replacements, now, overdue=overdue)
    if machine.phase is not _P.AVAILABLE or machine.is_ending:
        return DisruptionStep.WAIT
    if node is None:
        return DisruptionStep.END
    if not is_tainted(node):
        return DisruptionStep.TAINT
    if not record.validated:
        due = timestamps.parse(record.decided) + timedelta(seconds=VALIDATE_S)
        return DisruptionStep.VALIDATE if now >= due else DisruptionStep.WAIT
    if not record.drain_started:
        return _replaced(record, replacements, now)
    started = timestamps.parse(record.drain_started)
    lasts = now - started >= timedelta(seconds=DRAIN_MAX_S)
    if lasts and record.reason not in (DRIFTED, EXPIRED):
        return DisruptionStep.UNDO  # pods hold its drain up
    return DisruptionStep.DRAIN


def next_unreplaced(
    record: DisruptionRecord, machine: Machine, node: Node | None, *, in_use: bool
) -> DisruptionStep:
    """What a machine needs next that goes and is not replaced first.

    These are machines that a provider takes away and whose pool is dedicated, or cannot be planned for now,
    and machines of deleted pools. A pod's successor gets a machine when there is one: the earlier the pod
    goes, the more time that has.

    Args:
        record: of the machine.
        machine: its record.
        node: of the machine.
        in_use: pods are on the node, other than those of every node.
    """
    if record.reason not in (INTERRUPTED, POOL_DELETED):
        return DisruptionStep.WAIT  # its pool cannot be planned for now
    if (step := _interrupted(machine, node)) is not None:
        return step
    if machine.phase is _P.AVAILABLE and not in_use and not record.drain_started:
        return DisruptionStep.END
    return DisruptionStep.DRAIN if record.drain_started else DisruptionStep.BEGIN_DRAIN


def _interrupted(machine: Machine, node: Node | None) -> DisruptionStep | None:
    """What comes before the drain; None where nothing does."""
    if machine.phase in _ENDED or machine.is_ending:
        return DisruptionStep.WAIT
    if machine.phase not in {_P.AVAILABLE, _P.CLAIMED} or node is None:
        return DisruptionStep.END
    if not is_tainted(node):
        return DisruptionStep.TAINT
    return None


def _moved(
    record: DisruptionRecord,
    replacements: Mapping[str, Machine | None],
    now: datetime,
    *,
    overdue: bool,
) -> DisruptionStep:
    """Replaced first as long as there is time, and planned again where that fails."""
    if record.drain_started:
        lasts = now - timestamps.parse(record.drain_started) >= timedelta(seconds=DRAIN_MAX_S)
        held_up = lasts and not record.deadline
        return DisruptionStep.UNDO if held_up else DisruptionStep.DRAIN
    if overdue:
        return DisruptionStep.BEGIN_DRAIN  # no time is left for its replacement
    if not record.validated:
        return DisruptionStep.VALIDATE
    planned = now - timestamps.parse(record.validated)
    again = planned >= timedelta(seconds=PLAN_AGAIN_S)
    found = [replacements.get(name) for name in record.replacements]
    failed = any(
        each is None or (each.phase not in _BOOTS and each.phase is not _P.AVAILABLE)
        for each in found
    )
    if record.unplaced or failed:
        return DisruptionStep.VALIDATE if again else DisruptionStep.WAIT
    if any(each is not None and each.phase in _BOOTS for each in found):
        return DisruptionStep.WAIT
    return DisruptionStep.BEGIN_DRAIN


def _replaced(
    record: DisruptionRecord, replacements: Mapping[str, Machine | None], now: datetime
) -> DisruptionStep:
    since = now - timestamps.parse(record.validated)
    late = since >= timedelta(seconds=REPLACE_S)
    for name in record.replacements:
        machine = replacements.get(name)
        if machine is None and since < timedelta(seconds=ORDERED_S):
            return DisruptionStep.WAIT  # it is being ordered
        if machine is None or (machine.phase not in _BOOTS and machine.phase is not _P.AVAILABLE):
            return DisruptionStep.UNDO
        if machine.phase in _BOOTS:
            return DisruptionStep.UNDO if late else DisruptionStep.WAIT
    return DisruptionStep.BEGIN_DRAIN
