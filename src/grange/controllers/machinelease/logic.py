"""What follows from a lease, its machines and their pods: plain functions."""

from collections import Counter
from collections.abc import Collection, Mapping

from grange.api import conditions, timestamps
from grange.api.kinds.machinelease import (
    DIRTY,
    EXPIRED,
    GRANTED,
    MACHINES_REQUESTED,
    MANUAL,
    QUEUED,
    REJECTED,
    LeasedMachine,
    MachineLease,
)
from grange.placement.lease_model import GrantedLease, WaitingLease
from grange.placement.lease_outlook import LeaseOutlook
from grange.placement.machine_table import PoolMachine

MACHINES_READY = "True", "MachinesReady", "all machines are there"
_NOTABLE_SHARE = 10  # a place that changed by less than a tenth of itself is not worth a write


def is_waiting(lease: MachineLease) -> bool:
    """Whether the lease is in the queue."""
    return not lease.metadata.deletion_timestamp and lease.status.phase in {"", QUEUED}


def is_held(lease: MachineLease) -> bool:
    """Whether the lease has its machines."""
    return not lease.metadata.deletion_timestamp and lease.status.phase == GRANTED


def is_over(lease: MachineLease) -> bool:
    """Whether the lease has a claim to nothing any more."""
    ended = lease.status.phase in {EXPIRED, REJECTED}
    return ended or bool(lease.metadata.deletion_timestamp)


def waiting(lease: MachineLease) -> WaitingLease:
    """The lease as the queue has it while it waits."""
    spec = lease.spec
    return WaitingLease(
        uid=lease.metadata.uid,
        namespace=lease.metadata.namespace,
        need=tuple((request.pool, request.count) for request in spec.machines),
        priority=spec.priority,
        created=_seconds(lease.metadata.creation_timestamp) or 0.0,
        semaphores=tuple(dict.fromkeys(spec.semaphores)),
        expected_s=spec.expected_seconds,
        holder=holder_text(lease),
        requested=_requested(lease),
    )


def _requested(lease: MachineLease) -> float | None:
    """Since when NodePools are to make machines for the lease."""
    found = conditions.find(lease.status.conditions, MACHINES_REQUESTED)
    if found is None or found.status != "True":
        return None
    return timestamps.parse_or(found.last_transition_time, timestamps.EPOCH).timestamp() or None


def granted(lease: MachineLease, now: float) -> GrantedLease:
    """The lease as the queue has it while it has machines or is being given them."""
    request = waiting(lease)
    pools = Counter(machine.pool for machine in lease.status.machines)
    return GrantedLease(
        uid=request.uid,
        namespace=request.namespace,
        held=tuple(sorted(pools.items())) or request.need,
        semaphores=request.semaphores,
        started=_seconds(lease.status.granted_time) or now,
        expected_s=request.expected_s,
        holder=request.holder,
    )


def holder_text(lease: MachineLease) -> str:
    """For whom the lease is: ``TestSession default/qps``."""
    holder, meta = lease.spec.holder, lease.metadata
    name = holder.name or meta.name
    return f"{holder.kind or 'MachineLease'} {meta.namespace}/{name}"


def expires_at(lease: MachineLease) -> float | None:
    """When the lease ends unless it is renewed, in seconds; None for never.

    One that waits does so only once it was renewed: its holder sends heartbeats then.
    """
    if lease.spec.ttl_seconds is None or is_over(lease):
        return None
    renewed = _seconds(lease.spec.renew_time)
    start = _seconds(lease.status.granted_time) if is_held(lease) else None
    known = [one for one in (renewed, start) if one is not None]
    return max(known) + lease.spec.ttl_seconds if known else None


def is_clean(machine: PoolMachine, lease: MachineLease) -> bool | None:
    """Whether a machine without pods of its lease can be given to others.

    Returns:
        None where it must be marked dirty first, to be cleaned by hand.
    """
    if lease.spec.cleaning != MANUAL or not machine.state:
        return True
    return False if machine.state == DIRTY else None


def assignment(
    lease: MachineLease, machines: Mapping[str, Collection[str]]
) -> tuple[LeasedMachine, ...]:
    """Machines by pool in the order of the spec, then by name."""
    return tuple(
        LeasedMachine(request.pool, node)
        for request in lease.spec.machines
        for node in sorted(machines.get(request.pool, ()))
    )


def lost_machines(
    lease: MachineLease, machines: Mapping[str, PoolMachine]
) -> tuple[list[str], list[str]]:
    """Nodes of a granted lease that it does not have any more, and those that are not usable now."""
    lost, unusable = [], []
    for machine in lease.status.machines:
        found = machines.get(machine.node)
        if found is None or found.lease != lease.metadata.uid:
            lost.append(machine.node)
        elif not found.usable:
            unusable.append(machine.node)
    return lost, unusable


def machines_verdict(
    lease: MachineLease, machines: Mapping[str, PoolMachine]
) -> tuple[str, str, str]:
    """Status, reason and message of the condition MachinesReady of a granted lease."""
    lost, unusable = lost_machines(lease, machines)
    if lost:
        return "False", "MachineLost", f"lost: {', '.join(lost)}"
    if unusable:
        return (
            "False",
            "MachineNotReady",
            f"not ready, cordoned or about to be taken away: {', '.join(unusable)}",
        )
    return MACHINES_READY


def growth_verdict(lease: MachineLease, *, grows: bool) -> tuple[str, str, str]:
    """Status, reason and message of the condition MachinesRequested of a lease that waits."""
    if not grows:
        return "False", "NotNext", "others are before it, or a limit holds it back"
    asked = ", ".join(f"{request.count} of {request.pool}" for request in lease.spec.machines)
    return "True", "NextToStart", f"NodePools make what is missing of {asked}"


def is_worth_writing(lease: MachineLease, outlook: LeaseOutlook, *, grows: bool) -> bool:
    """Whether the status of a waiting lease is so far from the truth that it is written again.

    Args:
        lease: as it is.
        outlook: what is true.
        grows: whether NodePools are to make machines for it.
    """
    status = lease.status
    if conditions.is_true(status.conditions, MACHINES_REQUESTED) != grows:
        return True
    if (status.phase, status.reason) != (QUEUED, outlook.reason):
        return True
    if outlook.position == 1 and status.message != outlook.message:
        return True
    moved = abs(status.position - outlook.position)
    if moved > outlook.position // _NOTABLE_SHARE:
        return True
    start = _seconds(status.expected_start)
    if start is None or outlook.expected_start is None:
        return start is not outlook.expected_start
    return abs(start - outlook.expected_start) > 1.0 + 0.1 * max(
        0.0, outlook.expected_start - (_seconds(lease.metadata.creation_timestamp) or 0.0)
    )


def _seconds(instant: str | None) -> float | None:
    return timestamps.parse(instant).timestamp() if instant else None
