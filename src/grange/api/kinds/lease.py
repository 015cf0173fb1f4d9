"""Lease: who holds something, and until when unless it is renewed."""

import msgspec

from grange.api.meta import Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults

NODE_LEASES = "kube-node-lease"
"""The namespace of the nodes' Leases, which bear the nodes' names."""

STATUS_SYNCED_UNTIL = "grange.dev/status-synced-until"
"""Annotation of a node's Lease: the status of all its pods as of this time, by its clock, is written."""

OLD_STATUS_SYNCED_UNTIL = "grange.dev/told-until"
"""What earlier agents call it; an agent that writes the new name removes this one."""


class LeaseSpec(View, frozen=True):
    """Holder and term; times are RFC 3339 with microseconds."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Resource, frozen=True):
    """A right that its holder renews, of coordination.k8s.io."""

    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


def status_synced_until(lease: Lease) -> str | None:
    """Until when the node's agent has written the status of its pods, by its clock.

    The later value of the two annotations: both may be there after an agent was exchanged for an
    older one. The renewal counts where there is neither, as in Leases of other agents.
    """
    found = lease.metadata.annotations
    until = max(found.get(STATUS_SYNCED_UNTIL, ""), found.get(OLD_STATUS_SYNCED_UNTIL, ""))
    return until or lease.spec.renew_time


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    spec = document.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        faults.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        message = "must be greater than or equal to 0"
        faults.invalid("spec.leaseTransitions", transitions, message)
    return faults.causes


LEASE = KindInfo(
    group="coordination.k8s.io",
    version="v1",
    kind="Lease",
    plural="leases",
    view=Lease,
    schema="io.k8s.api.coordination.v1.Lease",
    has_status=False,
    columns=(Column("Holder", cells.text("spec.holderIdentity", ""), description="Who holds it."),),
    validate=_validate,
)
