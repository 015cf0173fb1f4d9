"""MachineLease: whole machines of one or several pools, for one holder at a time.

A lease waits in one queue with all others and is granted all of its machines or none. Granted
machines bear the lease's UID as a label and as a taint, so that only pods of the lease's holder land
there, whichever scheduler places them. A lease is released by deleting it: its machines are given to
others when no pod of the holder is left on them and they are clean.
"""

from collections.abc import Iterable

import msgspec

from grange.api import names, schema_builder
from grange.api.kinds.machine import DEDICATED_TAINT
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod, is_finished
from grange.api.meta import Condition, Document, Resource, View, controller_of
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults

POOL_LABEL = "pool"
"""Label of nodes: the pool that the machine belongs to."""

MACHINE_LEASE = "grange.dev/machine-lease"
"""Label and taint (``NoSchedule``) of a node, and label of pods: the UID of the lease they belong to."""

HOLDER_ANNOTATION = "grange.dev/lease-holder"
"""Annotation of a leased node: who has it, for people, as ``TestSession default/qps``."""

STATE_ANNOTATION = "grange.dev/machine-state"
"""Annotation of a leased node: ``LEASED`` or ``DIRTY``."""

LEASED = "Leased"
DIRTY = "Dirty"

MACHINES_REQUESTED = "MachinesRequested"
"""Condition of leases that wait: NodePools are to make the machines that it lacks."""

RELEASE_FINALIZER = "grange.dev/machine-release"
"""Finalizer of leases: a deleted lease stays until its machines are free again."""

QUEUED = "Queued"
GRANTED = "Granted"
RELEASING = "Releasing"
REJECTED = "Rejected"
EXPIRED = "Expired"
PHASES = (QUEUED, GRANTED, RELEASING, REJECTED, EXPIRED)

AUTOMATIC = "Automatic"
MANUAL = "Manual"

COUNT_MAX = 10_000
_MIRROR = "kubernetes.io/config.mirror"


class PoolRequest(View, frozen=True):
    """So many whole machines of one pool."""

    pool: str
    count: int = 1


class LeaseHolder(View, frozen=True):
    """For whom the machines are; for people and for fair shares, not a reference that is followed."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class MachineLeaseSpec(View, frozen=True):
    """The desired state.

    Attributes:
        machines: all of these or none; a pool is named once.
        holder: for whom.
        priority: higher ones go first.
        semaphores: names of limits in the ``LeasePolicy`` of which it takes one each while granted.
        expected_seconds: how long it will be held, for estimates; None where nothing is known.
        ttl_seconds: without a renewal for so long, it ends; None until it is deleted.
        renew_time: RFC 3339 with microseconds; the last heartbeat of the holder.
        cleaning: ``Automatic``: clean as soon as no pod of the holder is left; ``Manual``: they
            stay ``DIRTY`` until they are marked clean.
    """

    machines: tuple[PoolRequest, ...] = ()
    holder: LeaseHolder = msgspec.field(default_factory=LeaseHolder)
    priority: int = 0
    semaphores: tuple[str, ...] = ()
    expected_seconds: int | None = None
    ttl_seconds: int | None = None
    renew_time: str | None = None
    cleaning: str = AUTOMATIC


class LeasedMachine(View, frozen=True):
    """A machine that was granted: the node's name, and the pool it came from."""

    pool: str
    node: str


