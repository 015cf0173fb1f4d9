"""What a gang needs to start: so many members in all, and so many of each part."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

NO_PART = -1
_NONE: Mapping[int, int] = {}
_NOWHERE: Mapping[str, int] = {}


class MemberState(Enum):
    """The state of a member."""

    WAITING = "waiting"
    ASSUMED = "assumed"
    BOUND = "bound"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(slots=True)
class MemberTally:
    """How many members there are: of a gang, or of one part of it.

    Attributes:
        counts: by state.
        num_terminating: how many of those with a node are being deleted.
    """

    counts: dict[MemberState, int] = field(default_factory=lambda: dict.fromkeys(MemberState, 0))
    num_terminating: int = 0

    def add(self, state: MemberState, by: int, *, terminating: bool) -> None:
        """Count a member, or (-1) count it no more."""
        self.counts[state] += by
        self.num_terminating += by * terminating

    @property
    def num_present(self) -> int:
        """How many there are, without those that failed or are being deleted."""
        return sum(self.counts.values()) - self.counts[MemberState.FAILED] - self.num_terminating

    @property
    def num_placed(self) -> int:
        """How many have a node, have not ended and are not being deleted."""
        counts = self.counts
        return counts[MemberState.ASSUMED] + counts[MemberState.BOUND] - self.num_terminating

    @property
    def num_counted(self) -> int:
        """How many count towards the quorum already: with a node, or successfully ended."""
        return self.num_placed + self.counts[MemberState.SUCCEEDED]


class Quorum:
    """The members that are still to be placed, while candidates are tried one after another.

    Args:
        total: how many in all; at least the sum of the parts.
        candidates: their UIDs.
        parts: how many of each part.
        part_of: the part of each candidate.
    """

    def __init__(
        self,
        total: int,
        candidates: Sequence[str],
        parts: Mapping[int, int] = _NONE,
        part_of: Mapping[str, int] = _NOWHERE,
    ) -> None:
        self._needs = {part: count for part, count in parts.items() if count > 0}
        self._part_of = part_of
        self._total = total
        self._left = len(candidates)
        self._left_of = Counter(part_of.get(uid, NO_PART) for uid in candidates) if parts else {}

    @property
    def is_met(self) -> bool:
        """Whether enough are placed."""
        return self._total <= 0

    @property
    def is_reachable(self) -> bool:
        """Whether the candidates that were not tried yet could be enough."""
        return self._left >= self._total and all(
            self._left_of.get(part, 0) >= count for part, count in self._needs.items()
        )

    def takes(self, uid: str) -> bool:
        """Whether the candidate is of use; one that is not is left for later."""
        if self.is_met:
            return False
        if not self._needs or self._needs.get(self._part(uid), 0):
            return True
        return self._total > sum(self._needs.values())

    def tried(self, uid: str, *, placed: bool) -> None:
        """A candidate was placed, or cannot be."""
        part = self._part(uid)
        self._left -= 1
        if self._left_of:
            self._left_of[part] -= 1
        if placed:
            self._total -= 1
            if self._needs.get(part):
                self._needs[part] -= 1

    def _part(self, uid: str) -> int:
        return self._part_of.get(uid, NO_PART)
