"""What restricts the plan of a reconcile besides the counts. Pure.

Users mark pods for deletion, node transfers hide some pods and need others, and a rollout decides how many pods
of which template are wanted. All of that is collected here for ``logic.plan``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from grange.api.kinds.pod import Pod
from grange.api.kinds.transfer_status import NodeTransfer
from grange.controllers.replication import node_transfer, pending_operations, rollout
from grange.controllers.replication.inputs import Inputs
from grange.controllers.replication.node_transfer import NO_TRANSFERS, TransferPods
from grange.controllers.replication.node_transfer_service import TransferResult


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
