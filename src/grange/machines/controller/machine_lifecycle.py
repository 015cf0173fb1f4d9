"""What a machine needs next, from its record, its instance and its node: one plain function.

Everything that a restart needs is in the record, so that a restarted controller goes on where
the former one stopped. A step is repeated until a look shows that it was done: calls to providers can
fail, hang, or be done though they were answered with an error.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from fnmatch import fnmatchcase

from grange.api import timestamps
from grange.api.kinds.machine import Machine
from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.api.kinds.node import Node, is_ready
from grange.api.kinds.nodepool import DEDICATED, WIPE, NodePoolSpec, PoolTimeouts
from grange.api.machine_phases import MachineEvent, MachinePhase
from grange.machines.controller.machine_holder import HolderState
from grange.machines.disruption.disruption_progress import record_of
from grange.machines.providers.provider import Instance, InstanceState
from grange.machines.scaling.node_match import is_of

LAUNCHING, BOOTING, JOINING = "Launching", "Booting", "Joining"
"""Stages of a boot, as ``status.stage`` names them."""

SWITCHING_OFF = "SwitchingOff"
"""Stage of a machine that stops: no pod came before it was closed, and the provider is asked."""

CLOSED_S = 15.0
"""So long a node is closed before its machine is switched off: what schedulers had decided before is done then."""

_E, _P, _S = MachineEvent, MachinePhase, InstanceState
_ENDED = frozenset({_P.TERMINATING, _P.TERMINATED})
_OFF = frozenset({_S.STOPPED, _S.STOPPING})


class MachineStep(Enum):
    """What is done.

    Attributes:
        WAIT: nothing until something changes, or until the time that comes with it.
        RECORD_LAUNCH: write that a launch is about to be asked for, and when.
        LAUNCH: ask the provider, under the machine's name.
        MOVE: write an event, which gives the next phase.
        UPDATE: write what the instance is and how far the boot is.
        INITIALIZE: give the node its labels and taints.
        LOOK: have the instances listed before it is time.
        WIPE: have the provider remove what the holder left.
        CLOSE: keep pods away from the node.
        STOP, START: have the provider switch the instance off or on.
        TERMINATE: have the provider end the instance.
        DELETE_NODE: delete the node of a machine that is no more.
        DELETE_RECORD: remove the finalizer and the record.
    """

    WAIT = "wait"
    RECORD_LAUNCH = "record launch"
    LAUNCH = "launch"
    MOVE = "move"
    UPDATE = "update"
    INITIALIZE = "initialize"
    LOOK = "look"
    WIPE = "wipe"
    CLOSE = "close"
    STOP = "stop"
    START = "start"
    TERMINATE = "terminate"
    DELETE_NODE = "delete node"
    DELETE_RECORD = "delete record"


@dataclass(frozen=True, slots=True)
class NextStep:
    """A decision.

    Attributes:
        step: what is done.
        event: with ``MOVE``, what happened.
        reason: as one word.
        message: for people.
        stage: with ``UPDATE``, how far the boot is.
        after_s: with ``WAIT``, when to look again; None: when something changes.
    """

    step: MachineStep
    event: MachineEvent | None = None
    reason: str = ""
    message: str = ""
    stage: str = ""
    after_s: float | None = None


@dataclass(frozen=True, slots=True)
class MachineInputs:
    """What is known of a machine.

    Attributes:
        machine: its record.
        pool: of its pool; a default one where that is gone.
        instance: as the last list showed it; None where it did not.
        missing: two lists apart have not shown an instance, with no launch under way.
        ended: the provider has answered that it ends the instance, and a list after that does not show it.
        node: of the machine, or another one of its name.
        initialized: the node has its labels and taints.
        closed: since when pods are kept away from the node, for its machine to be switched off.
        pods: pods are on the node that have not ended, other than those of every node's equipment.
        holder: what became of the pod that claimed it.
        can_wipe, can_stop: the provider can.
        terminated_ttl_s: records of terminated machines are kept for so long.
    """

    machine: Machine
    pool: NodePoolSpec
    instance: Instance | None = None
    missing: bool = False
    ended: bool = False
    node: Node | None = None
    initialized: bool = False
    closed: datetime | None = None
    pods: bool = False
    holder: HolderState = field(default_factory=HolderState)
    can_wipe: bool = False
    can_stop: bool = False
    terminated_ttl_s: float = 60.0


def next_step(known: MachineInputs, now: datetime) -> NextStep:
    """What the machine needs now."""
    machine = known.machine
    phase = machine.phase
    if phase not in _ENDED:
        if known.missing and phase is not _P.CREATING:
            return _move(_E.GONE, "InstanceGone", "the provider has no instance of it any more")
        if machine.metadata.deletion_timestamp is not None:
            return _move(_E.END, "Deleted", "its record was deleted")
        if machine.spec.terminate:
            if (record := record_of(machine)) is not None:
                return _move(_E.END, "Disrupted", record.message)
            return _move(_E.END, "Terminate", "spec.terminate is set")
    return _BY_PHASE[phase](known, now)


def boot_seconds(machine: Machine, timeouts: PoolTimeouts) -> int:
    """How long the boot of a machine may take, by its instance type."""
    kind = machine.status.instance_type or machine.spec.instance_type
    for pattern, seconds in timeouts.boot_seconds_by_type.items():
        if fnmatchcase(kind, pattern):
            return seconds
    return timeouts.boot_seconds


def boot_deadline(machine: Machine, timeouts: PoolTimeouts) -> datetime | None:
    """When a boot has failed; counted from the first launch, restarts or not. None before it."""
    if not machine.status.launch_time:
        return None
    started = timestamps.parse(machine.status.launch_time)
    return started + timedelta(seconds=boot_seconds(machine, timeouts))


def phase_since(machine: Machine) -> datetime | None:
    """When the machine came into its phase; None where its history does not show it."""
    for entry in reversed(machine.status.history):
        if entry.phase == machine.status.phase:
            return timestamps.parse(entry.time)
    return None


def _creating(known: MachineInputs, now: datetime) -> NextStep:
    if known.machine.status.launch_time is None:
        return NextStep(MachineStep.RECORD_LAUNCH, stage=LAUNCHING)
    if known.instance is not None:
        found = known.instance
        if found.state is _S.ENDING:
            return _move(
                _E.END, "InstanceEnding", f"instance {found.id} ends though it was not asked to"
            )
        return _move(_E.LAUNCHED, "Launched", f"instance {found.id}")
    return _boot_over(known, now) or NextStep(MachineStep.LAUNCH, stage=LAUNCHING)


def _created(known: MachineInputs, now: datetime) -> NextStep:
    machine, node, found = known.machine, known.node, known.instance
    if node is not None and is_of(node, machine) and is_ready(node):
        if not known.initialized:
            return NextStep(MachineStep.INITIALIZE, stage=JOINING)
        return _move(_E.JOINED, "Joined", f"node {node.metadata.name} is ready")
    if found is not None and found.state in _OFF:
        # It was resumed, and the call that switches it on was not done.
        return _boot_over(known, now) or NextStep(MachineStep.START)
    if (over := _boot_over(known, now)) is not None:
        return over
    runs = found is not None and found.state is _S.RUNNING
    stage = JOINING if runs or node is not None else BOOTING
    status = machine.status
    if stage != status.stage or _has_other_addresses(known):
        return NextStep(MachineStep.UPDATE, stage=stage)
    return _wait_for_boot(known, now)


def _available(known: MachineInputs, now: datetime) -> NextStep:
    return _still_on(known) or _marks(known) or _addresses(known) or NextStep(MachineStep.WAIT)


def _still_on(known: MachineInputs) -> NextStep | None:
    """Switch on again what a former owner's late or repeated call has switched off after the machine was resumed.

    Calls that switch off carry no token of the record that they were made for, so they cannot be refused.
    """
    found = known.instance
    is_off = found is not None and found.state in _OFF
    return NextStep(MachineStep.START) if is_off and known.can_stop else None


def _marks(known: MachineInputs) -> NextStep | None:
    """An agent that finds its node deleted registers it again, without the controller's marks."""
    if known.node is None or known.initialized or not is_of(known.node, known.machine):
        return None
    return NextStep(MachineStep.INITIALIZE)


