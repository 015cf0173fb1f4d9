"""PodGroup: pods that are placed all or none, in the shape of the scheduler plugins' own kind.

Pods join a group of their namespace by the label ``scheduling.x-k8s.io/pod-group``. ``minMember``,
``minResources`` and ``scheduleTimeoutSeconds`` mean what they mean there; ``queue``, ``topology``,
``minParts``, ``priorityClassName`` and ``admission`` are ours.
"""

from typing import Any

import msgspec

from grange.api import names, schema_builder
from grange.api.meta import Condition, Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults
from grange.api.validation.resources import check_amounts

GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
"""Label of the pods: the name of their group, in the same namespace."""

REQUIRED = "Required"
PREFERRED = "Preferred"
MODES = (REQUIRED, PREFERRED)

IMMEDIATE = "Immediate"
GATED = "Gated"
ADMISSIONS = (IMMEDIATE, GATED)

SCHEDULED_CONDITION = "Scheduled"
"""The condition of a group: its quorum was placed."""
ADMITTED_CONDITION = "Admitted"
"""The condition of a gated group: its pods may be created."""

PENDING = "Pending"
SCHEDULING = "Scheduling"
SCHEDULED = "Scheduled"
RUNNING = "Running"
FINISHED = "Finished"
FAILED = "Failed"


class Topology(View, frozen=True):
    """Where the members should be together.

    Attributes:
        key: label of nodes, e.g. ``topology.kubernetes.io/zone``; its values are the domains.
        mode: ``Required`` (all members in one domain) or ``Preferred`` (in as few as possible).
    """

    key: str = ""
    mode: str = REQUIRED


class PodGroupPart(View, frozen=True):
    """Members with labels in common, of which a number is needed.

    Attributes:
        match_labels: all of them; a member belongs to the first part that it matches.
        min_member: so many have to be in the quorum.
    """

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    min_member: int = 0


class PodGroupSpec(View, frozen=True):
    """The desired state.

    Attributes:
        min_member: so many members are placed together, or none.
        min_parts: so many of each part are among those that are placed together.
        min_resources: what the nodes must have free before it is tried at all.
        schedule_timeout_seconds: after so long without success other gangs go first, and it
            starts again; None waits forever.
        queue: whose quota it counts against; empty for none.
        priority_class_name: class of members that name none themselves; empty for none.
        topology: where its members should be together; None for anywhere.
        admission: ``Gated``: pods are created only when the group is admitted, by quota
            and room for ``min_resources``. ``Immediate``: the pods are there, and wait.
    """

    min_member: int = 1
    min_parts: tuple[PodGroupPart, ...] = ()
    min_resources: dict[str, int | float | str] = msgspec.field(default_factory=dict)
    schedule_timeout_seconds: int | None = None
    queue: str = ""
    priority_class_name: str = ""
    topology: Topology | None = None
    admission: str = IMMEDIATE


class PodGroupStatus(View, frozen=True):
    """What is: counts of members, and what they use of the resources that their queue limits."""

    observed_generation: int = 0
    phase: str = ""
    pending: int = 0
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    used: dict[str, int | float | str] = msgspec.field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


class PodGroup(Resource, frozen=True):
    """Pods that are scheduled together or not at all."""

    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    spec = document.get("spec") or {}
    members = spec.get("minMember")
    if members is None:
        faults.required("spec.minMember", "set how many members are placed together")
    for number, part in enumerate(spec.get("minParts") or ()):
        _check_part(part, f"spec.minParts[{number}]", faults)
    check_amounts(spec.get("minResources") or {}, "spec.minResources", faults)
    timeout = spec.get("scheduleTimeoutSeconds")
    if timeout is not None and timeout < 1:
        message = "must be greater than or equal to 1; omit it to wait forever"
        faults.invalid("spec.scheduleTimeoutSeconds", timeout, message)
    queue = spec.get("queue") or ""
    if queue:
        faults.named("spec.queue", queue, names.check_dns_subdomain(queue))
    if old is not None and queue != ((old.get("spec") or {}).get("queue") or ""):
        message = "field is immutable: what its pods use counts against that queue"
        faults.forbidden("spec.queue", message)
    rank = spec.get("priorityClassName") or ""
    if rank:
        faults.named("spec.priorityClassName", rank, names.check_dns_subdomain(rank))
    if old is not None and rank != ((old.get("spec") or {}).get("priorityClassName") or ""):
        message = "field is immutable: members that are there already keep their priority"
        faults.forbidden("spec.priorityClassName", message)
    topology = spec.get("topology")
    if topology is not None:
        _check_topology(topology, faults)
    return faults.causes


