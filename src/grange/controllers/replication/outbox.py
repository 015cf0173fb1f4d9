"""The audit of membership: a record for every change, exactly when there was a change.

Kubernetes has no write over two objects, so the pair of change and record goes through an outbox
in the controller's own status: what is about to be done is compared-and-set there first, then it
is done, then the record is created under a name made from the entry, then the entry is dropped.
After a crash the next owner finds the entry, sees which of its changes the server has, and records
those: a record names nothing that did not happen, and a second try finds the first one's record.

The types of records are those of the specification of replication, §4 and A1 to A7.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace as replace_recorded
from datetime import datetime

from msgspec.structs import replace

from grange.api import names, timestamps
from grange.api.kinds import POD, REPLICATIONCONTROLLER, pod as pods
from grange.api.kinds.auditevents import MEMBERSHIP_CHANGED
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ID_LABEL, ReplicationController
from grange.api.kinds.transfer_status import MemberPod, NodeTransfer, OutboxEntry
from grange.api.meta import Document
from grange.api.status import (
    ApiError,
    Conflict,
    NotFound,
)
from grange.base.clock import Clock
from grange.client.client import Client
from grange.controllers.replication import rollout
from grange.controllers.replication.inputs import Inputs
from grange.controllers.replication.node_transfer_service import TransferResult
from grange.controllers.replication.plan import Plan
from grange.controllers.shared import audit_records
from grange.controllers.shared.audit_records import (
    OF_ROLLOUTS,
    AuditedController,
    AuditRetries,
    fingerprint,
    member,
    members_after,
    record_of,
    write,
)
from grange.controllers.shared.event_reasons import Reason
from grange.reconcile import owners
from grange.reconcile.recorder import WARNING, Recorder


def entry(
    controller: ReplicationController,
    event: str,
    now: datetime,
    *,
    plan: Plan | None = None,
    transfer: NodeTransfer | None = None,
    message: str = "",
    number: int = 0,
) -> OutboxEntry:
    """What goes into the outbox.

    Args:
        controller: as the pass has it; the version is part of the entry's identity, because only
            one status can follow it.
        event: the type of the record.
        now: wall time.
        plan: whose creations and deletions it announces.
        transfer: what it is about.
        message: in words; of a plan it is why pods go, unless something else is given.
        number: tells the entries of one pass apart.
    """
    meta = controller.metadata
    added = [MemberPod(item.name, item.node) for item in plan.create] if plan else []
    removed = [member(item.pod) for item in plan.delete] if plan else []
    if plan is not None and not message:
        message = ", ".join(sorted({item.why for item in plan.delete}))
    return OutboxEntry(
        id=names.digest(meta.uid, meta.resource_version, str(number)),
        event=event,
        time=timestamps.rfc3339_micro(now),
        added=tuple(added),
        removed=tuple(removed),
        transfer=transfer,
        message=message,
    )


def entries(
    controller: ReplicationController,
    plan: Plan,
    moves: TransferResult,
    decision: rollout.RolloutDecision,
    now: datetime,
) -> list[OutboxEntry]:
    """What a pass has to announce: its transfers, its rollout, and who comes and goes."""
    found = [
        entry(controller, event, now, transfer=item, number=number)
        for number, (event, item) in enumerate(moves.records, start=1)
    ]
    found += [
        entry(controller, OF_ROLLOUTS[reason], now, message=message, number=number)
        for number, (reason, message) in enumerate(decision.news, start=len(found) + 1)
        if reason in OF_ROLLOUTS
    ]
    if plan.create or plan.delete:
        found.append(entry(controller, MEMBERSHIP_CHANGED, now, plan=plan))
    return found


def settled(found: OutboxEntry, live: Sequence[Pod]) -> OutboxEntry | None:
    """The part of an entry that came true; None when nothing did.

    Args:
        found: what was announced.
        live: the controller's pods as the server has them now.
    """
    if found.event != MEMBERSHIP_CHANGED:
        return found
    # Under a name that was announced, one that is on its way out, or that was announced to go, is the
    # one that held the name before.
    staying = {pod.metadata.uid for pod in live if not pod.metadata.deletion_timestamp}
    came = staying - {item.uid for item in found.removed}
    there = {pod.metadata.name for pod in live if pod.metadata.uid in came}
    added = tuple(item for item in found.added if item.pod in there)
    removed = tuple(item for item in found.removed if item.uid not in staying)
    if not (added or removed):
        return None
    message = found.message if removed or not found.removed else ""  # why they go who have not gone
    return replace(found, added=added, removed=removed, message=message)


def record(
    controller: ReplicationController, done: OutboxEntry, members: Iterable[MemberPod]
) -> Document:
    """The record of an entry.

    Args:
        controller: whose.
        done: what was done.
        members: the pods that belong to it afterwards.
    """
    return record_of(_whose(controller), done, members)


def _whose(controller: ReplicationController) -> AuditedController:
    meta = controller.metadata
    return AuditedController(meta.namespace, meta.name, meta.uid, controller.spec.replicas)


def _members_before(
    now: Sequence[MemberPod], done: Sequence[OutboxEntry], audited: str
) -> Sequence[MemberPod]:
    """The members before entries came true; those of now where others came or went, too.

    Args:
        now: as they are.
        done: the entries.
        audited: ``fingerprint`` of the members before them.
    """
    came = {item.pod for one in done for item in one.added}
    kept = [item for item in now if item.pod not in came]
    before = [*kept, *(item for one in done for item in one.removed)]
    return before if fingerprint(before) == audited else now


def _documents(
    controller: ReplicationController,
    done: Sequence[OutboxEntry],
    before: Sequence[MemberPod],
    after: Sequence[MemberPod],
) -> list[Document]:
    """Records of what one pass did: what begins or ends in it does so before pods come and go."""
    return [
        record(controller, one, after if one.event == MEMBERSHIP_CHANGED else before)
        for one in done
    ]


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the records say now.

    Attributes:
        members: ``fingerprint`` of the members that are recorded.
        live: the pods as the server had them, if it was asked: more than the cache may show.
        refused: the records that the server refuses for good, in words. They are given up.
        lacking: what the audit lacks, in words; empty if nothing.
    """

    members: str
    live: tuple[Pod, ...] | None = None
    refused: tuple[str, ...] = ()
    lacking: str = ""

    def pods(self, inputs: Inputs) -> Sequence[Pod]:
        """The pods that there were before the pass: the server's if it was asked, else the cache's."""
        return inputs.owned if self.live is None else self.live


