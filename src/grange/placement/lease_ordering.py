"""The order of the queue of machine leases, and who of those that come up may be granted."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf

from grange.api.kinds.leasepolicy import BACKFILL, STRICT, LeasePolicySpec
from grange.placement.lease_model import (
    BLOCKED_BY_HEAD,
    POOL_AVAILABILITY,
    POOL_CAPACITY,
    POOL_DRAINING,
    POOL_UNKNOWN,
    SEMAPHORE,
    Blocked,
    MachineCounts,
    WaitingLease,
    is_aged,
)

OrderKey = tuple[float, float, float, float, float]
"""What the queue is sorted by: priority, whether it waited for long, share, age, arrival."""

Need = tuple[tuple[str, int], ...]
"""Machines by pool, as a request has them."""

Alike = tuple[str, int, Need, tuple[str, ...], float | None]
"""All that decides about a request but its age: namespace, priority, need, semaphores, duration."""

Place = tuple[int, float, int, str]
"""Where a request is among those of its namespace: priority, age, arrival; and its uid."""

Shares = Mapping[str, int]

_Head = tuple[OrderKey, str]  # of the next one of a namespace


@dataclass(frozen=True, slots=True)
class LeaseLines:
    """Requests that wait, sorted in several ways; kept by the queue.

    Attributes:
        waiting: by uid.
        classes: places of those that are alike.
        by_pool: places by pool and namespace.
    """

    waiting: dict[str, WaitingLease]
    classes: dict[Alike, list[Place]]
    by_pool: defaultdict[str, defaultdict[str, list[Place]]]


class LeaseIterator:
    """Some classes in the order of the queue: the oldest of each, and the next of one that is granted.

    Within a namespace the order does not depend on its share. So those of a namespace are in a heap by
    their places, and shares decide only whose next one comes up.

    Args:
        share: the weighted share of a namespace, given how many machines each has.
        youngest: those that were created before have waited for long.
    """

    def __init__(
        self,
        lines: LeaseLines,
        held: Counter[str],
        share: Callable[[str, Shares], float],
        youngest: float,
    ) -> None:
        self._lines, self._youngest = lines, youngest
        self._held, self._weigh = held.copy(), share
        self._shares: dict[str, float] = {}
        self._turns: defaultdict[str, list[Place]] = defaultdict(list)  # heaps
        self._heads: list[_Head] = []
        self._granted: set[str] = set()
        self._place: Place = (0, 0.0, 0, "")  # of the request that came up last

    def __iter__(self) -> Iterator[WaitingLease]:
        while self._heads:
            namespace = heappop(self._heads)[1]
            self._place = heappop(self._turns[namespace])
            yield self._lines.waiting[self._place[3]]
            if line := self._turns[namespace]:
                heappush(self._heads, (self._key(line[0], namespace), namespace))

    def enter(self, classes: Iterable[Alike]) -> None:
        """Have the oldest of classes come up in their turn."""
        places, turns = self._lines.classes, self._turns
        for alike in classes:  # hundreds for one decision
            turns[alike[0]].append(places[alike][0])
        for line in turns.values():
            heapify(line)
        self._sort(turns)

    def keep(self, fits: Callable[[Need], bool]) -> None:
        """Only classes whose need fits come up from now on."""
        waiting, known = self._lines.waiting, dict[Need, bool]()
        for namespace, line in self._turns.items():
            kept: list[Place] = []
            for place in line:
                need = waiting[place[3]].need
                if (fit := known.get(need)) is None:
                    fit = known[need] = fits(need)
                if fit:
                    kept.append(place)
            heapify(kept)
            self._turns[namespace] = kept
        self._sort([namespace for _, namespace in self._heads])

    def grant(self, request: WaitingLease) -> None:
        """The request that came up last is granted: its class goes on with its next one."""
        namespace = request.namespace
        self._granted.add(request.uid)
        self._held[namespace] += sum(count for _, count in request.need)
        self._shares.pop(namespace, None)
        line = self._lines.classes[alike_of(request)]
        follower = bisect_right(line, self._place)
        if follower < len(line):
            heappush(self._turns[namespace], line[follower])

    def first(
        self, pool: str, before: WaitingLease, where: Callable[[WaitingLease], bool]
    ) -> WaitingLease | None:
        """The first request for the pool that comes before the one that came up last, and that is so."""
        best, least = None, self._key(self._place, before.namespace)
        for namespace, line in self._lines.by_pool[pool].items():
            share = self._share(namespace)
            for place in line:
                if place[3] in self._granted:
                    continue
                if (key := order_key(place, share, self._youngest)) >= least:
                    break
                if where(request := self._lines.waiting[place[3]]):
                    best, least = request, key
                    break
        return best

    def _sort(self, namespaces: Iterable[str]) -> None:
        turns = self._turns
        self._heads = [(self._key(turns[one][0], one), one) for one in namespaces if turns[one]]
        heapify(self._heads)

    def _key(self, place: Place, namespace: str) -> OrderKey:
        return order_key(place, self._share(namespace), self._youngest)

    def _share(self, namespace: str) -> float:
        if (share := self._shares.get(namespace)) is None:
            share = self._shares[namespace] = self._weigh(namespace, self._held)
        return share


def order_key(place: Place, share: float, youngest: float) -> OrderKey:
    """What the queue is sorted by; those that were created before ``youngest`` waited for long."""
    priority, created, number, _ = place
    if created <= youngest:
        return priority, 0, 0.0, created, number
    return priority, 1, share, created, number


def alike_of(request: WaitingLease) -> Alike:
    """The class of a request: all of a class are granted or blocked in the order of their age."""
    return (
        request.namespace,
        request.priority,
        request.need,
        request.semaphores,
        request.expected_s,
    )


class LeasePlanner:
    """Whether a waiting lease may be granted now, given those before it in the queue.

    The first lease of a pool that does not fit is protected: later leases may use machines of the pool
    only if they are expected to end before it can start, or use what it will leave over. That is EASY
    backfilling (D. Lifka, The ANL/IBM SP scheduling system, 1995) for several pools. Where the end of a
    grant is unknown so is the start of who waits for it, and nothing can be held back for it; once that
    lease has waited for long, nothing passes it.

    Args:
        ends: of a pool, when grants are expected to end and how many machines each has.
        queue: without what was let through.

    Attributes:
        free: machines that are left, by pool.
    """

    def __init__(
        self,
        policy: LeasePolicySpec,
        pools: Mapping[str, MachineCounts],
        semaphores: Mapping[str, int],
        ends: Callable[[str], Sequence[tuple[float, int]]],
        queue: LeaseIterator,
        now: float,
    ) -> None:
        self.free: dict[str, int] = {
            name: 0 if name in policy.draining_pools else counts.free
            for name, counts in pools.items()
        }
        self._policy = policy
        self._pools = pools
        self._semaphores = dict(semaphores)
        self._ends = ends
        self._queue = queue
        self._now = now
        self._taken: dict[str, list[tuple[float, int]]] = {}
        # Whom leases of a pool must not delay, from when on, and what it leaves over then.
        self._protected: dict[str, tuple[WaitingLease, float, float]] = {}
        self._releases: dict[str, list[tuple[float, int]]] = {}  # what ``_all_ends`` found
        # By need, when those must have ended that are not to delay another one.
        self._delaying: dict[tuple[tuple[str, int], ...], float] = {}

    def judge(self, request: WaitingLease) -> Blocked | None:
        """Why the lease is not granted; None if it is, and then its machines are taken.

        Those before it must have been judged, as far as they fit.
        """
        blocked = self._lacks(request)
        if blocked is None:
            blocked = self._passes(request)
        if blocked is None:
            self._take(request)
        return blocked

    def is_blocked(self, request: WaitingLease) -> bool:
        """Whether the lease would delay another as one did that came before and needs the same.

        What that would have delayed is before both. Cheap: thousands may be alike but for their
        durations.
        """
        start = self._delaying.get(request.need)
        return start is not None and self._end(request) > start

    def fits(self, request: WaitingLease) -> bool:
        """Whether so many machines are free."""
        return self.fits_need(request.need)

    def fits_need(self, need: tuple[tuple[str, int], ...]) -> bool:
        """Whether so many machines are free."""
        free = self.free
        for pool, count in need:  # noqa: SIM110  ``all`` takes three times as long
            if count > free.get(pool, 0):
                return False
        return True

    def _lacks(self, request: WaitingLease) -> Blocked | None:
        """What the lease waits for, if it is not another waiting lease."""
        if self.fits(request) and not request.semaphores:
            return None
        if (blocked := self._held_back(request)) is not None:
            return blocked
        for pool, count in sorted(request.need):
            if count > self.free[pool]:
                return Blocked(POOL_AVAILABILITY, pool)
        return None

    def _held_back(self, request: WaitingLease) -> Blocked | None:
        """What the lease waits for, if machines that are in use would not help it."""
        need, pools = request.need, self._pools
        for pool, _ in need:
            if pool not in pools:
                return Blocked(POOL_UNKNOWN, pool)
        for pool, count in sorted(need):
            if count > pools[pool].usable + pools[pool].more:
                return Blocked(POOL_CAPACITY, pool)
        for pool, _ in need:
            if pool in self._policy.draining_pools:
                return Blocked(POOL_DRAINING, pool)
        for name in request.semaphores:
            limit = self._policy.semaphores.get(name)
            if limit is not None and self._semaphores.get(name, 0) >= limit:
                return Blocked(SEMAPHORE, name)
        return None

    def _passes(self, request: WaitingLease) -> Blocked | None:
        """The earlier lease that this one would delay."""
        end = self._end(request)
        for pool, count in request.need:
            found = self._protected.get(pool)
            if found is None:
                head = self._queue.first(pool, request, self._is_protected)
                if head is None:
                    continue
                start = self._start(head)
                found = head, start, self._left(pool, head, start)
                self._protected[pool] = found
            head, start, left = found
            if end > start and count > left:
                self._delaying[request.need] = min(start, self._delaying.get(request.need, start))
                return Blocked(BLOCKED_BY_HEAD, pool, head.uid)
        return None

    def _is_protected(self, request: WaitingLease) -> bool:
        blocked = self._held_back(request)
        if self._policy.order == STRICT:
            return blocked is None or blocked.reason == SEMAPHORE
        return blocked is None and not self.fits(request)

    def _take(self, request: WaitingLease) -> None:
        self._protected.clear()
        self._delaying.clear()
        end = self._end(request)
        for pool, count in request.need:
            self.free[pool] -= count
            self._taken.setdefault(pool, []).append((end, count))
            self._releases.pop(pool, None)
        for name in request.semaphores:
            self._semaphores[name] = self._semaphores.get(name, 0) + 1

    def _end(self, request: WaitingLease) -> float:
        return inf if request.expected_s is None else self._now + request.expected_s

    def _start(self, head: WaitingLease) -> float:
        """When a protected lease can start, after which nothing may have its machines."""
        if self._policy.order == STRICT:
            return -inf
        aged = is_aged(head, self._policy, self._now)
        if self._policy.order != BACKFILL:
            return -inf if aged else inf
        start = max(self._free_from(pool, count) for pool, count in head.need)
        return -inf if aged and start == inf else start

    def _left(self, pool: str, head: WaitingLease, start: float) -> int:
        """How many machines of a pool the protected lease leaves over when it starts."""
        if start == -inf:
            return 0
        released = sum(count for end, count in self._all_ends(pool) if end <= start)
        return self.free[pool] + self._added(pool) + released - dict(head.need)[pool]

    def _free_from(self, pool: str, count: int) -> float:
        free = self.free[pool] + self._added(pool)
        if free >= count:
            return self._now  # what boots for it is soon there
        for end, released in self._all_ends(pool):
            free += released
            if free >= count:
                return end
        return inf

    def _added(self, pool: str) -> int:
        """Machines that NodePools add for those that wait; none to a pool that is drained."""
        return 0 if pool in self._policy.draining_pools else self._pools[pool].expected

    def _all_ends(self, pool: str) -> list[tuple[float, int]]:
        """When machines of a pool are released, soonest first."""
        found = self._releases.get(pool)
        if found is None:
            found = sorted([*self._ends(pool), *self._taken.get(pool, [])])
            self._releases[pool] = found
        return found
