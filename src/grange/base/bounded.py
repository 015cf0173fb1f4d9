"""A cache that cannot grow without bound."""

from typing import TypeVar

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
