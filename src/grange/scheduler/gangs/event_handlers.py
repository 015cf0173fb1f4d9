"""Events of informers, binders and the clock that concern gangs and queues, and which pods they activate."""

from collections.abc import Callable, Sequence

from grange.api import pod_requests
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod, is_finished
from grange.api.kinds.podgroup import PodGroup
from grange.api.kinds.queue import QUEUE_LABEL, Queue
from grange.api.pod_requests import effective_spec
from grange.api.quantity import QuantityError
from grange.scheduler.gangs.gang_admission import GangAdmission
from grange.scheduler.gangs.pod_groups import ON_NODES, Gang, MemberState, PodGroups
from grange.scheduler.gangs.pod_overrides import reserved, unreserved
from grange.scheduler.gangs.quotas import Grant, Quotas, amounts, total
from grange.scheduler.gangs.wait_line import WaitLine
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.queued_pods import QueuedPod
from grange.scheduler.snapshot import affects_decisions

Changed = Callable[[Gang | str], None]
"""Called with a gang, or a queue by its name, whose status may be different."""


class GangEventHandlers:
    """Keeps groups, quotas and the wait line up to date."""

    def __init__(
        self,
        groups: PodGroups,
        quotas: Quotas,
        line: WaitLine,
        queue: SchedulingQueue,
        changed: Changed,
        admission: GangAdmission,
    ) -> None:
        self._groups = groups
        self._quotas = quotas
        self._line = line
        self._queue = queue
        self._changed = changed
        self._admission = admission
        self.update_class = admission.update_class
        self.delete_class = admission.delete_class

    # --- objects -----------------------------------------------------------------------------

    def update_group(self, group: PodGroup, now: float) -> None:
        """Add or update a group."""
        gang = self._groups.get(group.key)
        before = None if gang is None else gang.group
        gang = self._groups.update_group(group)
        same = (group.metadata.uid, group.spec)
        if before is not None and (before.metadata.uid, before.spec) == same:
            return
        gang.is_infeasible = False
        if group.spec.queue:
            for member in gang.members.values():
                if member.state in ON_NODES:
                    self._charge(member.pod, group.spec.queue)
        self._admission.update_group(gang, now)
        self._changed(gang)
        self._wake(gang, now)

    def delete_group(self, group: PodGroup, now: float) -> None:
        """Remove a group; its pods wait until it is created again."""
        gang = self._groups.get(group.key)
        if gang is not None:
            self.stop_waiting(gang, now)
            self._admission.delete_group(gang)
            self._groups.delete_group(group.key)
            self._wake(gang, now)

    def update_queue(self, queue: Queue) -> None:
        """Add or update a queue.

        Raises:
            QuantityError: an amount is no quantity; nothing was changed.
        """
        self._quotas.grant(queue.metadata.name, Grant.of(queue))
        self._changed(queue.metadata.name)

    def delete_queue(self, queue: Queue) -> None:
        """Remove a queue: no pod is admitted to it any more."""
        self._quotas.grant(queue.metadata.name, None)

    def update_pod(self, pod: Pod, now: float) -> None:
        """Add or update a pod."""
        left = self._groups.move_pod(pod)
        gang = self._groups.update_pod(pod)
        if left is not None:
            self._left(left, pod, gang, now)
        if is_finished(pod):
            self._quotas.release(pod.metadata.uid)
            self._admission.freed()
        elif pod.spec.node_name:
            queue = self._queue_of(pod, gang)
            if queue:
                self._charge(pod, queue)
        if self._line.for_quota:
            self._leaves_line(pod, gang, now)
        if gang is not None:
            self._changed(gang)
            if gang.started:
                self._admission.tried(gang)
            if gang.waiting_since is not None and (
                gang.started or not gang.counts[MemberState.WAITING]
            ):
                self.stop_waiting(gang, now)  # bound by another
            if not pod.spec.node_name and gang.reason and gang.is_completed_by(pod):
                self._wake(gang, now)

    def delete_pod(self, pod: Pod, now: float) -> None:
        """Remove a pod."""
        self._quotas.release(pod.metadata.uid)
        self._line.remove_pod(pod.metadata.uid)
        self._admission.freed()
        gang = self._groups.delete_pod(pod)
        if gang is not None:
            self._one_less(gang, now)

    def transform_node(self, node: Node) -> Node:
        """The node as the cache is to have it: tainted while it is reserved for a gang."""
        kept = self._line.reservation
        entry = kept.cache.node_info(node.metadata.name)
        before = None if entry is None else entry.node
        if before is None or affects_decisions(unreserved(before), node):
            self._line.nodes_changed()
            self._admission.freed()
        return reserved(node, kept.owner) if node.metadata.name in kept.nodes else node

    def clear(self) -> None:
        """Forget all pods, before they are all added again."""
        self._groups.clear()
        self._quotas.clear()
        self._admission.clear()

    # --- nodes given and taken back ----------------------------------------------------------

    def assume_pod(self, pod: Pod) -> str:
        """Count a pod that is assumed on a node; return the queue that it counts against."""
        gang = self._groups.assume_pod(pod)
        queue = self._queue_of(pod, gang)
        if queue:
            self._charge(pod, queue)
        if gang is not None:
            self._changed(gang)
        return queue

    def forget_pod(self, pod: Pod) -> None:
        """Stop counting an assumed pod that is forgotten."""
        self._quotas.release(pod.metadata.uid)
        self._admission.freed()
        gang = self._groups.forget_pod(pod)
        if gang is not None:
            self._changed(gang)

    def bind_failed(self, pod: Pod, tried: QueuedPod, now: float) -> None:
        """Activate a member whose binding failed for good, the first time.

        The rest of its gang is bound or being bound and waits for it.
        """
        gang = self._groups.containing(pod)
        if gang is not None and tried.errors == 1:
            self._queue.activate([pod.metadata.uid], now)

    def stop_waiting(self, gang: Gang, now: float) -> None:
        """Remove a gang from the line: it was placed, or cannot be tried any more."""
        self._line.remove(gang, now)
        gang.waiting_since = None
        gang.reason = gang.message = ""
        self._changed(gang)
        if gang.queue:
            self._changed(gang.queue)

    # --- time --------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Put gangs whose timeout is over last, and activate pods for which there may be quota."""
        for gang in self._line.gangs():
            if gang.deadline is not None and gang.deadline <= now:
                self._line.restart(gang, now)
                gang.timeouts += 1
                self._changed(gang)
        freed = self._quotas.take_freed()
        if freed:
            for queue in freed:
                self._changed(queue)
            self._admit(freed, now)
            self._admission.freed()
        self._admission.tick(now)

    def next_deadline(self, now: float) -> float | None:
        """When ``tick`` may next have something to do."""
        if self._quotas.freed:
            return now
        found = [gang.deadline for gang in self._line.gangs()]
        found.append(self._admission.next_deadline(now))
        return min((deadline for deadline in found if deadline is not None), default=None)

    # --- inside ------------------------------------------------------------------------------

    def _leaves_line(self, pod: Pod, gang: Gang | None, now: float) -> None:
        """A pod that waited by itself for quota may have a node, have ended, or wait elsewhere."""
        uid, meta = pod.metadata.uid, pod.metadata
        known = self._line.for_quota.get(uid)
        if known is None:
            return
        elsewhere = gang is not None or meta.labels.get(QUEUE_LABEL, "") != known.queue
        if elsewhere or pod.spec.node_name or meta.deletion_timestamp or is_finished(pod):
            self._line.remove_pod(uid)
            self._changed(known.queue)
            if elsewhere:
                self._queue.activate([uid], now)

    def _left(self, left: Gang, pod: Pod, gang: Gang | None, now: float) -> None:
        """The pod's label changed: it belongs to another gang now, or to none."""
        uid = pod.metadata.uid
        queue, _ = self._quotas.charge_of(uid)
        if queue and queue != self._queue_of(pod, gang):
            self._quotas.release(uid)
        self._one_less(left, now)
        if not pod.spec.node_name:
            self._queue.activate([uid], now)

    def _one_less(self, gang: Gang, now: float) -> None:
        self._changed(gang)
        if not gang.counts[MemberState.WAITING] or gang.shortage:
            self.stop_waiting(gang, now)
        if not gang.members:
            self._admission.emptied(gang, now)
        # It may have been the one that listens for events.
        self._wake(gang, now)

    def _admit(self, freed: Sequence[str], now: float) -> None:
        """Activate what waits for quota of these queues and their cohorts, in order."""
        queues = dict.fromkeys(peer for queue in freed for peer in self._quotas.peers(queue))
        waiting = [waiter for waiter in self._line.for_quota if waiter.queue in queues]
        asked: dict[str, dict[str, int]] = {}
        pods = []
        for waiter in sorted(waiting, key=lambda waiter: waiter.rank):
            if waiter.gang is not None:
                self._wake(waiter.gang, now)
            elif (queued := self._queue.find(waiter.owner)) is not None:
                wanted = amounts(queued.info.request.resources)
                together = total([asked.get(waiter.queue, {}), wanted])
                if not self._quotas.refusal(waiter.queue, together, waiter.rank):
                    asked[waiter.queue] = together
                    pods.append(waiter.owner)
        self._queue.activate(pods, now)

    def _wake(self, gang: Gang, now: float) -> None:
        """Activate one of its members, which stands for all; each by itself once it is started."""
        waiting = [pod.metadata.uid for pod in gang.waiting()]
        waiting = [uid for uid in waiting if (found := self._queue.find(uid)) and not found.gate]
        self._queue.activate(waiting if gang.started else waiting[:1], now)

    def _queue_of(self, pod: Pod, gang: Gang | None) -> str:
        return pod.metadata.labels.get(QUEUE_LABEL, "") if gang is None else gang.queue

    def _charge(self, pod: Pod, queue: str) -> None:
        try:
            need = pod_requests.pod_request(effective_spec(pod)).resources
        except QuantityError:
            return  # such a pod is left out everywhere
        self._quotas.charge(pod.metadata.uid, queue, amounts(need))
        self._changed(queue)
