"""NodePool: machines of one provider that are ordered when pods wait for them, and ended when none do."""

from typing import Any

import msgspec

from grange.api.kinds.node import Taint
from grange.api.kinds.nodepool_schema import DEFINITIONS, NAME
from grange.api.kinds.pod import Scalar, SelectorRequirement
from grange.api.meta import Condition, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.validation.nodepools import check

PACKED, DEDICATED = "Packed", "Dedicated"
"""Many pods a machine, placed by the scheduler; one pod a machine, placed by the dispenser."""

SPOT_NEVER, SPOT_PREFERRED, SPOT_ALWAYS = "Never", "Preferred", "Always"

SPOT_ANNOTATION = "grange.dev/spot"
"""Annotation of pods: ``Never``, ``Preferred`` or ``Always``; by default as the pool has it."""

PRIVATE_IP_ANNOTATION = "grange.dev/private-ip-only"
DEDICATED_CPU_ANNOTATION = "grange.dev/dedicated-cpu"
SUSTAINED_CPU_ANNOTATION = "grange.dev/sustained-cpu"
VOLUME_SIZE_ANNOTATION = "grange.dev/volume-size"
"""Annotations of pods in dedicated pools: what their machine must have."""

DO_NOT_DISRUPT_ANNOTATION = "grange.dev/do-not-disrupt"
"""Annotation of pods, nodes and machines, ``true``: disruption leaves the machine alone."""

BOOTED, STOPPED = "Booted", "Stopped"
AGENT, USER_DATA = "Agent", "UserData"
WHEN_UNDERUTILIZED = "WhenEmptyOrUnderutilized"
TERMINATE, WIPE = "Terminate", "Wipe"


class StandbyNodeSpec(View, frozen=True):
    """Machines that are kept ready though no pod waits.

    Attributes:
        instance_type: of the provider.
        count: how many.
        spot: spot machines.
        state: ``Booted``, or ``Stopped``: switched off, where the provider can.
        schedule: cron expression (UTC) of the starts of the windows in which it holds; empty: always.
        duration_seconds: of each window; with ``schedule`` only.
    """

    instance_type: str
    count: int = 0
    spot: bool = False
    state: str = BOOTED
    schedule: str = ""
    duration_seconds: int = 0


class PoolLimits(View, frozen=True):
    """More is never ordered; None or empty: no limit.

    Attributes:
        machines: how many.
        resources: of all machines together, e.g. ``cpu: "100"``.
        price_per_hour: of all machines together, decimal.
    """

    machines: int | None = None
    resources: dict[str, Scalar] = msgspec.field(default_factory=dict)
    price_per_hour: str = ""


class PoolVolume(View, frozen=True):
    """The root disks.

    Attributes:
        default_size: quantity.
        fixed_size: disks keep the size that they were made with; else they grow for their pod.
    """

    default_size: str = "5Gi"
    fixed_size: bool = False


