"""RollingUpdate of grange.dev: replicas move from one ReplicationController to another."""

from typing import Any

import msgspec

from grange.api import names, schema_builder
from grange.api.fields import readers
from grange.api.kinds.transfer_status import OUTBOX_SCHEMA, OutboxEntry
from grange.api.meta import Condition, Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults

DAY_S = 86_400  # so long a rollout that is over can be looked at: over a night, not forever


class Counts(View, frozen=True):
    """Replicas of the two controllers."""

    old: int = 0
    new: int = 0


class RollingUpdateSpec(View, frozen=True):
    """The desired state.

    Attributes:
        old: name of the controller that gives up its replicas; empty to only grow ``new``.
        new: name of the controller that gets them.
        desired: replicas in the end.
        minimum: at least so many pods of both stay available.
        max_surge: so many replicas may be too many on the way.
        canary: stop when ``new`` has so many; None for all.
        leave_old: keep ``old``, with what it has left, instead of deleting it when it is empty.
        paused: stop where it is.
        undo: go back to the counts that it began with.
        auto_rollback: do so by itself when it gets no further.
        progress_deadline_seconds: getting no further for so long is failure.
        starting_replicas: refuse to begin unless the controllers have these counts.
        ttl_seconds_after_finished: it is removed when it has been over for so long.
    """

    new: str
    desired: int
    minimum: int
    old: str = ""
    max_surge: int = 0
    canary: int | None = None
    leave_old: bool = False
    paused: bool = False
    undo: bool = False
    auto_rollback: bool = False
    progress_deadline_seconds: int = 600
    starting_replicas: Counts | None = None
    ttl_seconds_after_finished: int = DAY_S


class RollingUpdateStatus(View, frozen=True):
    """How far it got.

    Attributes:
        observed_generation: of the spec that this is about.
        phase: a phase of the rollout's state machine; empty before it began.
        old_uid, new_uid: the controllers that it began with; others by their name are refused.
        began: the counts that it began with.
        replicas: the counts that the controllers are to have now.
        going_back: it was turned round, by policy or by hand.
        message: why it failed or goes back, from the status of a pod; empty where none reports anything.
        mark: the furthest that it got; only going further moves the deadline.
        started_at, progressed_at, finished_at: when it began, last got further, and was over; RFC
            3339.
        outbox: what is not recorded yet.
        conditions: ``Progressing``, ``Complete``, ``RolloutFailed``, perhaps ``AuditRefused``.
    """

    observed_generation: int = 0
    phase: str = ""
    old_uid: str = ""
    new_uid: str = ""
    began: Counts | None = None
    replicas: Counts | None = None
    going_back: bool = False
    message: str = ""
    mark: int = 0
    started_at: str = ""
    progressed_at: str = ""
    finished_at: str = ""
    outbox: tuple[OutboxEntry, ...] = ()
    conditions: tuple[Condition, ...] = ()


class RollingUpdate(Resource, frozen=True):
    """A rollout from one controller to another."""

    spec: RollingUpdateSpec = msgspec.field(
        default_factory=lambda: RollingUpdateSpec(new="", desired=0, minimum=0)
    )
    status: RollingUpdateStatus = msgspec.field(default_factory=RollingUpdateStatus)


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    spec = document.get("spec") or {}
    for field in ("old", "new"):
        if value := spec.get(field):
            faults.named(f"spec.{field}", value, names.check_dns_subdomain(value))
    if not spec.get("new"):
        faults.required("spec.new", "name the controller that receives the replicas")
    elif spec["new"] == spec.get("old"):
        message = "must differ from spec.old: a rollout needs two controllers"
        faults.invalid("spec.new", spec["new"], message)
    _check_counts(spec, faults)
    if spec.get("leaveOld") and not spec.get("old"):
        faults.invalid("spec.leaveOld", value=True, message="needs spec.old: there is none to keep")
    return faults.causes


def _check_counts(spec: dict[str, Any], faults: Faults) -> None:
    missing = [field for field in ("desired", "minimum") if spec.get(field) is None]
    for field in missing:
        faults.required(f"spec.{field}", "zero is a number too")
    if missing:
        return
    desired, minimum = spec["desired"], spec["minimum"]
    if minimum > desired:
        faults.invalid("spec.minimum", minimum, f"must not be greater than spec.desired, {desired}")
    elif minimum == desired > 0 and not spec.get("maxSurge"):
        message = "must be less than spec.desired while spec.maxSurge is 0: nothing could move"
        faults.invalid("spec.minimum", minimum, message)
    if (spec.get("canary") or 0) > desired:
        message = f"must not be greater than spec.desired, {desired}"
        faults.invalid("spec.canary", spec["canary"], message)


