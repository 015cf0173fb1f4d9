"""The largest of many keys that change a few at a time.

Keys are held in blocks, and the largest of each block is known. A change compares one pair of numbers; only
a block whose largest key fell is looked at again, once the largest key is asked for.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from grange.placement.columns import Ids, Integers

_BITS_MIN, _BITS_MAX = 4, 9


@dataclass(frozen=True, slots=True)
class Blocks:
    """Where the keys of rows are held.

    Attributes:
        bits: a block holds two to this power of keys.
        place: of each row's key.
        cells: the first block of each cell, and the block after the last; a last block holds what is in no cell.
    """

    bits: int
    place: Integers
    cells: list[int]

    @classmethod
    def of(cls, cells: Ids, number: int) -> "Blocks":
        """By row its cell, of so many; any other number for none."""
        # The last block of a cell is full in part only, so small cells have small blocks.
        bits = min(_BITS_MAX, max(_BITS_MIN, (len(cells) // max(1, number)).bit_length()))
        place = np.empty(len(cells), np.int64)
        first = [0]
        for cell in range(number):
            rows = np.flatnonzero(cells == cell)
            place[rows] = np.arange(len(rows)) + (first[-1] << bits)
            first.append(first[-1] + max(1, -(-len(rows) >> bits)))
        place[(cells < 0) | (cells >= number)] = first[-1] << bits
        return cls(bits, place, first)


@lru_cache(maxsize=4)
def one_cell(rows: int) -> Blocks:
    """Of so many rows, all in one cell."""
    return Blocks.of(np.zeros(rows, np.int32), 1)


class LargestKeys:
    """Keys by row, and the largest of each cell.

    Args:
        keys: unique except for -1.
    """

    __slots__ = ("_bits", "_blocks", "_cells", "_held", "_place", "_stale", "_top")

    def __init__(self, keys: Integers, blocks: Blocks) -> None:
        self._bits, self._place, self._cells = blocks.bits, blocks.place.data, blocks.cells
        held = np.full((blocks.cells[-1] + 1, 1 << blocks.bits), -1, np.int64)
        held.reshape(-1)[blocks.place] = keys
        self._held = held.reshape(-1).data
        self._blocks = [*held]
        self._top: list[int] = held.max(axis=1).tolist()
        self._stale: set[int] = set()  # with sampling the largest key is never asked for

    def change(self, row: int, key: int) -> None:
        """A row has another key now."""
        held, at = self._held, self._place[row]
        before = held[at]
        held[at] = key
        block = at >> self._bits
        top = self._top[block]
        if key > top:
            self._top[block] = key
        elif before == top > key:
            self._stale.add(block)

    def best(self) -> int:
        """The largest key; -1 when there is none."""
        if self._stale:
            self._refresh()
        return max(self._top)

    def by_cell(self) -> list[int]:
        """The largest key of each cell."""
        if self._stale:
            self._refresh()
        return [max(self._top[start:end]) for start, end in pairwise(self._cells)]

    def _refresh(self) -> None:
        for block in self._stale:
            # A single element of a view: a quarter of the time of the largest one as a number of numpy.
            at = (block << self._bits) + self._blocks[block].argmax()
            self._top[block] = self._held[at]
        self._stale.clear()