class Outbox:
    """Writes records and clears outboxes.

    Args:
        client: where to.
        clock: when.
    """

    def __init__(self, client: Client, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def settle(
        self, controller: ReplicationController, seen: Sequence[Pod], *, lacking: str = ""
    ) -> Recorded:
        """Write the records of what an earlier pass left in the outbox, and of what others did.

        The server is asked which pods there are, because a cache may not have seen them yet. The
        entries may be dropped afterwards.

        Args:
            controller: whose.
            seen: its pods as the cache has them. One whose uid label is lost or names somebody else
                is not in the server's list, so those that the list lacks are asked for by name.
            lacking: what the audit lacks, to be told in a record with the members.

        Returns:
            The members that are recorded now, and what was refused for good.

        Raises:
            Conflict: the controller is not what it was, so its outbox may not be.
            ApiError: not all records are written; try again.
        """
        listing = await self._client.list(
            POD, controller.metadata.namespace, labels=f"{ID_LABEL}={controller.metadata.uid}"
        )
        live = [pod for pod in listing.items if owners.is_controlled_by(pod, controller)]
        known = {pod.metadata.uid for pod in live}
        for pod in seen:
            if pod.metadata.uid not in known:
                live += await self._found(pod, controller)
        members = [member(pod) for pod in live if pods.is_active(pod)]
        told = [settled(found, live) for found in controller.status.outbox]
        due = [done for done in told if done is not None]
        now_members = fingerprint(members)
        recorded = any(done.event == MEMBERSHIP_CHANGED for done in due)
        notes = [lacking] if lacking else []
        if not recorded and now_members != controller.status.audited:
            notes.append("pods came or went without this controller")
        if notes:
            message = "; ".join(notes)
            due.append(
                entry(controller, MEMBERSHIP_CHANGED, self._clock.now(), number=-1, message=message)
            )
        if due:
            await self._check_current(controller)
        before = _members_before(members, due, controller.status.audited)
        documents = _documents(controller, due, before, members)
        refused = await write(self._client, documents)
        return Recorded(now_members, tuple(live), refused)

    async def _check_current(self, controller: ReplicationController) -> None:
        """Ask whether the outbox is what it was: a cache that is late shows entries that are dropped.

        One that did not come true, was dropped, and came true by the entry after it would be
        recorded a second time. Asked after the pods, so that no later entry can have made them.
        """
        meta = controller.metadata
        live = await self._client.get(REPLICATIONCONTROLLER, meta.name, meta.namespace)
        if live.metadata.resource_version != meta.resource_version:
            raise Conflict(f"{controller.key} has changed: its outbox is to be read anew")

    async def _found(self, pod: Pod, controller: ReplicationController) -> list[Pod]:
        """A pod as the server has it; nothing if it is gone or not the controller's any more."""
        meta = pod.metadata
        try:
            live = await self._client.get(POD, meta.name, meta.namespace)
        except NotFound:
            return []
        ours = live.metadata.uid == meta.uid and owners.is_controlled_by(live, controller)
        return [live] if ours else []

    async def publish(
        self,
        controller: ReplicationController,
        entries: Sequence[OutboxEntry],
        owned: Sequence[Pod],
    ) -> Recorded:
        """Write the records of entries that this pass has carried out whole.

        Args:
            controller: whose.
            entries: in order.
            owned: its pods as the pass saw them before.

        Returns:
            The members that are recorded now, and what was refused for good.

        Raises:
            ApiError: not all records are written; the entries must stay in the outbox.
        """
        before, members = members_after(owned, ()), members_after(owned, entries)
        documents = _documents(controller, entries, before, members)
        refused = await write(self._client, documents)
        return Recorded(fingerprint(members), refused=refused)


class AuditTrail:
    """Keeps the audit of controllers complete, and reports what the server refuses for good.

    Args:
        box: writes records.
        recorder: records events for users.
        retries: when to try again to record what is missing.
    """

    def __init__(self, box: Outbox, recorder: Recorder, retries: AuditRetries) -> None:
        self._outbox = box
        self._recorder = recorder
        self._retries = retries

    async def catch_up(self, inputs: Inputs) -> Recorded:
        """Write what an earlier reconcile left to record, and what others did.

        Raises:
            ApiError: not all records that the server accepts are written; try again.
        """
        controller, owned = inputs.controller, inputs.owned
        found = audit_records.fingerprint(audit_records.members(owned))
        missing = audit_records.missing_of(controller.status.conditions)
        due = bool(missing) and not self._retries.left_s(controller.metadata.uid)
        if not (controller.status.outbox or due) and found == controller.status.audited:
            return Recorded(found, lacking=missing)
        recorded = await self._outbox.settle(controller, owned, lacking=missing if due else "")
        return self._given_up(controller, recorded, missing, told_of=due)

    async def record(
        self,
        controller: ReplicationController,
        entries: Sequence[OutboxEntry],
        before: Recorded,
        inputs: Inputs,
    ) -> Recorded:
        """Write the records of what this reconcile did.

        Raises:
            ApiError: not all records that the server accepts are written; the entries must stay.
        """
        if not entries:
            return before
        recorded = await self._outbox.publish(controller, entries, before.pods(inputs))
        return self._given_up(controller, recorded, before.lacking)

    async def record_last(self, controller: ReplicationController, owned: Sequence[Pod]) -> str:
        """Write what is left to record of a controller that is being deleted.

        Returns:
            The fingerprint of the members that are recorded then.
        """
        missing = audit_records.missing_of(controller.status.conditions)
        try:
            recorded = await self._outbox.settle(controller, owned, lacking=missing)
        except ApiError as error:
            self._report_audit_failure(controller, f"Error writing audit records: {error.message}")
            raise
        for refusal in recorded.refused:
            self._report_audit_failure(controller, audit_records.refusal_message(refusal))
        return recorded.members

    def _given_up(
        self,
        controller: ReplicationController,
        recorded: Recorded,
        missing: str,
        *,
        told_of: bool = False,
    ) -> Recorded:
        """Report what the server refuses for good, and note what the audit lacks then."""
        uid = controller.metadata.uid
        for refusal in recorded.refused:
            self._report_audit_failure(controller, audit_records.refusal_message(refusal))
            self._retries.refused(uid)
        missing = audit_records.still_missing(missing, recorded.refused, told_of=told_of)
        if not missing:
            self._retries.forget(uid)
        return replace_recorded(recorded, lacking=missing)

    def _report_audit_failure(self, controller: ReplicationController, message: str) -> None:
        self._recorder.event(
            controller, WARNING, Reason.AUDIT_FAILED, message, kind=REPLICATIONCONTROLLER
        )
