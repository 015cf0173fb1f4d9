"""ReplicationController of grange.dev: so many copies of a pod, on nodes that fit."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from grange.api import names, rollouts, schema_builder, unsupported
from grange.api.fields import lookup, readers
from grange.api.kinds.transfer_status import (
    STATUS_FIELDS,
    NodeTransfer,
    OutboxEntry,
    PendingDeletion,
    TransferBackoff,
)
from grange.api.meta import Condition, Document, LabelSelector, Resource, View
from grange.api.printing import cells
from grange.api.rollouts import Revision, Rollout, RolloutState
from grange.api.scheme import Column, KindInfo, Scaling
from grange.api.status import Cause
from grange.api.validation.causes import Faults
from grange.api.validation.metadata import check_labels
from grange.api.validation.role_templates import check_template
from grange.api.validation.selectors import check_label_selector

NAME_LABEL = "grange.dev/replication-controller"
"""Label of the pods: the controller's name, as ``names.label_value`` writes it."""

ID_LABEL = "grange.dev/replication-controller-uid"
"""Label of the pods: the controller's uid."""

CORE = "io.k8s.api.core.v1"
PLACEMENTS = ("OnePerNode", "Packed")
STRATEGIES = ("Static", "Dynamic")
_TEMPLATE_METADATA = ("labels", "annotations", "finalizers")


class ReplicationControllerSpec(View, frozen=True):
    """The desired state.

    Attributes:
        replicas: how many pods; required, never defaulted.
        node_selector: label selector over nodes; empty means every node.
        placement: ``Packed`` or ``OnePerNode``. The server writes its default (``Packed``) into every
            object; one that lacks the field all the same keeps the earlier default.
        strategy: ``Static`` (pods never move because of eligibility) or ``Dynamic``.
        paused: stop scaling and repairing; pods keep running.
        pod_labels: labels for every pod, over the template's.
        template: the pod to copy: metadata and spec, as a full document.
    """

    replicas: int
    node_selector: LabelSelector = msgspec.field(default_factory=LabelSelector)
    placement: str = "OnePerNode"
    strategy: str = "Static"
    paused: bool = False
    pod_labels: dict[str, str] = msgspec.field(default_factory=dict)
    template: Document = msgspec.field(default_factory=dict)
    rollout: Rollout = msgspec.field(default_factory=Rollout)


class ReplicationControllerStatus(View, frozen=True):
    """What is: counts of pods that this controller owns."""

    observed_generation: int = 0
    replicas: int = 0
    selector: str = ""
    ready_replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    conditions: tuple[Condition, ...] = ()
    rollout: RolloutState | None = None
    history: tuple[Revision, ...] = ()
    node_transfers: tuple[NodeTransfer, ...] = ()
    transfer_backoffs: tuple[TransferBackoff, ...] = ()
    outbox: tuple[OutboxEntry, ...] = ()
    pending_deletions: tuple[PendingDeletion, ...] = ()
    audited: str = ""


class ReplicationController(Resource, frozen=True):
    """A replicated service."""

    spec: ReplicationControllerSpec = msgspec.field(
        default_factory=lambda: ReplicationControllerSpec(replicas=0)
    )
    status: ReplicationControllerStatus = msgspec.field(default_factory=ReplicationControllerStatus)


def _default(document: Document) -> None:
    document["status"] = document.get("status") or {}
    document["status"].setdefault("replicas", 0)


REPLICAS_MAX = 100_000
"""Pods that one controller may have: more are a mistake, and each pass looks at all of them."""


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    spec = document.get("spec") or {}
    if spec.get("replicas") is None:
        faults.required("spec.replicas", "set how many pods are wanted; zero is allowed")
    # What was stored before the bound may stay, so that its status can be written.
    elif spec["replicas"] > max(REPLICAS_MAX, ((old or {}).get("spec") or {}).get("replicas") or 0):
        message = f"must be less than or equal to {REPLICAS_MAX}"
        faults.invalid("spec.replicas", spec["replicas"], message)
    for field, choices in (("placement", PLACEMENTS), ("strategy", STRATEGIES)):
        value = spec.get(field)
        if value is not None and value not in choices:
            faults.not_supported(f"spec.{field}", value, choices)
    if selector := spec.get("nodeSelector"):
        check_label_selector(selector, "spec.nodeSelector", faults)
    if labels := spec.get("podLabels"):
        check_labels(labels, "spec.podLabels", faults)
    rollouts.check(spec.get("rollout") or {}, faults)
    template = spec.get("template")
    if not template:
        faults.required("spec.template", "set the pod to run")
    # An unchanged template was judged when it was written.
    elif old is None or template != (old.get("spec") or {}).get("template"):
        _check_template(template, faults)
    return faults.causes


def _check_template(template: Document, faults: Faults) -> None:
    path = "spec.template"
    meta = template.get("metadata") or {}
    for field in meta:
        if field not in _TEMPLATE_METADATA and meta[field] is not None:
            message = "every pod gets its own: a template may carry labels and annotations only"
            faults.forbidden(f"{path}.metadata.{field}", message)
    check_template(template, path, faults)
    spec = template.get("spec") or {}
    if spec.get("nodeName"):
        message = "the scheduler places every pod; use spec.nodeSelector to choose nodes"
        faults.forbidden(f"{path}.spec.nodeName", message)
    if spec.get("restartPolicy", "Always") != "Always":
        faults.not_supported(f"{path}.spec.restartPolicy", spec["restartPolicy"], ("Always",))


