"""Which pods are placed together, and which may be placed at all: asked before every pod is tried.

The queue holds single pods. When a member of a gang comes to its head, it stands for the whole: if the
quorum exists and the quota admits it, all of it is placed in one transaction, or none. After a failure
the members are parked; one of each shape is marked unschedulable by the plugins that refused, so that
the events that may help bring the gang back, and the others sleep until then.

A gang that was placed is *started*: members beyond the quorum, and those that are lost and replaced,
are placed one by one, but of several that the quorum lacks none before all have room. So two gangs
cannot wait for each other: those that were whole last can always have again what they lost.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from grange.api.kinds.pod import Pod
from grange.api.kinds.queue import QUEUE_LABEL
from grange.base.plurals import counted
from grange.scheduler.cache import Cache
from grange.scheduler.clusterevents import ASSIGNED_POD_DELETE
from grange.scheduler.cycle import Assumed, Batch, Cycle, Outcome, Unschedulable, Waiting
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.errors import SnapshotInconsistent
from grange.scheduler.framework import PostFilterResult, Profiles
from grange.scheduler.gangs.capacity import (
    Capacity,
    GangDemand,
    count_reasons,
    describe_requests,
    preemption_options,
    room_when_empty,
    shapes,
    topology_options,
)
from grange.scheduler.gangs.event_handlers import Changed, GangEventHandlers
from grange.scheduler.gangs.gang_admission import NO_ROOM, OVER_QUOTA, GangAdmission
from grange.scheduler.gangs.pod_groups import Gang, PodGroups, Quorum
from grange.scheduler.gangs.pod_overrides import override_all, past_reservations, within_domains
from grange.scheduler.gangs.preemption import GangPreemption
from grange.scheduler.gangs.queue_policies import QueuePolicy
from grange.scheduler.gangs.quotas import Amounts, Quotas, Rank, amounts, total
from grange.scheduler.gangs.reservation import Reservation, choose
from grange.scheduler.gangs.transaction import GangAttempt, Transaction, wanted
from grange.scheduler.gangs.wait_line import WaitLine
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.queued_pods import QueuedPod

GANG = "GangScheduling"
"""The plugin name under which pods are rejected that wait for others of their group."""
QUOTA = "Quota"
"""The plugin name under which pods are rejected that wait for their queue."""

# What a gang waits for: the reasons of its condition.
NO_GROUP = "NoPodGroup"
TOO_FEW = "NotEnoughMembers"
INCOMPLETE_EVENT_S = 10.0
"""Pods of a gang are created one after the other, so an event about missing ones comes so late."""
ERROR = "SchedulerError"
HELD_BACK = "waits for its gang to be permitted to be bound"

_ASLEEP = frozenset({GANG})
_OVER = frozenset({QUOTA})


class Coscheduling:
    """The gangs and queues of one scheduling loop.

    Args:
        changed: called with every gang and queue whose status may be different.
        withdrawn: called with pods whose nominations were withdrawn, to be withdrawn in the API, too.

    Attributes:
        attempts, rollbacks: transactions begun, and those rolled back (work counters).
    """

    def __init__(
        self,
        profiles: Profiles,
        cycle: Cycle,
        cache: Cache,
        queue: SchedulingQueue,
        policy: QueuePolicy,
        *,
        changed: Changed = lambda what: None,
        withdrawn: Callable[[Sequence[PodInfo]], None] = lambda pods: None,
    ) -> None:
        self._profiles = profiles
        self._cycle = cycle
        self._queue = queue
        self._policy = policy
        self._changed = changed
        self._withdrawn = withdrawn
        self._now = 0.0
        self.groups = PodGroups()
        self.quotas = Quotas()
        self.reservation = Reservation(cache, queue)
        self.wait_line = WaitLine(self.quotas, self.reservation, policy, self._nodes_for)
        self._preemption = GangPreemption(
            cycle, self.groups, self.quotas, cache.info, self._on_withdrawn
        )
        self.admission = GangAdmission(
            self.quotas, self.wait_line, self._room, self._can_reclaim, changed
        )
        self.handlers = GangEventHandlers(
            self.groups, self.quotas, self.wait_line, queue, changed, self.admission
        )
        self.attempts = 0
        self.rollbacks = 0

    # --- the cycle ---------------------------------------------------------------------------

    def admit(self, queued: QueuedPod, now: float) -> PodInfo | Outcome:
        """A pod is about to be scheduled: the pod to decide about, or the outcome.

        In the second case the pod, and those that were scheduled with it, are out of the queue or
        back in it.
        """
        self._now = now
        pod = queued.info.pod
        if not pod.metadata.labels:
            return self._overridden(queued)
        gang = self.groups.of(pod)
        if gang is None:
            return self._single(queued, pod.metadata.labels.get(QUEUE_LABEL, ""))
        if pod.metadata.uid not in gang.members:
            self.groups.update_pod(pod)
        if gang.group is None:
            return self._park(gang, queued, NO_GROUP, f"pod group {gang.key} does not exist")
        if gang.started or not gang.num_missing:
            if self._held_back(gang):
                return self._unschedulable(queued, self._diagnosis(HELD_BACK, _ASLEEP))
            if gang.num_missing:
                return self._restore(gang, queued)
            return self._single(queued, gang.queue)
        shortage = gang.shortage
        if shortage:
            of_pod = f"waits until {gang.min_member} pods of pod group {gang.key} exist"
            return self._park(gang, queued, TOO_FEW, shortage, of_pod=of_pod)
        return self._try(gang, queued)

    def assume(self, assumed: Assumed) -> None:
        """Count a pod that was assumed on a node by itself."""
        pod = assumed.info.pod
        queue = self.handlers.assume_pod(pod) if pod.metadata.labels else ""
        if queue or self.wait_line.head is not None:
            self.wait_line.count_overtakes(self._rank(assumed.queued), 1, queue, self._now)

    def forget(self, assumed: Assumed) -> None:
        """Stop counting a pod whose assumption was undone."""
        self.handlers.forget_pod(assumed.info.pod)

    def gang_victims(self, victims: tuple[PodInfo, ...], pod: PodInfo) -> tuple[PodInfo, ...]:
        """The victims of a pod, and the members of their gangs that are of no use without them."""
        return self._preemption.gang_victims(victims, pod.priority)

    def handle_bug(self, queued: QueuedPod, diagnosis: Diagnosis, now: float) -> Outcome | None:
        """Park the gang of a pod whose cycle ended in a bug; None for a pod without one."""
        gang = self.groups.containing(queued.info.pod)
        if gang is None or gang.started:
            return None
        self._now = now
        attempt = GangAttempt(gang, queued, self._candidates(gang), 0)
        return self._park_all(attempt, ERROR, diagnosis)

    def permits_decided(self, pods: Iterable[Assumed], now: float) -> None:
        """Activate members of gangs that waited until these pods were permitted or rejected."""
        for gang in dict.fromkeys(self.groups.containing(assumed.info.pod) for assumed in pods):
            if gang is not None and gang.started:
                found = [self._queue.find(pod.metadata.uid) for pod in gang.waiting()]
                asleep = [item.uid for item in found if item and item.rejectors == _ASLEEP]
                self._queue.activate(asleep, now)

    def waits_for(self, pod: Pod, last_message: str) -> str:
        """What a pod waits for apart from plugins: its gang, its queue, a permission; or nothing."""
        gang = self.groups.containing(pod)
        if gang is not None and gang.message and not gang.started:
            return f"its gang {gang.key} ({gang.message})"
        permits = self._cycle.waiting_pods
        if pod.metadata.uid in permits:
            plugins = ", ".join(permits.waiting_for(pod.metadata.uid))
            return (
                f"a permission to be bound ({plugins})" if plugins else "a permission to be bound"
            )
        queued = self._queue.find(pod.metadata.uid)
        if gang is not None and queued is not None and GANG in queued.rejectors:
            return HELD_BACK.removeprefix("waits for ")
        if queued is not None and QUOTA in queued.rejectors:
            return f"its queue ({last_message})" if last_message else "its queue"
        return ""

    def demand(self, pod: Pod) -> GangDemand | None:
        """What the gang of a pod needs; None where it does not wait for nodes."""
        gang = self.groups.containing(pod)
        if gang is None or gang.started or gang.reason != NO_ROOM:
            return None
        needed = tuple(queued.info for queued in self._candidates(gang)[: gang.num_missing])
        if len(needed) < gang.num_missing:
            needed = ()  # what lets the others fit is of no use to the gang
        nominator = self._cycle.nominator
        kept = any(nominator.nominations_for(info) is not None for info in needed)
        return GangDemand(needed, gang.required_topology, has_nominations=kept)

    def _held_back(self, gang: Gang) -> bool:
        """Whether the quorum may yet be rejected as a whole, so that no member may join it."""
        permits = self._cycle.waiting_pods
        held = sum(uid in permits for uid in gang.members) if permits else 0
        return bool(held) and gang.counts.num_counted - held < gang.min_member

    def _rank(self, queued: QueuedPod) -> Rank:
        return self._policy.rank(queued.info.priority, queued.first_queued)

    # --- single pods -------------------------------------------------------------------------

    def _restore(self, gang: Gang, queued: QueuedPod) -> PodInfo | Outcome:
        """A member of a gang that lost several: it is of use only if there is room for all of them.

        Otherwise gangs that lost members could each hold what another one lacks. No claim or
        reservation comes before them: what it is for may be what their gang holds.
        """
        lost = self._candidates(gang)[: gang.num_missing]
        pods = [past_reservations(item.info) for item in lost]
        pods += [past_reservations(queued.info)] * (gang.num_missing - len(lost))  # not created yet
        if len(pods) > 1 and self._refreshed() and not self._preemption.may_preempt(queued.info):
            table = self._cycle.snapshot.table
            room = Capacity.of(self._profiles, table, shapes(self._profiles, pods)).whole()
            if room < len(pods):
                summary = f"gang wants {len(pods)} that it lost, room for {room}"
                whole = replace(self._count_reasons(queued, pods), pre_filter=summary)
                return self._unschedulable(queued, whole)
        together = total(amounts(pod.request.resources) for pod in pods)
        admitted = self._single(queued, gang.queue, together)
        return past_reservations(admitted) if isinstance(admitted, PodInfo) else admitted

    def _single(
        self, queued: QueuedPod, queue: str, restored: Amounts | None = None
    ) -> PodInfo | Outcome:
        if queue:
            amount = restored or amounts(queued.info.request.resources)
            rank = self._rank(queued)
            refusal = self.quotas.refusal(queue, amount, None if restored else rank)
            if refusal:
                self.wait_line.add_pod(queued.uid, queue, amount, rank)
                preempts = self._reclaim(queued, queue, amount)
                if preempts is None:
                    self._preemption.withdraw([queued.info])
                self._changed(queue)
                return self._unschedulable(queued, self._diagnosis(refusal, _OVER), preempts)
            self.wait_line.remove_pod(queued.uid)
        return self._overridden(queued)

    def _reclaim(self, queued: QueuedPod, queue: str, amount: Amounts) -> PostFilterResult | None:
        """How a pod gets its queue's own capacity back by preemption; None if it cannot."""
        borrowers = self._preemption.borrowers(queue, amount)
        if not borrowers or not self._refreshed():
            return None
        found = self._preemption.preempt(
            [(queued, queued.info)], Quorum(1, [queued.uid]), [queued.info], borrowers
        ).get(queued.uid)
        if found is not None:
            self._cycle.nominate(queued.info, found)
        return found

    def _overridden(self, queued: QueuedPod) -> PodInfo:
        """The pod; past reservations if it comes before the gang that nodes are reserved for."""
        head = self.wait_line.for_nodes.get(self.reservation.owner)
        if head is None or self._rank(queued) > head.rank:
            return queued.info
        return past_reservations(queued.info)

    # --- gangs -------------------------------------------------------------------------------

    def _try(self, gang: Gang, leader: QueuedPod) -> Outcome:
        candidates = self._candidates(gang)
        need = gang.num_missing
        if not gang.quorum([queued.uid for queued in candidates]).is_open:
            message = f"waits for minMember: {len(candidates)} of {need} pods may be scheduled"
            of_pod = (
                f"waits until {counted(need, 'more pod')} of pod group {gang.key} may be scheduled"
            )
            return self._park(gang, leader, TOO_FEW, message, of_pod=of_pod)
        self.wait_line.rank(gang, candidates[0].info.priority, self._now)
        attempt = GangAttempt(gang, leader, candidates, need)
        if gang.queue:  # members came, went or changed
            self.quotas.renew(str(gang.key), attempt.wanted, gang.rank)
        refusal = self._refusal(gang, candidates[:need])
        if refusal:
            return self._over_quota(attempt, refusal)
        return self._place_all(attempt)

    def _candidates(self, gang: Gang) -> list[QueuedPod]:
        """The members that may be placed now, the most important first, then the oldest.

        Of a gang with parts those come first that make up its quorum.
        """
        found = [self._queue.find(pod.metadata.uid) for pod in gang.waiting()]
        free = [
            item
            for item in found
            if item and not item.gate and not item.info.pod.metadata.deletion_timestamp
        ]
        free.sort(
            key=lambda item: (
                -item.info.priority,
                item.first_queued,
                item.info.pod.metadata.name,
            )
        )
        if not gang.part_counts:
            return free
        quorum = gang.quorum([item.uid for item in free])
        needed = {}
        for item in free:
            if quorum.takes(item.uid):
                quorum.tried(item.uid, placed=True)
                needed[item.uid] = item
        return [*needed.values(), *(item for item in free if item.uid not in needed)]

    def _place_all(self, attempt: GangAttempt) -> Outcome:
        gang, need = attempt.gang, attempt.need
        try:
            self._cycle.refresh()
        except SnapshotInconsistent as error:
            return self._no_room(attempt, 0, self._diagnosis(str(error), error=True))
        pods = attempt.pods
        head = self.wait_line.for_nodes.get(self.reservation.owner)
        if head is not None and gang.rank <= head.rank:
            pods = override_all(self._profiles, pods, past_reservations)
        options = topology_options(self._profiles, self._cycle.snapshot, gang, pods, need)
        best, diagnosis = 0, None
        for domains in options.domains:
            self.attempts += 1
            transaction = Transaction(self._cycle)
            overridden = within_domains(self._profiles, pods, options.key, domains)
            if transaction.place_all(attempt, overridden):
                refusal = self._refusal(gang, [assumed.queued for assumed in transaction.assumed])
                if not refusal:
                    return self._commit(attempt, transaction)
                self._roll_back(transaction)
                return self._over_quota(attempt, refusal)
            best = max(best, len(transaction.assumed))
            diagnosis = diagnosis or transaction.diagnosis
            self._roll_back(transaction)
            if transaction.failed:
                return self._no_room(attempt, best, transaction.diagnosis)
        if not options.domains:
            best, diagnosis = options.room, self._count_reasons(attempt.leader, pods)
        return self._no_room(attempt, best, diagnosis, options.shortage)

    def _count_reasons(self, leader: QueuedPod, pods: Sequence[PodInfo]) -> Diagnosis:
        """Why there is no room for all pods, where nothing had to be tried to know that."""
        snapshot = self._cycle.snapshot
        filters = frozenset(name for name, _ in self._profiles.of(leader.info).filters)
        counts = count_reasons(self._profiles, snapshot.table, pods)
        return Diagnosis(snapshot.num_nodes, counts, filters)

    def _roll_back(self, transaction: Transaction) -> None:
        self.rollbacks += 1
        transaction.roll_back()

    def _commit(self, attempt: GangAttempt, transaction: Transaction) -> Outcome:
        gang = attempt.gang
        self.admission.tried(gang)
        chosen = dict.fromkeys(assumed.uid for assumed in transaction.assumed)
        # The leader first: from here on the attempt cannot be taken for one that is still made.
        if attempt.leader.uid in chosen:
            self._queue.done(attempt.leader)
        else:
            self._queue.mark_unschedulable(attempt.leader, _ASLEEP, self._now)
        for assumed in transaction.assumed:
            if assumed.queued is not attempt.leader:
                assumed.queued.attempts += 1
                self._queue.delete(assumed.uid)
            self.handlers.assume_pod(assumed.info.pod)
        gang.was_placed = True
        self.handlers.stop_waiting(gang, self._now)
        self.wait_line.count_overtakes(gang.rank, len(chosen), gang.queue, self._now)
        rest = [queued.uid for queued in attempt.candidates if queued.uid not in chosen]
        self._queue.activate(rest, self._now)
        if transaction.waits:
            self._cycle.waiting_pods.hold(transaction.assumed, transaction.waits, self._now)
            return Waiting(tuple(transaction.assumed))
        return Batch(tuple(transaction.assumed))

    # --- failures ----------------------------------------------------------------------------

    def _refusal(self, gang: Gang, pods: Sequence[QueuedPod]) -> str:
        """Why the gang's queue cannot admit these pods; empty when it can."""
        if not gang.queue:
            return ""
        missing = self.admission.beyond_hold(gang, wanted(pods))
        return self.quotas.refusal(gang.queue, missing, gang.rank)

    def _over_quota(self, attempt: GangAttempt, refusal: str) -> Outcome:
        gang = attempt.gang
        self.admission.tried(gang)
        self.wait_line.wait_for_quota(gang, attempt.wanted, self._now)
        self._changed(gang.queue)
        borrowers = self._preemption.borrowers(gang.queue, attempt.wanted)
        found = self._preempt(attempt, borrowers) if borrowers else {}
        remedy = self.quotas.remedy(gang.queue, attempt.wanted)
        diagnosis = self._diagnosis(f"{refusal}; {remedy}" if remedy else refusal, _OVER)
        return self._park_all(attempt, OVER_QUOTA, diagnosis, found)

    def _no_room(
        self,
        attempt: GangAttempt,
        best: int,
        diagnosis: Diagnosis | None,
        shortage: str = "",
    ) -> Outcome:
        self.admission.tried(attempt.gang)
        if diagnosis is not None and diagnosis.error:
            return self._park_all(attempt, ERROR, diagnosis)
        self.wait_line.wait_for_nodes(attempt.gang, self._now)
        diagnosis = diagnosis or self._count_reasons(attempt.leader, attempt.pods)
        summary = self._describe_room(attempt, best, diagnosis, shortage)
        found = self._preempt(attempt)
        return self._park_all(attempt, NO_ROOM, replace(diagnosis, pre_filter=summary), found)

    def _describe_room(
        self, attempt: GangAttempt, best: int, diagnosis: Diagnosis, shortage: str
    ) -> str:
        """How many pods the gang wants, for how many there is room, and whether that can change."""
        gang, need, table = attempt.gang, attempt.need, self._cycle.snapshot.table
        requests = describe_requests(self._profiles, attempt.pods[:need], diagnosis.counts)
        summary = f"gang wants {need} {requests}".strip() + f", room for {best}"
        if shortage:
            summary += f" {shortage}" if shortage.startswith("in ") else f"; {shortage}"
        empty = room_when_empty(self._profiles, table, attempt.pods, gang.required_topology)
        if empty < need:
            summary += f" (can never fit on these nodes: {empty} when empty)"
        return summary

    def _preempt(
        self, attempt: GangAttempt, going: Sequence[PodInfo] = ()
    ) -> dict[str, PostFilterResult]:
        """By member's UID, its node after preemption and the victims; mostly empty."""
        if not self._refreshed():
            return {}
        pods = override_all(self._profiles, attempt.pods, past_reservations)
        options = preemption_options(
            self._profiles, self._cycle.snapshot, attempt.gang, attempt.pods, attempt.need
        )
        for domains in options.domains:
            overridden = within_domains(self._profiles, pods, options.key, domains)
            members = [*zip(attempt.candidates, overridden, strict=True)]
            found = self._preemption.preempt(members, attempt.quorum(), attempt.pods, going)
            for queued in attempt.candidates:
                if queued.uid in found:
                    self._cycle.nominate(queued.info, found[queued.uid])
            if found:
                return found
        return {}

    def _park_all(
        self,
        attempt: GangAttempt,
        reason: str,
        diagnosis: Diagnosis,
        found: dict[str, PostFilterResult] | None = None,
    ) -> Outcome:
        """Park all members; one of each shape waits for events that may help."""
        gang, leader = attempt.gang, attempt.leader
        if diagnosis.error:
            self._queue.fail(leader, self._now)
        else:
            self._queue.mark_unschedulable(
                leader, diagnosis.plugins, self._now, pending=diagnosis.pending
            )
        signatures = {self._profiles.sign(leader.info)}
        for queued in attempt.candidates:
            if queued is leader:
                continue
            signature = self._profiles.sign(queued.info)
            listens = signature not in signatures and not diagnosis.error
            signatures.add(signature)
            self._queue.park(queued.uid, diagnosis.plugins if listens else _ASLEEP, self._now)
        found = found or {}
        if not found:
            # Nominations that it cannot use now must not keep others from the nodes.
            if reason == OVER_QUOTA:
                self._preemption.withdraw(attempt.pods)
            else:
                self._preemption.under_way(attempt.pods)
        reported = [leader] if gang.reason == reason and not found else attempt.candidates
        if gang.note(reason, diagnosis.message):
            self._changed(gang)
        return Batch(
            tuple(Unschedulable(item, diagnosis, found.get(item.uid)) for item in reported)
        )

    def _park(
        self, gang: Gang, queued: QueuedPod, reason: str, message: str, of_pod: str = ""
    ) -> Outcome:
        """A pod of a gang waits; the gang's own message counts, the pod's must not grow stale."""
        self._preemption.withdraw([queued.info])
        if gang.note(reason, message):
            self._changed(gang)
        diagnosis = self._diagnosis(of_pod or message, _ASLEEP)
        return self._unschedulable(queued, replace(diagnosis, event_after_s=INCOMPLETE_EVENT_S))

    def _unschedulable(
        self, queued: QueuedPod, why: Diagnosis, preempts: PostFilterResult | None = None
    ) -> Outcome:
        self._queue.mark_unschedulable(queued, why.plugins, self._now)
        return Unschedulable(queued, why, preempts)

    def _on_withdrawn(self, pods: Sequence[PodInfo]) -> None:
        self._queue.move(ASSIGNED_POD_DELETE, self._now, pods[0].pod, None)
        self._withdrawn(pods)
        gang = self.groups.containing(pods[0].pod)
        if gang is not None:
            gang.reason = ""  # the conditions of its members name nodes: all are written again

    def _refreshed(self) -> bool:
        """Bring the snapshot up to date; False where it has to be repaired first."""
        try:
            self._cycle.refresh()
        except SnapshotInconsistent:
            return False
        return True

    def _diagnosis(
        self, waits: str, plugins: frozenset[str] = frozenset(), *, error: bool = False
    ) -> Diagnosis:
        nodes = self._cycle.snapshot.num_nodes
        return Diagnosis(nodes, plugins=plugins, waits=waits, error=error)

    def _nodes_for(self, gang: Gang) -> tuple[str, ...] | None:
        """Nodes that would hold what the gang still needs; None when no nodes would."""
        if gang.is_gated and not gang.members:
            self.admission.overtaken(gang)
        candidates = self._candidates(gang)[: gang.num_missing]
        if not candidates or gang.group is None:
            return None
        self._refreshed()  # pods were placed or forgotten since; one to be repaired serves as it is
        pods = shapes(self._profiles, [queued.info for queued in candidates])
        return choose(self._profiles, self._cycle.snapshot, pods, gang.required_topology)

    # --- gangs without pods ------------------------------------------------------------------

    def _room(self, priority: int | None, wanted: Amounts) -> dict[str, int]:
        self._refreshed()
        return self._preemption.room(priority, wanted)

    def _can_reclaim(self, queue: str, wanted: Amounts) -> bool:
        return self._refreshed() and bool(self._preemption.borrowers(queue, wanted))
