"""Machine: one machine that a NodePool asked a provider for, from its order to its end.

The record is written before the provider is called, and its name is the token of every call: a call
that is repeated, late or without an answer finds what an earlier one has launched.
"""

import msgspec

from grange.api import machine_phases, schema_builder
from grange.api.kinds.node import NodeAddress, Taint
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Condition, Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults

NODE_POOL_LABEL = "grange.dev/node-pool"
"""Label of machines and of their nodes, and what pods select to run in a pool: the pool's name."""

CAPACITY_TYPE_LABEL = "grange.dev/capacity-type"
"""Label of nodes: ``SPOT`` or ``ON_DEMAND``."""

SPOT, ON_DEMAND = "spot", "on-demand"

DEDICATED_TAINT = "grange.dev/dedicated-machine"
"""Taint (``NoSchedule``) of the nodes of dedicated pools: only the dispenser puts pods there."""

STARTUP_TAINT = "grange.dev/not-initialized"
"""Taint (``NoSchedule``) of a node whose machine is not available yet."""

DISRUPTED_TAINT_KEY = "grange.dev/disrupted"
"""Taint (``NoSchedule``) of a node whose machine goes."""

PLANNED_LEASE_ANNOTATION = "grange.dev/planned-lease"
"""Annotation of machines of packed pools: UID of the MachineLease that they were ordered for.

It shows why the machine is there; any lease of the pool may get it.
"""

PLANNED_PODS_ANNOTATION = "grange.dev/planned-pods"
"""Annotation of machines of packed pools: UIDs of the pods that they were ordered for, with commas.

While such pods wait they count on their machine first, so that a machine that boots is never ordered
a second time, restarts included.
"""

INSTANCE_FINALIZER = "grange.dev/machine-instance"
"""Finalizer of machines: a deleted one stays until its provider has no instance of it."""

HISTORY_MAX = 20
_PHASES = {phase.value: phase for phase in MachinePhase}


class MachineResources(View, frozen=True):
    """What the machine must have beyond its type.

    Attributes:
        cpu, memory, gpu: quantities that it was chosen for; empty for none.
        volume_size: of the root disk; empty for the pool's default.
        dedicated_cpu: no burstable type.
        sustained_cpu: whether a burstable type may go above its baseline for a price; None where
            it is left open.
        private_ip_only: no public address.
    """

    cpu: str = ""
    memory: str = ""
    gpu: str = ""
    volume_size: str = ""
    dedicated_cpu: bool = msgspec.field(name="dedicatedCPU", default=False)
    sustained_cpu: bool | None = msgspec.field(name="sustainedCPU", default=None)
    private_ip_only: bool = msgspec.field(name="privateIPOnly", default=False)


class MachinePlacement(View, frozen=True):
    """Where it must be; an empty zone is any."""

    zone: str = ""


LAUNCHED_CONDITION, INITIALIZED_CONDITION, INTERRUPTED_CONDITION = (
    "Launched",
    "Initialized",
    "Interrupted",
)
"""Conditions of machines: there is an instance; its node has joined; its provider takes it away."""


class MachineOffering(View, frozen=True):
    """One way to get a machine.

    Attributes:
        instance_type: of the provider.
        zone: empty where the provider has none, or chooses.
        spot: whether it can be taken back at any time.
        price_per_hour: decimal, in the provider's currency; empty where it is not known.
    """

    instance_type: str
    zone: str = ""
    spot: bool = False
    price_per_hour: str = ""


