"""The order of the queue of machine leases, and walks over those that may be granted."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from grange.placement.lease_model import WaitingLease

OrderKey = tuple[float, float, float, float, float]
"""What the queue is sorted by: priority, whether it waited for long, share, age, arrival."""

Need = tuple[tuple[str, int], ...]
"""Machines by pool, as a request has them."""

Alike = tuple[str, int, Need, tuple[str, ...], float | None]
"""All that decides about a request but its age: namespace, priority, need, semaphores, duration."""

Place = tuple[int, float, int, str]
"""Where a request is among those of its namespace: priority, age, arrival; and its uid."""

Shares = Mapping[str, int]

_Head = tuple[OrderKey, float, Alike, int]  # its key, share of its namespace, class, which of it


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


class LeaseWalk:
    """Some classes in the order of the queue: the oldest of each, and the next of one that is granted.

    Shares only grow during a walk, so a key that is out of date is too small and comes up early.

    Args:
        lines: all that wait.
        held: how many machines each namespace has.
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
        self._heads: list[_Head] = []
        self._granted: set[str] = set()
        self._at: tuple[Alike, int] | None = None

    def __iter__(self) -> Iterator[WaitingLease]:
        while self._heads:
            _, share, alike, index = heappop(self._heads)
            if share != self._shares[alike[0]]:
                self._push(alike, index)
                continue
            self._at = alike, index
            yield self._lines.waiting[self._lines.classes[alike][index][3]]

    def enter(self, classes: Iterable[Alike]) -> None:
        """Have the oldest of classes come up in their turn."""
        places, youngest, heads = self._lines.classes, self._youngest, self._heads
        shares = self._shares
        for alike in classes:  # hundreds for one decision
            if (share := shares.get(alike[0])) is None:
                share = self._share(alike[0])
            heads.append((order_key(places[alike][0], share, youngest), share, alike, 0))
        heapify(heads)

    def keep(self, fits: Callable[[Need], bool]) -> None:
        """Only classes whose need fits come up from now on."""
        kept = {need for need in {head[2][2] for head in self._heads} if fits(need)}
        self._heads = [head for head in self._heads if head[2][2] in kept]
        heapify(self._heads)

    def grant(self, request: WaitingLease) -> None:
        """The request that came up last is granted: its class goes on with its next one."""
        self._granted.add(request.uid)
        self._held[request.namespace] += sum(count for _, count in request.need)
        self._shares.pop(request.namespace)
        self._share(request.namespace)
        if self._at is not None:
            self._push(self._at[0], self._at[1] + 1)

    def first(
        self, pool: str, before: WaitingLease, where: Callable[[WaitingLease], bool]
    ) -> WaitingLease | None:
        """The first request for the pool that comes before another one and that is so."""
        best, least = None, self._key_of(before)
        for namespace, line in self._lines.by_pool[pool].items():
            for place in line:
                if place[3] in self._granted:
                    continue
                if (key := self._key(place, namespace)) >= least:
                    break
                if where(request := self._lines.waiting[place[3]]):
                    best, least = request, key
                    break
        return best

    def _push(self, alike: Alike, index: int) -> None:
        if index < len(self._lines.classes[alike]):
            heappush(self._heads, self._head(alike, index))

    def _head(self, alike: Alike, index: int) -> _Head:
        share = self._share(alike[0])
        place = self._lines.classes[alike][index]
        return order_key(place, share, self._youngest), share, alike, index

    def _key_of(self, request: WaitingLease) -> OrderKey:
        line = self._lines.classes[alike_of(request)]
        place = next(place for place in line if place[3] == request.uid)
        return self._key(place, request.namespace)

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
