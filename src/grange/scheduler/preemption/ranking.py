"""The ranks of many rows as one number each, so that the least of many is found at once.

Equal ranks have equal numbers, and a smaller rank a smaller number: one that is new gets a number
between those of its neighbours. When there is no room left between two, all are numbered anew.
"""

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from grange.placement.columns import Integers
from grange.scheduler.preemption.victims import Rank

_MOST = 4096  # ranks that are kept beside those of the rows


class Ranking:
    """The rank of each row.

    Args:
        size: how many rows.
    """

    __slots__ = ("_numbers", "_order", "_ranks", "_rows")

    def __init__(self, size: int) -> None:
        self._rows: NDArray[np.float64] = np.zeros(size)
        self._ranks: list[Rank | None] = [None] * size
        self._order: list[Rank] = []  # every rank that has a number, ascending
        self._numbers: dict[Rank, float] = {}

    def put(self, row: int, rank: Rank) -> None:
        """A row has this rank from now on."""
        number = self._numbers.get(rank)
        self._ranks[row] = rank
        if number is None:
            number = self._new(rank)
        self._rows[row] = number

    def least(self, rows: Integers) -> int:
        """Which of these rows, each of which has a rank, has the least; among equals the first."""
        return int(rows[self._rows[rows].argmin()])

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
        """Number the ranks of the rows from 0 on; others are forgotten."""
        self._order = sorted({rank for rank in self._ranks if rank is not None})
        self._numbers.clear()
        self._numbers.update({rank: float(at) for at, rank in enumerate(self._order)})
        for row, rank in enumerate(self._ranks):
            if rank is not None:
                self._rows[row] = self._numbers[rank]
