"""Named streams of randomness: the same seed and name give the same values, independent of others.

Streams are forked by name, so adding a consumer never shifts the numbers of another. Nothing here
is for secrets; those come from the operating system in ``app.pki``.
"""

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # the field's: no vowels, no look-alikes


class Stream:
    """One deterministic stream.

    Args:
        seed: the root seed; ``Stream.from_system()`` draws one from the operating system.
        name: dotted path of the consumer, e.g. ``"scheduler.tiebreak"``.
    """

    def __init__(self, seed: int, name: str = "") -> None:
        self.seed = seed
        self.name = name
        digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
        self._random = random.Random(int.from_bytes(digest[:16]))

    @classmethod
    def from_system(cls) -> "Stream":
        """A root stream that differs from process to process."""
        return cls(random.SystemRandom().getrandbits(63))

    def fork(self, name: str) -> "Stream":
        """An independent stream under this one's name.

        Names must differ: two forks of one name give the same values, UIDs included.
        """
        return Stream(self.seed, f"{self.name}.{name}" if self.name else name)

    def uniform(self, low: float, high: float) -> float:
        """A float in [low, high]."""
        return self._random.uniform(low, high)

    def integer(self, low: int, high: int) -> int:
        """An integer in [low, high], both ends included."""
        return self._random.randint(low, high)

    def choice(self, items: Sequence[T]) -> T:
        """One of the items."""
        return self._random.choice(items)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in a random order, as a new list."""
        result = list(items)
        self._random.shuffle(result)
        return result

    def uid(self) -> str:
        """A version-4 UUID (RFC 9562) in text form."""
        bits = self._random.getrandbits(128)
        bits = (bits & ~(0xF << 76)) | (4 << 76)
        bits = (bits & ~(0x3 << 62)) | (2 << 62)
        text = f"{bits:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def suffix(self, length: int = 5) -> str:
        """A name suffix as ``generateName`` makes them."""
        return "".join(self._random.choices(_SUFFIX_ALPHABET, k=length))
