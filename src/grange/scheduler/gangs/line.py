"""Who waits for nodes or for quota, and how those who come later are kept from starving them.

Others may be placed before a gang that waits, up to a number of pods. From then on, if it waits for
nodes and is the first of all who do, nodes are kept for it; if it waits for quota, its claim counts.
Both end when it is placed, cannot be placed at all, or its time is over.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from grange.scheduler.gangs.members import Gang
from grange.scheduler.gangs.quotas import Amounts, Quotas, Rank
from grange.scheduler.gangs.reservation import Reservation


@dataclass(slots=True)
class Line:
    """Those who wait.

    Attributes:
        quotas: where claims are made.
        reservation: the nodes that are kept.
        overtakes: how many pods may be placed before a gang that comes first.
        nodes_for: which nodes would hold a gang; None when no nodes would.
        for_nodes: gangs that wait for nodes, by key.
        for_quota: gangs that wait for quota, by key: their queue, and what they want.
        pods: single pods that wait for quota: their queue, by UID.
    """

    quotas: Quotas
    reservation: Reservation
    overtakes: int
    nodes_for: Callable[[Gang], tuple[str, ...] | None]
    for_nodes: dict[str, Gang] = field(default_factory=dict)
    for_quota: dict[str, tuple[Gang, str, Amounts]] = field(default_factory=dict)
    pods: dict[str, str] = field(default_factory=dict)
    _head: Gang | None = None

    @property
    def head(self) -> Gang | None:
        """The first of those who wait for nodes and could ever get them."""
        return self._head

    def wait_for_nodes(self, gang: Gang, now: float) -> None:
        """The gang found no room; again for one that waits, its nodes are chosen anew."""
        key = str(gang.key)
        self.for_quota.pop(key, None)
        self.for_nodes[key] = gang
        self._find_head()
        if self.reservation.owner == key:
            self._keep_nodes(gang, now)

    def wait_for_quota(self, gang: Gang, wanted: Amounts, now: float) -> None:
        """The gang is over quota: nodes are of no use to it."""
        key = str(gang.key)
        self.for_quota[key] = (gang, gang.queue, wanted)
        self._leave_nodes(key, now)

    def leave(self, gang: Gang, now: float) -> None:
        """The gang waits no longer."""
        key = str(gang.key)
        self.for_quota.pop(key, None)
        self.quotas.unclaim(key)
        gang.overtaken = 0
        self._leave_nodes(key, now)

    def start_anew(self, gang: Gang, now: float) -> None:
        """Its time is over: it goes on waiting behind all others of its priority."""
        key = str(gang.key)
        self.quotas.unclaim(key)
        gang.overtaken, gang.since, gang.rank = 0, now, (gang.rank[0], now)
        self._find_head()
        if self.reservation.owner == key:
            self.reservation.release(now)

    def placed(self, rank: Rank, count: int, queue: str, now: float) -> None:
        """So many pods were placed: count whom they overtook."""
        head = self._head
        if head is not None and rank > head.rank:
            head.overtaken += count
            if head.overtaken >= self.overtakes and self.reservation.owner != str(head.key):
                self._keep_nodes(head, now)
        if queue and self.for_quota:
            peers = self.quotas.peers(queue)
            waiting = [item for item in self.for_quota.values() if item[1] in peers]
            first = min(waiting, key=lambda item: item[0].rank, default=None)
            if first is not None and rank > first[0].rank:
                gang, wants_of, wanted = first
                gang.overtaken += count
                if gang.overtaken >= self.overtakes and not self.quotas.impossible(
                    wants_of, wanted
                ):
                    self.quotas.claim(str(gang.key), wants_of, wanted, gang.rank)

    def nodes_changed(self) -> None:
        """A node came or offers something else: who was hopeless may hope again."""
        if any(gang.hopeless for gang in self.for_nodes.values()):
            for gang in self.for_nodes.values():
                gang.hopeless = False
            self._find_head()

    def _keep_nodes(self, gang: Gang, now: float) -> None:
        names = self.nodes_for(gang)
        if names is None:
            gang.hopeless = True
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
        waiting = (gang for gang in self.for_nodes.values() if not gang.hopeless)
        self._head = min(waiting, key=lambda gang: gang.rank, default=None)
