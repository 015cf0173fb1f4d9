"""The largest of many keys that change a few at a time.

A heap of the best few rows would be enough if keys only fell. So the heap is lazy: a changed key is pushed
next to the row's old one, which is thrown away when it comes to the top and is not the row's key any
more. Keys that are not above the *floor* stay outside. When the heap is empty, the best few are found
among all rows and the floor is set below them; that is seldom, as a few is a share of all.

Exact, because every row whose key is above the floor has that key in the heap, and the heap's top is
taken only if it is a row's key now: so no row has a larger one.
"""

from heapq import heappop, heappush, heapreplace

import numpy as np

from grange.placement.columns import Integers
from grange.scheduler.snapshot import TIE_MAX

_FEW = 256
_SHARE = 16  # of all rows, one in so many
_COLD = 2**63 - 1


class LazyHeap:
    """Finds the largest key.

    Args:
        keys: by row; unique except for -1. Every write of a key calls ``change``.
        order: the row that each tie stands for, from the largest tie down.
        rows: the rows to look at; None for all.

    """

    __slots__ = ("_floor", "_heap", "_keys", "_limit", "_now", "_order", "_rows", "_used")

    def __init__(self, keys: Integers, order: memoryview, rows: Integers | None = None) -> None:
        self._keys = keys
        self._now = keys.data
        self._order = order
        self._rows = rows
        self._heap: list[int] = []
        self._limit = 0
        self._used = False
        self._floor = _COLD

    def __len__(self) -> int:
        """How many entries the heap has, leftovers included."""
        return len(self._heap)

    def change(self, before: int, key: int) -> None:
        """A row has another key now."""
        heap = self._heap
        if heap and heap[0] == -before:  # the leader: as a rule it was just chosen
            if key > self._floor:
                heapreplace(heap, -key)
            else:
                heappop(heap)
        elif key > self._floor:
            heappush(heap, -key)
            if len(heap) > self._limit:  # more leftovers than keys
                heap.clear()
                self._floor = _COLD

    def best(self) -> int:
        """The largest key; -1 when there is none."""
        heap, now, order = self._heap, self._now, self._order
        while heap:
            key = -heap[0]
            if now[order[TIE_MAX - (key & TIE_MAX)]] == key:
                return key
            heappop(heap)
        if self._floor < 0:
            return -1
        if not self._used:
            # Many classes are asked once; a heap pays from the second time on.
            self._used = True
            keys = self._keys if self._rows is None else self._keys[self._rows]
            return int(keys.max(initial=-1))
        return self._fill()

    def _fill(self) -> int:
        keys = self._keys if self._rows is None else self._keys[self._rows]
        few = max(_FEW, len(keys) // _SHARE)
        if len(keys) > 2 * few:
            keys = np.partition(keys, len(keys) - few)[-few:]
            self._floor = max(-1, int(keys[0]) - 1)
        else:
            self._floor = -1
        self._heap = np.sort(-keys[keys >= 0]).tolist()
        self._limit = 4 * len(keys) + _FEW
        return -self._heap[0] if self._heap else -1