class MachineLeaseStatus(View, frozen=True):
    """What is.

    Attributes:
        observed_generation: of the spec that this is about.
        phase: one of ``PHASES``; ``Rejected`` (can never be granted) and ``Expired`` are final.
        machines: granted ones, by pool in the order of the spec, then by name.
        position: in the queue, from 1; 0 when it does not wait.
        reason: why it waits or ended: ``PoolAvailability``, ``PoolCapacity``, ``PoolUnknown``,
            ``Semaphore``, ``Paused``, ``PoolDraining``, ``Concurrency``, ``BlockedByHead``.
        message: the same for people: pool, asked, capacity, free, holders.
        expected_start: RFC 3339; None where nothing can be estimated.
        granted_time: RFC 3339.
        conditions: ``Granted``, ``MachinesReady``, ``MachinesRequested``.
    """

    observed_generation: int = 0
    phase: str = ""
    machines: tuple[LeasedMachine, ...] = ()
    position: int = 0
    reason: str = ""
    message: str = ""
    expected_start: str | None = None
    granted_time: str | None = None
    conditions: tuple[Condition, ...] = ()


class MachineLease(Resource, frozen=True):
    """Whole machines of pools, reserved for a holder."""

    spec: MachineLeaseSpec = msgspec.field(default_factory=MachineLeaseSpec)
    status: MachineLeaseStatus = msgspec.field(default_factory=MachineLeaseStatus)


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    spec = document.get("spec") or {}
    _check_machines(spec.get("machines") or [], faults)
    for field in ("ttlSeconds", "expectedSeconds"):
        value = spec.get(field)
        if isinstance(value, int) and value < 1:
            faults.invalid(f"spec.{field}", value, "must be greater than or equal to 1")
    for index, name in enumerate(spec.get("semaphores") or []):
        faults.named(f"spec.semaphores[{index}]", name, names.check_dns_label(name))
    before = (old or {}).get("spec") or {}
    for field in ("machines", "semaphores", "holder"):
        if old is not None and (spec.get(field) or None) != (before.get(field) or None):
            faults.forbidden(f"spec.{field}", "field is immutable: create another lease")
    return faults.causes


def _check_machines(requests: list[Document], faults: Faults) -> None:
    if not requests:
        faults.required("spec.machines", "name at least one pool and how many machines of it")
    seen: set[str] = set()
    for index, request in enumerate(requests):
        path = f"spec.machines[{index}]"
        pool, count = request.get("pool") or "", request.get("count", 1)
        if not pool:
            faults.required(f"{path}.pool", f"a value of the node label {POOL_LABEL!r}")
        else:
            faults.named(f"{path}.pool", pool, names.check_label_value(pool))
        if pool in seen:
            faults.duplicate(f"{path}.pool", pool)
        seen.add(pool)
        if not 1 <= count <= COUNT_MAX:
            faults.invalid(f"{path}.count", count, f"must be between 1 and {COUNT_MAX}, inclusive")


_NAME = "dev.grange.v1alpha1.MachineLease"
_ATOMIC = {"x-kubernetes-list-type": "atomic"}


def _time(description: str) -> Document:
    return schema_builder.text(description, format="date-time")


