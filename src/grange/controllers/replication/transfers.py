"""The shell around ``transfer``: asks the scheduler for nodes, and waits after failures.

Nothing lives in memory: transfers and what failed of them lately (``backoffs``) are in the
controller's status, so the next owner goes on with both.
"""

from collections.abc import Sequence
from datetime import datetime

from grange.api import names
from grange.api.kinds import auditevents, pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import TRANSFER_LOCK, NodeTransfer, drained_nodes
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.client import locks
from grange.controllers.replication import backoffs, logic, transfer
from grange.controllers.replication.advance import Advance
from grange.controllers.replication.scheduling import AllocationRefused, Scheduler
from grange.controllers.replication.transfer import Event, Phase
from grange.controllers.shared import pod_identity

_LOCKED_S = 1.0  # an operator's lock is short; look again soon
_RELEASE_AGAIN_S = 5.0

_RECORDS = {
    Phase.FINISHING: auditevents.TRANSFER_COMPLETED,
    Phase.ROLLING_BACK: auditevents.TRANSFER_ROLLED_BACK,
}


class Transfers:
    """Moves pods off nodes that are no longer eligible.

    Args:
        clock: for deadlines and for waits.
        log: what happened.
    """

    def __init__(self, *, clock: Clock, log: Logger) -> None:
        self._clock = clock
        self._log = log

    async def advance(self, situation: logic.Situation, scheduler: Scheduler) -> Advance:
        """Take every transfer at most one phase further, and begin new ones.

        Args:
            situation: with all pods of the controller.
            scheduler: where nodes come from.

        Trouble with the scheduler is in the answer, because the rest of the pass goes on without it.
        """
        controller, now = situation.controller, self._clock.now()
        result = Advance(backoffs=controller.status.transfer_backoffs)
        if controller.metadata.deletion_timestamp:
            result.after = result.stored = list(controller.status.node_transfers)
            return result
        current = list(controller.status.node_transfers)
        for at, item in enumerate(current):
            after = await self._further(item, situation, scheduler, current, result)
            if after is item:
                result.stored.append(item)
            if after is None:
                result.due(0.0)  # then to see whether anything that was lent is idle now
                over = transfer.with_new_node(item, situation.owned)
                result.records.append((_RECORDS[transfer.phase_of(item)], over))
                self._log.info(
                    "node transfer over", transfer=item.id, phase=item.phase, new=over.new
                )
            else:
                result.after.append(after)
                current[at] = after
                if transfer.phase_of(after) is not Phase.ROLLING_BACK:
                    left_s = (transfer.deadline_of(after) - now).total_seconds()
                    if left_s > 0 or transfer.phase_of(after) is not Phase.FINISHING:
                        result.due(max(0.0, left_s) + 0.1)  # Finishing may outlast it: news wakes
        self._begin(situation, now, result)
        leaving = {pod.spec.node_name for pod in transfer.misplaced(situation)}
        leaving |= {item.old for item in result.after}
        result.backoffs = backoffs.kept(result.backoffs, leaving)
        if not current and not result.after:
            await self._release_idle(situation, scheduler, result)
        return result

    async def _release_idle(
        self, situation: logic.Situation, scheduler: Scheduler, result: Advance
    ) -> None:
        """Give back what was allocated and is not used: after a transfer the service may shrink."""
        controller = situation.controller
        if sum(map(pods.is_active, situation.owned)) < controller.spec.replicas:
            return  # it may be wanted at once
        used = {pod_identity.node_of(pod) for pod in situation.owned}
        try:
            allocated = await scheduler.allocated_nodes(controller)
        except GrangeError as error:
            self._log.warning("allocated nodes not known", key=str(controller.key), error=error)
            result.due(_RELEASE_AGAIN_S)
            return
        for name in allocated:
            if name not in used:
                await self._release(name, controller, scheduler, result)

    # --- those under way ----------------------------------------------------------------------

    async def _further(
        self,
        item: NodeTransfer,
        situation: logic.Situation,
        scheduler: Scheduler,
        current: Sequence[NodeTransfer],
        result: Advance,
    ) -> NodeTransfer | None:
        """The transfer as it is to be stored: itself if nothing happened, None if it is over."""
        phase = transfer.phase_of(item)
        controller = situation.controller
        now = self._clock.now()
        event = transfer.happened(item, situation, drained_nodes(controller), now)
        if event is not None:
            if event in {Event.EXPIRED, Event.NEW_LOST, Event.RELAPSED}:
                result.backoffs = backoffs.failed(result.backoffs, item.old, item.new, now)
            return transfer.step(item, event)
        match phase:
            case Phase.ALLOCATING:
                return await self._find(item, situation, scheduler, current, result)
            case Phase.FINISHING:
                old = transfer.old_pod(item, situation.owned)
                if old is None and await self._leave(item.old, situation, scheduler, result):
                    result.backoffs = backoffs.without(result.backoffs, item.old)
                    return transfer.step(item, Event.RELEASED)
            case Phase.ROLLING_BACK:
                new = transfer.new_pod(item, situation.owned)
                if new is None and (
                    not item.allocated or await self._leave(item.new, situation, scheduler, result)
                ):
                    return transfer.step(item, Event.RELEASED)
            case _:
                pass
        return item

    async def _find(
        self,
        item: NodeTransfer,
        situation: logic.Situation,
        scheduler: Scheduler,
        current: Sequence[NodeTransfer],
        result: Advance,
    ) -> NodeTransfer:
        """A spare node first; else ask for one, under the transfer's id."""
        controller, old = situation.controller, transfer.old_pod(item, situation.owned)
        packed = controller.spec.placement == "Packed"
        if packed and situation.nodes_for(old):  # full or not: that is the scheduler's to know
            return transfer.found(item, "", situation, current, allocated=False)
        avoid = backoffs.of(result.backoffs, item.old).avoid
        spare = transfer.spare_node(situation, current, avoid, old)
        if spare is not None:
            return transfer.found(item, spare, situation, current, allocated=False)
        try:
            demand = _demand(situation, old)
            given = await scheduler.allocate_nodes(demand, 1, request_id=item.id)
        except GrangeError as error:
            refused = isinstance(error, AllocationRefused)
            result.failures["AllocationRefused" if refused else "AllocationFailed"] = str(error)
            result.due(_RELEASE_AGAIN_S)
            return item
        return transfer.found(item, given[0], situation, current, allocated=True)

    async def _leave(
        self, node: str, situation: logic.Situation, scheduler: Scheduler, result: Advance
    ) -> bool:
        """Give a node back unless others of the controller are there: who leaves last does."""
        if any(pod_identity.node_of(pod) == node for pod in situation.owned):
            return True
        return await self._release(node, situation.controller, scheduler, result)

    async def _release(
        self,
        node: str,
        controller: ReplicationController,
        scheduler: Scheduler,
        result: Advance,
    ) -> bool:
        """Give a node back; True when there is nothing left to give back."""
        try:
            await scheduler.deallocate_nodes(controller, [node])
        except AllocationRefused:
            return True  # nodes are not allocated here
        except GrangeError as error:
            result.failures["ReleaseFailed"] = f"node {node} could not be released: {error}"
            result.due(_RELEASE_AGAIN_S)
            return False
        result.released.add(node)
        return True

    # --- new ones -----------------------------------------------------------------------------

    def _begin(self, situation: logic.Situation, now: datetime, result: Advance) -> None:
        controller = situation.controller
        going = transfer.going(transfer.hidden(situation, result.after))
        moving = {item.old_uid for item in result.after} | going
        coming = {item.new_pod for item in result.after}
        waiting = [
            pod
            for pod in transfer.misplaced(situation)
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
            item = transfer.begin(controller, pod, transfer_id=transfer_id, now=now)
            result.after.append(item)
            result.records.append((auditevents.TRANSFER_STARTED, item))
            self._log.info("node transfer begins", transfer=item.id, pod=str(pod.key), old=item.old)

    def _reason_to_wait(
        self,
        controller: ReplicationController,
        pod: Pod,
        wanted_away: frozenset[str],
        held: locks.Hold | None,
        result: Advance,
    ) -> tuple[str, str] | None:
        node = pod.spec.node_name
        if not transfer.may_move(controller, pod, wanted_away):
            return "Static", f"pods on {node} stay: spec.strategy is Static"
        if held is not None:
            result.due(_LOCKED_S)
            return "Locked", f"pods on {node} wait: transfers are locked by {held}"
        left_s = backoffs.left_s(backoffs.of(result.backoffs, node), self._clock.now())
        if left_s > 0:
            result.due(left_s)
            return "BackingOff", f"pods on {node} wait: a transfer failed lately"
        if len(result.after) >= transfer.at_once(controller):
            return "Budget", f"pods on {node} wait: {len(result.after)} transfers are under way"
        return None


def _demand(situation: logic.Situation, old: Pod | None) -> ReplicationController:
    """The controller with the template of a pod's successor, which the node must fit."""
    present, stable = pod_identity.sources(situation.controller)
    if stable is None or old is None or pod_identity.is_of(old, situation.template):
        return present
    return stable
