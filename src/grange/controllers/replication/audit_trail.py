"""The audit of membership: one record for every change that took effect, and for nothing else.

Kubernetes has no write over two objects, so a change and its record go through an outbox in the controller's
status: what is about to be done is stored there by compare-and-set, then it is done, then the record is created
under a name derived from the entry, then the entry is dropped. After a crash the next owner finds the entry,
checks which of its changes the server has, and records those: a record names nothing that did not happen, and a
second attempt finds the record of the first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace as replace_recorded
from datetime import datetime

from msgspec.structs import replace

from grange.api import names, timestamps
from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.kinds.auditevents import MEMBERSHIP_CHANGED
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ID_LABEL, ReplicationController
from grange.api.kinds.transfer_status import MemberPod, NodeTransfer, OutboxEntry
from grange.api.status import ApiError, Conflict, NotFound
from grange.base.clock import Clock
from grange.client.client import Client
from grange.controllers.replication import rollout
from grange.controllers.replication.node_transfer_service import TransferResult
from grange.controllers.replication.plan import Inputs, Plan
from grange.controllers.shared import audit_records
from grange.controllers.shared.audit_records import (
    OF_ROLLOUTS,
    AuditRetries,
    fingerprint,
    member,
    missing_of,
    record_of,
    refusal_message,
)
from grange.controllers.shared.event_reasons import Reason
from grange.reconcile import owners
from grange.reconcile.recorder import WARNING, Recorder

_NO_PLAN = Plan()


def entry(
    controller: ReplicationController,
    event: str,
    now: datetime,
    *,
    plan: Plan = _NO_PLAN,
    transfer: NodeTransfer | None = None,
    message: str = "",
    number: int = 0,
) -> OutboxEntry:
    """An entry of the outbox; the reasons of the plan's deletions are its message, unless one is given.

    The version of the controller is part of its identity, because only one status can follow it. The
    number distinguishes the entries of one reconcile.
    """
    meta = controller.metadata
    return OutboxEntry(
        id=names.digest(meta.uid, meta.resource_version, str(number)),
        event=event,
        time=timestamps.rfc3339_micro(now),
        added=tuple(MemberPod(item.name, item.node) for item in plan.create),
        removed=tuple(member(item.pod) for item in plan.delete),
        transfer=transfer,
        message=message or ", ".join(sorted({item.why for item in plan.delete})),
    )


def entries(
    controller: ReplicationController,
    plan: Plan,
    transfers: TransferResult,
    decision: rollout.RolloutDecision,
    now: datetime,
) -> list[OutboxEntry]:
    """What a reconcile announces: node transfers, the rollout, and changes of membership."""
    found = [
        entry(controller, event, now, transfer=item, number=number)
        for number, (event, item) in enumerate(transfers.records, start=1)
    ]
    found += [
        entry(controller, OF_ROLLOUTS[reason], now, message=message, number=number)
        for number, (reason, message) in enumerate(decision.events, start=len(found) + 1)
        if reason in OF_ROLLOUTS
    ]
    if plan.create or plan.delete:
        found.append(entry(controller, MEMBERSHIP_CHANGED, now, plan=plan))
    return found


def effective(found: OutboxEntry, live: Sequence[Pod]) -> OutboxEntry | None:
    """The part of an entry that took effect, by the pods that the server has now; None if nothing did."""
    if found.event != MEMBERSHIP_CHANGED:
        return found
    # A pod that is terminating, or was announced to be deleted, had an announced name before.
    staying = {pod.metadata.uid for pod in live if not pod.metadata.deletion_timestamp}
    came = staying - {item.uid for item in found.removed}
    there = {pod.metadata.name for pod in live if pod.metadata.uid in came}
    added = tuple(item for item in found.added if item.pod in there)
    removed = tuple(item for item in found.removed if item.uid not in staying)
    if not (added or removed):
        return None
    message = found.message if removed or not found.removed else ""  # reasons of deletions
    return replace(found, added=added, removed=removed, message=message)


def _members_before(
    now: Sequence[MemberPod], done: Sequence[OutboxEntry], audited: str
) -> Sequence[MemberPod]:
    """The members before entries took effect; those of now if others changed them, too.

    ``audited`` is the ``fingerprint`` of the members before.
    """
    came = {item.pod for one in done for item in one.added}
    kept = [item for item in now if item.pod not in came]
    before = [*kept, *(item for one in done for item in one.removed)]
    return before if fingerprint(before) == audited else now


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the records contain now.

    Attributes:
        members: ``fingerprint`` of the members that are recorded.
        live: the pods as the server had them, if they were read.
        refused: the records that the server refuses for good. They are given up.
        missing: what the audit lacks; empty if nothing.
    """

    members: str
    live: tuple[Pod, ...] | None = None
    refused: tuple[str, ...] = ()
    missing: str = ""


