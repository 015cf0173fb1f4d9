"""Keys in order.

With a hundred thousand keys a new key takes a microsecond or two, and so does the start of a range.
"""

from collections.abc import Iterable, Iterator

from sortedcontainers import SortedList

_LAST = "\U0010ffff"


def prefix_end(prefix: str) -> str | None:
    """The least string greater than every string with the prefix; None if there is none."""
    stem = prefix.rstrip(_LAST)
    return stem[:-1] + chr(ord(stem[-1]) + 1) if stem else None


class KeyIndex:
    """A sorted set of keys.

    Args:
        keys: distinct keys in any order.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._keys = SortedList(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: str) -> None:
        """Add a key that is not there."""
        self._keys.add(key)

    def remove(self, key: str) -> None:
        """Remove a key that is there."""
        self._keys.remove(key)

    def under(self, prefix: str, after: str) -> Iterator[str]:
        """The keys with the prefix that are greater than ``after``, in order.

        The index must not change while this is iterated.
        """
        behind = after >= prefix
        found: Iterator[str] = self._keys.irange(
            after if behind else prefix, prefix_end(prefix), inclusive=(not behind, False)
        )
        return found

    def count(self, prefix: str, after: str) -> int:
        """How many keys ``under`` would give."""
        keys, end = self._keys, prefix_end(prefix)
        first: int = keys.bisect_right(after) if after >= prefix else keys.bisect_left(prefix)
        beyond: int = len(keys) if end is None else keys.bisect_left(end)
        return max(0, beyond - first)
