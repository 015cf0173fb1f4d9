"""How a change of a template spreads over the pods of a controller: fields, rules, history.

What a user sets (``Rollout``), what a controller writes before it acts (``RolloutState``), the
templates that it remembers (``Revision``), which of them to go back to, and the patches that pause
and resume. Nothing here decides how fast a rollout goes; that is the controller's.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from grange.api import schema_builder
from grange.api.meta import Document, View
from grange.api.validation.causes import Faults
from grange.base.errors import GrangeError

TYPES = ("RollingUpdate", "OnDelete")
RESTARTED_AT = "grange.dev/restarted-at"
"""Annotation of a template: a new value replaces every pod without another change."""
CHANGE_CAUSE = "kubernetes.io/change-cause"
"""Annotation of a controller: why its template is as it is, as ``kubectl rollout history`` shows it."""
CAUSE_MAX = 1024  # characters of it that a revision keeps

INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_PERCENT = re.compile(r"(100|[1-9]?[0-9])%", re.ASCII)


class NoSuchRevision(GrangeError):
    """The history holds no template to go back to; the message lists the revisions."""


class Rollout(View, frozen=True):
    """How a change of the template spreads; percentages are of ``replicas``.

    Attributes:
        type: ``RollingUpdate``, or ``OnDelete`` (pods are replaced only when they are deleted).
        max_unavailable: so many replicas may be missing; a percentage rounds down.
        max_surge: so many pods may be too many; a percentage rounds up.
        min_ready_seconds: how long a pod must be ready to count as available.
        progress_deadline_seconds: a rollout that gets no further for so long has failed.
        paused: the rollout stops where it is; scaling and repairing go on.
        canary: at most so many pods of the new template (count or percentage); None for all.
        auto_rollback: a rollout that failed goes back to the last template that was completed.
        revision_history_limit: so many former templates are remembered.
    """

    type: str = "RollingUpdate"
    max_unavailable: int | str = "25%"
    max_surge: int | str = "25%"
    min_ready_seconds: int = 0
    progress_deadline_seconds: int = 600
    paused: bool = False
    canary: int | str | None = None
    auto_rollback: bool = False
    revision_history_limit: int = 5


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """What a controller allows while pods are replaced.

    Attributes:
        minimum: pods that stay available.
        ceiling: pods that exist at most.
    """

    minimum: int
    ceiling: int


def share(value: int | str, replicas: int, *, up: bool = False) -> int:
    """A count or a percentage of the replicas, as a count; a percentage rounds down unless ``up``.

    Text that is no percentage counts as zero.
    """
    if isinstance(value, int):
        return max(0, value)
    digits = value.removesuffix("%")
    if digits == value or not digits.isdecimal():
        return 0
    exact = int(digits) * replicas
    return -(-exact // 100) if up else exact // 100


def limits(rollout: Rollout, replicas: int, *, room: int | None = None) -> RolloutLimits:
    """What a rollout allows.

    Without room for a pod more, surge is worth nothing; then a percentage of ``maxUnavailable``
    that rounds down to zero allows one pod, or nothing could ever be replaced. A plain zero is a
    promise and stays zero.

    Args:
        rollout: of a controller.
        replicas: that it asks for.
        room: how many pods more could be placed now; None if it is not known.
    """
    replicas = max(0, replicas)
    unavailable = share(rollout.max_unavailable, replicas)
    surge = share(rollout.max_surge, replicas, up=True)
    if room is not None:
        surge = min(surge, max(0, room))
    if not surge and not unavailable and rollout.max_unavailable not in (0, "0%"):
        unavailable = 1
    return RolloutLimits(minimum=max(0, replicas - unavailable), ceiling=replicas + surge)


class RolloutState(View, frozen=True):
    """How far the template of a controller has spread; written before anything is done about it.

    Attributes:
        revision: of the template that pods are made from.
        template_hash: of that template.
        spec_hash: of ``spec.template`` when this was written; differs after a rollback.
        stable_hash: of the last template that a rollout completed with.
        phase: a phase of the rollout's state machine.
        new_replicas: pods wanted of that template.
        old_replicas: pods wanted of earlier templates.
        generation: of the spec that the deadline is counted for.
        mark: the furthest that it got; only going further moves the deadline.
        started_at: when the rollout began, RFC 3339.
        progressed_at: when it last got further.
        message: why it failed.
    """

    revision: int
    template_hash: str
    spec_hash: str = ""
    stable_hash: str = ""
    phase: str = "Complete"
    new_replicas: int = 0
    old_replicas: int = 0
    generation: int = 0
    mark: int = 0
    started_at: str = ""
    progressed_at: str = ""
    message: str = ""


class Revision(View, frozen=True):
    """A template that pods were made from; a higher number is more recent.

    Attributes:
        change_cause: the annotation ``kubernetes.io/change-cause`` of the controller at the time, up to
            ``CAUSE_MAX`` characters.
    """

    revision: int
    template_hash: str
    template: Document = msgspec.field(default_factory=dict)
    recorded_at: str = ""
    change_cause: str = ""


def revision_to_undo(history: Sequence[Revision], spec_hash: str, to: int = 0) -> Revision:
    """The template to go back to.

    Args:
        history: ``status.history``.
        spec_hash: ``status.rollout.specHash``: what the spec asks for now.
        to: number of the wanted revision; zero for the latest that is not the present one.

    Raises:
        NoSuchRevision: it is not remembered, or there is no earlier one.
    """
    known = sorted(history, key=lambda item: item.revision, reverse=True)
    for item in known:
        if item.revision == to or (to == 0 and item.template_hash != spec_hash):
            return item
    listed = ", ".join(str(item.revision) for item in reversed(known)) or "none"
    wanted = f"revision {to}" if to else "an earlier template"
    raise NoSuchRevision(f"{wanted} is not remembered; revisions in status.history: {listed}")


def pause_patch(*, paused: bool) -> Document:
    """The merge patch that stops a rollout where it is, or lets it go on."""
    return {"spec": {"rollout": {"paused": paused}}}


def restart_patch(now: str) -> Document:
    """The merge patch that has every pod replaced.

    Args:
        now: RFC 3339; any value that differs from the last one.
    """
    annotations = {RESTARTED_AT: now}
    return {"spec": {"template": {"metadata": {"annotations": annotations}}}}


def check(rollout: Mapping[str, Any], faults: Faults) -> None:
    """Rules for ``spec.rollout`` beyond its schema."""
    if (kind := rollout.get("type")) is not None and kind not in TYPES:
        faults.not_supported("spec.rollout.type", kind, TYPES)
    values = {field: rollout.get(field, "25%") for field in ("maxUnavailable", "maxSurge")}
    if rollout.get("canary") is not None:
        values["canary"] = rollout["canary"]
    for field, value in values.items():
        at = f"spec.rollout.{field}"
        if isinstance(value, str) and not _PERCENT.fullmatch(value):
            faults.invalid(at, value, "must be a number of pods, or a percentage like 25%")
        elif isinstance(value, int) and value < 0:
            faults.invalid(at, value, "must be greater than or equal to 0")
    if all(values[field] in (0, "0%") for field in ("maxUnavailable", "maxSurge")):
        message = "may not be 0 when `maxSurge` is 0: nothing could ever be replaced"
        faults.invalid("spec.rollout.maxUnavailable", values["maxUnavailable"], message)
    ready, deadline = rollout.get("minReadySeconds", 0), rollout.get("progressDeadlineSeconds", 600)
    if deadline <= ready:
        message = "must be greater than minReadySeconds"
        faults.invalid("spec.rollout.progressDeadlineSeconds", deadline, message)


def _count_or_percentage(description: str, **more: Any) -> Document:
    bounds = {"minimum": 0, "pattern": f"^({_PERCENT.pattern})$"}
    return schema_builder.reference(
        INT_OR_STRING, description, **{schema_builder.RULED: bounds}, **more
    )


ROLLOUT: Document = {
    "type": "object",
    "properties": {
        "maxUnavailable": _count_or_percentage(
            "Pods that may be missing during a change: a number or a percentage.",
            default="25%",
        ),
        "maxSurge": _count_or_percentage(
            "Pods that may be too many during a change: a number or a percentage.",
            default="25%",
        ),
        "minReadySeconds": schema_builder.whole(
            "How long a pod must be ready to count.", default=0, minimum=0
        ),
        "progressDeadlineSeconds": schema_builder.whole(
            "A rollout that gets no further for so long has failed.", default=600, minimum=0
        ),
        "type": schema_builder.text(
            "RollingUpdate replaces pods a few at a time; OnDelete waits for them to be deleted.",
            enum=list(TYPES),
            default="RollingUpdate",
        ),
        "paused": {"type": "boolean", "description": "Stop the rollout where it is."},
        "canary": _count_or_percentage(
            "At most so many pods of the new template: a number or a percentage; absent for all.",
        ),
        "autoRollback": {
            "type": "boolean",
            "description": "Go back to the last good template when a rollout failed.",
        },
        "revisionHistoryLimit": schema_builder.whole(
            "Former templates to remember.", default=5, minimum=0
        ),
    },
}
ROLLOUT_STATE: Document = {
    "type": "object",
    "required": ["revision", "templateHash"],
    "properties": {
        "revision": {
            "type": "integer",
            "format": "int64",
            "description": "Number of the template that pods are made from.",
        },
        "templateHash": schema_builder.text("Hash of that template."),
        "specHash": schema_builder.text(
            "Hash of spec.template at the time; differs after a rollback."
        ),
        "stableHash": schema_builder.text(
            "Hash of the last template that a rollout completed with."
        ),
        "phase": schema_builder.text("Where the rollout is."),
        "newReplicas": schema_builder.whole("Pods wanted of that template."),
        "oldReplicas": schema_builder.whole("Pods wanted of earlier templates."),
        "generation": {
            "type": "integer",
            "format": "int64",
            "description": "The generation that the deadline is counted for.",
        },
        "mark": schema_builder.whole(
            "The furthest that it got; only going further moves the deadline."
        ),
        "startedAt": schema_builder.text("When the rollout began."),
        "progressedAt": schema_builder.text("When it last got further."),
        "message": schema_builder.text("Why it failed."),
    },
}
REVISION: Document = {
    "type": "object",
    "required": ["revision", "templateHash"],
    "properties": {
        "revision": {
            "type": "integer",
            "format": "int64",
            "description": "A higher number is more recent.",
        },
        "templateHash": schema_builder.text("Hash of the template; pods carry it as a label."),
        "template": {
            "type": "object",
            "description": "The template.",
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "recordedAt": schema_builder.text("When it was first seen."),
        "changeCause": schema_builder.text(
            f"The annotation {CHANGE_CAUSE} of the controller while this was the wanted template, "
            f"up to {CAUSE_MAX} characters."
        ),
    },
}
