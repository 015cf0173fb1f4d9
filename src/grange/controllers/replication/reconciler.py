"""One reconcile of one controller: observe → constrain → plan → apply → report.

What is about to be done is stored before it is done, so a reconcile may end at any await: the next owner
continues from what is stored and from the pods that exist.
"""

from contextlib import suppress
from dataclasses import dataclass, replace

from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import OutboxEntry
from grange.api.meta import ObjectKey
from grange.api.status import NotFound
from grange.controllers.replication import (
    audit_trail,
    deletion_budgets,
    live_check,
    logic,
    node_eligibility,
    node_transfer,
    pending_operations,
    pod_control,
    rollout,
    status_conditions,
)
from grange.controllers.replication.controller_status import FINALIZER, ControllerStatusWriter
from grange.controllers.replication.inputs import Inputs, InvalidController, sort_by_owner
from grange.controllers.replication.lease_tolerations import LeaseTolerations
from grange.controllers.replication.listers import Listers
from grange.controllers.replication.logic import constrain
from grange.controllers.replication.node_transfer_service import TransferResult, Transfers
from grange.controllers.replication.observer import ObservedController, Observer
from grange.controllers.replication.pending_operations import FollowedOperations
from grange.controllers.replication.plan import Plan
from grange.controllers.replication.pod_control import PodControl, StaleCache, is_quiet
from grange.controllers.replication.state import ReplicationState
from grange.controllers.shared import audit_records
from grange.controllers.shared.rollout_metrics import instruments
from grange.reconcile import finalizers, unanswered
from grange.reconcile.controller import Done, Requeue, Result
from grange.reconcile.deps import Deps
from grange.reconcile.farm.errors import DeletionsHeld
from grange.reconcile.recorder import Recorder

_WRITTEN = {"": POD}  # the kind that expectations are about
_AGAIN_S = 1.0  # after a conflict, until the listers show the other write


@dataclass(frozen=True, slots=True)
class _Work:
    """One reconcile, from its plan to its report.

    Attributes:
        stored: the controller as it was observed.
        inputs: what the plan was made from; its controller has the rollout's decision.
        transfers: the result of node transfers.
        decision: of the rollout of the template.
        planned: what should be done.
        permitted: what of it may be done now.
        plan: what of that is not recorded yet.
        audited: what the audit records contain.
        failure: the first error.
        unwritten: entries whose records are not written yet.
    """

    stored: ReplicationController
    inputs: Inputs
    transfers: TransferResult
    decision: rollout.RolloutDecision
    planned: Plan
    permitted: Plan
    plan: Plan
    audited: audit_trail.Recorded
    failure: Exception | None = None
    unwritten: tuple[OutboxEntry, ...] = ()


