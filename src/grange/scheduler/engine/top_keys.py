"""The largest key of each group of rows, while keys change a few at a time.

The rows of a group stand in blocks. Of each block the largest key is known; it is found again only
after it fell. So a change costs a look at one block at most, and an answer one number a block: 400
of them for 100,000 rows.
"""

import numpy as np

from grange.placement.columns import Ids, Integers

_BLOCK_BITS = 8
_BLOCK = 1 << _BLOCK_BITS
_largest = np.maximum.reduce  # half the cost of ``max`` for arrays as small as these


class TopKeys:
    """Finds the largest keys.

    Args:
        group_of: by row, the number of its group; no group is empty.
    """

    __slots__ = (
        "_blocks",
        "_fallen",
        "_key",
        "_keys",
        "_slot",
        "_slots",
        "_starts",
        "_top",
        "_tops",
    )

    def __init__(self, group_of: Ids) -> None:
        sizes = np.bincount(group_of)
        blocks = -(-sizes // _BLOCK)
        self._starts = np.cumsum(blocks) - blocks
        # A row's slot: its place in its group, after all blocks of earlier groups.
        order = np.argsort(group_of, kind="stable")
        shift = self._starts * _BLOCK - (np.cumsum(sizes) - sizes)
        self._slots: Integers = np.empty(len(group_of), np.int64)
        self._slots[order] = np.arange(len(group_of)) + np.repeat(shift, sizes)
        self._slot = self._slots.data
        self._keys: Integers = np.full(int(blocks.sum()) * _BLOCK, -1, np.int64)
        self._key = self._keys.data
        self._blocks = self._keys.reshape(-1, _BLOCK)
        self._tops: Integers = np.full(len(self._blocks), -1, np.int64)
        self._top = self._tops.data
        self._fallen: set[int] = set()  # blocks whose largest key fell

    def put_all(self, keys: Integers) -> None:
        """Set the keys of all rows: -1, or unique."""
        self._keys[self._slots] = keys
        self._tops[:] = self._blocks.max(axis=1)
        self._fallen.clear()

    def put(self, row: int, key: int) -> None:
        """Set the key of a row."""
        slot = self._slot[row]
        block = slot >> _BLOCK_BITS
        before, self._key[slot] = self._key[slot], key
        if key >= self._top[block]:
            self._top[block] = key
        elif before == self._top[block]:
            self._fallen.add(block)

    def largest(self) -> int:
        """The largest key of all; -1 when there is none."""
        self._renew()
        return int(_largest(self._tops))

    def by_group(self) -> list[int]:
        """The largest key of each group."""
        self._renew()
        tops: list[int] = np.maximum.reduceat(self._tops, self._starts).tolist()
        return tops

    def _renew(self) -> None:
        for block in self._fallen:
            self._top[block] = int(_largest(self._blocks[block]))
        self._fallen.clear()
