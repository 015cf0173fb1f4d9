"""MachineLeases that NodePools are to make machines for, as the lease controller has chosen them."""

from dataclasses import dataclass

from grange.api import conditions
from grange.api.kinds.machinelease import MACHINES_REQUESTED, QUEUED, MachineLease


@dataclass(frozen=True, slots=True)
class LeaseNeed:
    """A lease for which machines are to be made.

    Attributes:
        uid: of the lease.
        name: for people: ``MachineLease default/a``, with its holder.
        machines: how many by pool.
        order: who goes first.
    """

    uid: str
    name: str
    machines: tuple[tuple[str, int], ...]
    order: tuple[int, int, str, str] = (0, 0, "", "")


def requests_machines(lease: MachineLease) -> bool:
    """Whether NodePools are to make the machines that a lease lacks."""
    status = lease.status
    waits = status.phase == QUEUED and lease.metadata.deletion_timestamp is None
    return waits and conditions.is_true(status.conditions, MACHINES_REQUESTED)


def lease_need(lease: MachineLease) -> LeaseNeed:
    """What a lease needs."""
    meta, spec = lease.metadata, lease.spec
    holder = f" of {spec.holder.kind} {spec.holder.name}" if spec.holder.name else ""
    return LeaseNeed(
        meta.uid,
        f"MachineLease {lease.key}{holder}",
        tuple((request.pool, request.count) for request in spec.machines),
        (-spec.priority, lease.status.position, meta.creation_timestamp or "", meta.uid),
    )
