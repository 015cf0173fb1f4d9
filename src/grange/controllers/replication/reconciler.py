"""One reconcile of one controller: observe → constrain → plan → apply → report.

What is about to be done is stored before it is done, so a reconcile may end at any await: the next owner
continues from what is stored and from the pods that exist.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec
from msgspec import structs

from grange.api.kinds import POD, REPLICATIONCONTROLLER, pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import OutboxEntry, PendingDeletion
from grange.api.meta import ObjectKey
from grange.api.status import NotFound
from grange.base.errors import GrangeError
from grange.controllers.replication import (
    budget,
    evictions,
    live_check,
    logic,
    node_eligibility,
    node_transfer,
    outbox,
    pending_operations,
    pod_control,
    rollout,
    status_conditions,
)
from grange.controllers.replication.constraints import constrain
from grange.controllers.replication.controller_status import ControllerStatusWriter
from grange.controllers.replication.inputs import Inputs, InvalidController, sort_by_owner
from grange.controllers.replication.listers import Listers
from grange.controllers.replication.node_transfer_service import TransferResult
from grange.controllers.replication.observer import Observer
from grange.controllers.replication.plan import Plan
from grange.controllers.replication.pod_control import PodControl, StaleCache, is_quiet
from grange.controllers.replication.state import State
from grange.controllers.shared import audit_records
from grange.controllers.shared.event_reasons import FAILURES
from grange.controllers.shared.rollout_metrics import instruments
from grange.reconcile import finalizers, unanswered
from grange.reconcile.controller import Done, Requeue, Result
from grange.reconcile.deps import Deps
from grange.reconcile.farm.errors import DeletionsHeld
from grange.reconcile.recorder import NORMAL, WARNING, Recorder

_WRITTEN = {"": POD}  # what expectations are about
FINALIZER = "grange.dev/replication-audit"
"""Keeps a controller that has announced changes until their records are written."""

_AGAIN_S = 1.0  # after losing a race whose winner's news is on its way


@dataclass(frozen=True, slots=True)
class _Work:
    """One reconcile, from its plan to its report.

    Attributes:
        stored: the controller as it was observed.
        inputs: what the plan was made from; its controller has the rollout's decision.
        transfers: what became of node transfers.
        decision: what the rollout of the template comes to.
        planned: what should be done.
        permitted: what of it may be done now.
        plan: what of that is not recorded yet.
        audited: what the audit records say.
        failure: the first error.
        nodes_error: why it is not known which nodes are eligible.
        unwritten: entries whose records are not written yet.
    """

    stored: ReplicationController
    inputs: Inputs
    transfers: TransferResult
    decision: rollout.RolloutDecision
    planned: Plan
    permitted: Plan
    plan: Plan
    audited: outbox.Recorded
    failure: Exception | None = None
    nodes_error: GrangeError | None = None
    unwritten: tuple[OutboxEntry, ...] = ()


class Reconciler:
    """Reconciles any number of controllers concurrently.

    Args:
        deps: client, clock, log, metrics.
        listers: controllers, pods and nodes.
        state: what earlier reconciles left.
        scheduler: names eligible nodes.
        recorder: records events for users.
        burst: the most pods that are created, and deleted, in one reconcile.
    """

    def __init__(
        self,
        deps: Deps,
        listers: Listers,
        state: State,
        *,
        scheduler: node_eligibility.NodeScheduler,
        recorder: Recorder,
        burst: int,
    ) -> None:
        self._client = deps.client
        self._clock = deps.clock
        self._log = deps.log
        self._listers = listers
        self._state = state
        self._scheduler = scheduler
        self._recorder = recorder
        self._burst = burst
        self._instruments = instruments(deps.metrics)
        self._writes = PodControl(
            deps.client,
            state.expectations,
            recorder,
            clock=deps.clock,
            zoned=listers.every_node_has_zone,
        )
        box = outbox.Outbox(deps.client, clock=deps.clock)
        self._audit = outbox.AuditTrail(box, recorder, state.unrecorded)
        self._status = ControllerStatusWriter(
            deps.client,
            state.written,
            recorder,
            clock=deps.clock,
            skips=self._instruments.skips,
        )
        self._observer = Observer(listers, state, scheduler, clock=deps.clock)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring one controller's pods and status a step closer to its spec.

        Raises:
            Terminal: the spec cannot be acted on.
            GrangeError: a write failed; to be tried again.
        """
        controller = self._listers.controllers.store.get(key)
        if controller is None:
            return Done()
        if controller.metadata.deletion_timestamp and finalizers.has(controller, FINALIZER):
            return await self._finalize(controller)
        try:
            return await self._reconcile(controller)
        except InvalidController as error:
            await self._status.refuse(controller, error)

    async def _reconcile(self, controller: ReplicationController) -> Result:
        """Observe, constrain, plan, apply, and report."""
        if (wait_s := await self._unsettled_s(controller)) > 0:
            return Requeue(wait_s)
        changed = await pod_control.revoke_deletions(self._client, controller)
        claim = sort_by_owner(controller, self._observer.candidates(controller, changed))
        followed = await self._follow_orders(controller)
        if followed.changed:
            return Requeue(_AGAIN_S)  # the events of the change come sooner
        adopted: list[Pod] = []
        failure: Exception | None = None
        if not controller.spec.paused:
            adopted, failure = await self._writes.claim(controller, claim)
        owned = [*claim.owned, *adopted]
        inputs, held_s, nodes_error = await self._observer.observe(controller, owned)
        audited = await self._audit.catch_up(inputs)
        transfers, decision = await self._judge(inputs, known=nodes_error is None)
        inputs, constraints = constrain(
            inputs, transfers, decision, limit=self._burst, now=self._clock.now()
        )
        planned = logic.plan(inputs, constraints)
        if planned.create and await self._overlooks(inputs):
            if failure is None:
                return Requeue(_AGAIN_S)  # the events of these pods come sooner
            planned = replace(planned, create=())
            failure = live_check.not_adopted(claim.adopt, adopted, failure)
        permissions = await self._permissions(inputs, planned)
        permitted = logic.permitted(planned, inputs, permissions)
        applied = await self._apply(
            _Work(
                stored=controller,
                inputs=inputs,
                transfers=transfers,
                decision=decision,
                planned=planned,
                permitted=permitted,
                plan=logic.unrecorded(permitted, audited.live),
                audited=audited,
                failure=failure,
                nodes_error=nodes_error,
            )
        )
        return await self._report(applied, followed, held_s)

    async def _unsettled_s(self, controller: ReplicationController) -> float:
        """Seconds to wait for the events of earlier writes; zero if none are missing."""
        wait_s = await unanswered.wait_s(
            self._client, self._state.expectations, controller, _WRITTEN
        )
        return wait_s if wait_s > 0 else self._state.written.remaining_s(controller)

    async def _apply(self, work: _Work) -> _Work:
        """Store what is about to be done, do it, and record it in the audit."""
        inputs, stored, plan = work.inputs, work.stored, work.plan
        self._state.wait_for_budget(stored, waits=bool(plan.budget))
        entries = outbox.entries(stored, plan, work.transfers, work.decision, self._clock.now())
        controller = await self._intend(
            stored, work.transfers, entries, work.decision, work.audited, plan
        )
        inputs = replace(inputs, controller=controller)
        failure = await self._writes.carry_out(controller, plan) or work.failure
        work = replace(work, inputs=inputs, failure=failure, unwritten=tuple(entries))
        if failure is not None and not isinstance(failure, StaleCache):
            return work
        recorded = await self._audit.record(controller, entries, work.audited, inputs)
        return replace(work, audited=recorded, unwritten=())

    async def _report(
        self, work: _Work, followed: pending_operations.Followed, held_s: float | None
    ) -> Result:
        """Write the status; say when to look again."""
        inputs, transfers, controller = work.inputs, work.transfers, work.inputs.controller
        failure = work.failure or work.nodes_error
        outcome = status_conditions.observe(
            inputs,
            work.permitted,
            now=self._clock.now(),
            moves=transfers,
            readiness=self._state.readiness,
            failure=str(failure) if failure is not None and not is_quiet(failure) else "",
            cause=_cause(failure, work.nodes_error),
        )
        outcome = replace(
            outcome,
            lacking=work.audited.lacking,
            unreadable=followed.unreadable,
            pending=self._uncertain(controller, work.plan),
            shortage=self._observer.shortage(inputs, work.permitted),
        )
        written = await self._status.write(outcome, work.unwritten, work.audited.members)
        if failure is not None and not is_quiet(failure):
            raise failure
        due = (
            held_s,
            outcome.next_available_s,
            transfers.wait_s,
            work.decision.deadline_s,
            followed.wait_s,
            work.plan.room_s,
        )
        waits = [wait for wait in due if wait is not None]
        noted = pending_operations.has_received(work.stored)
        if failure is not None or not written or work.plan != work.planned or noted:
            waits.append(_AGAIN_S)
        if work.audited.lacking:
            waits.append(self._state.unrecorded.left_s(controller.metadata.uid))
        if transfers.after != transfers.stored or transfers.released:
            waits.append(0.0)  # what is stored now can be acted on
        return Requeue(min(waits)) if waits else Done()

    def _uncertain(
        self, controller: ReplicationController, plan: Plan
    ) -> tuple[PendingDeletion, ...]:
        """The deletions of a plan that was carried out to which no answer came."""
        doubtful = self._state.expectations.doubtful(controller.metadata.uid)
        return pod_control.uncertain_deletions(plan, {one.uid for one in doubtful})

    async def _finalize(self, controller: ReplicationController) -> Result:
        """Record what is announced of one that is being deleted, and let it go."""
        if (wait_s := self._state.written.remaining_s(controller)) > 0:
            return Requeue(wait_s)
        with suppress(NotFound):
            if controller.status.outbox or audit_records.missing_of(controller.status.conditions):
                owned = sort_by_owner(controller, self._listers.candidates(controller)).owned
                recorded = await self._audit.record_last(controller, owned)
                last = {"outbox": [], "audited": recorded}
                patch = {**status_conditions.fence_of(controller), "status": last}
                controller = await self._status.patch(controller, patch)
            released = await finalizers.remove(
                self._client, REPLICATIONCONTROLLER, controller, FINALIZER
            )
            self._state.written.wrote(released)
        return Done()

    async def _overlooks(self, inputs: Inputs) -> bool:
        """Whether pods that a pass takes for somebody else's are the controller's own."""
        controller, owned = inputs.controller, inputs.owned
        if not self._listers.has_namesakes(controller, besides=owned):
            return False
        return await live_check.unseen(self._client, controller, owned)

    async def _follow_orders(
        self, controller: ReplicationController
    ) -> pending_operations.Followed:
        followed = await pending_operations.follow(controller, client=self._client, log=self._log)
        if followed.written is not None:
            self._state.written.wrote(followed.written)
        return followed

    async def _judge(
        self, inputs: Inputs, *, known: bool
    ) -> tuple[TransferResult, rollout.RolloutDecision]:
        """How transfers and the rollout go on; both stay where they are while nodes are not known."""
        if not known:
            controller = inputs.controller
            stored = list(controller.status.node_transfers)
            moves = TransferResult(
                stored=stored,
                after=stored,
                backoffs=controller.status.transfer_backoffs,
                known=False,
            )
            return moves, rollout.RolloutDecision(controller, None, budget.limits(controller))
        moves = await self._state.transfers.advance(inputs, self._scheduler)
        inputs = pending_operations.without_marked(inputs.without(moves.released))
        return moves, self._decide(node_transfer.hidden(inputs, moves.after))

    async def _permissions(self, inputs: Inputs, plan: Plan) -> logic.Permissions:
        """What the server and the disruption budgets allow of a plan."""
        if not await live_check.confirm(self._client, inputs, plan, self._state.readiness):
            return logic.Permissions(available_may_go=False)
        available = inputs.available or frozenset()
        going = [item.pod for item in plan.delete if item.pod.metadata.uid in available]
        namespace = inputs.controller.metadata.namespace
        return logic.Permissions(allowances=evictions.allowances(self._listers, namespace, going))

    def _decide(self, inputs: Inputs) -> rollout.RolloutDecision:
        """What the rollout of the template comes to, on the pods that count."""
        return rollout.decide(
            rollout.RolloutInputs(
                inputs.controller,
                [pod for pod in inputs.owned if pods.is_active(pod)],
                inputs.available or frozenset(),
                inputs.eligible,
                inputs.down,
                self._clock.now(),
            )
        )

    async def _intend(
        self,
        controller: ReplicationController,
        moves: TransferResult,
        entries: Sequence[OutboxEntry],
        decision: rollout.RolloutDecision,
        audited: outbox.Recorded,
        plan: Plan,
    ) -> ReplicationController:
        """Store what is about to be done, unless the controller changed meanwhile.

        Returns:
            The controller with the template that pods are made from.

        Raises:
            Conflict: it did; the pass was about a controller that is not there any more.
        """
        now_stored = controller.status
        transfers = tuple(moves.after)
        moved = (transfers, moves.backoffs) != (
            now_stored.node_transfers,
            now_stored.transfer_backoffs,
        )
        spread = status_conditions.rollout_of(decision.controller.status)
        if spread == status_conditions.rollout_of(now_stored):
            spread = {}
        deletions = pod_control.deletions_of(plan)
        if deletions == now_stored.pending_deletions and not (
            spread or entries or now_stored.outbox or moved
        ):
            return decision.controller
        meta = controller.metadata
        if entries and not meta.deletion_timestamp and not finalizers.has(controller, FINALIZER):
            controller = await finalizers.add(
                self._client, REPLICATIONCONTROLLER, controller, FINALIZER
            )
            self._state.written.wrote(controller)
        intent = {
            "nodeTransfers": msgspec.to_builtins(transfers),
            "transferBackoffs": msgspec.to_builtins(moves.backoffs),
            "outbox": msgspec.to_builtins(entries),
            "pendingDeletions": msgspec.to_builtins(deletions),
            **spread,
            "audited": audited.members,
        }
        if audited.refused:
            # In the write that gives the entries up: a crash must not make them vanish silently.
            said = audit_records.with_condition(
                controller, now_stored.conditions, audited.lacking, self._clock.now()
            )
            intent["conditions"] = msgspec.to_builtins(said)
        written = await self._status.patch(
            controller, {**status_conditions.fence_of(controller), "status": intent}
        )
        if spread:
            self._instruments.steps.inc()
        for event, _ in moves.records:
            self._instruments.transfers.labels(event).inc()
        for reason, message in decision.news:
            self._instruments.rollouts.labels(reason.value).inc()
            kind = WARNING if reason in FAILURES else NORMAL
            self._recorder.event(controller, kind, reason, message, kind=REPLICATIONCONTROLLER)
        return structs.replace(written, spec=decision.controller.spec)


def _cause(failure: Exception | None, trouble: GrangeError | None) -> str:
    """What the condition names as the reason of a failure."""
    if isinstance(failure, DeletionsHeld):
        return "DeletionsHeld"
    return "NodesUnknown" if failure is not None and failure is trouble else "WriteFailed"
