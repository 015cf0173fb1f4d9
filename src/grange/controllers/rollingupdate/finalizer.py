"""The audit of rollouts between two controllers, and the deletion of their objects.

What is recorded is announced in the rollout's outbox by the write that makes it so; the next reconcile writes the
record, under a name derived from rollout and event, and drops the entry. A finalizer keeps a rollout that moves
replicas until its records are written, so a rollout that is deleted has a record as well.

A rollout is deleted ``ttlSecondsAfterFinished`` after its end; its records stay.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from grange.api import names, timestamps
from grange.api.kinds import POD, ROLLINGUPDATE, auditevents
from grange.api.kinds.replicationcontroller import ID_LABEL, ReplicationController
from grange.api.kinds.rollingupdate import RollingUpdate
from grange.api.kinds.transfer_status import MemberPod, OutboxEntry
from grange.api.meta import ObjectKey, controller_of
from grange.api.status import ApiError, NotFound
from grange.base.clock import Clock
from grange.client.client import Client
from grange.controllers.rollingupdate.controller_pair import ControllerPair
from grange.controllers.shared import audit_records
from grange.controllers.shared.event_reasons import Reason
from grange.reconcile import finalizers
from grange.reconcile.recorder import WARNING, Recorder

FINALIZER = "grange.dev/rollout-audit"
"""Keeps a rollout that has begun until its records are written."""

_WORDS = {
    auditevents.ROLLOUT_STARTED: "begins",
    auditevents.ROLLOUT_COMPLETED: "is complete",
    auditevents.ROLLOUT_ROLLED_BACK: "went back",
    auditevents.ROLLOUT_CANCELLED: "was deleted half-way",
}


def entries(
    update: RollingUpdate, pair: ControllerPair, events: Sequence[tuple[Reason, str]], now: datetime
) -> tuple[OutboxEntry, ...]:
    """The entries of a decision; their times differ, because records are ordered by time."""
    announced = [
        audit_records.OF_ROLLOUTS[reason]
        for reason, _ in events
        if reason in audit_records.OF_ROLLOUTS
    ]
    return tuple(
        _entry(update, pair, event, now + timedelta(microseconds=number))
        for number, event in enumerate(announced)
    )


def _entry(update: RollingUpdate, pair: ControllerPair, event: str, now: datetime) -> OutboxEntry:
    """An entry; a rollout has at most one of each event, so rollout and event identify it."""
    spec = update.spec
    held = [_count(spec.old, pair.old)] if spec.old else []
    message = f"RollingUpdate {update.metadata.name} {_WORDS[event]}: "
    message += ", ".join([*held, _count(spec.new, pair.new)])
    if event == auditevents.ROLLOUT_STARTED:
        message += f"; {spec.desired} wanted"
    return OutboxEntry(
        id=names.digest(update.metadata.uid, event),
        event=event,
        time=timestamps.rfc3339_micro(now),
        message=message,
    )


def _count(name: str, controller: ReplicationController | None) -> str:
    return f"{name} is gone" if controller is None else f"{name} has {controller.spec.replicas}"


def _replicas(update: RollingUpdate, new: ReplicationController | None, event: str) -> int:
    """The replicas of the new controller at the time of the event, which may precede a crash."""
    status = update.status
    then = status.began if event == auditevents.ROLLOUT_STARTED else status.replicas
    if then is None or event == auditevents.ROLLOUT_CANCELLED:
        return 0 if new is None else new.spec.replicas
    return then.new


class RolloutFinalizer:
    """Writes the records of rollouts, and finalizes them."""

    def __init__(self, client: Client, recorder: Recorder, *, clock: Clock) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock

    async def publish(
        self,
        update: RollingUpdate,
        new: ReplicationController | None,
        announced: Sequence[OutboxEntry] | None = None,
    ) -> RollingUpdate:
        """Write the records of entries, those of the outbox unless given.

        Returns:
            The rollout, with a condition if a record was refused for good; store it when the entries
            are dropped.

        Raises:
            ApiError: not all are written; the entries must stay.
        """
        announced = update.status.outbox if announced is None else announced
        if not announced:
            return update
        status = update.status
        try:
            members = await self._members(update)
            documents = [
                audit_records.record_of(
                    ObjectKey(update.metadata.namespace, update.spec.new),
                    status.new_uid,
                    _replicas(update, new, item.event),
                    item,
                    members,
                )
                for item in announced
            ]
            refused = await audit_records.write(self._client, documents)
        except ApiError as error:
            self._report(update, f"Error writing audit records: {error.message}")
            raise
        for refusal in refused:
            self._report(update, audit_records.refusal_message(refusal))
        if not refused:
            return update
        known = status.conditions
        missing = audit_records.still_missing(audit_records.missing_of(known), refused)
        known = audit_records.with_condition(update, known, missing, self._clock.now())
        return replace(update, status=replace(status, conditions=known))

    def _report(self, update: RollingUpdate, message: str) -> None:
        self._recorder.event(update, WARNING, Reason.AUDIT_FAILED, message, kind=ROLLINGUPDATE)

    async def cancel(self, update: RollingUpdate, pair: ControllerPair, *, over: bool) -> None:
        """Record the end of a rollout that is being deleted, and remove its finalizer.

        The end of one that was over is recorded, or in the outbox.

        Raises:
            ApiError: a record is not written, or the rollout has changed; try again.
        """
        if FINALIZER not in update.metadata.finalizers:
            return
        announced = list(update.status.outbox)
        if update.status.began is not None and not over:
            announced.append(_entry(update, pair, auditevents.ROLLOUT_CANCELLED, self._clock.now()))
        await self.publish(update, pair.new, announced)
        await finalizers.remove(self._client, ROLLINGUPDATE, update, FINALIZER)

    async def finish(self, update: RollingUpdate, new: ReplicationController | None) -> float:
        """Record the end of a rollout; delete it after its time to live.

        Returns:
            Seconds until it is due; 0.0 if it was deleted.

        Raises:
            ApiError: a record is not written, or the rollout has changed; try again.
        """
        update = await self.publish(update, new)
        if update.status.outbox or not update.status.finished_at:
            at = update.status.finished_at or timestamps.rfc3339(self._clock.now())
            known = msgspec.to_builtins(update.status.conditions)
            change = {"status": {"outbox": [], "finishedAt": at, "conditions": known}}
            update = await self._client.patch_as_read(
                ROLLINGUPDATE, update, change, subresource="status"
            )
        update = await finalizers.remove(self._client, ROLLINGUPDATE, update, FINALIZER)
        ended = timestamps.parse_or(update.status.finished_at, timestamps.EPOCH)
        due = timestamps.shift(ended, update.spec.ttl_seconds_after_finished)
        left_s = (due - self._clock.now()).total_seconds()
        if left_s <= 0.0:
            with suppress(NotFound):
                await self._client.delete_as_read(ROLLINGUPDATE, update)
        return max(0.0, left_s)

    async def _members(self, update: RollingUpdate) -> list[MemberPod]:
        """The new controller's pods as the server has them."""
        uid = update.status.new_uid
        listing = await self._client.list(
            POD, update.metadata.namespace, labels=f"{ID_LABEL}={uid}"
        )
        owners = [(pod, controller_of(pod.metadata)) for pod in listing.items]
        return audit_records.members(
            pod for pod, owner in owners if owner is not None and owner.uid == uid
        )