def _addresses(known: MachineInputs) -> NextStep | None:
    """A node may be ready before a list shows the addresses of its instance."""
    return NextStep(MachineStep.UPDATE) if _has_other_addresses(known) else None


def _has_other_addresses(known: MachineInputs) -> bool:
    found = known.instance
    if found is None or not found.addresses:
        return False
    return found.addresses != known.machine.status.addresses


def _claimed(known: MachineInputs, now: datetime) -> NextStep:
    if (step := _still_on(known) or _marks(known) or _addresses(known)) is not None:
        return step
    # Machines that are held for something else than a pod are given back by their holder.
    if known.machine.status.holder_uid:
        return NextStep(MachineStep.WAIT)
    if not known.holder.gone:
        until = known.holder.until
        after_s = None if until is None else (until - now).total_seconds()
        return NextStep(MachineStep.WAIT, after_s=after_s)
    pod = known.machine.status.bound_pod_name
    if known.holder.used or known.pods:
        return _move(_E.RETURNED_USED, "PodGone", f"pod {pod} is gone or has ended")
    return _move(_E.RETURNED_UNUSED, "PodGone", f"pod {pod} is gone and was never bound")


def _cleaning(known: MachineInputs, now: datetime) -> NextStep:
    if known.pool.cleaning != WIPE or not known.can_wipe:
        return _move(_E.END, "Used", "a used machine is terminated")
    return NextStep(MachineStep.WAIT) if known.pods else NextStep(MachineStep.WIPE)


