"""The ranks of many nodes as one number each, so that the least of many is found at once.

Equal ranks have equal numbers, and a smaller rank a smaller number: one that is new gets a number
between those of its neighbours. When there is no room left between two, all are numbered anew.
"""

from bisect import bisect_left
from math import inf

import numpy as np
from numpy.typing import NDArray

from grange.scheduler.preemption.victims import Rank

_MOST = 4096  # ranks that are kept beside those of the places


class RankIndex:
    """The rank of each place.

    Args:
        size: how many places; none of them has a rank.
    """

    __slots__ = ("_by_place", "_numbers", "_order", "_ranks")

    def __init__(self, size: int) -> None:
        self._by_place: NDArray[np.float64] = np.full(size, inf)
        self._ranks: list[Rank | None] = [None] * size
        self._order: list[Rank] = []  # every rank that has a number, ascending
        self._numbers: dict[Rank, float] = {}

    def put(self, place: int, rank: Rank) -> None:
        """A place has this rank from now on."""
        number = self._numbers.get(rank)
        self._ranks[place] = rank
        if number is None:
            number = self._new(rank)
        self._by_place[place] = number

    def drop(self, place: int) -> None:
        """A place has no rank any more."""
        self._ranks[place] = None
        self._by_place[place] = inf

    def move(self, sources: list[int]) -> None:
        """Other places are ranked from now on.

        Args:
            sources: by place, which one it was before; -1 for one that has no rank yet.
        """
        ranks, numbers = self._ranks, self._by_place.tolist()
        self._ranks = [ranks[at] if at >= 0 else None for at in sources]
        self._by_place = np.array([numbers[at] if at >= 0 else inf for at in sources])

    def least(self, start: int, count: int) -> int:
        """Which of some places has the least rank; among equals the first; -1 if none has any.

        Args:
            start: the first of them.
            count: how many; after the last place comes the first.
        """
        if not count:
            return -1
        numbers, end = self._by_place, start + count
        best = start + int(numbers[start:end].argmin())
        if end > len(numbers):
            other = int(numbers[: end - len(numbers)].argmin())
            if numbers[other] < numbers[best]:
                best = other
        return -1 if numbers[best] == inf else best

    def _new(self, rank: Rank) -> float:
        order, numbers = self._order, self._numbers
        at = bisect_left(order, rank)
        left = numbers[order[at - 1]] if at else None
        right = numbers[order[at]] if at < len(order) else None
        if left is None:
            number = 0.0 if right is None else right - 1.0
        else:
            number = left + 1.0 if right is None else (left + right) / 2
        if number in (left, right) or len(order) > len(self._ranks) + _MOST:
            self._renumber()
        else:
            order.insert(at, rank)
            numbers[rank] = number
        return numbers[rank]

    def _renumber(self) -> None:
        """Number the ranks of the places from 0 on; others are forgotten."""
        self._order = sorted({rank for rank in self._ranks if rank is not None})
        self._numbers.clear()
        self._numbers.update({rank: float(at) for at, rank in enumerate(self._order)})
        for place, rank in enumerate(self._ranks):
            if rank is not None:
                self._by_place[place] = self._numbers[rank]