class Reconciler:
    """Reconciles any number of controllers concurrently.

    Args:
        deps: client, clock, log, metrics.
        listers: controllers, pods and nodes.
        state: what earlier reconciles left.
        scheduler: names eligible nodes.
        leased: lets pods onto leased machines.
        recorder: records events for users.
        burst: the most pods that are created, and deleted, in one reconcile.
    """

    def __init__(
        self,
        deps: Deps,
        listers: Listers,
        state: ReplicationState,
        *,
        scheduler: node_eligibility.NodeScheduler,
        leased: LeaseTolerations,
        recorder: Recorder,
        burst: int,
    ) -> None:
        self._client = client = deps.client
        self._clock = clock = deps.clock
        self._log = deps.log
        self._listers = listers
        self._state = state
        self._burst = burst
        self._pods = PodControl(
            client,
            state.expectations,
            recorder,
            clock=clock,
            zoned=listers.every_node_has_zone,
            leased=leased,
        )
        self._audit = audit_trail.AuditTrail(client, recorder, state.audit_retries, clock=clock)
        self._status = ControllerStatusWriter(
            client, state.written, recorder, clock=clock, instruments=instruments(deps.metrics)
        )
        self._observer = Observer(listers, state, scheduler, clock=clock)
        self._transfers = Transfers(scheduler, clock=clock, log=deps.log)

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
        operations = await pending_operations.follow(controller, client=self._client, log=self._log)
        if operations.changed:
            if operations.written is not None:
                self._state.written.wrote(operations.written)
            return Requeue(_AGAIN_S)  # the events of the change come sooner
        adopted: list[Pod] = []
        failure: Exception | None = None
        if not controller.spec.paused:
            adopted, failure = await self._pods.claim(controller, claim)
        observed = await self._observer.observe(controller, [*claim.owned, *adopted])
        audited = await self._audit.catch_up(observed.inputs)
        transfers, decision = await self._advance(observed)
        inputs, constraints = constrain(observed.inputs, transfers, decision, limit=self._burst)
        planned = logic.plan(inputs, constraints)
        if planned.create and await self._overlooks(inputs):
            if failure is None:
                return Requeue(_AGAIN_S)  # the events of these pods come sooner
            planned = replace(planned, create=())
            failure = live_check.not_adopted(claim.adopt, adopted, failure)
        permitted = logic.permitted(planned, inputs, await self._permissions(inputs, planned))
        work = await self._apply(
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
            )
        )
        return await self._report(work, operations, observed)

    async def _unsettled_s(self, controller: ReplicationController) -> float:
        """Seconds to wait for the events of earlier writes; zero if none are missing."""
        wait_s = await unanswered.wait_s(
            self._client,
            self._state.expectations,
            controller,
            _WRITTEN,
            caches={"": self._listers.pods.store},
        )
        return wait_s if wait_s > 0 else self._state.written.remaining_s(controller)

    async def _advance(
        self, observed: ObservedController
    ) -> tuple[TransferResult, rollout.RolloutDecision]:
        """Advance transfers and the rollout; both stay as they are while nodes are unknown."""
        inputs = observed.inputs
        if observed.nodes_error is not None:
            controller = inputs.controller
            stored = list(controller.status.node_transfers)
            backoffs = controller.status.transfer_backoffs
            transfers = TransferResult(stored, [*stored], backoffs, known=False)
            limits = deletion_budgets.limits(controller)
            return transfers, rollout.RolloutDecision(controller, None, limits)
        transfers = await self._transfers.advance(inputs)
        inputs = pending_operations.without_marked(inputs.without(transfers.released))
        counted = node_transfer.hidden(inputs, transfers.after)
        return transfers, rollout.decide(counted, self._clock.now())

    async def _overlooks(self, inputs: Inputs) -> bool:
        """Whether pods that seem to belong to another owner are the controller's."""
        controller, owned = inputs.controller, inputs.owned
        if not self._listers.has_pods_of_name(controller, besides=owned):
            return False
        return await live_check.has_unseen(self._client, controller, owned)

    async def _permissions(self, inputs: Inputs, plan: Plan) -> logic.Permissions:
        """What the server and the disruption budgets allow of a plan."""
        if not await live_check.confirm(self._client, inputs, plan, self._state.readiness):
            return logic.Permissions(available_may_go=False)
        going = [item.pod for item in plan.delete if item.pod.metadata.uid in inputs.available]
        namespace = inputs.controller.metadata.namespace
        return logic.Permissions(
            allowances=deletion_budgets.allowances(self._listers, namespace, going)
        )

    async def _apply(self, work: _Work) -> _Work:
        """Store what is about to be done, do it, and record it in the audit."""
        stored, plan, transfers, decision = work.stored, work.plan, work.transfers, work.decision
        self._state.wait_for_budget(stored, waits=bool(plan.budget))
        entries = audit_trail.entries(stored, plan, transfers, decision, self._clock.now())
        controller = await self._status.announce(
            stored, plan, transfers, decision, entries, work.audited
        )
        failure = await self._pods.carry_out(controller, plan) or work.failure
        inputs = replace(work.inputs, controller=controller)
        work = replace(work, inputs=inputs, failure=failure, unwritten=tuple(entries))
        if failure is not None and not isinstance(failure, StaleCache):
            return work
        audited = await self._audit.record(controller, entries, work.audited, inputs)
        return replace(work, audited=audited, unwritten=())

    async def _report(
        self, work: _Work, operations: FollowedOperations, observed: ObservedController
    ) -> Result:
        """Write the status, and decide when to reconcile again."""
        inputs, transfers, audited = work.inputs, work.transfers, work.audited
        uid = inputs.controller.metadata.uid
        failure = work.failure or observed.nodes_error
        reported = failure is not None and not is_quiet(failure)
        health = status_conditions.health_of(inputs, self._clock.now(), self._state.readiness)
        outcome = status_conditions.ReconcileOutcome(
            inputs,
            work.permitted,
            health,
            failure=str(failure) if reported else "",
            cause=_cause(failure, observed),
            transfers=transfers,
            missing=audited.missing,
            malformed=operations.malformed,
            shortage=self._observer.shortage(inputs, work.permitted),
        )
        doubtful = {item.uid for item in self._state.expectations.doubtful(uid)}
        pending = pod_control.uncertain_deletions(work.plan, doubtful)
        written = await self._status.write(outcome, work.unwritten, pending, audited.members)
        if failure is not None and reported:
            raise failure
        due = (
            observed.held_s,
            health.next_available_s,
            transfers.wait_s,
            work.decision.deadline_s,
            operations.wait_s,
            work.plan.room_s,
        )
        waits = [wait for wait in due if wait is not None]
        noted = pending_operations.has_received(work.stored)
        if failure is not None or not written or work.plan != work.planned or noted:
            waits.append(_AGAIN_S)
        if audited.missing:
            waits.append(self._state.audit_retries.left_s(uid))
        if transfers.after != transfers.stored or transfers.released:
            waits.append(0.0)  # what is stored now can be acted on
        return Requeue(min(waits)) if waits else Done()

    async def _finalize(self, controller: ReplicationController) -> Result:
        """Write the records of a controller that is being deleted, and remove its finalizer."""
        if (wait_s := self._state.written.remaining_s(controller)) > 0:
            return Requeue(wait_s)
        status = controller.status
        with suppress(NotFound):
            if status.outbox or audit_records.missing_of(status.conditions):
                owned = sort_by_owner(controller, self._listers.candidates(controller)).owned
                members = await self._audit.record_last(controller, owned)
                controller = await self._status.patch(
                    controller, {"outbox": [], "audited": members}
                )
            released = await finalizers.remove(
                self._client, REPLICATIONCONTROLLER, controller, FINALIZER
            )
            self._state.written.wrote(released)
        return Done()


def _cause(failure: Exception | None, observed: ObservedController) -> str:
    """The reason that the condition gives for a failure."""
    if isinstance(failure, DeletionsHeld):
        return "DeletionsHeld"
    unknown = failure is not None and failure is observed.nodes_error
    return "NodesUnknown" if unknown else "WriteFailed"
