"""Writes the status of ReplicationControllers, under compare-and-set."""

from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from grange.api import conditions
from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import (
    ReplicationController,
    ReplicationControllerStatus,
)
from grange.api.kinds.transfer_status import OutboxEntry, PendingDeletion
from grange.api.meta import Condition, Document, all_fields
from grange.api.status import Conflict, NotFound
from grange.base.clock import Clock
from grange.client.client import Client
from grange.controllers.replication import pod_control, rollout, status_conditions
from grange.controllers.replication.audit_trail import Recorded
from grange.controllers.replication.node_transfer_service import TransferResult
from grange.controllers.replication.plan import Plan
from grange.controllers.shared import audit_records
from grange.controllers.shared.event_reasons import FAILURES, Reason
from grange.controllers.shared.rollout_metrics import RolloutMetrics
from grange.reconcile import finalizers
from grange.reconcile.controller import Terminal
from grange.reconcile.recorder import NORMAL, WARNING, Recorder
from grange.reconcile.write_tracker import WriteTracker

FINALIZER = "grange.dev/replication-audit"
"""Keeps a controller that has announced changes until their records are written."""


class ControllerStatusWriter:
    """Writes status, and reports what changed with it."""

    def __init__(
        self,
        client: Client,
        written: WriteTracker,
        recorder: Recorder,
        *,
        clock: Clock,
        instruments: RolloutMetrics,
    ) -> None:
        self._client = client
        self._written = written
        self._recorder = recorder
        self._clock = clock
        self._instruments = instruments

    async def refuse(self, controller: ReplicationController, error: Exception) -> NoReturn:
        """Write why the spec cannot be acted on.

        Raises:
            Terminal: always.
        """
        self._record(controller, WARNING, Reason.INVALID, str(error))
        wanted = status_conditions.refused(controller, str(error), self._clock.now())
        with suppress(Conflict, NotFound):  # it has changed: there is another reconcile
            if wanted != controller.status:
                await self.patch(controller, _changes(controller, wanted))
                self._count_skips(controller, wanted.conditions)
        raise Terminal(f"{controller.key}: {error}") from error

    async def announce(
        self,
        controller: ReplicationController,
        plan: Plan,
        transfers: TransferResult,
        decision: rollout.RolloutDecision,
        entries: Sequence[OutboxEntry],
        audited: Recorded,
    ) -> ReplicationController:
        """Store what is about to be done, unless the controller has changed since it was observed.

        Returns:
            The controller with the template that pods are made from.

        Raises:
            Conflict: it has.
        """
        known, after = controller.status, tuple(transfers.after)
        backoffs = tuple(transfers.backoffs.values())
        moved = (after, backoffs) != (known.node_transfers, known.transfer_backoffs)
        step = _rollout_of(decision.controller.status)
        if step == _rollout_of(known):
            step = {}
        deletions = pod_control.deletions_of(plan)
        changed = deletions != known.pending_deletions or moved
        if not (changed or step or entries or known.outbox):
            return decision.controller
        meta = controller.metadata
        if entries and not meta.deletion_timestamp and not finalizers.has(controller, FINALIZER):
            controller = await finalizers.add(
                self._client, REPLICATIONCONTROLLER, controller, FINALIZER
            )
            self._written.wrote(controller)
        status = {
            "nodeTransfers": msgspec.to_builtins(after),
            "transferBackoffs": msgspec.to_builtins(backoffs),
            "outbox": msgspec.to_builtins(entries),
            "pendingDeletions": msgspec.to_builtins(deletions),
            **step,
            "audited": audited.members,
        }
        if audited.refused:
            # In the write that gives the entries up: a crash must not make them vanish silently.
            found = audit_records.with_condition(
                controller, known.conditions, audited.missing, self._clock.now()
            )
            status["conditions"] = msgspec.to_builtins(found)
        written = await self.patch(controller, status)
        if step:
            self._instruments.steps.inc()
        for event, _ in transfers.records:
            self._instruments.transfers.labels(event).inc()
        for reason, message in decision.events:
            self._instruments.rollouts.labels(reason.value).inc()
            kind = WARNING if reason in FAILURES else NORMAL
            self._record(controller, kind, reason, message)
        return replace(written, spec=decision.controller.spec)

    async def write(
        self,
        outcome: status_conditions.ReconcileOutcome,
        outbox: Sequence[OutboxEntry],
        pending: Sequence[PendingDeletion],
        audited: str,
    ) -> bool:
        """Write the status if it changed; False if the controller has changed since.

        With it go the entries whose records are not written yet, the deletions whose outcome is not certain, and the
        fingerprint of the members that are recorded.
        """
        controller = outcome.controller
        wanted = replace(
            status_conditions.status_of(outcome, self._clock.now()),
            outbox=tuple(outbox),
            pending_deletions=tuple(pending),
            audited=audited,
        )
        if wanted == controller.status:
            return True
        try:
            await self.patch(controller, _changes(controller, wanted))
        except NotFound:
            return True
        except Conflict:
            return False
        self._count_skips(controller, wanted.conditions)
        self._report_shortage(controller, wanted.conditions)
        return True

    async def patch(
        self, controller: ReplicationController, status: Document
    ) -> ReplicationController:
        """Merge fields into the status, unless the controller has changed since it was observed."""
        written = await self._client.patch_as_read(
            REPLICATIONCONTROLLER, controller, {"status": status}, subresource="status"
        )
        self._written.wrote(written)
        return written

    def _record(
        self, controller: ReplicationController, kind: str, reason: Reason, message: str
    ) -> None:
        self._recorder.event(controller, kind, reason, message, kind=REPLICATIONCONTROLLER)

    def _count_skips(self, controller: ReplicationController, now: Sequence[Condition]) -> None:
        for reason in status_conditions.skips(controller.status.conditions, now):
            self._instruments.skips.labels(reason).inc()

    def _report_shortage(self, controller: ReplicationController, now: Sequence[Condition]) -> None:
        before = conditions.find(controller.status.conditions, "InsufficientNodes")
        short = conditions.find(now, "InsufficientNodes")
        if short is None or short.status != "True":
            return
        # The message up to the colon: the number of nodes for each obstacle changes all the time.
        count = short.message.partition(":")[0]
        if before is None or (before.status, before.message.partition(":")[0]) != ("True", count):
            self._record(controller, WARNING, Reason.INSUFFICIENT_NODES, short.message)


def _changes(controller: ReplicationController, status: ReplicationControllerStatus) -> Document:
    """The fields of the status to merge."""
    known, changed = controller.status, Document()
    if status.outbox != known.outbox:
        changed["outbox"] = msgspec.to_builtins(status.outbox)
    if status.audited != known.audited:
        changed["audited"] = status.audited
    if status.pending_deletions != known.pending_deletions:
        changed["pendingDeletions"] = msgspec.to_builtins(status.pending_deletions)
    return {
        **changed,
        "observedGeneration": status.observed_generation,
        "replicas": status.replicas,
        "selector": status.selector,
        "readyReplicas": status.ready_replicas,
        "updatedReplicas": status.updated_replicas,
        "availableReplicas": status.available_replicas,
        "conditions": msgspec.to_builtins(status.conditions),
    }


def _rollout_of(status: ReplicationControllerStatus) -> Document:
    """The rollout and its history, as a merge patch writes them."""
    state = status.rollout
    if state is None:
        return {}
    return {
        "rollout": all_fields(state),
        "history": msgspec.to_builtins(status.history),
    }