DEFINITIONS: dict[str, Document] = {
    f"{_NAME}PoolRequest": {
        "type": "object",
        "required": ["pool"],
        "properties": {
            "pool": schema_builder.text(f"A value of the node label {POOL_LABEL}."),
            "count": schema_builder.whole(
                "How many whole machines.",
                default=1,
                **{schema_builder.RULED: {"minimum": 1, "maximum": COUNT_MAX}},
            ),
        },
    },
    f"{_NAME}Holder": {
        "type": "object",
        "properties": {
            "kind": schema_builder.text("Kind of the holder."),
            "name": schema_builder.text("Name of the holder, in the lease's namespace."),
            "uid": schema_builder.text("UID of the holder."),
        },
    },
    f"{_NAME}Machine": {
        "type": "object",
        "required": ["pool", "node"],
        "properties": {
            "pool": schema_builder.text("The pool it came from."),
            "node": schema_builder.text("Name of the node."),
        },
    },
    **schema_builder.definitions(
        _NAME,
        "grange.dev",
        "v1alpha1",
        "Whole machines of one or several pools, for one holder at a time.",
        required=("machines",),
        spec={
            "machines": schema_builder.several(
                {"$ref": f"#/definitions/{_NAME}PoolRequest"},
                "All of these are granted, or none; each pool once.",
                **_ATOMIC,
            ),
            "holder": schema_builder.reference(f"{_NAME}Holder", "For whom the machines are."),
            "priority": schema_builder.whole("Higher ones are granted first.", default=0),
            "semaphores": schema_builder.several(
                {"type": "string"},
                "Limits of the LeasePolicy of which it takes one each while it is granted.",
                **_ATOMIC,
            ),
            "expectedSeconds": schema_builder.whole(
                "How long it will be held, for estimates.", **{schema_builder.RULED: {"minimum": 1}}
            ),
            "ttlSeconds": schema_builder.whole(
                "It ends when it is not renewed for so long; by default when it is deleted.",
                **{schema_builder.RULED: {"minimum": 1}},
            ),
            "renewTime": _time("The last heartbeat of the holder."),
            "cleaning": schema_builder.text(
                "Automatic: released machines are clean when no pod of the holder is left. "
                "Manual: they stay Dirty until they are marked clean.",
                enum=[AUTOMATIC, MANUAL],
                default=AUTOMATIC,
            ),
        },
        status={
            "observedGeneration": schema_builder.observed_generation(),
            "phase": schema_builder.text(f"One of {', '.join(PHASES)}."),
            "machines": schema_builder.several(
                {"$ref": f"#/definitions/{_NAME}Machine"}, "What was granted.", **_ATOMIC
            ),
            "position": schema_builder.whole("In the queue, from 1; 0 when it does not wait."),
            "reason": schema_builder.text("Why it waits or ended, as one word."),
            "message": schema_builder.text("The same, with pool, asked, capacity and holders."),
            "expectedStart": _time("When it is likely to be granted."),
            "grantedTime": _time("When it was granted."),
            "conditions": schema_builder.conditions(),
        },
    ),
}


def _requests(document: Document, now: float) -> cells.Cell:
    requests = (document.get("spec") or {}).get("machines") or []
    return ",".join(f"{item.get('pool')}={item.get('count', 1)}" for item in requests) or cells.NONE


def _holder(document: Document, now: float) -> cells.Cell:
    holder = (document.get("spec") or {}).get("holder") or {}
    return f"{holder.get('kind', '')}/{holder['name']}" if holder.get("name") else cells.NONE


MACHINELEASE = KindInfo(
    group="grange.dev",
    version="v1alpha1",
    kind="MachineLease",
    plural="machineleases",
    view=MachineLease,
    schema=_NAME,
    definitions=DEFINITIONS,
    short_names=("ml",),
    categories=("all", "grange"),
    columns=(
        Column("Machines", _requests, description="Asked for, by pool."),
        Column("Phase", cells.text("status.phase", QUEUED), description="How far it is."),
        Column(
            "Position",
            cells.integer("status.position"),
            type="integer",
            description="In the queue, from 1.",
        ),
        Column("Holder", _holder, description="For whom."),
        Column("Reason", cells.text("status.reason"), description="Why it waits or ended."),
    ),
    validate=_validate,
)


def pool_of(node: Node) -> str:
    """The pool that leases find a node in; empty for none.

    A machine of a dedicated NodePool is handed to one pod at a time, so leases do not count it.
    """
    if any(taint.key == DEDICATED_TAINT for taint in node.spec.taints):
        return ""
    return node.metadata.labels.get(POOL_LABEL, "")


def foreign_pods(pods: Iterable[Pod], lease: str) -> list[Pod]:
    """Pods that have not ended and are neither of the lease nor of every node's equipment."""
    return [
        pod
        for pod in pods
        if not is_finished(pod)
        and (not lease or pod.metadata.labels.get(MACHINE_LEASE) != lease)
        and _MIRROR not in pod.metadata.annotations
        and ((owner := controller_of(pod.metadata)) is None or owner.kind != "DaemonSet")
    ]
