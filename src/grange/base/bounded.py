"""Caches that cannot grow without bound."""

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(dict[K, V]):
    """A dict that empties itself when a new key would make it larger than its limit.

    For results that can be computed again: reading is as quick as with a plain dict, and nothing is
    noted about use. Entries are to be set one at a time, with ``cache[key] = value``.

    Args:
        limit: the largest number of entries, at least one.
    """

    __slots__ = ("limit",)

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        """Set an entry; all others go if there are too many."""
        if len(self) >= self.limit and key not in self:
            self.clear()
        super().__setitem__(key, value)


class SecondUseCache(Generic[V]):
    """Values by keys of bytes, kept from the second use of a key on: many keys are used once.

    Keys that were used once are remembered without a value. The oldest keys go when all together are
    larger than the limit.

    Args:
        max_bytes: the largest size of all keys.
    """

    __slots__ = ("_entries", "max_bytes", "size_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.size_bytes = 0
        self._entries: dict[bytes, V | None] = {}  # None: used once

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> V | None:
        """The value; None if there is none yet."""
        return self._entries.get(key)

    def is_used_again(self, key: bytes) -> bool:
        """Whether the key was used before; it is remembered as used."""
        if key in self._entries:
            return True
        self._entries[key] = None
        self.size_bytes += len(key)
        while self.size_bytes > self.max_bytes:
            oldest = next(iter(self._entries))
            del self._entries[oldest]
            self.size_bytes -= len(oldest)
        return False

    def set(self, key: bytes, value: V) -> None:
        """Keep the value of a key that was used before."""
        self._entries[key] = value


class Recent(Generic[K, V]):
    """A small cache of what was put in lately, in two generations: the older one goes at once.

    Args:
        limit: how many items a generation may have.
        max_bytes: the size of a generation, the sum of what ``put`` gets; 0 for no limit.
    """

    __slots__ = ("_items", "_limit", "_max_bytes", "_older", "_size_bytes")

    def __init__(self, limit: int, *, max_bytes: int = 0) -> None:
        self._items: dict[K, V] = {}
        self._older: dict[K, V] = {}
        self._limit = limit
        self._max_bytes = max_bytes
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._items) + len(self._older)

    def get(self, key: K) -> V | None:
        """The item, if it is still here."""
        found = self._items.get(key)
        return self._older.get(key) if found is None else found

    def put(self, key: K, item: V, size_bytes: int = 0) -> V:
        """Keep an item for as long as not many are put in after it."""
        self._size_bytes += size_bytes
        if len(self._items) >= self._limit or 0 < self._max_bytes < self._size_bytes:
            self._older, self._items = self._items, {}
            self._size_bytes = size_bytes
        self._items[key] = item
        return item
