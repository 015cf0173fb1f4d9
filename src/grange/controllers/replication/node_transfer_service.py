"""Advances node transfers: allocates and releases nodes, and waits after failures.

Nothing is kept in memory: transfers and their back-offs are in the controller's status, so the next owner
continues with both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from grange.api import names
from grange.api.kinds import auditevents, pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import (
    TRANSFER_LOCK,
    NodeTransfer,
    TransferBackoff,
    drained_nodes,
)
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.plurals import be, counted
from grange.client import locks
from grange.controllers.replication import node_transfer
from grange.controllers.replication.node_eligibility import AllocationRefused, NodeScheduler
from grange.controllers.replication.node_transfer import TransferEvent, TransferPhase
from grange.controllers.replication.plan import Inputs
from grange.controllers.shared import pod_identity

_LOCKED_S = 1.0  # a user's lock is short
_RELEASE_AGAIN_S = 5.0
_BACKOFFS = 32  # of one controller; more pods than these hardly ever move at the same time

_RECORDS = {
    TransferPhase.FINISHING: auditevents.TRANSFER_COMPLETED,
    TransferPhase.ROLLING_BACK: auditevents.TRANSFER_ROLLED_BACK,
}


@dataclass(slots=True)
class TransferResult:
    """The result of advancing a controller's transfers.

    Attributes:
        stored: those that may be acted on: stored in this phase before the reconcile, and still in it.
        after: all of them as they are to be stored.
        backoffs: of nodes from which transfers failed, by node, as they are to be stored.
        records: type of audit record and transfer, for those that began or ended.
        held_back: why pods on ineligible nodes do not move, by reason; the most important first.
        failures: what needs an operator, by reason.
        released: nodes that were released now: nothing more may go there.
        wait_s: seconds until something is due without an event; None for nothing.
    """

    stored: list[NodeTransfer] = field(default_factory=list)
    after: list[NodeTransfer] = field(default_factory=list)
    backoffs: dict[str, TransferBackoff] = field(default_factory=dict)
    records: list[tuple[str, NodeTransfer]] = field(default_factory=list)
    held_back: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    wait_s: float | None = None

    def backoff(self, node: str) -> TransferBackoff:
        """The back-off of a node to leave; without attempts if nothing failed there."""
        return self.backoffs.get(node) or TransferBackoff(node)

    def due(self, seconds: float) -> None:
        """Reconcile again after so many seconds at the latest."""
        self.wait_s = seconds if self.wait_s is None else min(self.wait_s, seconds)


class Transfers:
    """Moves pods off nodes that are no longer eligible."""

    def __init__(self, scheduler: NodeScheduler, *, clock: Clock, log: Logger) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._log = log

    async def advance(self, inputs: Inputs) -> TransferResult:
        """Advance every transfer by at most one phase, and begin new ones.

        All stay as they are while nodes are unknown, and for a controller that is being deleted. Errors of the
        scheduler are part of the result: the rest of the reconcile continues without it.
        """
        controller, now = inputs.controller, self._clock.now()
        known = {item.node: item for item in controller.status.transfer_backoffs}
        result = TransferResult(backoffs=known)
        if inputs.nodes_error is not None or controller.metadata.deletion_timestamp:
            result.after = result.stored = list(controller.status.node_transfers)
            return result
        current = list(controller.status.node_transfers)
        for at, item in enumerate(current):
            after = await self._next(item, inputs, current, result)
            if after is item:
                result.stored.append(item)
            if after is None:
                result.due(0.0)  # to release nodes that are idle now
                over = node_transfer.with_new_node(item, inputs.owned)
                result.records.append((_RECORDS[node_transfer.phase_of(item)], over))
                self._log.info(
                    "node transfer ended", transfer=item.id, phase=item.phase, new=over.new
                )
            else:
                result.after.append(after)
                current[at] = after
                if node_transfer.phase_of(after) is not TransferPhase.ROLLING_BACK:
                    left_s = (node_transfer.deadline_of(after) - now).total_seconds()
                    if left_s > 0 or node_transfer.phase_of(after) is not TransferPhase.FINISHING:
                        result.due(
                            max(0.0, left_s) + 0.1
                        )  # Finishing may outlast it: an event wakes
        self._begin(inputs, now, result)
        leaving = {pod.spec.node_name for pod in node_transfer.misplaced(inputs)}
        leaving |= {item.old for item in result.after}
        kept = [item for item in result.backoffs.values() if item.node in leaving]
        result.backoffs = {item.node: item for item in kept[-_BACKOFFS:]}
        if not current and not result.after:
            await self._release_idle(inputs, result)
        return result

    async def _release_idle(self, inputs: Inputs, result: TransferResult) -> None:
        """Release allocated nodes that are not used: after a transfer the controller may shrink."""
        controller = inputs.controller
        if sum(map(pods.is_active, inputs.owned)) < controller.spec.replicas:
            return  # they may be needed at once
        used = {pod_identity.node_of(pod) for pod in inputs.owned}
        try:
            allocated = await self._scheduler.allocated_nodes(controller)
        except GrangeError as error:
            self._log.warning("allocated nodes not known", key=str(controller.key), error=error)
            result.due(_RELEASE_AGAIN_S)
            return
        for name in allocated:
            if name not in used:
                await self._release(name, controller, result)

    # --- those under way ----------------------------------------------------------------------

    async def _next(
        self,
        item: NodeTransfer,
        inputs: Inputs,
        current: Sequence[NodeTransfer],
        result: TransferResult,
    ) -> NodeTransfer | None:
        """The transfer as it is to be stored: unchanged if nothing happened, None if it has ended."""
        phase = node_transfer.phase_of(item)
        controller = inputs.controller
        now = self._clock.now()
        event = node_transfer.happened(item, inputs, drained_nodes(controller), now)
        if event is not None:
            if event in {TransferEvent.EXPIRED, TransferEvent.NEW_LOST, TransferEvent.RELAPSED}:
                before = result.backoffs.pop(item.old, TransferBackoff(item.old))
                result.backoffs[item.old] = node_transfer.backed_off(before, item.new, now)
            return node_transfer.step(item, event)
        match phase:
            case TransferPhase.ALLOCATING:
                return await self._find(item, inputs, current, result)
            case TransferPhase.FINISHING:
                old = node_transfer.old_pod(item, inputs.owned)
                if old is None and await self._leave(item.old, inputs, result):
                    result.backoffs.pop(item.old, None)
                    return node_transfer.step(item, TransferEvent.RELEASED)
            case TransferPhase.ROLLING_BACK:
                new = node_transfer.new_pod(item, inputs.owned)
                if new is None and (
                    not item.allocated or await self._leave(item.new, inputs, result)
                ):
                    return node_transfer.step(item, TransferEvent.RELEASED)
            case _:
                pass
        return item

    async def _find(
        self,
        item: NodeTransfer,
        inputs: Inputs,
        current: Sequence[NodeTransfer],
        result: TransferResult,
    ) -> NodeTransfer:
        """Use a spare node, else allocate one under the transfer's id."""
        controller, old = inputs.controller, node_transfer.old_pod(item, inputs.owned)
        packed = controller.spec.placement == "Packed"
        if packed and inputs.nodes_for(old):  # the scheduler chooses it
            return node_transfer.found(item, "", inputs, current, allocated=False)
        avoid = result.backoff(item.old).avoid
        spare = node_transfer.spare_node(inputs, current, avoid, old)
        if spare is not None:
            return node_transfer.found(item, spare, inputs, current, allocated=False)
        try:
            demand = _demand(inputs, old)
            given = await self._scheduler.allocate_nodes(demand, 1, request_id=item.id)
        except GrangeError as error:
            refused = isinstance(error, AllocationRefused)
            result.failures["AllocationRefused" if refused else "AllocationFailed"] = str(error)
            result.due(_RELEASE_AGAIN_S)
            return item
        return node_transfer.found(item, given[0], inputs, current, allocated=True)

    async def _leave(self, node: str, inputs: Inputs, result: TransferResult) -> bool:
        """Release a node unless other pods of the controller are there; False to try again."""
        if any(pod_identity.node_of(pod) == node for pod in inputs.owned):
            return True
        return await self._release(node, inputs.controller, result)

    async def _release(
        self, node: str, controller: ReplicationController, result: TransferResult
    ) -> bool:
        """Release a node; False to try again."""
        try:
            await self._scheduler.deallocate_nodes(controller, [node])
        except AllocationRefused:
            return True  # nodes are not allocated here
        except GrangeError as error:
            result.failures["ReleaseFailed"] = f"node {node} could not be released: {error}"
            result.due(_RELEASE_AGAIN_S)
            return False
        result.released.add(node)
        return True

    # --- new ones -----------------------------------------------------------------------------

    def _begin(self, inputs: Inputs, now: datetime, result: TransferResult) -> None:
        controller = inputs.controller
        going = node_transfer.going(node_transfer.hidden(inputs, result.after))
        moving = {item.old_uid for item in result.after} | going
        coming = {item.new_pod for item in result.after}
        waiting = [
            pod
            for pod in node_transfer.misplaced(inputs)
            if pod.metadata.uid not in moving and pod.metadata.name not in coming
        ]
        left_alone = drained_nodes(controller)
        held = locks.hold(controller, TRANSFER_LOCK, now)
        for pod in waiting:
            reason = self._reason_to_wait(controller, pod, left_alone, held, result)
            if reason is not None:
                result.held_back.setdefault(*reason)
                continue
            meta = controller.metadata
            transfer_id = names.digest(meta.uid, meta.resource_version, pod.metadata.uid)
            item = node_transfer.begin(controller, pod, transfer_id=transfer_id, now=now)
            result.after.append(item)
            result.records.append((auditevents.TRANSFER_STARTED, item))
            self._log.info("node transfer begins", transfer=item.id, pod=str(pod.key), old=item.old)

    def _reason_to_wait(
        self,
        controller: ReplicationController,
        pod: Pod,
        wanted_away: frozenset[str],
        held: locks.Hold | None,
        result: TransferResult,
    ) -> tuple[str, str] | None:
        node = pod.spec.node_name
        if controller.spec.strategy != "Dynamic" and node not in wanted_away:
            return "Static", f"pods on {node} stay: spec.strategy is Static"
        if held is not None:
            result.due(_LOCKED_S)
            return "Locked", f"pods on {node} wait: transfers are locked by {held}"
        left_s = node_transfer.backoff_left_s(result.backoff(node), self._clock.now())
        if left_s > 0:
            result.due(left_s)
            return "BackingOff", f"pods on {node} wait: a transfer failed lately"
        if len(result.after) >= node_transfer.at_once(controller):
            count = len(result.after)
            return (
                "DisruptionBudget",
                f"pods on {node} wait: {counted(count, 'transfer')} {be(count)} under way",
            )
        return None


def _demand(inputs: Inputs, old: Pod | None) -> ReplicationController:
    """The controller with the template of a pod's successor, which must fit on the node."""
    present, stable = pod_identity.sources(inputs.controller)
    if stable is None or old is None or pod_identity.is_of(old, inputs.template):
        return present
    return stable
