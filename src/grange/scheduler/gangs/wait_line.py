"""Who waits for nodes or for quota, and how those who come later are kept from starving them.

Others may be placed before a gang that waits, up to a number of pods. From then on, if it waits for
nodes and is the first of all who do, nodes are kept for it; if it waits for quota, its claim counts.
Both end when it is placed, cannot be placed at all, or its time is over. A single pod that waits for
quota is treated alike; its claim ends as soon as its queue admits it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from grange.scheduler.gangs.pod_groups import Gang
from grange.scheduler.gangs.quota_waiters import QuotaWaiter, QuotaWaiters
from grange.scheduler.gangs.quotas import Amounts, Quotas, Rank
from grange.scheduler.gangs.reservation import Reservation


@dataclass(slots=True)
class WaitLine:
    """Those who wait.

    Attributes:
        quotas: where claims are made.
        reservation: the nodes that are kept.
        overtakes: how many pods may be placed before a gang that comes first.
        nodes_for: which nodes would hold a gang; None when no nodes would.
        for_nodes: gangs that wait for nodes, by key.
        for_quota: gangs that wait for quota, by key: their queue, and what they want.
        pods: single pods that wait for quota, by UID.
    """

    quotas: Quotas
    reservation: Reservation
    overtakes: int
    nodes_for: Callable[[Gang], tuple[str, ...] | None]
    for_nodes: dict[str, Gang] = field(default_factory=dict)
    for_quota: dict[str, tuple[Gang, str, Amounts]] = field(default_factory=dict)
    pods: dict[str, QuotaWaiter] = field(default_factory=dict)
    _head: Gang | None = None
    _waiters: QuotaWaiters = field(init=False)

    def __post_init__(self) -> None:
        """Nobody waits yet."""
        self._waiters = QuotaWaiters(self.quotas.impossible)

    @property
    def head(self) -> Gang | None:
        """The first of those who wait for nodes and could ever get them."""
        return self._head

    def wait_for_nodes(self, gang: Gang, now: float) -> None:
        """The gang found no room; again for one that waits, its nodes are chosen anew."""
        key = str(gang.key)
        self._leave_quota(key)
        self.for_nodes[key] = gang
        self._find_head()
        if self.reservation.owner == key:
            self._keep_nodes(gang, now)

    def wait_for_quota(self, gang: Gang, wanted: Amounts, now: float) -> None:
        """The gang is over quota: nodes are of no use to it."""
        key = str(gang.key)
        self.for_quota[key] = (gang, gang.queue, wanted)
        self._waiters.put(key, gang.queue, wanted, gang.rank)
        self._leave_nodes(key, now)

    def add_pod(self, uid: str, queue: str, wanted: Amounts, rank: Rank) -> None:
        """A single pod is over quota."""
        known = self.pods.get(uid)
        if known is not None and known.queue != queue:
            self.quotas.unclaim(uid)
        self.pods[uid] = self._waiters.put(uid, queue, wanted, rank)
        self.quotas.renew(uid, wanted, rank)

    def remove_pod(self, uid: str) -> bool:
        """A single pod waits for quota no longer; whether it did."""
        if self.pods.pop(uid, None) is None:
            return False
        self._waiters.drop(uid)
        self.quotas.unclaim(uid)
        return True

    def remove(self, gang: Gang, now: float) -> None:
        """The gang waits no longer."""
        key = str(gang.key)
        self._leave_quota(key)
        self.quotas.unclaim(key)
        gang.overtaken, gang.is_infeasible = 0, False
        self._leave_nodes(key, now)

    def restart(self, gang: Gang, now: float) -> None:
        """Its time is over: it goes on waiting behind all others of its priority."""
        key = str(gang.key)
        self.quotas.unclaim(key)
        gang.overtaken, gang.waiting_since, gang.rank = 0, now, (gang.rank[0], now)
        if key in self.for_quota:
            _, queue, wanted = self.for_quota[key]
            self._waiters.put(key, queue, wanted, gang.rank)
        self._find_head()
        if self.reservation.owner == key:
            self.reservation.release(now)

    def count_overtakes(self, rank: Rank, count: int, queue: str, now: float) -> None:
        """So many pods were placed: count whom they overtook."""
        head = self._head
        if head is not None and rank > head.rank:
            head.overtaken += count
            if head.overtaken >= self.overtakes and self.reservation.owner != str(head.key):
                self._keep_nodes(head, now)
        if queue and (self.for_quota or self.pods):
            first = self._waiters.first(self.quotas.peers(queue))
            if first is not None and rank > first.rank:
                gang = self.for_quota.get(first.owner)
                overtaken = first if gang is None else gang[0]
                overtaken.overtaken += count
                if overtaken.overtaken >= self.overtakes:
                    self.quotas.claim(first.owner, first.queue, first.wanted, first.rank)

    def grants_changed(self) -> None:
        """A queue may admit something else than before: who was hopeless may hope again."""
        self._waiters.grants_changed()

    def nodes_changed(self) -> None:
        """A node came or offers something else: who was hopeless may hope again."""
        if any(gang.is_infeasible for gang in self.for_nodes.values()):
            for gang in self.for_nodes.values():
                gang.is_infeasible = False
            self._find_head()

    def _keep_nodes(self, gang: Gang, now: float) -> None:
        names = self.nodes_for(gang)
        if names is None:
            gang.is_infeasible = True
            if self.reservation.owner == str(gang.key):
                self.reservation.release(now)
            self._find_head()
        else:
            self.reservation.hold(str(gang.key), names, now)

    def _leave_quota(self, key: str) -> None:
        if self.for_quota.pop(key, None) is not None:
            self._waiters.drop(key)

    def _leave_nodes(self, key: str, now: float) -> None:
        if self.for_nodes.pop(key, None) is not None:
            self._find_head()
        if self.reservation.owner == key:
            self.reservation.release(now)

    def _find_head(self) -> None:
        waiting = (gang for gang in self.for_nodes.values() if not gang.is_infeasible)
        self._head = min(waiting, key=lambda gang: gang.rank, default=None)