class NodeTemplate(View, frozen=True):
    """What nodes of the pool have; ``startup_taints`` are taken off by others."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()


class PoolTimeouts(View, frozen=True):
    """How long things may take, in seconds.

    Attributes:
        boot_seconds: from the first call to the provider until the node is ready.
        boot_seconds_by_type: the same for instance types (globs), the first that matches in order.
        healthy_seconds: an available machine that is silent for so long is ended.
        healthcheck_pause_seconds: between looks at a machine that boots.
        idle_seconds: so long a machine that nothing needs is kept.
    """

    boot_seconds: int = 300
    boot_seconds_by_type: dict[str, int] = msgspec.field(default_factory=dict)
    healthy_seconds: int = 90
    healthcheck_pause_seconds: int = 5
    idle_seconds: int = 30


class PoolDisruptionBudget(View, frozen=True):
    """How many machines may be disrupted at a time.

    Attributes:
        nodes: a count, or a percentage of the pool's machines, rounded up.
        reasons: ``Empty``, ``Drifted``, ``Expired``, ``Underutilized``; empty: all.
        schedule: cron expression (UTC) of the starts of the windows in which it holds; empty: always.
        duration_seconds: of each window; with ``schedule`` only.
    """

    nodes: str = "10%"
    reasons: tuple[str, ...] = ()
    schedule: str = ""
    duration_seconds: int = 0


class PoolDisruption(View, frozen=True):
    """When machines that work are taken away or replaced.

    Attributes:
        policy: ``WhenEmpty`` or ``WhenEmptyOrUnderutilized``.
        consolidate_after_seconds: so long nothing may have changed on a machine before.
        expire_after_seconds: machines older than this are replaced; 0: never.
        termination_grace_period_seconds: after so long a drain evicts by force; None: it waits.
        min_savings_percent: a replacement must be cheaper by so much.
        budgets: of those that are active the strictest counts; none is 10 %.
    """

    policy: str = WHEN_UNDERUTILIZED
    consolidate_after_seconds: int = 30
    expire_after_seconds: int = 2_592_000
    termination_grace_period_seconds: int | None = None
    min_savings_percent: int = 15
    budgets: tuple[PoolDisruptionBudget, ...] = ()


class NodePoolSpec(View, frozen=True):
    """The desired state.

    Attributes:
        provider: who makes the machines, e.g. ``local``.
        provider_config: for the provider, which checks it.
        mode: ``Packed`` or ``Dedicated``.
        instance_types: that may be used, globs; empty: all that meet the requirements.
        requirements: on instance types and zones, by the labels that nodes get.
        default_instance_type: for pods of a dedicated pool that request nothing.
        spot: ``Never``, ``Preferred`` (on demand where spot cannot be had) or ``Always``.
        weight: of pools that could serve a pod, the heaviest is tried first; 1 to 100.
        limits: see there.
        standby: see there; equal entries add up.
        boot_image: how the provider finds the image, e.g. by name and owner; the newest match is used.
        volume: see there.
        template: see there.
        bootstrap: ``Agent``: the machine installs and starts ``grange agent``; ``UserData``: the user
            data makes it join, to any cluster.
        user_data: cloud-config to merge with (``Agent``), or a template (``UserData``).
        cleaning: what is done with a used machine of a dedicated pool: ``Terminate`` or ``Wipe``.
        timeouts: see there.
        max_boot_per_iteration: launches at most in one pass.
        disruption: see there.
    """

    provider: str = ""
    provider_config: dict[str, Any] = msgspec.field(default_factory=dict)
    mode: str = PACKED
    instance_types: tuple[str, ...] = ()
    requirements: tuple[SelectorRequirement, ...] = ()
    default_instance_type: str = ""
    spot: str = SPOT_NEVER
    weight: int = 1
    limits: PoolLimits = msgspec.field(default_factory=PoolLimits)
    standby: tuple[StandbyNodeSpec, ...] = ()
    boot_image: dict[str, str] = msgspec.field(default_factory=dict)
    volume: PoolVolume = msgspec.field(default_factory=PoolVolume)
    template: NodeTemplate = msgspec.field(default_factory=NodeTemplate)
    bootstrap: str = AGENT
    user_data: str = ""
    cleaning: str = TERMINATE
    timeouts: PoolTimeouts = msgspec.field(default_factory=PoolTimeouts)
    max_boot_per_iteration: int = 10
    disruption: PoolDisruption = msgspec.field(default_factory=PoolDisruption)


class NodePoolStatus(View, frozen=True):
    """What is.

    Attributes:
        observed_generation: of the spec that this is about.
        machines: number by phase.
        resources: of all machines that are there or boot.
        price_per_hour: of all instances, decimal.
        boot_image: that new machines get.
        max_machines: how many machines the limits allow, those of the type that counts least; None: no limit.
        boot_seconds: from a launch until the machine has joined, the median of the last ones; None: not known.
        conditions: ``Ready``, ``Launching``, ``WithinLimits``, and ``Terminating`` once it is deleted.
        reports: that were requested less than a minute ago, as JSON by the id of the request.
    """

    observed_generation: int = 0
    machines: dict[str, int] = msgspec.field(default_factory=dict)
    resources: dict[str, Scalar] = msgspec.field(default_factory=dict)
    price_per_hour: str = ""
    boot_image: str = ""
    max_machines: int | None = None
    boot_seconds: int | None = None
    conditions: tuple[Condition, ...] = ()
    reports: dict[str, str] = msgspec.field(default_factory=dict)


class NodePool(Resource, frozen=True):
    """Machines of a provider that come and go with the pods that need them."""

    spec: NodePoolSpec = msgspec.field(default_factory=NodePoolSpec)
    status: NodePoolStatus = msgspec.field(default_factory=NodePoolStatus)


NODEPOOL = KindInfo(
    group="grange.dev",
    version="v1alpha1",
    kind="NodePool",
    plural="nodepools",
    view=NodePool,
    schema=NAME,
    definitions=DEFINITIONS,
    namespaced=False,
    subresources=("audit", "plan"),
    short_names=("np",),
    categories=("grange",),
    columns=(
        Column("Provider", cells.text("spec.provider"), description="Who makes the machines."),
        Column("Mode", cells.text("spec.mode", PACKED), description="Packed or Dedicated."),
        Column(
            "Available",
            cells.integer("status.machines.Available"),
            type="integer",
            description="Machines that are free.",
        ),
        Column(
            "Claimed",
            cells.integer("status.machines.Claimed"),
            type="integer",
            description="Machines of dedicated pools that have a holder.",
        ),
        Column("Price", cells.text("status.pricePerHour"), description="Per hour."),
        Column("Age", cells.age, description="Since it was created."),
    ),
    validate=check,
)