def _review(document: Document, old: Document | None, now: datetime) -> Iterable[str]:
    template = document["spec"]["template"]
    if old is not None and template == (old.get("spec") or {}).get("template"):
        return ()
    spec, path = template["spec"], "spec.template.spec"
    found = unsupported.find(spec, path)
    return (*unsupported.command_warnings(spec, path), *unsupported.warnings(found))


def _nodes(document: Document, now: float) -> cells.Cell:
    selector = lookup(document, "spec.nodeSelector") or {}
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    terms += [
        f"{item.get('key')} {item.get('operator')} ({','.join(item.get('values') or ())})"
        for item in selector.get("matchExpressions") or ()
    ]
    return ",".join(terms) if terms else "<all>"


def _containers(document: Document, now: float) -> cells.Cell:
    containers = lookup(document, "spec.template.spec.containers") or ()
    return ",".join(str(item.get("name", "")) for item in containers) or cells.NONE


def selector_of(name: str, uid: str) -> str:
    """The pods of a controller; both labels, because one relabelled by name was taken out of it."""
    return f"{NAME_LABEL}={names.label_value(name)},{ID_LABEL}={uid}"


def _selector(document: Document) -> str:
    return selector_of(document["metadata"]["name"], document["metadata"]["uid"])


_NAME = "dev.grange.v1alpha1.ReplicationController"
DEFINITIONS: dict[str, Document] = {
    f"{_NAME}Rollout": rollouts.ROLLOUT,
    f"{_NAME}RolloutState": rollouts.ROLLOUT_STATE,
    f"{_NAME}Revision": rollouts.REVISION,
    **schema_builder.definitions(
        _NAME,
        "grange.dev",
        "v1alpha1",
        "A replicated service: so many copies of a pod, on nodes that fit.",
        required=("replicas", "template"),
        spec={
            "replicas": schema_builder.whole(
                "How many pods; required, never defaulted.",
                minimum=0,
                **{schema_builder.RULED: {"maximum": REPLICAS_MAX}},
            ),
            "nodeSelector": schema_builder.reference(
                f"{schema_builder.META}.LabelSelector",
                "Which nodes, by their labels; empty means every node.",
            ),
            "placement": schema_builder.text(
                "Packed spreads pods softly over nodes and zones, and lets nodes take several; "
                "OnePerNode puts at most one pod on each node.",
                enum=list(PLACEMENTS),
                default="Packed",
            ),
            "strategy": schema_builder.text(
                "Static leaves pods where they are; Dynamic moves them off nodes that no longer fit.",
                enum=list(STRATEGIES),
                default="Static",
            ),
            "paused": schema_builder.flag("Stop scaling and repairing; pods keep running."),
            "podLabels": {
                "type": "object",
                "description": "Labels for every pod, over the template's.",
                "additionalProperties": {"type": "string"},
            },
            "template": schema_builder.reference(f"{CORE}.PodTemplateSpec", "The pod to copy."),
            "rollout": schema_builder.reference(
                f"{_NAME}Rollout", "How a change of the template spreads.", default={}
            ),
        },
        status={
            "observedGeneration": schema_builder.observed_generation(),
            "replicas": schema_builder.whole("Pods there are."),
            "selector": schema_builder.text("Label selector of its pods, for autoscalers."),
            "readyReplicas": schema_builder.whole("Pods that are ready."),
            "updatedReplicas": schema_builder.whole("Pods of the present template."),
            "availableReplicas": schema_builder.whole(
                "Pods that have been ready for minReadySeconds."
            ),
            "rollout": schema_builder.reference(
                f"{_NAME}RolloutState", "How far the template has spread."
            ),
            "history": schema_builder.several(
                {"$ref": f"#/definitions/{_NAME}Revision"},
                "Templates that pods were made from, the latest last.",
                **{"x-kubernetes-list-type": "atomic"},
            ),
            **STATUS_FIELDS,
            "conditions": schema_builder.conditions(),
        },
    ),
}

REPLICATIONCONTROLLER = KindInfo(
    group="grange.dev",
    version="v1alpha1",
    kind="ReplicationController",
    plural="replicationcontrollers",
    view=ReplicationController,
    schema=_NAME,
    definitions=DEFINITIONS,
    short_names=("grc",),
    categories=("all", "grange"),
    columns=(
        Column(
            "Desired", cells.integer("spec.replicas"), type="integer", description="Pods wanted."
        ),
        Column(
            "Current", cells.integer("status.replicas"), type="integer", description="Pods there."
        ),
        Column(
            "Ready",
            cells.integer("status.readyReplicas"),
            type="integer",
            description="Pods ready.",
        ),
        Column(
            "Updated",
            cells.integer("status.updatedReplicas"),
            type="integer",
            description="Pods of the present template.",
        ),
        Column(
            "Placement", cells.text("spec.placement", "OnePerNode"), description="Spread or packed."
        ),
        Column(
            "Strategy",
            cells.text("spec.strategy", "Static"),
            description="May pods move.",
            priority=1,
        ),
        Column("Nodes", _nodes, description="Which nodes it may use.", priority=1),
        Column("Containers", _containers, description="What its pods run.", priority=1),
        Column(
            "Paused",
            cells.boolean("spec.paused"),
            type="boolean",
            description="Left alone.",
            priority=1,
        ),
    ),
    fields=readers("spec.placement", "spec.strategy"),
    scale=Scaling("spec.replicas", "status.replicas", _selector, "status.selector"),
    default=_default,
    validate=_validate,
    review=_review,
)