class AuditTrail:
    """Writes records, and reports what the server refuses for good."""

    def __init__(
        self, client: Client, recorder: Recorder, retries: AuditRetries, *, clock: Clock
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._retries = retries
        self._clock = clock

    async def catch_up(self, inputs: Inputs) -> Recorded:
        """Write what an earlier reconcile left to record, and what others did.

        Raises:
            ApiError: not all records that the server accepts are written; try again.
        """
        controller, owned = inputs.controller, inputs.owned
        found = fingerprint(audit_records.members(owned))
        missing = missing_of(controller.status.conditions)
        due = bool(missing) and not self._retries.left_s(controller.metadata.uid)
        if not (controller.status.outbox or due) and found == controller.status.audited:
            return Recorded(found, missing=missing)
        recorded = await self.write_pending(controller, owned, missing=missing if due else "")
        return self._give_up(controller, recorded, missing, reported=due)

    async def record(
        self,
        controller: ReplicationController,
        entries: Sequence[OutboxEntry],
        before: Recorded,
        inputs: Inputs,
    ) -> Recorded:
        """Write the records of entries that this reconcile has carried out completely.

        Raises:
            ApiError: not all records that the server accepts are written; the entries must stay.
        """
        if not entries:
            return before
        owned = inputs.owned if before.live is None else before.live
        members = audit_records.members(owned, entries)
        refused = await self._write(controller, entries, audit_records.members(owned), members)
        recorded = Recorded(fingerprint(members), refused=refused)
        return self._give_up(controller, recorded, before.missing)

    async def record_last(self, controller: ReplicationController, owned: Sequence[Pod]) -> str:
        """Write what is left to record of a controller that is being deleted.

        Returns:
            The fingerprint of the members that are recorded then.
        """
        missing = missing_of(controller.status.conditions)
        try:
            recorded = await self.write_pending(controller, owned, missing=missing)
        except ApiError as error:
            self._report(controller, f"Error writing audit records: {error.message}")
            raise
        return self._give_up(controller, recorded, missing, reported=True).members

    async def write_pending(
        self, controller: ReplicationController, seen: Sequence[Pod], *, missing: str = ""
    ) -> Recorded:
        """Write the records of what an earlier reconcile left in the outbox, and of what others did.

        The pods are read from the server, because the listers may be late. The entries may be dropped
        afterwards.

        Args:
            controller: whose.
            seen: its pods as the listers have them. A pod that lost its uid label is not in the server's
                list, so those that the list lacks are read by name.
            missing: what the audit lacks, for a record with the members.

        Raises:
            Conflict: the controller has changed, so its outbox may have, too.
            ApiError: not all records are written; try again.
        """
        listing = await self._client.list(
            POD, controller.metadata.namespace, labels=f"{ID_LABEL}={controller.metadata.uid}"
        )
        live = [pod for pod in listing.items if owners.is_controlled_by(pod, controller)]
        known = {pod.metadata.uid for pod in live}
        for pod in seen:
            if pod.metadata.uid not in known:
                live += await self._read(pod, controller)
        members = audit_records.members(live)
        found = [effective(item, live) for item in controller.status.outbox]
        due = [item for item in found if item is not None]
        members_now = fingerprint(members)
        notes = [missing] if missing else []
        recorded = any(item.event == MEMBERSHIP_CHANGED for item in due)
        if not recorded and members_now != controller.status.audited:
            notes.append("pods came or went without this controller")
        if notes:
            message = "; ".join(notes)
            due.append(
                entry(controller, MEMBERSHIP_CHANGED, self._clock.now(), number=-1, message=message)
            )
        if due:
            await self._check_current(controller)
        before = _members_before(members, due, controller.status.audited)
        refused = await self._write(controller, due, before, members)
        return Recorded(members_now, tuple(live), refused)

    async def _write(
        self,
        controller: ReplicationController,
        done: Iterable[OutboxEntry],
        before: Sequence[MemberPod],
        after: Sequence[MemberPod],
    ) -> tuple[str, ...]:
        """Write records; rollouts and transfers begin and end before pods come and go."""
        uid, replicas = controller.metadata.uid, controller.spec.replicas
        documents = []
        for item in done:
            members = after if item.event == MEMBERSHIP_CHANGED else before
            documents.append(record_of(controller.key, uid, replicas, item, members))
        return await audit_records.write(self._client, documents)

    async def _check_current(self, controller: ReplicationController) -> None:
        """Check that the outbox is current: a late lister shows entries that were dropped.

        An entry that had no effect, was dropped, and took effect by the entry after it would be recorded
        a second time. Called after the pods were read, so that no later entry can have created them.
        """
        meta = controller.metadata
        live = await self._client.get(REPLICATIONCONTROLLER, meta.name, meta.namespace)
        if live.metadata.resource_version != meta.resource_version:
            raise Conflict(f"{controller.key} has changed: its outbox must be read again")

    async def _read(self, pod: Pod, controller: ReplicationController) -> list[Pod]:
        """A pod as the server has it; nothing if it is gone or not the controller's any more."""
        meta = pod.metadata
        try:
            live = await self._client.get(POD, meta.name, meta.namespace)
        except NotFound:
            return []
        ours = live.metadata.uid == meta.uid and owners.is_controlled_by(live, controller)
        return [live] if ours else []

    def _give_up(
        self,
        controller: ReplicationController,
        recorded: Recorded,
        missing: str,
        *,
        reported: bool = False,
    ) -> Recorded:
        """Report what the server refuses for good, and note what the audit lacks then."""
        uid = controller.metadata.uid
        for refusal in recorded.refused:
            self._report(controller, refusal_message(refusal))
            self._retries.refused(uid)
        missing = audit_records.still_missing(missing, recorded.refused, reported=reported)
        if not missing:
            self._retries.forget(uid)
        return replace_recorded(recorded, missing=missing)

    def _report(self, controller: ReplicationController, message: str) -> None:
        self._recorder.event(
            controller, WARNING, Reason.AUDIT_FAILED, message, kind=REPLICATIONCONTROLLER
        )
