"""One pass over one controller: read the listers, decide with ``logic``, carry it out with ``writes``.

What is about to be done is stored before it is done, so a pass may end at any await: whoever is next
goes on from what is stored and from what there is.
"""

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

import msgspec
from msgspec import structs

from grange.api import conditions
from grange.api.kinds import POD, REPLICATIONCONTROLLER, pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import OutboxEntry, PendingDeletion, drained_nodes
from grange.api.meta import Condition, Document, ObjectKey
from grange.api.selectors import SelectorError
from grange.api.status import ApiError, Conflict, NotFound
from grange.base.errors import GrangeError
from grange.controllers.replication import (
    adoption_check,
    budget,
    evictions,
    live_check,
    logic,
    node_eligibility,
    node_transfer,
    outbox,
    pending_deletions,
    pending_operations,
    rollout,
    status_conditions,
)
from grange.controllers.replication.constraints import constrain
from grange.controllers.replication.full_nodes import FullNodes
from grange.controllers.replication.inputs import Inputs, InvalidController, sort_by_owner
from grange.controllers.replication.listers import Listers
from grange.controllers.replication.node_transfer_service import TransferResult
from grange.controllers.replication.plan import Plan
from grange.controllers.replication.pod_control import PodControl, StaleCache, is_quiet
from grange.controllers.replication.state import State
from grange.controllers.shared import audit_failures, audit_records, availability, pod_identity
from grange.controllers.shared.event_reasons import FAILURES, Reason
from grange.controllers.shared.rollout_metrics import instruments
from grange.reconcile import finalizers, unanswered
from grange.reconcile.controller import Done, Requeue, Result, Terminal
from grange.reconcile.deps import Deps
from grange.reconcile.farm.errors import DeletionsHeld
from grange.reconcile.recorder import NORMAL, WARNING, Recorder

_WRITTEN = {"": POD}  # what expectations are about
FINALIZER = "grange.dev/replication-audit"
"""Keeps a controller that has announced changes until their records are written."""

_AGAIN_S = 1.0  # after losing a race whose winner's news is on its way


