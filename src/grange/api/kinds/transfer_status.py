"""Parts of a ReplicationController's status: members that move, and changes to record.

They are kept apart because they outlive the process that wrote them: the next owner of the controller
reads them and goes on.
"""

import msgspec

from grange.api import schema_builder
from grange.api.kinds.auditevents import EVENTS, current_name
from grange.api.meta import Document, Resource, View


class NodeTransfer(View, frozen=True):
    """One pod on its way from a node to another; the new pod comes first, the old one goes last.

    Attributes:
        id: unique; the request id of an allocation, and what audit records refer to.
        phase: ``Allocating``, ``Starting``, ``Finishing`` or ``RollingBack``.
        old: the node to leave.
        old_pod: name of the pod on it.
        old_uid: its uid.
        new: the node to go to; empty while it is not known, and where the scheduler chooses.
        new_pod: name of the pod there; empty while it is not known.
        allocated: the new node was allocated for this transfer, and is released if it fails.
        started_at: when it began, RFC 3339.
        deadline: when to give up, RFC 3339; set once, so no status of a pod extends it.
        reason: why it is being rolled back; empty otherwise.
    """

    id: str
    phase: str
    old: str
    old_pod: str
    old_uid: str
    new: str = ""
    new_pod: str = ""
    allocated: bool = False
    started_at: str = ""
    deadline: str = ""
    reason: str = ""


class TransferBackoff(View, frozen=True):
    """A node from which transfers failed lately.

    Attributes:
        node: which was to be left.
        attempts: how many failed, one after the other.
        until: when to try again, RFC 3339.
        avoid: nodes where they failed, the latest last: others come first.
    """

    node: str
    attempts: int = 0
    until: str = ""
    avoid: tuple[str, ...] = ()


class MemberPod(View, frozen=True):
    """A pod as audit records name it; the node is empty where it is not known yet."""

    pod: str
    node: str = ""
    uid: str = ""


class PendingDeletion(View, frozen=True):
    """A deletion of a pod that is recorded before it is sent, until its outcome is certain.

    Attributes:
        pod: its name.
        uid: its uid.
        resource_version: the only version of the pod that the request deletes.
    """

    pod: str
    uid: str
    resource_version: str


class OutboxEntry(View, frozen=True):
    """A change that is intended or done, until its audit record is written.

    Attributes:
        id: unique for the controller; the record's name is made from it.
        event: a type of audit record; another version may know more of them than ``EVENTS``.
        time: RFC 3339.
        added: pods to create.
        removed: pods to delete.
        transfer: the transfer that it is about, as it was then.
        message: in words.
    """

    id: str
    event: str
    time: str = ""
    added: tuple[MemberPod, ...] = ()
    removed: tuple[MemberPod, ...] = ()
    transfer: NodeTransfer | None = None
    message: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "event", current_name(self.event))


def _object(
    description: str, required: tuple[str, ...], properties: dict[str, str], **more: object
) -> Document:
    fields = {name: schema_builder.text(text) for name, text in properties.items()}
    return {
        "type": "object",
        "description": description,
        "required": [*required],
        "properties": {**fields, **more},
    }


MEMBER_SCHEMA: Document = _object(
    "A pod of the controller.",
    ("pod",),
    {
        "pod": "Its name.",
        "node": "Where it is, or is to go; empty where that is not known yet.",
        "uid": "Its uid.",
    },
)
TRANSFER_SCHEMA: Document = _object(
    "A pod on its way from a node to another.",
    ("id", "phase", "old", "oldPod", "oldUid"),
    {
        "id": "Unique; also the request id of the allocation.",
        "phase": "Allocating, Starting, Finishing or RollingBack.",
        "old": "The node to leave.",
        "oldPod": "The pod on it.",
        "oldUid": "The uid of that pod.",
        "new": "The node to go to.",
        "newPod": "The pod there.",
        "startedAt": "When it began.",
        "deadline": "When to give up.",
        "reason": "Why it is being rolled back.",
    },
    allocated=schema_builder.flag(
        "The new node was allocated for it, and is released if it fails."
    ),
)
BACKOFF_SCHEMA: Document = _object(
    "A node from which moves failed lately.",
    ("node",),
    {"node": "The node to leave.", "until": "When to try again."},
    attempts=schema_builder.whole("How many moves failed, one after the other."),
    avoid=schema_builder.several({"type": "string"}, "Nodes where they failed."),
)
# Like every word in a status, the event is described and not enumerated: the server judges whole
# documents, so one that another version wrote would make it refuse every write of its object, the
# owner's claim included.
OUTBOX_SCHEMA: Document = _object(
    "A change whose audit record is not written yet.",
    ("id", "event"),
    {
        "id": "Unique for the controller.",
        "event": f"Type of the audit record: {', '.join(EVENTS)}.",
        "time": "When it was decided.",
        "message": "In words.",
    },
    added=schema_builder.several(MEMBER_SCHEMA, "Pods to create."),
    removed=schema_builder.several(MEMBER_SCHEMA, "Pods to delete."),
    transfer=TRANSFER_SCHEMA,
)
DELETION_SCHEMA: Document = _object(
    "A deletion of a pod whose outcome is not certain yet.",
    ("pod", "uid", "resourceVersion"),
    {
        "pod": "Its name.",
        "uid": "Its uid.",
        "resourceVersion": "The only version of the pod that the request deletes.",
    },
)
STATUS_FIELDS: Document = {
    "nodeTransfers": schema_builder.several(
        TRANSFER_SCHEMA, "Moves of pods between nodes under way."
    ),
    "transferBackoffs": schema_builder.several(
        BACKOFF_SCHEMA, "Nodes from which moves failed lately, and when to try again."
    ),
    "outbox": schema_builder.several(
        OUTBOX_SCHEMA, "Changes whose audit records are not written yet."
    ),
    "pendingDeletions": schema_builder.several(
        DELETION_SCHEMA, "Deletions of pods that are sent, or about to be, and not certain yet."
    ),
    "audited": schema_builder.text("Fingerprint of the members that the last audit record names."),
}
"""What the status of a ReplicationController has for them."""

TRANSFER_LOCK = "grange.dev/transfer-lock"
"""Annotation of a controller: who forbids the start of node transfers, and until when."""

DRAINED_NODES = "grange.dev/drained-nodes"
"""Annotation of a controller: nodes, separated by commas, that its pods are to leave."""


def drained_nodes(controller: Resource) -> frozenset[str]:
    """Nodes that an operator wants the controller's pods to leave."""
    text = controller.metadata.annotations.get(DRAINED_NODES, "")
    return frozenset(name.strip() for name in text.split(",") if name.strip())
