"""What to do about one controller in one reconcile. Pure.

``constrain`` collects what restricts the plan besides the counts: users mark pods for deletion, node transfers hide
some pods and need others, and a rollout decides how many pods of which template are wanted. ``plan`` combines that
with the counts (``pod_planner``). ``permitted`` and ``unrecorded`` leave out what may not be done now, or is done.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import REPLICAS_MAX, ReplicationController
from grange.api.kinds.transfer_status import NodeTransfer
from grange.controllers.replication import (
    deletion_budgets,
    node_transfer,
    pending_operations,
    rollout,
)
from grange.controllers.replication.inputs import Inputs, InvalidController
from grange.controllers.replication.node_transfer import NO_TRANSFERS, TransferPods
from grange.controllers.replication.node_transfer_service import TransferResult
from grange.controllers.replication.plan import Plan, Removal
from grange.controllers.replication.pod_planner import PodPlanner
from grange.controllers.shared import rollout_phase


@dataclass(frozen=True, slots=True)
class Constraints:
    """What restricts a plan.

    Attributes:
        transfers_after: node transfers as they will be stored: they hide pods and reserve nodes.
        transfers: pods that transfers create and delete.
        removals: pods that are marked for deletion and may go now.
        removals_waiting: how many more are marked and stay for now, because of the minimum.
        nodes_known: whether it is known which nodes are eligible.
        limit: of pods that are created, and deleted; None for none.
    """

    transfers_after: Sequence[NodeTransfer] = ()
    transfers: TransferPods = NO_TRANSFERS
    removals: tuple[Pod, ...] = ()
    removals_waiting: int = 0
    nodes_known: bool = True
    limit: int | None = None

    def counted(self, inputs: Inputs) -> Inputs:
        """The inputs without the pods, names and nodes that do not count."""
        return node_transfer.hidden(pending_operations.without_marked(inputs), self.transfers_after)


UNCONSTRAINED = Constraints()


def constrain(
    inputs: Inputs,
    result: TransferResult,
    decision: rollout.RolloutDecision,
    *,
    limit: int,
) -> tuple[Inputs, Constraints]:
    """Apply the decisions about transfers and the rollout.

    Args:
        inputs: as observed, with all pods of the controller.
        result: of the node transfers.
        decision: of the rollout of the template.
        limit: of pods that are created, and deleted.

    Returns:
        The inputs with the template, the limits and the nodes of the plan, and the constraints.
    """
    inputs = node_transfer.without_given_up(inputs, result.after).without(result.released)
    inputs = replace(
        inputs.decided(decision.controller),
        limits=decision.limits if decision.sides is not None else None,
        sides=decision.sides,
    )
    granted = pending_operations.granted(inputs, decision.limits.minimum)
    marked = pending_operations.marked_for_deletion(inputs.controller, inputs.owned)
    return inputs, Constraints(
        transfers_after=result.after,
        transfers=node_transfer.transfer_pods(inputs, result.stored),
        removals=tuple(granted),
        removals_waiting=len(marked) - len(granted),
        nodes_known=result.known,
        limit=limit,
    )


@dataclass(frozen=True, slots=True)
class Permissions:
    """What of a plan may be done, beyond what the listers show.

    Attributes:
        available_may_go: enough other pods were confirmed by live reads.
        allowances: of the PodDisruptionBudgets that cover them.
    """

    available_may_go: bool = True
    allowances: Sequence[deletion_budgets.Allowance] = ()


def plan(inputs: Inputs, constraints: Constraints = UNCONSTRAINED) -> Plan:
    """Decide one reconcile.

    Args:
        inputs: what was observed; with all pods of the controller.
        constraints: what restricts the plan besides the counts.

    Returns:
        For a controller that is paused or being deleted, only what its node transfers need.

    Raises:
        InvalidController: negative or far too many replicas, or an unknown placement.
    """
    spec = inputs.controller.spec
    if spec.replicas < 0:
        raise InvalidController(f"spec.replicas: {spec.replicas} is negative")
    if spec.replicas > REPLICAS_MAX:
        raise InvalidController(
            f"spec.replicas: {spec.replicas} is more than {REPLICAS_MAX}; set fewer"
        )
    if spec.placement not in {"OnePerNode", "Packed"}:
        raise InvalidController(f"spec.placement: {spec.placement!r} is not OnePerNode or Packed")
    counted = Plan()
    if not (spec.paused or inputs.controller.metadata.deletion_timestamp):
        counted = PodPlanner(constraints.counted(inputs), constraints.transfers_after).decide()
    if not constraints.nodes_known:
        counted = _without_placement(counted, inputs.controller)
    first = tuple(Removal(pod, "Removed") for pod in constraints.removals)
    counted = replace(
        counted, delete=(*first, *counted.delete), kept=counted.kept + constraints.removals_waiting
    )
    if constraints.limit is not None:
        counted = _limited(counted, constraints.limit)
    return _with_transfers(counted, inputs, constraints.transfers)


def permitted(plan_: Plan, inputs: Inputs, permissions: Permissions) -> Plan:
    """The part of a plan that may be done now.

    Creations that were to replace pods that stay wait with them.
    """
    if not permissions.available_may_go:
        going = tuple(
            item for item in plan_.delete if item.pod.metadata.uid not in inputs.available
        )
        plan_ = plan_.keeping(going, len(plan_.delete) - len(going))
    return deletion_budgets.charged(plan_, inputs, permissions.allowances)


def unrecorded(plan_: Plan, live: Sequence[Pod] | None) -> Plan:
    """A plan without what the server has already and the listers do not show yet.

    Announced again, it would be recorded twice in the audit.
    """
    if live is None:
        return plan_
    names = {pod.metadata.name for pod in live}
    staying = {pod.metadata.uid for pod in live if not pod.metadata.deletion_timestamp}
    return replace(
        plan_,
        create=tuple(item for item in plan_.create if item.name not in names),
        delete=tuple(item for item in plan_.delete if item.pod.metadata.uid in staying),
    )


def _without_placement(plan_: Plan, controller: ReplicationController) -> Plan:
    """What of a plan may be done while it is not known which nodes are eligible.

    Labels are put back, and surplus pods are deleted unless a rollout needs them; nothing is placed.
    """
    state = controller.status.rollout
    still = state is None or rollout_phase.RolloutPhase(state.phase) in {
        rollout_phase.RolloutPhase.COMPLETE,
        rollout_phase.RolloutPhase.ROLLED_BACK,
    }
    surplus = tuple(removal for removal in plan_.delete if still and removal.why == "Surplus")
    return replace(plan_, create=(), delete=surplus, short=0)


def _limited(plan_: Plan, most: int) -> Plan:
    """At most so many of each; the rest is planned again after these.

    No pod is created under the name of one that is deleted later: it exists already, and the audit
    would record it as added.
    """
    later = {removal.pod.metadata.name for removal in plan_.delete[most:]}
    free = [addition for addition in plan_.create if addition.name not in later]
    return replace(
        plan_,
        create=tuple(free[:most]),
        delete=plan_.delete[:most],
        repair=plan_.repair[:most],
    )


def _with_transfers(plan_: Plan, inputs: Inputs, transfers: TransferPods) -> Plan:
    """The plan, and the pods that node transfers create and delete, within the minimum."""
    going = {removal.pod.metadata.uid for removal in plan_.delete}
    spare = len(inputs.available - going) - deletion_budgets.limits(inputs.controller).minimum
    delete, kept = list(plan_.delete), plan_.kept
    for removal in transfers.delete:
        uid = removal.pod.metadata.uid
        if removal.why == "Transferred" and uid in going:
            continue
        if uid in inputs.available:
            if spare <= 0:
                kept += 1
                continue
            spare -= 1
        delete.append(removal)
    create = (*plan_.create, *transfers.create)
    return replace(plan_, create=create, delete=tuple(delete), kept=kept)
