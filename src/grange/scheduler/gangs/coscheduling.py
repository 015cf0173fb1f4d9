"""Which pods go together, and who may go at all: asked before every pod that is tried.

Theory of operation. The queue knows single pods. When a member of a gang comes to its head, it stands
for the whole: if the quorum is there and the quota has room, all of it is placed in one transaction,
or nobody. After a failure the members are put aside; one of each shape is turned down by the plugins
that refused, so that the events that may help bring the gang back, and the others sleep until then.
A failed attempt therefore costs little, and nothing at all until something happens.

A gang that was placed is *started*: members beyond the quorum, and those that are lost and made
again, are placed one by one. A gang never holds a part of what it needs while it waits for the
rest, so two gangs cannot wait for each other.

Who has the higher priority, then who has waited longer, comes first; see ``line`` for what that is
worth to a gang that waits.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from grange.api.kinds.podgroup import PREFERRED
from grange.api.kinds.queue import QUEUE_LABEL
from grange.scheduler.cache import Cache
from grange.scheduler.clusterevents import ASSIGNED_POD_DELETE
from grange.scheduler.cycle import Assumed, Batch, Cycle, Outcome, Unschedulable, Waiting
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.errors import SnapshotInconsistent
from grange.scheduler.framework import PostFilterResult, Profiles
from grange.scheduler.gangs import capacity, quotas, reservation
from grange.scheduler.gangs.event_handlers import Changed, GangEventHandlers
from grange.scheduler.gangs.pod_groups import Gang, PodGroups
from grange.scheduler.gangs.pod_overrides import past_reservations, within
from grange.scheduler.gangs.preemption import GangPreemption
from grange.scheduler.gangs.quotas import Quotas, Rank
from grange.scheduler.gangs.reclaim import borrowers
from grange.scheduler.gangs.reservation import Reservation
from grange.scheduler.gangs.topology_options import views
from grange.scheduler.gangs.transaction import Transaction
from grange.scheduler.gangs.wait_line import WaitLine
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.queued_pods import QueuedPod

GANG = "GangScheduling"
"""Who turns down pods that wait for others of their group."""
QUOTA = "Quota"
"""Who turns down pods that wait for their queue."""

# Words for what a gang waits for; its condition carries them as its reason.
NO_GROUP = "NoPodGroup"
TOO_FEW = "NotEnoughMembers"
INCOMPLETE_EVENT_S = 10.0
"""Pods of a gang are created one after the other, so an event about missing ones comes so late."""
OVER_QUOTA = "OverQuota"
NO_ROOM = "NoRoom"
ERROR = "SchedulerError"
HELD_BACK = "waits for its gang to be permitted to be bound"

_ASLEEP = frozenset({GANG})
_OVER = frozenset({QUOTA})
_ANY_PRIORITY = 2**31  # above all there are
_DOMAINS = 8  # to look for victims in


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What a gang is tried with."""

    gang: Gang
    leader: QueuedPod
    candidates: list[QueuedPod]
    need: int

    @property
    def queue(self) -> str:
        return self.gang.queue

    @property
    def wanted(self) -> quotas.Amounts:
        """What the first of them that are enough want."""
        return _wanted(self.candidates[: self.need])


