"""Keys in order: a list of short sorted lists.

One long sorted list would move half of its pointers for every new key. Chunks of at most
``_CHUNK`` keys keep an insertion, a removal and the start of a range at about a microsecond each
with a million keys.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

_CHUNK = 512  # moving 4 KB of pointers costs less than the bisections around it
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
        ordered = sorted(keys)
        half = _CHUNK // 2
        self._chunks = [ordered[at : at + half] for at in range(0, len(ordered), half)]
        self._firsts = [chunk[0] for chunk in self._chunks]
        self._size = len(ordered)

    def __len__(self) -> int:
        return self._size

    def add(self, key: str) -> None:
        """Add a key that is not there."""
        self._size += 1
        if not self._chunks:
            self._chunks.append([key])
            self._firsts.append(key)
            return
        at = max(0, bisect_right(self._firsts, key) - 1)
        chunk = self._chunks[at]
        insort(chunk, key)
        if len(chunk) > _CHUNK:
            tail = chunk[_CHUNK // 2 :]
            del chunk[_CHUNK // 2 :]
            self._chunks.insert(at + 1, tail)
            self._firsts.insert(at + 1, tail[0])
        self._firsts[at] = chunk[0]

    def remove(self, key: str) -> None:
        """Remove a key that is there."""
        at = bisect_right(self._firsts, key) - 1
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, key)]
        self._size -= 1
        if chunk:
            self._firsts[at] = chunk[0]
        else:
            del self._chunks[at]
            del self._firsts[at]

    def under(self, prefix: str, after: str) -> Iterator[str]:
        """The keys with the prefix that are greater than ``after``, in order.

        The index must not change while this is iterated.
        """
        at, within = self._start(prefix, after)
        end = prefix_end(prefix)
        for index in range(at, len(self._chunks)):
            chunk = self._chunks[index]
            if end is not None and chunk[-1] >= end:
                yield from chunk[within : bisect_left(chunk, end)]
                return
            yield from chunk[within:] if within else chunk
            within = 0

    def count(self, prefix: str, after: str) -> int:
        """How many keys ``under`` would give."""
        at, within = self._start(prefix, after)
        end = prefix_end(prefix)
        if end is None:
            last, beyond = len(self._chunks), 0
        else:
            last, beyond = self._locate(end, inclusive=False)
        if (last, beyond) <= (at, within):  # ``after`` is behind the whole prefix
            return 0
        return sum(len(chunk) for chunk in self._chunks[at:last]) - within + beyond

    def _start(self, prefix: str, after: str) -> tuple[int, int]:
        if after >= prefix:
            return self._locate(after, inclusive=True)
        return self._locate(prefix, inclusive=False)

    def _locate(self, key: str, *, inclusive: bool) -> tuple[int, int]:
        """Chunk and offset just behind the keys less than (or, inclusive, equal to) the key."""
        at = max(0, bisect_right(self._firsts, key) - 1)
        if at == len(self._chunks):
            return at, 0
        find = bisect_right if inclusive else bisect_left
        return at, find(self._chunks[at], key)