def _stopping(known: MachineInputs, now: datetime) -> NextStep:
    found = known.instance
    if found is not None and found.state is _S.STOPPED:
        return _move(_E.PARKED, "Parked", f"instance {found.id} is switched off")
    if found is not None and found.state is _S.STOPPING:
        return NextStep(MachineStep.WAIT)
    return _before_stop(known, now) or NextStep(MachineStep.STOP)


def _before_stop(known: MachineInputs, now: datetime) -> NextStep | None:
    """What comes before the instance of a shared machine is switched off; None where nothing does any more.

    Schedulers place pods without asking: the node is closed, and looked at again when what they had decided by
    then is done. The stage is written before the provider is asked, so that a machine is never kept on after that.
    """
    machine, node = known.machine, known.node
    if known.pool.mode == DEDICATED or machine.status.stage == SWITCHING_OFF:
        return None
    if node is not None and is_of(node, machine):
        if _is_in_use(known):
            return _move(_E.RESUMED, "InUse", "a pod or a lease came before its node was closed")
        if known.closed is None:
            return NextStep(MachineStep.CLOSE)
        left_s = CLOSED_S - (now - known.closed).total_seconds()
        if left_s > 0.0:
            return NextStep(MachineStep.WAIT, after_s=left_s)
    return NextStep(MachineStep.UPDATE, stage=SWITCHING_OFF)


def _is_in_use(known: MachineInputs) -> bool:
    leased = known.node is not None and MACHINE_LEASE in known.node.metadata.labels
    return known.pods or leased


def _stopped(known: MachineInputs, now: datetime) -> NextStep:
    if known.pool.mode != DEDICATED and known.pods:
        return _move(_E.RESUMED, "InUse", "a pod was placed on its node after that was closed")
    return NextStep(MachineStep.WAIT)


def _terminating(known: MachineInputs, now: datetime) -> NextStep:
    if known.instance is not None:
        return _terminate(known)
    if known.missing or known.ended:  # should one appear after all, it is ended: see _terminated
        return _move(_E.GONE, "InstanceGone", "the provider has no instance of it")
    return NextStep(MachineStep.LOOK)


def _terminate(known: MachineInputs) -> NextStep:
    """End the instance; its id is written first, since a node that the cluster named is known by it alone."""
    if not known.machine.status.instance_id:
        return NextStep(MachineStep.UPDATE)
    return NextStep(MachineStep.TERMINATE)


def _terminated(known: MachineInputs, now: datetime) -> NextStep:
    if known.instance is not None:
        return _terminate(known)  # a launch that was done late
    if known.node is not None and is_of(known.node, known.machine):
        return NextStep(MachineStep.DELETE_NODE)
    if not known.missing:
        return NextStep(MachineStep.WAIT)
    since = phase_since(known.machine)
    age_s = (now - since).total_seconds() if since is not None else known.terminated_ttl_s
    if known.machine.metadata.deletion_timestamp is None and age_s < known.terminated_ttl_s:
        return NextStep(MachineStep.WAIT, after_s=known.terminated_ttl_s - age_s)
    return NextStep(MachineStep.DELETE_RECORD)


_BY_PHASE = {
    _P.CREATING: _creating,
    _P.CREATED: _created,
    _P.AVAILABLE: _available,
    _P.CLAIMED: _claimed,
    _P.CLEANING: _cleaning,
    _P.STOPPING: _stopping,
    _P.STOPPED: _stopped,
    _P.TERMINATING: _terminating,
    _P.TERMINATED: _terminated,
}


def _boot_over(known: MachineInputs, now: datetime) -> NextStep | None:
    """The end of a boot that took too long; None while it may go on."""
    deadline = boot_deadline(known.machine, known.pool.timeouts)
    if deadline is None or now < deadline:
        return None
    seconds = boot_seconds(known.machine, known.pool.timeouts)
    error = known.machine.status.last_error
    why = f": {error}" if error else ""
    return _move(_E.END, "BootTimeout", f"not available {seconds} s after its launch{why}")


def _wait_for_boot(known: MachineInputs, now: datetime) -> NextStep:
    deadline = boot_deadline(known.machine, known.pool.timeouts)
    pause_s = float(known.pool.timeouts.healthcheck_pause_seconds)
    if deadline is not None:
        pause_s = min(pause_s, (deadline - now).total_seconds())
    return NextStep(MachineStep.WAIT, after_s=pause_s)


def _move(event: MachineEvent, reason: str, message: str) -> NextStep:
    return NextStep(MachineStep.MOVE, event=event, reason=reason, message=message)
