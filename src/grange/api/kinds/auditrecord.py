"""AuditRecord of grange.dev: what changed in who belongs to a controller, when and why.

Records are written once and never changed. They have no owner reference, because they outlive what
they are about; the controller that writes them also removes those that are too old or too many.
"""

from typing import Any

import msgspec

from grange.api import schema_builder
from grange.api.kinds.auditevents import (
    ACCEPTED_EVENTS,
    EVENTS,
    MEMBERSHIP_CHANGED,
    current_name,
)
from grange.api.kinds.transfer_status import MEMBER_SCHEMA, TRANSFER_SCHEMA, MemberPod, NodeTransfer
from grange.api.meta import Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults

SCHEMA_VERSION = 1


class AuditSpec(View, frozen=True):
    """What happened.

    Attributes:
        event: one of ``EVENTS``.
        controller: name of the ReplicationController.
        schema_version: of this record's form.
        time: when it was decided, RFC 3339.
        controller_uid: its uid.
        replicas: how many it wanted then.
        added: pods that came.
        removed: pods that went.
        members: every pod that belonged to it afterwards, in order of name.
        transfer: the node transfer that it is about.
        message: in words.
    """

    event: str
    controller: str
    schema_version: int = SCHEMA_VERSION
    time: str = ""
    controller_uid: str = ""
    replicas: int = 0
    added: tuple[MemberPod, ...] = ()
    removed: tuple[MemberPod, ...] = ()
    members: tuple[MemberPod, ...] = ()
    transfer: NodeTransfer | None = None
    message: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "event", current_name(self.event))


class AuditRecord(Resource, frozen=True):
    """One change of membership."""

    spec: AuditSpec = msgspec.field(
        default_factory=lambda: AuditSpec(event=MEMBERSHIP_CHANGED, controller="")
    )


def _default(document: Document) -> None:
    # By any client: the form is the one that this version has.
    document.setdefault("spec", {})["schemaVersion"] = SCHEMA_VERSION


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    spec = document.get("spec") or {}
    if old is not None:
        if spec != old.get("spec"):
            faults.forbidden("spec", "a record is written once and never changed")
        return faults.causes
    event = spec.get("event")
    if event not in ACCEPTED_EVENTS:
        faults.not_supported("spec.event", event, EVENTS)
    if not spec.get("controller"):
        faults.required("spec.controller", "name the ReplicationController that it is about")
    return faults.causes


def _names(field: str) -> Any:
    def cell(document: Document, now: float) -> cells.Cell:
        pods = [item.get("pod", "") for item in (document.get("spec") or {}).get(field) or ()]
        shown = ",".join(pods[:3])
        return f"{shown} +{len(pods) - 3}" if len(pods) > 3 else shown or cells.NONE

    return cell


_NAME = "dev.grange.v1alpha1.AuditRecord"
DEFINITIONS = schema_builder.definitions(
    _NAME,
    "grange.dev",
    "v1alpha1",
    "What changed in who belongs to a controller.",
    required=("event", "controller"),
    spec={
        "schemaVersion": schema_builder.whole(
            "Of the record's form; filled in by the server.", default=SCHEMA_VERSION
        ),
        "event": schema_builder.text("What kind of change.", enum=[*ACCEPTED_EVENTS]),
        "time": schema_builder.text("When it was decided, RFC 3339."),
        "controller": schema_builder.text(
            "Name of the ReplicationController.", **{schema_builder.RULED: {"minLength": 1}}
        ),
        "controllerUid": schema_builder.text("Its uid."),
        "replicas": schema_builder.whole("How many pods it wanted then."),
        "added": schema_builder.several(MEMBER_SCHEMA, "Pods that came."),
        "removed": schema_builder.several(MEMBER_SCHEMA, "Pods that went."),
        "members": schema_builder.several(
            MEMBER_SCHEMA, "Every pod that belonged to it afterwards."
        ),
        "transfer": TRANSFER_SCHEMA,
        "message": schema_builder.text("In words."),
    },
)

AUDITRECORD = KindInfo(
    group="grange.dev",
    version="v1alpha1",
    kind="AuditRecord",
    plural="auditrecords",
    view=AuditRecord,
    schema=_NAME,
    definitions=DEFINITIONS,
    short_names=("audit",),
    categories=("grange",),
    has_status=False,
    columns=(
        Column("Event", cells.text("spec.event", ""), description="What kind of change."),
        Column("Controller", cells.text("spec.controller", ""), description="Whose pods."),
        Column("Added", _names("added"), description="Pods that came."),
        Column("Removed", _names("removed"), description="Pods that went."),
        Column(
            "Members",
            cells.count("spec.members"),
            type="integer",
            description="Pods that belonged to it afterwards.",
        ),
        Column("Message", cells.text("spec.message", ""), description="In words.", priority=1),
    ),
    default=_default,
    validate=_validate,
)