class Coscheduling:
    """The gangs and queues of one scheduling loop.

    Args:
        profiles: the plugins.
        cycle: decides and assumes.
        cache: the state of the cluster.
        queue: the pods that wait.
        overtakes: how many pods may be placed before a gang that comes first.
        changed: told of every gang and queue whose status may be different.

    Attributes:
        withdrawn: told of pods whose promised room was taken back; the cluster is to know, too.
        book: who belongs to which group.
        quotas: what each queue uses.
        line: who waits.
        news: takes what the informers and the clock say.
        attempts: transactions begun (a work counter).
        rollbacks: those that were taken back.
    """

    def __init__(
        self,
        profiles: Profiles,
        cycle: Cycle,
        cache: Cache,
        queue: SchedulingQueue,
        *,
        overtakes: int = 64,
        changed: Changed = lambda what: None,
    ) -> None:
        self._profiles = profiles
        self._cycle = cycle
        self._queue = queue
        self._changed = changed
        self._now = 0.0
        self.withdrawn: Callable[[Sequence[PodInfo]], None] = lambda pods: None
        self.groups = PodGroups()
        self.quotas = Quotas()
        self.reservation = Reservation(cache, queue)
        self.wait_line = WaitLine(self.quotas, self.reservation, overtakes, self._nodes_for)
        self.handlers = GangEventHandlers(self.groups, self.quotas, self.wait_line, queue, changed)
        self.preemption = GangPreemption(cycle, self.groups, self._withdrawn)
        self._info = cache.info
        self.attempts = 0
        self.rollbacks = 0

    # --- the cycle ---------------------------------------------------------------------------

    def before(self, queued: QueuedPod, now: float) -> PodInfo | Outcome:
        """See ``cycle.Units``."""
        self._now = now
        pod = queued.info.pod
        if not pod.metadata.labels:
            return self._seen_by(queued)
        gang = self.groups.of(pod)
        if gang is None:
            return self._single(queued, pod.metadata.labels.get(QUEUE_LABEL, ""), now)
        if pod.metadata.uid not in gang.members:
            self.groups.update_pod(pod)
        if gang.group is None:
            return self._put_aside(
                gang, queued, NO_GROUP, f"pod group {gang.key} does not exist", now
            )
        if gang.started or gang.num_counted >= gang.min_member:
            if self._held_back(gang):
                self._queue.turn_down(queued, _ASLEEP, now)
                return Unschedulable(queued, self._rejection(HELD_BACK, _ASLEEP))
            return self._single(queued, gang.queue, now)
        if gang.num_present < gang.min_member:
            message = f"waits for minMember: {gang.num_present} of {gang.min_member} pods exist"
            told = f"waits until {gang.min_member} pods of pod group {gang.key} exist"
            return self._put_aside(gang, queued, TOO_FEW, message, now, told=told)
        return self._try(gang, queued, now)

    def placed(self, placed: Assumed) -> None:
        """See ``cycle.Units``."""
        pod = placed.info.pod
        queue = self.handlers.assume_pod(pod) if pod.metadata.labels else ""
        if queue or self.wait_line.head is not None:
            self.wait_line.count_overtakes(_rank(placed.queued), 1, queue, self._now)

    def taken_back(self, placed: Assumed) -> None:
        """See ``cycle.Units``."""
        self.handlers.forget_pod(placed.info.pod)

    def gang_victims(self, victims: tuple[PodInfo, ...], pod: PodInfo) -> tuple[PodInfo, ...]:
        """See ``cycle.Units``."""
        return self.preemption.gang_victims(victims, pod.pod.spec.priority)

    def failed(self, queued: QueuedPod, rejection: Diagnosis, now: float) -> Outcome | None:
        """See ``cycle.Units``."""
        gang = self.groups.containing(queued.info.pod)
        if gang is None or gang.started:
            return None
        attempt = _Attempt(gang, queued, self._candidates(gang), 0)
        return self._turn_down(attempt, ERROR, rejection, now)

    def permits_decided(self, pods: Iterable[Assumed], now: float) -> None:
        """Pods are held no longer: members of their gangs that waited for that go on."""
        for gang in dict.fromkeys(self.groups.containing(placed.info.pod) for placed in pods):
            if gang is not None and gang.started:
                found = [self._queue.find(pod.metadata.uid) for pod in gang.waiting()]
                asleep = [item.uid for item in found if item and item.rejectors == _ASLEEP]
                self._queue.activate(asleep, now)

    def _held_back(self, gang: Gang) -> bool:
        """Whether the quorum may yet be taken back as a whole; who joined it would be left alone."""
        permits = self._cycle.permits
        held = sum(uid in permits for uid in gang.members) if permits else 0
        return bool(held) and gang.num_counted - held < gang.min_member

    # --- single pods -------------------------------------------------------------------------

    def _single(self, queued: QueuedPod, queue: str, now: float) -> PodInfo | Outcome:
        if queue:
            wanted = quotas.amounts(queued.info.request.resources)
            rank = _rank(queued)
            refusal = self.quotas.refusal(queue, wanted, rank)
            if refusal:
                self.wait_line.add_pod(queued.uid, queue, wanted, rank)
                room = self._reclaim(queued, queue, wanted)
                if room is None:
                    self.preemption.withdraw([queued.info])
                self._queue.turn_down(queued, _OVER, now)
                self._changed(queue)
                return Unschedulable(queued, self._rejection(refusal, _OVER), room)
            self.wait_line.remove_pod(queued.uid)
        return self._seen_by(queued)

    def _reclaim(
        self, queued: QueuedPod, queue: str, wanted: quotas.Amounts
    ) -> PostFilterResult | None:
        """What a pod does to get its queue's own capacity back; None if that is no use."""
        going = self._borrowers(queue, wanted)
        if not going:
            return None
        try:
            self._cycle.refresh()
        except SnapshotInconsistent:
            return None
        found = self.preemption.make_room([(queued, queued.info)], 1, [queued.info], going)
        room = found.get(queued.uid)
        if room is not None:
            self._cycle.promise(queued.info, room)
        return room

    def _seen_by(self, queued: QueuedPod) -> PodInfo:
        """Who comes before the gang that nodes are kept for may use them."""
        head = self.wait_line.for_nodes.get(self.reservation.owner)
        if head is None or _rank(queued) > head.rank:
            return queued.info
        return past_reservations(queued.info)

    # --- gangs -------------------------------------------------------------------------------

    def _try(self, gang: Gang, leader: QueuedPod, now: float) -> Outcome:
        candidates = self._candidates(gang)
        need = gang.min_member - gang.num_counted
        if len(candidates) < need:
            message = f"waits for minMember: {len(candidates)} of {need} pods may be scheduled"
            told = f"waits until {need} more pods of pod group {gang.key} may be scheduled"
            return self._put_aside(gang, leader, TOO_FEW, message, now, told=told)
        if gang.waiting_since is None:
            gang.waiting_since = now
        gang.rank = (-float(candidates[0].info.pod.spec.priority), gang.waiting_since)
        attempt = _Attempt(gang, leader, candidates, need)
        self.quotas.renew(str(gang.key), attempt.wanted, gang.rank)  # members came, went or changed
        refusal = self._refusal(attempt)
        if refusal:
            return self._over_quota(attempt, refusal, now)
        return self._place_all(attempt, now)

    def _candidates(self, gang: Gang) -> list[QueuedPod]:
        """The members that may be placed now, the most important first, then the oldest."""
        found = [self._queue.find(pod.metadata.uid) for pod in gang.waiting()]
        free = [item for item in found if item is not None and not item.gate]
        free = [item for item in free if not item.info.pod.metadata.deletion_timestamp]
        free.sort(key=lambda item: (*_rank(item), item.info.pod.metadata.name))
        return free

    def _place_all(self, attempt: _Attempt, now: float) -> Outcome:
        gang, need = attempt.gang, attempt.need
        try:
            self._cycle.refresh()
        except SnapshotInconsistent as error:
            return self._no_place(attempt, 0, self._rejection(str(error), error=True), now)
        pods = [queued.info for queued in attempt.candidates]
        head = self.wait_line.for_nodes.get(self.reservation.owner)
        if head is not None and gang.rank <= head.rank:
            pods = [past_reservations(pod) for pod in pods]
        found = views(self._profiles, self._cycle.snapshot, gang, pods, need)
        best, rejection = 0, None
        for domains in found.ways:
            seen = found.seen(pods, domains)
            self.attempts += 1
            transaction = Transaction(self._cycle)
            spare = len(pods) - need
            for queued, info in zip(attempt.candidates, seen, strict=True):
                if len(transaction.placed) == need or spare < 0 or transaction.failed:
                    break
                spare -= not transaction.place(queued, info)
            if len(transaction.placed) == need and not transaction.failed:
                refusal = self._refusal(attempt, transaction)
                if not refusal:
                    return self._commit(attempt, transaction, now)
                self._roll_back(transaction)
                return self._over_quota(attempt, refusal, now)
            best = max(best, len(transaction.placed))
            rejection = rejection or transaction.rejection
            self._roll_back(transaction)
            if transaction.failed:
                return self._no_place(attempt, best, transaction.rejection, now)
        return self._no_place(
            attempt, best if found.ways else found.room, rejection, now, found.lack
        )

    def _roll_back(self, transaction: Transaction) -> None:
        self.rollbacks += 1
        transaction.roll_back()

    def _commit(self, attempt: _Attempt, transaction: Transaction, now: float) -> Outcome:
        gang = attempt.gang
        chosen = dict.fromkeys(placed.uid for placed in transaction.placed)
        # The leader first: from here on the attempt cannot be taken for one that is still made.
        if attempt.leader.uid in chosen:
            self._queue.done(attempt.leader)
        else:
            self._queue.turn_down(attempt.leader, _ASLEEP, now)
        for placed in transaction.placed:
            if placed.queued is not attempt.leader:
                placed.queued.attempts += 1
                self._queue.delete(placed.uid)
            self.handlers.assume_pod(placed.info.pod)
        gang.was_placed = True
        self.handlers.stop_waiting(gang, now)
        self.wait_line.count_overtakes(gang.rank, len(chosen), attempt.queue, now)
        rest = [queued.uid for queued in attempt.candidates if queued.uid not in chosen]
        self._queue.activate(rest, now)
        if transaction.waits:
            self._cycle.permits.hold(transaction.placed, transaction.waits, now)
            return Waiting(tuple(transaction.placed))
        return Batch(tuple(transaction.placed))

    # --- failures ----------------------------------------------------------------------------

    def _refusal(self, attempt: _Attempt, transaction: Transaction | None = None) -> str:
        """What the queue has against the gang: the first members, or those that were chosen."""
        if not attempt.queue:
            return ""
        wanted = attempt.wanted
        if transaction is not None:
            wanted = _wanted([placed.queued for placed in transaction.placed])
        return self.quotas.refusal(attempt.queue, wanted, attempt.gang.rank)

    def _over_quota(self, attempt: _Attempt, refusal: str, now: float) -> Outcome:
        self.wait_line.wait_for_quota(attempt.gang, attempt.wanted, now)
        self._changed(attempt.queue)
        going = self._borrowers(attempt.queue, attempt.wanted)
        rooms = self._make_room(attempt, going) if going else {}
        return self._turn_down(attempt, OVER_QUOTA, self._rejection(refusal, _OVER), now, rooms)

    def _borrowers(self, queue: str, wanted: quotas.Amounts) -> tuple[PodInfo, ...]:
        """Who has to give back what the queue may have."""

        def gang_victims(
            victims: Sequence[PodInfo], gone: Sequence[PodInfo]
        ) -> tuple[PodInfo, ...]:
            return self.preemption.gang_victims(victims, _ANY_PRIORITY, gone)

        return borrowers(self.quotas, self._info, gang_victims, queue, wanted)

    def _no_place(
        self,
        attempt: _Attempt,
        best: int,
        rejection: Diagnosis | None,
        now: float,
        lack: str = "",
    ) -> Outcome:
        if rejection is not None and rejection.error:
            return self._turn_down(attempt, ERROR, rejection, now)
        self.wait_line.wait_for_nodes(attempt.gang, now)
        story = f"gang wants {attempt.need}, room for {best}"
        if lack:
            story += f" {lack}" if lack.startswith("in ") else f"; {lack}"
        filters = frozenset(name for name, _ in self._profiles.of(attempt.leader.info).filters)
        told = Diagnosis(
            self._cycle.snapshot.num_nodes,
            counts=() if rejection is None else rejection.counts,
            plugins=filters if rejection is None else rejection.plugins,
            pre_filter=story,
        )
        return self._turn_down(attempt, NO_ROOM, told, now, self._make_room(attempt))

    def _make_room(
        self, attempt: _Attempt, going: Sequence[PodInfo] = ()
    ) -> dict[str, PostFilterResult]:
        """By preemption: by member, where it goes and who has to go for it; often nobody."""
        try:
            self._cycle.refresh()
        except SnapshotInconsistent:
            return {}
        members = [(queued, past_reservations(queued.info)) for queued in attempt.candidates]
        waiting = [queued.info for queued in attempt.candidates]
        group = attempt.gang.group
        topology = None if group is None else group.spec.topology
        ways: list[tuple[str, ...]] = [()]
        if topology is not None and topology.mode != PREFERRED:
            ways = self._domains(attempt, topology.key)
        for domains in ways:
            seen = members
            if topology is not None and domains:
                seen = [(queued, within(info, topology.key, domains)) for queued, info in members]
            found = self.preemption.make_room(seen, attempt.need, waiting, going)
            for queued in attempt.candidates:
                if queued.uid in found:
                    self._cycle.promise(queued.info, found[queued.uid])
            if found:
                return found
        return {}

    def _domains(self, attempt: _Attempt, key: str) -> list[tuple[str, ...]]:
        """A few domains that would hold the gang if they were empty, the roomiest now first."""
        table = self._cycle.snapshot.table
        shapes = capacity.shapes(self._profiles, [queued.info for queued in attempt.candidates])
        empty = capacity.Capacity.of(self._profiles, table, shapes, empty=True).by_domain(
            table, key
        )
        now = capacity.Capacity.of(self._profiles, table, shapes).by_domain(table, key)
        fitting = [value for value, fits in empty.items() if fits >= attempt.need]
        fitting.sort(key=lambda value: (-now.get(value, 0), value))
        return [(value,) for value in fitting[:_DOMAINS]]

    def _turn_down(
        self,
        attempt: _Attempt,
        reason: str,
        rejection: Diagnosis,
        now: float,
        rooms: dict[str, PostFilterResult] | None = None,
    ) -> Outcome:
        """Put all members aside; one of each shape listens for events that may help."""
        gang, leader = attempt.gang, attempt.leader
        if rejection.error:
            self._queue.fail(leader, now)
        else:
            self._queue.turn_down(leader, rejection.plugins, now)
        shapes = {self._profiles.sign(leader.info)}
        for queued in attempt.candidates:
            if queued is leader:
                continue
            shape = self._profiles.sign(queued.info)
            listens = shape not in shapes and not rejection.error
            shapes.add(shape)
            self._queue.shelve(queued.uid, rejection.plugins if listens else _ASLEEP, now)
        rooms = rooms or {}
        if not rooms:
            # Room that it cannot use now must not stay promised to it.
            useless = (
                self.preemption.withdraw if reason == OVER_QUOTA else self.preemption.under_way
            )
            useless([queued.info for queued in attempt.candidates])
        told = [leader] if gang.reason == reason and not rooms else attempt.candidates
        self._note(gang, reason, rejection.message)
        return Batch(tuple(Unschedulable(item, rejection, rooms.get(item.uid)) for item in told))

    def _put_aside(
        self, gang: Gang, queued: QueuedPod, reason: str, message: str, now: float, told: str = ""
    ) -> Outcome:
        """A pod of a gang waits; the gang's own message counts, the pod's must not grow stale."""
        self.preemption.withdraw([queued.info])
        self._queue.turn_down(queued, _ASLEEP, now)
        self._note(gang, reason, message)
        rejection = self._rejection(told or message, _ASLEEP)
        return Unschedulable(queued, replace(rejection, event_after_s=INCOMPLETE_EVENT_S))

    def _withdrawn(self, pods: Sequence[PodInfo]) -> None:
        self._queue.move(ASSIGNED_POD_DELETE, self._now, pods[0].pod, None)
        self.withdrawn(pods)
        gang = self.groups.containing(pods[0].pod)
        if gang is not None:
            gang.reason = ""  # its members were told where they would go: all need a new word

    def _note(self, gang: Gang, reason: str, message: str) -> None:
        if (gang.reason, gang.message) != (reason, message):
            gang.reason, gang.message = reason, message
            self._changed(gang)

    def _rejection(
        self, waits: str, plugins: frozenset[str] = frozenset(), *, error: bool = False
    ) -> Diagnosis:
        nodes = self._cycle.snapshot.num_nodes
        return Diagnosis(nodes, plugins=plugins, waits=waits, error=error)

    def _nodes_for(self, gang: Gang) -> tuple[str, ...] | None:
        """Nodes that would hold what the gang still needs; None when no nodes would."""
        candidates = self._candidates(gang)[: gang.min_member - gang.num_counted]
        if not candidates or gang.group is None:
            return None
        shapes = capacity.shapes(self._profiles, [queued.info for queued in candidates])
        topology = gang.group.spec.topology
        key = "" if topology is None or topology.mode == PREFERRED else topology.key
        return reservation.choose(self._profiles, self._cycle.snapshot, shapes, key)


def _rank(queued: QueuedPod) -> Rank:
    return -float(queued.info.pod.spec.priority), queued.first_queued


def _wanted(pods: list[QueuedPod]) -> dict[str, int]:
    return quotas.total(quotas.amounts(queued.info.request.resources) for queued in pods)
