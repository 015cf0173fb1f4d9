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


class LeaseWalk:
    """Some classes in the order of the queue: the oldest of each, and the next of one that is granted.

    Within a namespace the order does not depend on its share. So those of a namespace are sorted by
    their places, and shares decide only whose next one comes up.

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
        self._turns: defaultdict[str, list[Place]] = defaultdict(list)  # the next one last
        self._heads: list[_Head] = []
        self._granted: set[str] = set()

    def __iter__(self) -> Iterator[WaitingLease]:
        while self._heads:
            namespace = heappop(self._heads)[1]
            yield self._lines.waiting[self._turns[namespace].pop()[3]]
            if line := self._turns[namespace]:
                heappush(self._heads, (self._key(line[-1], namespace), namespace))

    def enter(self, classes: Iterable[Alike]) -> None:
        """Have the oldest of classes come up in their turn."""
        places, turns = self._lines.classes, self._turns
        for alike in classes:  # hundreds for one decision
            turns[alike[0]].append(places[alike][0])
        for line in turns.values():
            line.sort(reverse=True)
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
            self._turns[namespace] = kept
        self._sort([namespace for _, namespace in self._heads])

    def grant(self, request: WaitingLease) -> None:
        """The request that came up last is granted: its class goes on with its next one."""
        namespace = request.namespace
        self._granted.add(request.uid)
        self._held[namespace] += sum(count for _, count in request.need)
        self._shares.pop(namespace, None)
        line = self._lines.classes[alike_of(request)]
        follower = self._index(line, request) + 1
        if follower < len(line):
            self._turns[namespace].append(line[follower])
            self._turns[namespace].sort(reverse=True)

    def first(
        self, pool: str, before: WaitingLease, where: Callable[[WaitingLease], bool]
    ) -> WaitingLease | None:
        """The first request for the pool that comes before another one and that is so."""
        best, least = None, self._key_of(before)
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
        self._heads = [(self._key(turns[one][-1], one), one) for one in namespaces if turns[one]]
        heapify(self._heads)

    def _key_of(self, request: WaitingLease) -> OrderKey:
        line = self._lines.classes[alike_of(request)]
        return self._key(line[self._index(line, request)], request.namespace)

    def _index(self, line: list[Place], request: WaitingLease) -> int:
        return next(index for index, place in enumerate(line) if place[3] == request.uid)

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
