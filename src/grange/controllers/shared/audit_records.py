"""Records of the audit: what they hold, how they are written, and what is missing.

Their types are those of the specification of replication, §4 and A1 to A7. A change is made before its record
is written, and a service must not wait for its audit. So a record that the server refuses for good is given
up: an event names it, and a condition (and with it an alert) stays until a record that names what is missing is
accepted.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from grange.api import conditions, names
from grange.api.kinds import AUDITRECORD, auditevents, pod as pods
from grange.api.kinds.auditrecord import AuditSpec
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ID_LABEL, NAME_LABEL
from grange.api.kinds.transfer_status import MemberPod, OutboxEntry
from grange.api.meta import Condition, Document, ObjectKey, Resource
from grange.api.status import (
    AlreadyExists,
    BadRequest,
    Forbidden,
    Invalid,
    NotFound,
    TooLarge,
    is_namespace_terminating,
)
from grange.base.clock import Clock
from grange.client.client import Client
from grange.controllers.shared import pod_identity
from grange.controllers.shared.event_reasons import Reason

OF_ROLLOUTS = {
    Reason.ROLLOUT_STARTED: auditevents.ROLLOUT_STARTED,
    Reason.ROLLOUT_COMPLETE: auditevents.ROLLOUT_COMPLETED,
    Reason.ROLLED_BACK: auditevents.ROLLOUT_ROLLED_BACK,
}
"""The events of a rollout that are recorded."""


REFUSALS = (BadRequest, Forbidden, NotFound, TooLarge, Invalid)
"""Responses that another attempt would not change; not found means that records are not served."""


_LONGEST = 400  # characters of a refusal


def record_of(
    whose: ObjectKey, uid: str, replicas: int, done: OutboxEntry, members: Iterable[MemberPod]
) -> Document:
    """The record of an entry about a controller of this name and uid, which may be gone."""
    spec = AuditSpec(
        event=done.event,
        time=done.time,
        controller=whose.name,
        controller_uid=uid,
        replicas=replicas,
        added=done.added,
        removed=done.removed,
        members=tuple(sorted(members, key=lambda item: item.pod)),
        transfer=done.transfer,
        message=done.message,
    )
    return {
        "metadata": {
            "name": f"{names.digest(uid)}-{done.id}",
            "namespace": whose.namespace,
            "labels": {NAME_LABEL: names.label_value(whose.name), ID_LABEL: uid},
        },
        "spec": msgspec.to_builtins(spec),
    }


async def write(client: Client, documents: Iterable[Document]) -> tuple[str, ...]:
    """Create records, each unless an earlier try has.

    Returns:
        Which of them the server refuses for good, and why; empty in a namespace that is being deleted.

    Raises:
        ApiError: not all that the server accepts are written; try again.
    """
    refused = []
    for document in documents:
        try:
            await client.create(AUDITRECORD, document, document["metadata"]["namespace"])
        except AlreadyExists:
            continue
        except REFUSALS as error:
            if not is_namespace_terminating(error):
                spec = document["spec"]
                words = f"{spec['event']} of {spec.get('time', '')}: {error.message}"
                refused.append(words[:_LONGEST])
    return tuple(refused)


def members(owned: Iterable[Pod], entries: Sequence[OutboxEntry] = ()) -> list[MemberPod]:
    """The members: the active pods, or what entries leave of them."""
    gone = {item.uid for done in entries for item in done.removed}
    kept = [member(p) for p in owned if pods.is_active(p) and p.metadata.uid not in gone]
    known = {item.pod for item in kept}
    return [*kept, *(m for done in entries for m in done.added if m.pod not in known)]


def fingerprint(found: Iterable[MemberPod]) -> str:
    """A digest of the names of members; empty for none."""
    pods = sorted(item.pod for item in found)
    return names.digest(*pods) if pods else ""


def member(pod: Pod) -> MemberPod:
    """The pod as it is in records."""
    return MemberPod(pod.metadata.name, pod_identity.node_of(pod), pod.metadata.uid)


CONDITION = "AuditRefused"
"""Condition of a controller or a rollout; its message names the first record that is missing."""

AUDIT_RETRY_S = 300.0
"""Seconds between two attempts to record what is missing."""


def refusal_message(refusal: str) -> str:
    """A refusal, for events and the audit."""
    return f"Not recorded: {refusal}"


def missing_of(known: Sequence[Condition]) -> str:
    """What is missing; empty if nothing is."""
    found = conditions.find(known, CONDITION)
    return found.message if found is not None and found.status == "True" else ""


def still_missing(known: str, refused: Sequence[str], *, reported: bool = False) -> str:
    """What is missing after records were written; empty if nothing is.

    What was known to be missing stays so until a record that names it (``reported``) is accepted.
    """
    if known and (refused or not reported):
        return known
    return refusal_message(refused[0]) if refused else ""


def condition_of(missing: str) -> tuple[str, str, str]:
    """Status, reason and message of the condition."""
    if missing:
        return "True", "AuditWriteFailed", missing
    return "False", "NothingRefused", "the server takes the records of the audit"


def with_condition(
    obj: Resource, known: Sequence[Condition], missing: str, now: datetime
) -> tuple[Condition, ...]:
    """An object's conditions with this one."""
    generation = obj.metadata.generation
    return conditions.set_status(
        known, CONDITION, condition_of(missing), generation=generation, now=now
    )


class AuditRetries:
    """When to try again, by uid. A new owner tries at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}

    def refused(self, uid: str) -> None:
        """Delay the next attempt: a record was refused now."""
        self._due[uid] = self._clock.monotonic() + AUDIT_RETRY_S

    def left_s(self, uid: str) -> float:
        """Seconds until the next try is due."""
        return max(0.0, self._due.get(uid, 0.0) - self._clock.monotonic())

    def forget(self, uid: str) -> None:
        """Drop the delay: nothing is missing, or the object is gone."""
        self._due.pop(uid, None)