class Reconciler:
    """Makes passes, for any number of controllers side by side.

    Args:
        deps: client, clock, log, metrics.
        listers: the world as it was told.
        memory: what earlier passes left.
        scheduler: names eligible nodes.
        recorder: tells users.
        burst: so many pods at most are created, and deleted, in one pass.
    """

    def __init__(
        self,
        deps: Deps,
        listers: Listers,
        state: State,
        *,
        scheduler: node_eligibility.Scheduler,
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
        self._journal = outbox.Outbox(deps.client, clock=deps.clock)

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
            return await self._pass(controller)
        except InvalidController as error:
            await self._refuse(controller, error)

    async def _pass(self, controller: ReplicationController) -> Result:
        waiting = unanswered.wait_s(self._client, self._state.expectations, controller, _WRITTEN)
        if (wait_s := await waiting) > 0:
            return Requeue(wait_s)
        if (wait_s := self._state.written.remaining_s(controller)) > 0:
            return Requeue(wait_s)
        kept = await pending_deletions.revoke(self._client, controller)
        claim = sort_by_owner(controller, self._candidates(controller, kept))
        noted = pending_operations.has_received(controller)
        followed = await self._follow_orders(controller)
        if followed.changed:
            return Requeue(_AGAIN_S)  # their news comes sooner
        adopted: list[Pod] = []
        failure: Exception | None = None
        if not controller.spec.paused:
            adopted, failure = await self._writes.claim(controller, claim)
        inputs, held_s, trouble = await self._observe(controller, [*claim.owned, *adopted])
        audited = await self._audited(inputs)
        moves, decision = await self._judge(inputs, known=trouble is None)
        inputs, constraints = constrain(
            inputs, moves, decision, limit=self._burst, now=self._clock.now()
        )
        plan = logic.plan(inputs, constraints)
        if plan.create and await self._overlooks(inputs):
            if failure is None:
                return Requeue(_AGAIN_S)  # their news comes sooner
            plan = replace(plan, create=())
            failure = adoption_check.not_adopted(claim.adopt, adopted, failure)
        wanted, plan = plan, logic.permitted(plan, inputs, await self._permissions(inputs, plan))
        self._state.wait_for_budget(controller, waits=bool(plan.budget))
        expected = plan
        plan = logic.unrecorded(plan, audited.live)
        entries = outbox.entries(controller, plan, moves, decision, self._clock.now())
        controller = await self._intend(controller, moves, entries, decision, audited, plan)
        inputs = replace(inputs, controller=controller)
        failure = await self._writes.carry_out(controller, plan) or failure
        left: Sequence[OutboxEntry] = entries
        recorded = audited
        if failure is None or isinstance(failure, StaleCache):
            recorded = await self._published(controller, entries, audited, inputs)
            left = ()
        failure = failure or trouble
        outcome = status_conditions.observe(
            inputs,
            expected,
            now=self._clock.now(),
            moves=moves,
            readiness=self._state.readiness,
            failure=str(failure) if failure is not None and not is_quiet(failure) else "",
            cause=_cause(failure, trouble),
        )
        outcome = replace(
            outcome,
            lacking=recorded.lacking,
            unreadable=followed.unreadable,
            pending=self._uncertain(controller, plan),
            shortage=self._shortage(inputs, expected),
        )
        written = await self._write_status(outcome, left, recorded.members)
        if failure is not None and not is_quiet(failure):
            raise failure
        due = (held_s, outcome.next_available_s, moves.wait_s, decision.deadline_s, followed.wait_s)
        waits = [wait for wait in (*due, plan.room_s) if wait is not None]
        if failure is not None or not written or plan != wanted or noted:
            waits.append(_AGAIN_S)
        if recorded.lacking:
            waits.append(self._state.unrecorded.left_s(controller.metadata.uid))
        if moves.after != moves.stored or moves.released:
            waits.append(0.0)  # what is stored now can be acted on
        return Requeue(min(waits)) if waits else Done()

    def _shortage(self, inputs: Inputs, plan: Plan) -> str:
        if not plan.short:
            return ""
        eligible, _ = self._state.eligible[inputs.controller.metadata.uid]
        return node_eligibility.shortage_reasons(
            inputs.controller,
            self._listers.nodes.store,
            occupied={pod_identity.node_of(pod) for pod in inputs.owned},
            eligible=frozenset(eligible),
        )

    def _candidates(self, controller: ReplicationController, newer: Mapping[str, Pod]) -> list[Pod]:
        """Its pods and orphans that it might adopt, some of them newer than in the cache."""
        found = self._listers.candidates(controller)
        return [newer.get(pod.metadata.uid, pod) for pod in found] if newer else found

    def _uncertain(
        self, controller: ReplicationController, plan: Plan
    ) -> tuple[PendingDeletion, ...]:
        """The deletions of a plan that was carried out to which no answer came."""
        doubtful = self._state.expectations.doubtful(controller.metadata.uid)
        return pending_deletions.uncertain(plan, {one.uid for one in doubtful})

    async def _finalize(self, controller: ReplicationController) -> Result:
        """Record what is announced of one that is being deleted, and let it go."""
        if (wait_s := self._state.written.remaining_s(controller)) > 0:
            return Requeue(wait_s)
        with suppress(NotFound):
            if controller.status.outbox or audit_failures.lacking(controller.status.conditions):
                recorded = await self._last_records(controller)
                last = {"outbox": [], "audited": recorded}
                patch = {**status_conditions.fence_of(controller), "status": last}
                controller = await self._patch_status(controller, patch)
            released = await finalizers.remove(
                self._client, REPLICATIONCONTROLLER, controller, FINALIZER
            )
            self._state.written.wrote(released)
        return Done()

    async def _last_records(self, controller: ReplicationController) -> str:
        """Write them, but those that are refused for good; the members that are recorded then."""
        owned = sort_by_owner(controller, self._listers.candidates(controller)).owned
        missing = audit_failures.lacking(controller.status.conditions)
        try:
            recorded = await self._journal.settle(controller, owned, lacking=missing)
        except ApiError as error:
            self._report_audit_failure(controller, f"Error writing audit records: {error.message}")
            raise
        for refusal in recorded.refused:
            self._report_audit_failure(controller, audit_failures.told(refusal))
        return recorded.members

    async def _overlooks(self, inputs: Inputs) -> bool:
        """Whether pods that a pass takes for somebody else's are the controller's own."""
        controller, owned = inputs.controller, inputs.owned
        if not self._listers.has_namesakes(controller, besides=owned):
            return False
        return await adoption_check.unseen(self._client, controller, owned)

    async def _follow_orders(
        self, controller: ReplicationController
    ) -> pending_operations.Followed:
        followed = await pending_operations.follow(controller, client=self._client, log=self._log)
        if followed.written is not None:
            self._state.written.wrote(followed.written)
        return followed

    async def _audited(self, inputs: Inputs) -> outbox.Recorded:
        """The members that are recorded, once everything up to now is that the server takes."""
        controller, owned = inputs.controller, inputs.owned
        found = audit_records.fingerprint(audit_records.members(owned))
        missing = audit_failures.lacking(controller.status.conditions)
        due = bool(missing) and not self._state.unrecorded.left_s(controller.metadata.uid)
        if not (controller.status.outbox or due) and found == controller.status.audited:
            return outbox.Recorded(found, lacking=missing)
        recorded = await self._journal.settle(controller, owned, lacking=missing if due else "")
        return self._given_up(controller, recorded, missing, told_of=due)

    async def _published(
        self,
        controller: ReplicationController,
        entries: Sequence[OutboxEntry],
        before: outbox.Recorded,
        inputs: Inputs,
    ) -> outbox.Recorded:
        """The members that are recorded, once what this pass did is."""
        if not entries:
            return before
        recorded = await self._journal.publish(controller, entries, before.pods(inputs))
        return self._given_up(controller, recorded, before.lacking)

    def _given_up(
        self,
        controller: ReplicationController,
        recorded: outbox.Recorded,
        missing: str,
        *,
        told_of: bool = False,
    ) -> outbox.Recorded:
        """Tell of what is refused for good; what the audit lacks then."""
        uid = controller.metadata.uid
        for refusal in recorded.refused:
            self._report_audit_failure(controller, audit_failures.told(refusal))
            self._state.unrecorded.refused(uid)
        missing = audit_failures.after(missing, recorded.refused, told_of=told_of)
        if not missing:
            self._state.unrecorded.forget(uid)
        return replace(recorded, lacking=missing)

    def _report_audit_failure(self, controller: ReplicationController, message: str) -> None:
        self._recorder.event(
            controller, WARNING, Reason.AUDIT_FAILED, message, kind=REPLICATIONCONTROLLER
        )

    async def _judge(
        self, inputs: Inputs, *, known: bool
    ) -> tuple[TransferResult, rollout.Decision]:
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
            return moves, rollout.Decision(controller, None, budget.limits(controller))
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

    def _decide(self, inputs: Inputs) -> rollout.Decision:
        """What the rollout of the template comes to, on the pods that count."""
        return rollout.decide(
            rollout.Facts(
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
        decision: rollout.Decision,
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
        deletions = pending_deletions.of(plan)
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
            said = audit_failures.said_of(
                controller, now_stored.conditions, audited.lacking, self._clock.now()
            )
            intent["conditions"] = msgspec.to_builtins(said)
        written = await self._patch_status(
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

    async def _patch_status(
        self, controller: ReplicationController, patch: Document
    ) -> ReplicationController:
        meta = controller.metadata
        written = await self._client.patch(
            REPLICATIONCONTROLLER, meta.name, meta.namespace, patch=patch, subresource="status"
        )
        self._state.written.wrote(written)
        return written

    async def _observe(
        self, controller: ReplicationController, owned: list[Pod]
    ) -> tuple[Inputs, float | None, GrangeError | None]:
        """What the plan depends on, seconds until the next held place is due, and why nodes are unknown."""
        uid = controller.metadata.uid
        trouble: GrangeError | None = None
        try:
            eligible, earlier = await node_eligibility.eligible_places(self._scheduler, controller)
        except (SelectorError, msgspec.ValidationError) as error:
            raise InvalidController(str(error)) from error
        except GrangeError as error:
            trouble = error  # what needs no further node goes on
            eligible, earlier = sorted({pod_identity.node_of(pod) for pod in owned} - {""}), None
        self._state.eligible[uid] = (eligible, earlier)
        finished = [
            pod for pod in owned if pods.is_finished(pod) and not pod.metadata.deletion_timestamp
        ]
        held, due_s = self._state.replacements.held(uid, finished, self._clock.monotonic())
        bound = {pod.spec.node_name for pod in owned if pod.spec.node_name}
        down = frozenset(name for name in bound if not self._listers.is_up(name))
        active = [pod for pod in owned if pods.is_active(pod)]
        seen = availability.observe(
            controller, active, down, self._clock.now(), self._state.readiness
        )
        inputs = Inputs(
            controller,
            owned,
            eligible,
            down=down,
            taken=self._listers.taken(controller.metadata.namespace, besides=owned),
            held=held,
            available=seen.available,
            template=pod_identity.template_hash(pod_identity.sources(controller)[0]),
            earlier=earlier,
            full=self._full(controller),
        )
        return inputs.without(drained_nodes(controller)), due_s, trouble

    def _full(self, controller: ReplicationController) -> Container[str]:
        """The nodes without room, where the controller has to choose one for a pod itself."""
        if controller.spec.placement == "Packed":
            return frozenset()
        present, _ = pod_identity.sources(controller)
        spec = msgspec.convert(present.spec.template.get("spec") or {}, pods.PodSpec)
        return FullNodes(self._listers, spec)

    async def _refuse(self, controller: ReplicationController, error: Exception) -> NoReturn:
        self._recorder.event(
            controller, WARNING, Reason.INVALID, str(error), kind=REPLICATIONCONTROLLER
        )
        wanted = status_conditions.refused(controller, str(error), self._clock.now())
        with suppress(Conflict, NotFound):  # it changed meanwhile: there is another pass
            if wanted != controller.status:
                await self._patch_status(controller, status_conditions.patch_of(controller, wanted))
                self._count_skips(controller, wanted.conditions)
        raise Terminal(f"{controller.key}: {error}") from error

    async def _write_status(
        self, outcome: status_conditions.Outcome, outbox: Sequence[OutboxEntry], audited: str
    ) -> bool:
        """Write the status if it changed; False if the controller changed meanwhile."""
        controller = outcome.controller
        wanted = msgspec.structs.replace(
            status_conditions.status_of(outcome, self._clock.now()),
            outbox=tuple(outbox),
            pending_deletions=outcome.pending,
            audited=audited,
        )
        if wanted == controller.status:
            return True
        try:
            await self._patch_status(controller, status_conditions.patch_of(controller, wanted))
        except NotFound:
            return True
        except Conflict:
            return False
        self._count_skips(controller, wanted.conditions)
        self._report_shortage(controller, wanted.conditions)
        return True

    def _count_skips(self, controller: ReplicationController, said: Sequence[Condition]) -> None:
        for reason in status_conditions.skips(controller.status.conditions, said):
            self._instruments.skips.labels(reason).inc()

    def _report_shortage(
        self, controller: ReplicationController, now_said: Sequence[Condition]
    ) -> None:
        said = conditions.find(controller.status.conditions, "InsufficientNodes")
        short = conditions.find(now_said, "InsufficientNodes")
        if short is None or short.status != "True":
            return
        # How many nodes there are for each reason changes all the time.
        before = said.message.partition(":")[0] if said is not None else ""
        news = short.message.partition(":")[0] != before
        if said is None or news or said.status != "True":
            self._recorder.event(
                controller,
                WARNING,
                Reason.INSUFFICIENT_NODES,
                short.message,
                kind=REPLICATIONCONTROLLER,
            )


def _cause(failure: Exception | None, trouble: GrangeError | None) -> str:
    """What the condition names as the reason of a failure."""
    if isinstance(failure, DeletionsHeld):
        return "DeletionsHeld"
    return "NodesUnknown" if failure is not None and failure is trouble else "WriteFailed"
