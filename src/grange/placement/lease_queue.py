"""The queue of machine leases: who waits, who has machines, and who is granted next.

Theory of operation. The queue is sorted by priority, then leases that have waited for long, then the
weighted share of all granted machines that their namespace has, then age. Waiting leases that are
alike in everything that decides (namespace, priority, machines, semaphores, expected duration) are one
class: when the oldest of a class is blocked, so are the others. Classes are kept by the pool of which
they need most machines, and a decision looks only at those that this pool has enough free machines
for: its cost does not depend on how many leases wait for busy pools.

Pure: callers report what is (``put``, ``hold``, ``set_pool``), ask, and report what they did.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TypeVar

from grange.api.kinds.leasepolicy import LeasePolicySpec
from grange.placement.lease_model import (
    CONCURRENCY,
    PAUSED,
    Blocked,
    GrantedLease,
    MachineCounts,
    WaitingLease,
)
from grange.placement.lease_ordering import (
    Alike,
    LeaseIterator,
    LeaseLines,
    LeasePlanner,
    Need,
    Place,
    Shares,
    alike_of,
)


@dataclass(frozen=True, slots=True)
class LeaseDecision:
    """What was decided about the queue.

    Attributes:
        granted: requests to grant now, in order.
        blocked: why others wait, by uid of the oldest request of each class that was looked at.
    """

    granted: tuple[WaitingLease, ...]
    blocked: Mapping[str, Blocked]


class LeaseQueue:
    """Waiting and granted leases, pools, and the policy, which may be replaced at any time.

    Attributes:
        judged: how many classes were looked at since the start.
    """

    def __init__(self, policy: LeasePolicySpec | None = None) -> None:
        self.policy = policy or LeasePolicySpec()
        self.judged = 0
        self._waiting: dict[str, WaitingLease] = {}
        self._numbers: dict[str, int] = {}
        self._count = 0
        self._classes: dict[Alike, list[Place]] = {}
        self._by_need: defaultdict[str, defaultdict[int, dict[Need, dict[Alike, None]]]] = (
            defaultdict(lambda: defaultdict(dict))
        )
        self._pool_lines: defaultdict[str, defaultdict[str, list[Place]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._sizes: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._granted: dict[str, GrantedLease] = {}
        self._holders: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._shares: Counter[str] = Counter()
        self._semaphores: Counter[str] = Counter()
        self._pools: dict[str, MachineCounts] = {}

    # --- what is ------------------------------------------------------------------------------

    def put(self, request: WaitingLease) -> None:
        """A lease waits, or does so with other values; one that had a place keeps it."""
        known = self._waiting.get(request.uid)
        if known == request:
            return
        if known is not None:
            self._drop(known)
        if request.uid not in self._numbers:
            self._count += 1
            self._numbers[request.uid] = self._count
        self._waiting[request.uid] = request
        alike, place = alike_of(request), self._place(request)
        insort(self._classes.setdefault(alike, []), place)
        pool, most = _most(request)
        self._by_need[pool][most].setdefault(request.need, {})[alike] = None
        for pool, count in request.need:
            insort(self._pool_lines[pool][request.namespace], place)
            self._sizes[pool][count] += 1

    def remove(self, uid: str) -> None:
        """A lease does not wait any more, and has no machines."""
        self.release(uid)
        if (known := self._waiting.pop(uid, None)) is not None:
            self._drop(known)
        self._numbers.pop(uid, None)

    def hold(self, grant: GrantedLease) -> None:
        """A lease has machines, or is being given them: it does not wait."""
        if self._granted.get(grant.uid) == grant:
            return
        self.release(grant.uid)
        if (known := self._waiting.pop(grant.uid, None)) is not None:
            self._drop(known)
        self._granted[grant.uid] = grant
        self._count_grant(grant, 1)

    def release(self, uid: str) -> None:
        """A lease has no machines any more."""
        if (grant := self._granted.pop(uid, None)) is not None:
            self._count_grant(grant, -1)

    def set_pool(self, name: str, counts: MachineCounts | None) -> bool:
        """A pool has so many machines, or is gone; whether that changes anything."""
        if self._pools.get(name) == counts:
            return False
        if counts is None:
            self._pools.pop(name, None)
        else:
            self._pools[name] = counts
        return True

    # --- what is asked ------------------------------------------------------------------------

    @property
    def waiting(self) -> Mapping[str, WaitingLease]:
        """Requests that wait, by uid."""
        return self._waiting

    @property
    def granted(self) -> Mapping[str, GrantedLease]:
        """Grants, by uid."""
        return self._granted

    @property
    def pools(self) -> Mapping[str, MachineCounts]:
        """Pools by name."""
        return self._pools

    @property
    def semaphores(self) -> Mapping[str, int]:
        """How many grants take each semaphore."""
        return self._semaphores

    def holders(self, pool: str) -> list[tuple[GrantedLease, int]]:
        """Who has how many machines of a pool, most first."""
        found = [(self._granted[uid], count) for uid, count in self._holders[pool].items()]
        return sorted(found, key=lambda item: (-item[1], item[0].holder, item[0].uid))

    def ends(self, pool: str, now: float) -> list[tuple[float, int]]:
        """When the grants of a pool are expected to end, and how many machines each has."""
        held = self._holders.get(pool) or {}
        return [(self._granted[uid].end(now), count) for uid, count in held.items()]

    def queue_length(self) -> dict[str, int]:
        """Requests that wait, by pool."""
        return {pool: sizes.total() for pool, sizes in self._sizes.items()}

    def impossible(self) -> list[tuple[WaitingLease, str, int | None]]:
        """Requests that no machine of a pool could ever be granted to: request, pool and its size.

        The size is that to which the pool may grow, and None where the pool is unknown. Unknown pools come first, in the order of the
        request, then those that are too small, by name.
        """
        found: dict[str, tuple[WaitingLease, str, int | None]] = {}
        for pool, sizes in self._sizes.items():
            counts = self._pools.get(pool)
            total = counts.capacity if counts is not None else 0
            if not sizes or max(sizes) <= total:
                continue
            for line in self._pool_lines[pool].values():
                for *_, uid in line:
                    if dict(self._waiting[uid].need)[pool] > total:
                        found.setdefault(uid, self._fault(self._waiting[uid]))
        return [found[uid] for uid in sorted(found, key=self._numbers.__getitem__)]

    def growing(self, now: float) -> frozenset[str]:
        """Uids of those that would be granted now if pools had all machines that they may have.

        These are the ones that pools grow for: what order, limits and fair shares hold back makes none.
        """
        if not any(counts.more for counts in self._pools.values()):
            return frozenset()
        decision = self.decide(now, grown=True)
        return frozenset(
            request.uid
            for request in decision.granted
            if any(self._pools[pool].more for pool, _ in request.need)
        )

    def decide(self, now: float, *, whole: bool = False, grown: bool = False) -> LeaseDecision:
        """Who is granted now; nothing is changed.

        Args:
            now: seconds of the wall clock, as in requests and grants.
            whole: look at every class, for the reason why it waits.
            grown: as if pools had all machines that they may have.
        """
        policy = self.policy
        room = inf if policy.max_granted is None else policy.max_granted - len(self._granted)
        if policy.paused or room <= 0:
            why = Blocked(PAUSED if policy.paused else CONCURRENCY)
            blocked = dict.fromkeys((line[0][3] for line in self._classes.values()), why)
            return LeaseDecision((), blocked if whole else {})
        iterator = self._iterator(now)
        ends = partial(self.ends, now=now)
        pools = self._pools
        if grown:
            pools = {name: counts.grown() for name, counts in pools.items()}
        planner = LeasePlanner(policy, pools, self._semaphores, ends, iterator, now)
        granted: list[WaitingLease] = []
        reasons: dict[str, Blocked] = {}
        needs = self._fitting(planner)
        iterator.enter(self._classes if whole else self._candidates(planner, needs))
        for request in iterator:
            if not whole and (room <= 0 or not needs):
                break
            if not whole and planner.is_blocked(request):
                continue
            self.judged += 1
            why_not = Blocked(CONCURRENCY) if room <= 0 else planner.judge(request)
            if why_not is not None:
                reasons[request.uid] = why_not
                continue
            granted.append(request)
            room -= 1
            iterator.grant(request)
            left = [(pool, most) for pool, most in needs if most <= planner.free[pool]]
            if not whole and len(left) < len(needs):
                iterator.keep(
                    planner.fits_need
                )  # hundreds came up for the machines that are gone now
            needs = left
        return LeaseDecision(tuple(granted), reasons)

    def share(self, namespace: str, shares: Shares) -> float:
        """The weighted share of a namespace, given how many machines each has."""
        weight = max(1, self.policy.namespace_weights.get(namespace, 1))
        return shares.get(namespace, 0) / weight

    def in_order(self, now: float) -> Iterator[WaitingLease]:
        """All that wait, in the order in which they would be granted if every one fitted.

        Shares count what those before would have then.
        """
        iterator = self._iterator(now)
        iterator.enter(self._classes)
        for request in iterator:
            yield request
            iterator.grant(request)

    def classmates(self, uid: str) -> list[str]:
        """The requests that are alike, this one among them, oldest first."""
        return [place[3] for place in self._classes[alike_of(self._waiting[uid])]]

    def _iterator(self, now: float) -> LeaseIterator:
        lines = LeaseLines(self._waiting, self._classes, self._pool_lines)
        return LeaseIterator(lines, self._shares, self.share, now - self.policy.aging_seconds)

    # --- details ------------------------------------------------------------------------------

    def _fault(self, request: WaitingLease) -> tuple[WaitingLease, str, int | None]:
        for pool, _ in request.need:
            if pool not in self._pools:
                return request, pool, None
        for pool, count in sorted(request.need):
            if count > self._pools[pool].capacity:
                return request, pool, self._pools[pool].capacity
        raise AssertionError(f"{request.uid} is possible")

    def _fitting(self, planner: LeasePlanner) -> list[tuple[str, int]]:
        """Pools and how many machines of them, of requests that need most machines there."""
        return [
            (pool, most)
            for pool, sizes in self._by_need.items()
            for most in sizes
            if most <= planner.free.get(pool, 0)
        ]

    def _candidates(
        self, planner: LeasePlanner, needs: Iterable[tuple[str, int]]
    ) -> Iterator[Alike]:
        """Classes whose machines are free."""
        for where, most in needs:
            for need, classes in self._by_need[where][most].items():
                if len(need) == 1 or planner.fits_need(need):
                    yield from classes

    def _place(self, request: WaitingLease) -> Place:
        return -request.priority, request.created, self._numbers[request.uid], request.uid

    def _drop(self, request: WaitingLease) -> None:
        alike, place = alike_of(request), self._place(request)
        for pool, count in request.need:
            sizes, lines = self._sizes[pool], self._pool_lines[pool]
            _take_out(lines, request.namespace, place)
            sizes[count] -= 1
            if not sizes[count]:
                del sizes[count]
        if _take_out(self._classes, alike, place):
            pool, most = _most(request)
            needs = self._by_need[pool][most]
            del needs[request.need][alike]
            if not needs[request.need]:
                del needs[request.need]
            if not needs:
                del self._by_need[pool][most]

    def _count_grant(self, grant: GrantedLease, sign: int) -> None:
        for pool, count in grant.held:
            self._shares[grant.namespace] += sign * count
            if sign > 0:
                self._holders[pool][grant.uid] = count
            else:
                self._holders[pool].pop(grant.uid, None)
        for name in grant.semaphores:
            self._semaphores[name] += sign


def _most(request: WaitingLease) -> tuple[str, int]:
    """The pool of which most machines are needed, and how many."""
    return max(request.need, key=lambda item: item[1])


K = TypeVar("K")


def _take_out(lines: dict[K, list[Place]], key: K, place: Place) -> bool:
    """Remove a place from a line; whether the line was its last and is gone."""
    line = lines[key]
    del line[bisect_left(line, place)]
    if not line:
        del lines[key]
    return not line