_NAME = "dev.grange.v1alpha1.RollingUpdate"

DEFINITIONS: dict[str, Document] = {
    f"{_NAME}Counts": {
        "type": "object",
        "properties": {
            "old": schema_builder.whole("Replicas of the old controller.", minimum=0),
            "new": schema_builder.whole("Replicas of the new controller.", minimum=0),
        },
    },
    **schema_builder.definitions(
        _NAME,
        "grange.dev",
        "v1alpha1",
        "A rollout from one ReplicationController to another.",
        required=("new", "desired", "minimum"),
        spec={
            "old": schema_builder.named(
                "The controller that gives up its replicas; absent to only grow the new one."
            ),
            "new": schema_builder.named("The controller that gets them.", required=True),
            "desired": schema_builder.whole("Replicas in the end.", minimum=0),
            "minimum": schema_builder.whole(
                "At least so many pods of both stay available.", minimum=0
            ),
            "maxSurge": schema_builder.whole(
                "Replicas that may be too many on the way.", default=0, minimum=0
            ),
            "canary": schema_builder.whole(
                "Stop when the new controller has so many; absent for all.", minimum=0
            ),
            "leaveOld": schema_builder.flag(
                "Keep the old controller instead of deleting it when it is empty."
            ),
            "paused": schema_builder.flag("Stop where it is."),
            "undo": schema_builder.flag("Go back to the counts that it began with."),
            "autoRollback": schema_builder.flag("Go back by itself when it gets no further."),
            "progressDeadlineSeconds": schema_builder.whole(
                "Getting no further for so long fails.", default=600, minimum=0
            ),
            "startingReplicas": schema_builder.reference(
                f"{_NAME}Counts", "Counts without which it does not begin."
            ),
            "ttlSecondsAfterFinished": schema_builder.whole(
                "Removed when it has been over for so long; its audit records stay.",
                default=DAY_S,
                minimum=0,
            ),
        },
        status={
            "observedGeneration": schema_builder.observed_generation(),
            "phase": schema_builder.text("Where it is."),
            "oldUid": schema_builder.text("The old controller that it began with."),
            "newUid": schema_builder.text("The new controller that it began with."),
            "began": schema_builder.reference(f"{_NAME}Counts", "Counts that it began with."),
            "replicas": schema_builder.reference(
                f"{_NAME}Counts", "Counts that the controllers are to have now."
            ),
            "goingBack": schema_builder.flag("It was turned round, by policy or by hand."),
            "message": schema_builder.text("Why it failed or goes back, in the words of a pod."),
            "mark": schema_builder.whole(
                "The furthest that it got; only going further moves the deadline."
            ),
            "startedAt": schema_builder.text("When it began."),
            "progressedAt": schema_builder.text("When it last got further."),
            "finishedAt": schema_builder.text("When it was over."),
            "outbox": schema_builder.several(
                OUTBOX_SCHEMA, "Changes whose audit records are not written yet."
            ),
            "conditions": schema_builder.conditions(),
        },
    ),
}

ROLLINGUPDATE = KindInfo(
    group="grange.dev",
    version="v1alpha1",
    kind="RollingUpdate",
    plural="rollingupdates",
    view=RollingUpdate,
    schema=_NAME,
    definitions=DEFINITIONS,
    short_names=("gru",),
    categories=("all", "grange"),
    columns=(
        Column("Old", cells.text("spec.old"), description="Who gives up replicas."),
        Column("New", cells.text("spec.new"), description="Who gets them."),
        Column(
            "Moved",
            cells.integer("status.replicas.new"),
            type="integer",
            description="Replicas of the new controller.",
        ),
        Column("Desired", cells.integer("spec.desired"), type="integer", description="In the end."),
        Column("Phase", cells.text("status.phase"), description="Where it is."),
    ),
    fields=readers("spec.old", "spec.new"),
    immutable=("spec.old", "spec.new"),
    validate=_validate,
)
