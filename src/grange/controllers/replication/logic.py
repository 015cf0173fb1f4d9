"""What to do about one controller in one reconcile. Pure.

``constrain`` applies what was decided about node transfers and the rollout to what was observed. ``plan`` combines it
with the counts (``pod_planner``): users mark pods for deletion, and transfers hide some pods and need others.
``unrecorded`` leaves out what is done already.
"""

from collections.abc import Sequence
from dataclasses import replace

from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import REPLICAS_MAX, ReplicationController
from grange.api.replication import pods_to_remove
from grange.controllers.replication import deletion_budgets, node_transfer, rollout
from grange.controllers.replication.node_transfer_service import TransferResult
from grange.controllers.replication.plan import Inputs, InvalidController, Plan, Removal
from grange.controllers.replication.pod_planner import PodPlanner
from grange.controllers.shared import pod_identity
from grange.controllers.shared.rollout_phase import SETTLED, RolloutPhase


def counted(inputs: Inputs, transfers: TransferResult) -> Inputs:
    """The inputs without the pods, names and nodes that do not count.

    These are pods that users marked for deletion, pods of node transfers, and nodes that transfers reserve or released.
    """
    inputs = inputs.without(transfers.released)
    if marked := _marked_for_deletion(inputs):
        available = inputs.available - {pod.metadata.uid for pod in marked}
        inputs = replace(inputs, available=available).hiding(marked)
    return node_transfer.hidden(inputs, transfers.after)


def constrain(
    inputs: Inputs, transfers: TransferResult, decision: rollout.RolloutDecision
) -> Inputs:
    """The inputs of the plan: as observed, with what was decided about transfers and the rollout."""
    inputs = node_transfer.without_given_up(inputs, transfers.after).without(transfers.released)
    inputs = replace(
        inputs,
        controller=decision.controller,
        limits=decision.limits if decision.sides is not None else None,
        sides=decision.sides,
    )
    template = pod_identity.template_hash(inputs.controller)
    if inputs.earlier is None or template == inputs.template:
        return inputs
    # The rollout begins to roll back in this reconcile.
    return replace(inputs, template=template, eligible=inputs.earlier, earlier=None)


def plan(
    inputs: Inputs,
    transfers: TransferResult | None = None,
    *,
    minimum: int = 0,
    limit: int = REPLICAS_MAX,
) -> Plan:
    """Decide one reconcile.

    Args:
        inputs: what was observed; with all pods of the controller.
        transfers: its node transfers; none by default.
        minimum: available pods that must stay while those go that are marked for deletion.
        limit: of pods that are created, and deleted.

    Returns:
        For a controller that is paused or being deleted, only what its node transfers need.

    Raises:
        InvalidController: negative or far too many replicas, or an unknown placement.
    """
    controller, transfers = inputs.controller, transfers or TransferResult()
    _check(controller)
    found = Plan()
    if not (controller.spec.paused or controller.metadata.deletion_timestamp):
        found = PodPlanner(counted(inputs, transfers), transfers.after).decide()
    if inputs.nodes_error is not None:
        found = _without_placement(found, controller)
    marked = _marked_for_deletion(inputs)
    granted = deletion_budgets.Budget(inputs.available, minimum).granted(marked, len(marked))
    found = replace(
        found,
        delete=(*(Removal(pod, "Removed") for pod in granted), *found.delete),
        kept=found.kept + len(marked) - len(granted),
    )
    needed = node_transfer.transfer_pods(inputs, transfers.stored)
    return _with_transfers(_limited(found, limit), inputs, needed)


def _check(controller: ReplicationController) -> None:
    spec = controller.spec
    if spec.replicas < 0:
        raise InvalidController(f"spec.replicas: {spec.replicas} is negative")
    if spec.replicas > REPLICAS_MAX:
        raise InvalidController(
            f"spec.replicas: {spec.replicas} is more than {REPLICAS_MAX}; set fewer"
        )
    if spec.placement not in {"OnePerNode", "Packed"}:
        raise InvalidController(f"spec.placement: {spec.placement!r} is not OnePerNode or Packed")


def _marked_for_deletion(inputs: Inputs) -> list[Pod]:
    """The active pods that users marked for deletion; none while it is paused or being deleted."""
    controller = inputs.controller
    if controller.spec.paused or controller.metadata.deletion_timestamp:
        return []
    marked = pods_to_remove(controller)
    return [pod for pod in inputs.owned if pod.metadata.uid in marked and pods.is_active(pod)]


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
    still = state is None or RolloutPhase(state.phase) in SETTLED
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


def _with_transfers(plan_: Plan, inputs: Inputs, needed: Plan) -> Plan:
    """The plan, and the pods that node transfers create and delete, within the minimum."""
    going = {removal.pod.metadata.uid for removal in plan_.delete}
    spare = len(inputs.available - going) - deletion_budgets.limits(inputs.controller).minimum
    delete, kept = list(plan_.delete), plan_.kept
    for removal in needed.delete:
        uid = removal.pod.metadata.uid
        if removal.why == "Transferred" and uid in going:
            continue
        if uid in inputs.available:
            if spare <= 0:
                kept += 1
                continue
            spare -= 1
        delete.append(removal)
    create = (*plan_.create, *needed.create)
    return replace(plan_, create=create, delete=tuple(delete), kept=kept)
