"""One reconcile of one controller: observe → constrain → plan → apply → report.

What is about to be done is stored before it is done, so a reconcile may end at any await: the next owner
continues from what is stored and from the pods that exist.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import msgspec

from grange.api import conditions
from grange.api.kinds import POD, REPLICATIONCONTROLLER, pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import OutboxEntry, drained_nodes
from grange.api.meta import ObjectKey
from grange.api.replication import RECEIVED_ANNOTATION, BadIntent, transfer_of
from grange.api.selectors import SelectorError
from grange.api.status import Conflict, NotFound
from grange.base.errors import GrangeError
from grange.client.transfers import complete_transfer, prune
from grange.controllers.replication import (
    audit_trail,
    deletion_budgets,
    logic,
    node_eligibility,
    pod_control,
    rollout,
)
from grange.controllers.replication.controller_status import FINALIZER, ControllerStatusWriter
from grange.controllers.replication.listers import Listers
from grange.controllers.replication.node_eligibility import FullNodes, NodeScheduler
from grange.controllers.replication.node_transfer_service import Transfers
from grange.controllers.replication.plan import Inputs, InvalidController, Plan
from grange.controllers.replication.pod_control import (
    PodControl,
    StaleCache,
    is_quiet,
    sort_by_owner,
)
from grange.controllers.replication.podtemplate import LeaseTolerations
from grange.controllers.replication.state import ReplicationState
from grange.controllers.replication.status_conditions import ReconcileOutcome
from grange.controllers.shared import audit_records, availability, pod_identity
from grange.controllers.shared.rollout_metrics import instruments
from grange.reconcile import finalizers, unanswered
from grange.reconcile.controller import Done, Requeue, Result
from grange.reconcile.deps import Deps
from grange.reconcile.recorder import Recorder

_WRITTEN = {"": POD}  # the kind that expectations are about
_AGAIN_S = 1.0  # after a conflict, until the listers show the other write
_ROOM_S = 15.0  # other controllers' pods take and free room, and cause no reconcile here
_MALFORMED_S = (
    5.0  # it may be an annotation of another controller, whose events do not wake this one
)


class Reconciler:
    """Reconciles any number of controllers concurrently."""

    def __init__(
        self,
        deps: Deps,
        listers: Listers,
        state: ReplicationState,
        *,
        scheduler: NodeScheduler,
        leased: LeaseTolerations,
        recorder: Recorder,
        burst: int,
    ) -> None:
        self._client = client = deps.client
        self._clock = clock = deps.clock
        self._log = deps.log
        self._scheduler = scheduler
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
        newer = await pod_control.revoke_deletions(self._client, controller)
        found = self._listers.candidates(controller)
        claim = sort_by_owner(controller, [newer.get(pod.metadata.uid, pod) for pod in found])
        written, malformed = await self._follow_operations(controller)
        if written:
            return Requeue(_AGAIN_S)  # the events of the change come sooner
        adopted: list[Pod] = []
        failure: Exception | None = None
        if not controller.spec.paused:
            adopted, failure = await self._pods.claim(controller, claim)

        inputs = await self._observe(controller, [*claim.owned, *adopted])
        audited = await self._audit.catch_up(inputs)

        transfers = await self._transfers.advance(inputs)
        decision = rollout.decide(logic.counted(inputs, transfers), self._clock.now())
        inputs = logic.constrain(inputs, transfers, decision)
        minimum = decision.limits.minimum
        planned = logic.plan(inputs, transfers, minimum=minimum, limit=self._burst)
        if planned.create and await self._overlooks(inputs):
            if failure is None:
                return Requeue(_AGAIN_S)  # the events of these pods come sooner
            planned = replace(planned, create=())
            failure = pod_control.not_adopted(claim.adopt, adopted, failure)
        permitted = await self._permitted(inputs, planned)
        plan = logic.unrecorded(permitted, audited.live)

        self._state.wait_for_budget(controller, waits=bool(plan.budget))
        entries = audit_trail.entries(controller, plan, transfers, decision, self._clock.now())
        stored = await self._status.announce(
            controller, plan, transfers, decision, entries, audited
        )
        failure = await self._pods.carry_out(stored, plan) or failure
        inputs = replace(inputs, controller=stored)
        if failure is None or isinstance(failure, StaleCache):
            audited = await self._audit.record(stored, entries, audited, inputs)
            entries = []

        failure = failure or inputs.nodes_error
        outcome = ReconcileOutcome(
            inputs,
            permitted,
            transfers,
            failure=None if failure is None or is_quiet(failure) else failure,
            missing=audited.missing,
            malformed=malformed,
            shortage=self._shortage(inputs, permitted),
        )
        reported = await self._report(outcome, plan, entries, audited.members)

        waits = [
            inputs.held_s,
            inputs.health.next_available_s,
            transfers.wait_s,
            decision.deadline_s,
            _ROOM_S if plan.stuck else None,
        ]
        if failure is not None or not reported or plan != planned or _has_received(controller):
            waits.append(_AGAIN_S)
        if malformed:
            waits.append(_MALFORMED_S)
        if audited.missing:
            waits.append(self._state.audit_retries.left_s(controller.metadata.uid))
        if transfers.after != transfers.stored or transfers.released:
            waits.append(0.0)  # what is stored now can be acted on
        due = [wait_s for wait_s in waits if wait_s is not None]
        return Requeue(min(due)) if due else Done()

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

    async def _observe(self, controller: ReplicationController, owned: list[Pod]) -> Inputs:
        """What the plan for a controller depends on.

        Raises:
            InvalidController: a template or selector cannot be parsed.
        """
        uid = controller.metadata.uid
        error: GrangeError | None = None
        try:
            nodes = await self._scheduler.eligible_nodes()
            eligible, earlier = node_eligibility.places(nodes, controller)
        except (SelectorError, msgspec.ValidationError) as invalid:
            raise InvalidController(str(invalid)) from invalid
        except GrangeError as unknown:
            error = unknown  # what needs no further node goes on
            eligible, earlier = sorted({pod_identity.node_of(pod) for pod in owned} - {""}), None
        self._state.eligible[uid] = (eligible, earlier)
        finished = [
            pod for pod in owned if pods.is_finished(pod) and not pod.metadata.deletion_timestamp
        ]
        held, held_s = self._state.replacements.held(uid, finished, self._clock.monotonic())
        down = availability.nodes_down(self._listers.nodes.store, owned)
        active = [pod for pod in owned if pods.is_active(pod)]
        health = availability.observe(
            controller, active, down, self._clock.now(), self._state.readiness
        )
        present, _ = pod_identity.sources(controller)
        packed = controller.spec.placement == "Packed"  # the scheduler chooses the nodes
        inputs = Inputs(
            controller,
            owned,
            eligible,
            down=down,
            taken=self._listers.taken(controller.metadata.namespace, besides=owned),
            held=held,
            available=health.available,
            template=pod_identity.template_hash(present),
            earlier=earlier,
            full=frozenset() if packed else FullNodes(self._listers, present),
            health=health,
            held_s=held_s,
            nodes_error=error,
        )
        return inputs.without(drained_nodes(controller))

    async def _follow_operations(self, controller: ReplicationController) -> tuple[bool, str]:
        """Finish a transfer of replicas that its initiator did not, or remove the notes of finished ones.

        Such operations are in the controller's annotations (see ``client.replica_operations``).

        Returns:
            Whether the controller was written, and which annotation is malformed (edited by a user; empty for none).
            That blocks this operation only.
        """
        meta, malformed = controller.metadata, ""
        try:
            order = transfer_of(controller)
            if order is not None and not order.refused:
                await complete_transfer(self._client, meta.namespace, meta.name)
                return True, ""
        except BadIntent as error:
            malformed = str(error)
        try:
            if _has_received(controller) and (pruned := await prune(self._client, controller)):
                self._state.written.wrote(pruned)
                return True, ""
        except BadIntent as error:
            malformed = malformed or str(error)
        except (Conflict, NotFound):
            pass  # its initiator removes the note, or the event of the change is on its way
        reconciled = conditions.find(controller.status.conditions, "Reconciled")
        if malformed and (reconciled is None or reconciled.message != malformed):  # log it once
            key = str(controller.key)
            self._log.warning("malformed annotation ignored", key=key, error=malformed)
        return False, malformed

    async def _overlooks(self, inputs: Inputs) -> bool:
        """Whether pods that seem to belong to another owner are the controller's."""
        controller, owned = inputs.controller, inputs.owned
        if not self._listers.has_pods_of_name(controller, besides=owned):
            return False
        return await pod_control.has_unseen(self._client, controller, owned)

    async def _permitted(self, inputs: Inputs, plan: Plan) -> Plan:
        """What of a plan live reads and PodDisruptionBudgets allow now."""
        readiness = self._state.readiness
        if not await deletion_budgets.confirm(self._client, inputs, plan, readiness):
            left = [item for item in plan.delete if item.pod.metadata.uid not in inputs.available]
            return plan.keeping(tuple(left), len(plan.delete) - len(left))
        return deletion_budgets.charged(plan, inputs, self._listers)

    def _shortage(self, inputs: Inputs, plan: Plan) -> str:
        """Why replicas have no eligible node; empty if all have one."""
        if not plan.short:
            return ""
        eligible, _ = self._state.eligible[inputs.controller.metadata.uid]
        return node_eligibility.shortage_reasons(
            inputs.controller,
            self._listers.nodes.store,
            occupied={pod_identity.node_of(pod) for pod in inputs.owned},
            eligible=frozenset(eligible),
        )

    async def _report(
        self, outcome: ReconcileOutcome, plan: Plan, unwritten: Sequence[OutboxEntry], audited: str
    ) -> bool:
        """Write the status, and raise a failure; False if the controller has changed since."""
        doubtful = self._state.expectations.doubtful(outcome.controller.metadata.uid)
        uncertain = {item.uid for item in doubtful}  # no answer came
        pending = [item for item in pod_control.deletions_of(plan) if item.uid in uncertain]
        written = await self._status.write(outcome, unwritten, pending, audited)
        if outcome.failure is not None:
            raise outcome.failure
        return written

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


def _has_received(controller: ReplicationController) -> bool:
    """Whether it has notes of finished transfers of replicas."""
    return bool(controller.metadata.annotations.get(RECEIVED_ANNOTATION))
