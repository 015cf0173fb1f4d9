"""The first of those who wait for quota, found without looking at all of them.

A heap for each queue, since thousands of pods may wait and the first is asked for with every pod that
is placed. Entries of those who wait no more, or elsewhere, are dropped when they come to the top; so
are those whose queue could never admit them, to be put back when some grant changes. A heap goes with
the last who waits for its queue.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from grange.scheduler.gangs.quotas import Amounts, Rank

_SLACK = 64  # entries of nobody that are worth no clearing up

Entry = tuple[Rank, int, "QuotaWaiter"]


@dataclass(slots=True, eq=False)
class QuotaWaiter:
    """Somebody who waits for quota.

    Attributes:
        owner: who.
        queue: of which queue.
        wanted: how much.
        rank: the place in line.
        overtaken: how many pods that come after it were placed meanwhile.
    """

    owner: str
    queue: str
    wanted: Amounts
    rank: Rank
    overtaken: int = 0


class QuotaWaiters:
    """Those who wait for quota.

    Args:
        impossible: whether a queue could never admit so much.
    """

    def __init__(self, impossible: Callable[[str, Amounts], bool]) -> None:
        self._impossible = impossible
        self._all: dict[str, QuotaWaiter] = {}
        self._heaps: dict[str, list[Entry]] = {}
        self._counts: dict[str, int] = {}  # by queue how many wait for it
        self._infeasible: dict[str, None] = {}
        self._made = 0

    def put(self, owner: str, queue: str, wanted: Amounts, rank: Rank) -> QuotaWaiter:
        """Somebody waits, or still waits; for another queue it is counted anew how often overtaken."""
        known = self._all.get(owner)
        if known is None or known.queue != queue:
            self.drop(owner)
            known = self._all[owner] = QuotaWaiter(owner, queue, wanted, rank)
            self._counts[queue] = self._counts.get(queue, 0) + 1
            self._push(known)
            return known
        moved = known.rank != rank
        known.wanted, known.rank = wanted, rank
        if moved or owner in self._infeasible:
            self._infeasible.pop(owner, None)
            self._push(known)
        return known

    def drop(self, owner: str) -> None:
        """Somebody waits no more; who never did is fine."""
        known = self._all.pop(owner, None)
        if known is None:
            return
        self._infeasible.pop(owner, None)
        self._counts[known.queue] -= 1
        if not self._counts[known.queue]:
            del self._counts[known.queue], self._heaps[known.queue]

    def first(self, queues: Iterable[str]) -> QuotaWaiter | None:
        """Who comes first of those who wait for one of the queues and could ever be admitted."""
        found = (self._head(queue) for queue in queues)
        return min(
            (waiter for waiter in found if waiter is not None),
            key=lambda waiter: waiter.rank,
            default=None,
        )

    def grants_changed(self) -> None:
        """Who was infeasible may hope again."""
        infeasible, self._infeasible = self._infeasible, {}
        for owner in infeasible:
            self._push(self._all[owner])

    @property
    def queues(self) -> int:
        """How many queues something is kept of: those that somebody waits for."""
        return len(self._heaps)

    @property
    def entries(self) -> int:
        """How many entries there are, those that stand for nobody among them (a work counter)."""
        return sum(map(len, self._heaps.values()))

    def _head(self, queue: str) -> QuotaWaiter | None:
        heap = self._heaps.get(queue, [])
        while heap:
            waiter = heap[0][2]
            if self._is_current(heap[0]):
                if not self._impossible(queue, waiter.wanted):
                    return waiter
                self._infeasible[waiter.owner] = None
            heappop(heap)
        return None

    def _push(self, waiter: QuotaWaiter) -> None:
        heap = self._heaps.setdefault(waiter.queue, [])
        self._made += 1
        heappush(heap, (waiter.rank, self._made, waiter))
        if len(heap) > 2 * len(self._all) + _SLACK:
            heap[:] = [entry for entry in heap if self._is_current(entry)]
            heapify(heap)

    def _is_current(self, entry: Entry) -> bool:
        rank, _, waiter = entry
        return self._all.get(waiter.owner) is waiter and waiter.rank == rank