class MachineSpec(View, frozen=True):
    """The desired state; written once, but for ``terminate``.

    Attributes:
        pool: name of the NodePool.
        provider: of the pool when it was created.
        instance_type: wanted, or the first of the candidates.
        boot_image: as the provider identifies it; resolved when the machine was ordered.
        spot: whether a spot machine is wanted.
        resources: see there.
        placement: see there.
        candidates: ways to get it in the order in which they are tried; empty: ``instance_type`` alone.
        labels, taints: of its node.
        template_hash: of the pool's fields that a machine is made from; another one there is drift.
        terminate: it is to end, whatever it does.
    """

    pool: str = ""
    provider: str = ""
    instance_type: str = ""
    boot_image: str = ""
    spot: bool = False
    resources: MachineResources = msgspec.field(default_factory=MachineResources)
    placement: MachinePlacement = msgspec.field(default_factory=MachinePlacement)
    candidates: tuple[MachineOffering, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    template_hash: str = ""
    terminate: bool = False


class MachineHistoryEntry(View, frozen=True):
    """A change of phase, and why."""

    time: str
    phase: str
    reason: str = ""
    message: str = ""


class MachineStatus(View, frozen=True):
    """What is.

    Attributes:
        observed_generation: of the spec that this is about.
        phase: a value of ``MachinePhase``; empty before the first write.
        stage: how far its boot is: Launching, Booting or Joining; SwitchingOff once a machine that stops is
            not kept on any more; or empty.
        instance_id: of the provider; empty while it is not known.
        instance_type, zone, spot, price_per_hour: of the instance that it became.
        addresses: of the instance.
        node_name: of its node, which some clusters name themselves; empty before it has joined.
        bound_pod_name: ``namespace/name`` of the pod that it is meant for or claimed by.
        bound_pod_uid: of that pod.
        holder: who has claimed it for something else than a pod: ``Kind/namespace/name``.
        holder_uid: of that object.
        holder_epoch: of the last request about it; a late one of a former owner of the holder has less.
        request_id: of the request that claimed it, so that a repeated one finds it.
        claim_generation: orders the claims of a request: the latest that counted the machine in. One that
            arrived late has less than those that its request was answered with.
        launch_time: RFC 3339; when the provider was first asked. Its boot deadline counts from here.
        available_time: RFC 3339; when it was last free.
        last_error: of the last failed attempt to boot it, for people.
        history: changes of phase, oldest first, at most ``HISTORY_MAX``.
        conditions: ``Launched``, ``Initialized``, ``Interrupted``, once each is known.
    """

    observed_generation: int = 0
    phase: str = ""
    stage: str = ""
    instance_id: str = msgspec.field(name="instanceID", default="")
    instance_type: str = ""
    zone: str = ""
    spot: bool = False
    price_per_hour: str = ""
    addresses: tuple[NodeAddress, ...] = ()
    node_name: str = ""
    bound_pod_name: str = ""
    bound_pod_uid: str = msgspec.field(name="boundPodUID", default="")
    holder: str = ""
    holder_uid: str = msgspec.field(name="holderUID", default="")
    holder_epoch: int = 0
    request_id: str = msgspec.field(name="requestID", default="")
    claim_generation: int = 0
    launch_time: str | None = None
    available_time: str | None = None
    last_error: str = ""
    history: tuple[MachineHistoryEntry, ...] = ()
    conditions: tuple[Condition, ...] = ()


class Machine(Resource, frozen=True):
    """An instance of a provider, from its order to its end."""

    spec: MachineSpec = msgspec.field(default_factory=MachineSpec)
    status: MachineStatus = msgspec.field(default_factory=MachineStatus)

    @property
    def phase(self) -> MachinePhase:
        """Where it is in its life.

        One without a status, or with a phase that only another release knows, counts as being created: its
        provider is asked for its instance.
        """
        return _PHASES.get(self.status.phase, MachinePhase.CREATING)

    @property
    def is_ending(self) -> bool:
        """Whether it is to end, whatever it does: marked, or its record is deleted."""
        return self.spec.terminate or self.metadata.deletion_timestamp is not None

    @property
    def node(self) -> str:
        """Name of its node; before it has joined, the name that its agent is given."""
        return self.status.node_name or self.metadata.name


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    spec = document.get("spec") or {}
    for field in ("pool", "provider"):
        if not spec.get(field):
            faults.required(f"spec.{field}")
    before = (old or {}).get("spec") or {}
    for field in sorted({*spec, *before} - {"terminate"}):
        if old is not None and (spec.get(field) or None) != (before.get(field) or None):
            faults.forbidden(f"spec.{field}", "field is immutable: end the machine, order another")
    if before.get("terminate") and not spec.get("terminate"):
        faults.forbidden("spec.terminate", "a machine that ends cannot be kept")
    _check_phase(document, old, faults)
    return faults.causes


def _check_phase(document: Document, old: Document | None, faults: Faults) -> None:
    phase = (document.get("status") or {}).get("phase") or ""
    before = ((old or {}).get("status") or {}).get("phase") or ""
    if phase and phase not in machine_phases.PHASES:
        faults.not_supported("status.phase", phase, machine_phases.PHASES)
    elif not machine_phases.may_follow(before, phase):
        faults.invalid("status.phase", phase, f"a machine that is {before} cannot become that")


_NAME = "dev.grange.v1alpha1.Machine"
_ATOMIC = {"x-kubernetes-list-type": "atomic"}
_TAINT = "io.k8s.api.core.v1.Taint"
_ADDRESS = "io.k8s.api.core.v1.NodeAddress"


def _parts() -> dict[str, Document]:
    text, flag = schema_builder.text, schema_builder.flag
    offering = {
        "instanceType": text("Type of the provider."),
        "zone": text("Empty where the provider has none, or chooses."),
        "spot": flag("It can be taken back at any time."),
        "pricePerHour": text("Decimal, in the provider's currency."),
    }
    resources = {
        "cpu": text("Quantity that it was chosen for."),
        "memory": text("Quantity that it was chosen for."),
        "gpu": text("Count, perhaps with the model, that it was chosen for."),
        "volumeSize": text("Of the root disk."),
        "dedicatedCPU": flag("No burstable type."),
        "sustainedCPU": flag("A burstable type may go above its baseline for a price."),
        "privateIPOnly": flag("No public address."),
    }
    entry = {
        "time": text("When.", format="date-time"),
        "phase": text("The new phase."),
        "reason": text("Why, as one word."),
        "message": text("Why, for people."),
    }
    return {
        f"{_NAME}Offering": {
            "type": "object",
            "required": ["instanceType"],
            "properties": offering,
        },
        f"{_NAME}Resources": {"type": "object", "properties": resources},
        f"{_NAME}Placement": {
            "type": "object",
            "properties": {"zone": text("Zone; empty for any.")},
        },
        f"{_NAME}HistoryEntry": {
            "type": "object",
            "required": ["time", "phase"],
            "properties": entry,
        },
    }


def _spec_fields() -> dict[str, Document]:
    text = schema_builder.text
    return {
        "pool": text("Name of the NodePool."),
        "provider": text("Provider of the pool."),
        "instanceType": text("Type that is wanted."),
        "bootImage": text("Image, as the provider identifies it."),
        "spot": schema_builder.flag("A spot machine is wanted."),
        "resources": schema_builder.reference(f"{_NAME}Resources", "What it must have."),
        "placement": schema_builder.reference(f"{_NAME}Placement", "Where it must be."),
        "candidates": schema_builder.several(
            {"$ref": f"#/definitions/{_NAME}Offering"},
            "Ways to get it, in the order in which they are tried.",
            **_ATOMIC,
        ),
        "labels": {
            "type": "object",
            "description": "Labels of its node.",
            "additionalProperties": {"type": "string"},
        },
        "taints": schema_builder.several(
            {"$ref": f"#/definitions/{_TAINT}"}, "Taints of its node.", **_ATOMIC
        ),
        "templateHash": text("Of the pool's fields that it is made from."),
        "terminate": schema_builder.flag("It is to end, whatever it does."),
    }


def _status_fields() -> dict[str, Document]:
    text = schema_builder.text
    return {
        "observedGeneration": schema_builder.observed_generation(),
        "phase": text(f"One of {', '.join(machine_phases.PHASES)}."),
        "stage": text("How far it is: Launching, Booting, Joining, SwitchingOff, or empty."),
        "instanceID": text("Of the provider."),
        "instanceType": text("Of the instance that it became."),
        "zone": text("Of the instance that it became."),
        "spot": schema_builder.flag("Whether the instance is a spot instance."),
        "pricePerHour": text("Of the instance, decimal."),
        "addresses": schema_builder.several(
            {"$ref": f"#/definitions/{_ADDRESS}"}, "Of the instance.", **_ATOMIC
        ),
        "nodeName": text("Of its node, once that has joined."),
        "boundPodName": text("namespace/name of the pod that it is meant for or claimed by."),
        "boundPodUID": text("UID of that pod."),
        "holder": text("What has claimed it instead of a pod: Kind/namespace/name."),
        "holderUID": text("UID of that object."),
        "holderEpoch": {
            "type": "integer",
            "format": "int64",
            "description": "Of the last request about it by an owner of the holder.",
        },
        "requestID": text("Of the request that claimed it."),
        "claimGeneration": {
            "type": "integer",
            "format": "int64",
            "description": "Of the latest claim of the request that counted it in.",
        },
        "launchTime": text("When the provider was first asked.", format="date-time"),
        "availableTime": text("When it was last free.", format="date-time"),
        "lastError": text("Of the last failed attempt to boot it."),
        "history": schema_builder.several(
            {"$ref": f"#/definitions/{_NAME}HistoryEntry"},
            f"Changes of phase, the last {HISTORY_MAX}, oldest first.",
            **_ATOMIC,
        ),
        "conditions": schema_builder.conditions(),
    }


MACHINE = KindInfo(
    group="grange.dev",
    version="v1alpha1",
    kind="Machine",
    plural="machines",
    view=Machine,
    schema=_NAME,
    definitions={
        **_parts(),
        **schema_builder.definitions(
            _NAME,
            "grange.dev",
            "v1alpha1",
            "One machine of a NodePool, from its order to its end.",
            required=("pool", "provider"),
            spec=_spec_fields(),
            status=_status_fields(),
        ),
    },
    namespaced=False,
    short_names=("mc",),
    categories=("grange",),
    columns=(
        Column("Pool", cells.text("spec.pool"), description="Its NodePool."),
        Column("Type", cells.text("spec.instanceType"), description="Type that is wanted."),
        Column("Spot", cells.boolean("spec.spot"), type="boolean", description="Spot or not."),
        Column("Phase", cells.text("status.phase", "Creating"), description="How far it is."),
        Column("Pod", cells.text("status.boundPodName"), description="Whose it is."),
        Column("Instance", cells.text("status.instanceID"), description="Of the provider."),
        Column("Age", cells.age, description="Since it was ordered."),
        Column("Price", cells.text("status.pricePerHour"), description="Per hour.", priority=1),
        Column("Zone", cells.text("status.zone"), description="Where it is.", priority=1),
        Column("Error", cells.text("status.lastError"), description="Of its boot.", priority=1),
    ),
    validate=_validate,
)
