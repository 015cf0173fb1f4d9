"""Lease: who holds something, and until when unless it is renewed."""

import msgspec

from grange.api.meta import Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults

NODE_LEASES = "kube-node-lease"
"""The namespace of the nodes' Leases, which bear the nodes' names."""

TOLD = "grange.dev/told-until"
"""Annotation of a node's Lease: what its agent knew of its pods at this time, by its clock, is written."""


class LeaseSpec(View, frozen=True):
    """Holder and term; times are RFC 3339 with microseconds."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Resource, frozen=True):
    """A lease."""

    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


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
