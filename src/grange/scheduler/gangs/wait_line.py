"""The gangs and pods that wait for nodes or quota, and how later ones are kept from starving them.

Others may be placed before a gang that waits, as many as the queue policy allows. From then on, if it
waits for nodes and is the first of all that do, nodes are reserved for it; if it waits for quota, its
claim counts. Both end when it is placed, cannot be placed at all, or its timeout is over. A single
pod that waits for quota is treated alike; its claim ends as soon as its queue admits it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sortedcontainers import SortedKeyList

from grange.scheduler.gangs.pod_groups import Gang
from grange.scheduler.gangs.queue_policies import QueuePolicy
from grange.scheduler.gangs.quotas import Amounts, Quotas, Rank
from grange.scheduler.gangs.reservation import Reservation


@dataclass(slots=True)
class WaitLine:
    """Gangs and pods that wait.

    Attributes:
        quotas: where claims are made.
        reservation: the nodes that are reserved.
        policy: in which order they wait, and how many may overtake them.
        nodes_for: which nodes would hold a gang; None when no nodes would.
        for_nodes: gangs that wait for nodes, by key.
        for_quota: gangs and single pods that wait for quota.
        head: the first of those that wait for nodes and could ever get them.
    """

    quotas: Quotas
    reservation: Reservation
    policy: QueuePolicy
    nodes_for: Callable[[Gang], tuple[str, ...] | None]
    for_nodes: dict[str, Gang] = field(default_factory=dict)
    for_quota: "QuotaWaiters" = field(init=False)
    head: Gang | None = None

    def __post_init__(self) -> None:
        """Start with an empty line."""
        self.for_quota = QuotaWaiters(self.quotas.impossible)

    def gangs(self) -> list[Gang]:
        """All gangs that wait."""
        return [*self.for_nodes.values(), *self.for_quota.gangs.values()]

    def rank(self, gang: Gang, priority: int, now: float) -> None:
        """Give a gang of this priority its place; it waits from now on, unless it does already."""
        if gang.waiting_since is None:
            gang.waiting_since = now
        gang.priority = priority
        gang.rank = self.policy.rank(priority, gang.waiting_since)

    def wait_for_nodes(self, gang: Gang, now: float) -> None:
        """Add a gang that found no room, or choose its nodes again if it waits already."""
        key = str(gang.key)
        self.for_quota.drop(key)
        self.for_nodes[key] = gang
        self._find_head()
        if self.reservation.owner == key:
            self._reserve_nodes(gang, now)

    def wait_for_quota(self, gang: Gang, wanted: Amounts, now: float) -> None:
        """Add a gang that is over quota: nodes are of no use to it."""
        key = str(gang.key)
        self.for_quota.put(key, gang.queue, wanted, gang.rank, gang)
        self._leave_nodes(key, now)

    def add_pod(self, uid: str, queue: str, wanted: Amounts, rank: Rank) -> None:
        """Add a single pod that is over quota, or update one that waits already."""
        known = self.for_quota.get(uid)
        if known is not None and known.queue != queue:
            self.quotas.unclaim(uid)
        self.for_quota.put(uid, queue, wanted, rank)
        self.quotas.renew(uid, wanted, rank)

    def remove_pod(self, uid: str) -> None:
        """Remove a single pod; one that does not wait is fine."""
        if self.for_quota.drop(uid):
            self.quotas.unclaim(uid)

    def remove(self, gang: Gang, now: float) -> None:
        """Remove a gang; one that does not wait is fine."""
        key = str(gang.key)
        self.for_quota.drop(key)
        self.quotas.unclaim(key)
        gang.overtaken, gang.is_infeasible = 0, False
        self._leave_nodes(key, now)

    def restart(self, gang: Gang, now: float) -> None:
        """Put a gang whose timeout is over behind all others of its priority."""
        key = str(gang.key)
        self.quotas.unclaim(key)
        gang.overtaken, gang.waiting_since = 0, None
        self.rank(gang, gang.priority, now)
        waiter = self.for_quota.get(key)
        if waiter is not None:
            self.for_quota.put(key, waiter.queue, waiter.wanted, gang.rank, gang)
        self._find_head()
        if self.reservation.owner == key:
            self.reservation.release(now)

    def count_overtakes(self, rank: Rank, count: int, queue: str, now: float) -> None:
        """Count which of those that wait were overtaken by pods that were placed.

        Args:
            rank: of the pods.
            count: how many.
            queue: whose quota they use; empty for none.
            now: monotonic seconds.
        """
        head = self.head
        if head is not None and rank > head.rank:
            head.overtaken += count
            if self.policy.claims(head.overtaken) and self.reservation.owner != str(head.key):
                self._reserve_nodes(head, now)
        if queue and self.for_quota:
            first = self.for_quota.first(self.quotas.peers(queue))
            if first is not None and rank > first.rank:
                overtaken = first.gang or first
                overtaken.overtaken += count
                if self.policy.claims(overtaken.overtaken):
                    self.quotas.claim(first.owner, first.queue, first.wanted, first.rank)

    def nodes_changed(self) -> None:
        """Look again at gangs that not even all nodes, empty, could hold."""
        if any(gang.is_infeasible for gang in self.for_nodes.values()):
            for gang in self.for_nodes.values():
                gang.is_infeasible = False
            self._find_head()

    def _reserve_nodes(self, gang: Gang, now: float) -> None:
        names = self.nodes_for(gang)
        if names is None:
            gang.is_infeasible = True
            if self.reservation.owner == str(gang.key):
                self.reservation.release(now)
            self._find_head()
        else:
            self.reservation.hold(str(gang.key), names, now)

    def _leave_nodes(self, key: str, now: float) -> None:
        if self.for_nodes.pop(key, None) is not None:
            self._find_head()
        if self.reservation.owner == key:
            self.reservation.release(now)

    def _find_head(self) -> None:
        waiting = (gang for gang in self.for_nodes.values() if not gang.is_infeasible)
        self.head = min(waiting, key=lambda gang: gang.rank, default=None)


@dataclass(slots=True, eq=False)
class QuotaWaiter:
    """A gang or pod that waits for quota.

    Attributes:
        owner: the key of the gang, or the UID of the pod.
        queue: of which queue.
        wanted: how much.
        rank: the place in line.
        gang: None for a single pod.
        overtaken: how many pods that come after a single pod were placed meanwhile.
    """

    owner: str
    queue: str
    wanted: Amounts
    rank: Rank
    gang: Gang | None = None
    overtaken: int = 0


class QuotaWaiters:
    """Those that wait for quota, by queue in order.

    Sorted, since thousands of pods may wait and the first is asked for with every pod that is placed.

    Args:
        impossible: whether a queue could never admit so much; such waiters are passed over.

    Attributes:
        gangs: those that are gangs, by key: each turn of the scheduler looks at their timeouts.
    """

    def __init__(self, impossible: Callable[[str, Amounts], bool]) -> None:
        self.gangs: dict[str, Gang] = {}
        self._impossible = impossible
        self._all: dict[str, QuotaWaiter] = {}
        self._lines: dict[str, SortedKeyList[QuotaWaiter]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[QuotaWaiter]:
        return iter(self._all.values())

    def get(self, owner: str) -> QuotaWaiter | None:
        """The one of an owner; None where it does not wait."""
        return self._all.get(owner)

    def put(
        self, owner: str, queue: str, wanted: Amounts, rank: Rank, gang: Gang | None = None
    ) -> QuotaWaiter:
        """Add or update one that waits; in another queue its overtakes are counted from zero."""
        known = self._all.get(owner)
        if known is not None and (known.queue, known.rank) == (queue, rank):
            known.wanted = wanted
            return known  # in its place, among equals too
        self.drop(owner)
        if known is None or known.queue != queue:
            known = QuotaWaiter(owner, queue, wanted, rank, gang)
        known.wanted, known.rank = wanted, rank
        self._all[owner] = known
        if gang is not None:
            self.gangs[owner] = gang
        line = self._lines.get(queue)
        if line is None:
            line = self._lines[queue] = SortedKeyList(key=lambda waiter: waiter.rank)
        line.add(known)
        return known

    def drop(self, owner: str) -> bool:
        """Remove one; whether it was there."""
        known = self._all.pop(owner, None)
        if known is not None:
            self.gangs.pop(owner, None)
            line = self._lines[known.queue]
            line.remove(known)
            if not line:
                del self._lines[known.queue]
        return known is not None

    def first(self, queues: Iterable[str]) -> QuotaWaiter | None:
        """The first of those that wait for one of the queues and could ever be admitted."""
        heads = (
            next((item for item in self._lines.get(queue, ()) if self._is_possible(item)), None)
            for queue in queues
        )
        found = (head for head in heads if head is not None)
        return min(found, key=lambda waiter: waiter.rank, default=None)

    def _is_possible(self, waiter: QuotaWaiter) -> bool:
        return not self._impossible(waiter.queue, waiter.wanted)