def _check_part(part: dict[str, Any], path: str, faults: Faults) -> None:
    labels = part.get("matchLabels") or {}
    if not labels:
        faults.required(f"{path}.matchLabels", "name labels that the members of the part have")
    for key, value in labels.items():
        faults.named(f"{path}.matchLabels", key, names.check_qualified_name(key))
        faults.named(f"{path}.matchLabels", value, names.check_label_value(value))


def _check_topology(topology: dict[str, Any], faults: Faults) -> None:
    key = topology.get("key") or ""
    if not key:
        faults.required("spec.topology.key", "name a label of nodes")
    else:
        faults.named("spec.topology.key", key, names.check_qualified_name(key))
    mode = topology.get("mode", REQUIRED)
    if mode not in MODES:
        faults.not_supported("spec.topology.mode", mode, MODES)


_NAME = "io.x-k8s.scheduling.v1alpha1.PodGroup"
_GROUP, _VERSION = "scheduling.x-k8s.io", "v1alpha1"
DEFINITIONS: dict[str, Document] = {
    f"{_NAME}Topology": {
        "type": "object",
        "required": ["key"],
        "properties": {
            "key": schema_builder.text(
                "Label of nodes; its values are the domains.",
                **{schema_builder.RULED: {"minLength": 1}},
            ),
            "mode": schema_builder.text(
                "Required: all members in one domain. Preferred: in as few as possible.",
                enum=list(MODES),
                default=REQUIRED,
            ),
        },
    },
    f"{_NAME}Part": {
        "type": "object",
        "required": ["matchLabels", "minMember"],
        "properties": {
            "matchLabels": {
                "type": "object",
                "description": "Labels of the members; each belongs to the first part it matches.",
                "additionalProperties": {"type": "string"},
            },
            "minMember": schema_builder.whole("So many have to be in the quorum.", minimum=1),
        },
    },
    **schema_builder.definitions(
        _NAME,
        _GROUP,
        _VERSION,
        "Pods that are placed all or none.",
        spec={
            "minMember": schema_builder.whole(
                "So many members are placed together, or none.", minimum=1
            ),
            "minParts": schema_builder.several(
                schema_builder.reference(f"{_NAME}Part", "Members with labels in common."),
                "So many of each part are among those that are placed together.",
            ),
            "minResources": schema_builder.amounts("What must be free before it is tried at all."),
            "scheduleTimeoutSeconds": schema_builder.whole(
                "After so long without success other gangs go first, and it starts again.",
                **{schema_builder.RULED: {"minimum": 1}},
            ),
            "queue": schema_builder.named("Whose quota it counts against; empty for none."),
            "priorityClassName": schema_builder.named(
                "Class of members that name none themselves; empty for none."
            ),
            "topology": schema_builder.reference(
                f"{_NAME}Topology", "Where its members should be together."
            ),
            "admission": schema_builder.text(
                "Gated: pods are to be created only when the condition Admitted is True; quota and "
                "room are decided by minMember and minResources. Immediate: the pods wait.",
                enum=list(ADMISSIONS),
                default=IMMEDIATE,
            ),
        },
        status={
            "observedGeneration": schema_builder.observed_generation(),
            "phase": schema_builder.text(
                "Pending, Scheduling, Scheduled, Running, Finished or Failed."
            ),
            "pending": schema_builder.whole("Members without a node."),
            "scheduled": schema_builder.whole(
                "Members that have a node, or had one and have ended."
            ),
            "running": schema_builder.whole("Members that run."),
            "succeeded": schema_builder.whole("Members that have succeeded."),
            "failed": schema_builder.whole("Members that have failed."),
            "used": schema_builder.amounts(
                "What counts for it in its queue, of the resources that the queue limits."
            ),
            "conditions": schema_builder.conditions(),
        },
        required=("minMember",),
    ),
}

PODGROUP = KindInfo(
    group=_GROUP,
    version=_VERSION,
    kind="PodGroup",
    plural="podgroups",
    view=PodGroup,
    schema=_NAME,
    definitions=DEFINITIONS,
    short_names=("pg", "pgs"),
    categories=("all", "grange"),
    columns=(
        Column("Phase", cells.text("status.phase", PENDING), description="How far it is."),
        Column(
            "MinMember",
            cells.integer("spec.minMember"),
            type="integer",
            description="Members that are placed together.",
        ),
        Column(
            "Scheduled",
            cells.integer("status.scheduled"),
            type="integer",
            description="Members with a node.",
        ),
        Column(
            "Running",
            cells.integer("status.running"),
            type="integer",
            description="Members that run.",
        ),
        Column("Queue", cells.text("spec.queue"), description="Whose quota it uses."),
        Column(
            "Topology",
            cells.text("spec.topology.key"),
            description="Where its members should be together.",
            priority=1,
        ),
    ),
    validate=_validate,
)
