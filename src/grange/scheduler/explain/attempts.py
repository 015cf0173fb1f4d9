"""What became of the last attempts to place a pod: few for each pod, and few pods.

A decision that ends as the one before it only lengthens that entry, so a pod that failed a thousand
times for one reason takes the room of one. Pods that wait and pods that were placed are kept apart:
a flood of placements must not push out what is known of those that still wait.
"""

from collections import OrderedDict, deque
from dataclasses import replace
from enum import Enum

import msgspec

from grange.scheduler.diagnosis import Diagnosis

_EACH = 8
_WAITING = 10_000
_PLACED = 10_000
_REASONS = 16  # of one rejection; a cluster may give a reason a node


class AttemptResult(Enum):
    """How an attempt ended."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


class AttemptRecord(msgspec.Struct, gc=False):
    """One attempt, or several in a row that ended alike.

    Attributes:
        result: how.
        first, last: when, monotonic seconds.
        times: how many.
        node: what was chosen.
        score: its total; -1 when nothing was compared.
        rejection: why nothing was.
    """

    result: AttemptResult
    first: float
    last: float
    times: int = 1
    node: str = ""
    score: int = -1
    rejection: Diagnosis | None = None


class AttemptHistory:
    """The attempts of some pods, by UID; the oldest pods are forgotten first.

    Args:
        each: how many entries to keep of one pod.
        waiting: how many pods without a node to remember.
        placed: how many pods with one.
    """

    def __init__(
        self, *, each: int = _EACH, waiting: int = _WAITING, placed: int = _PLACED
    ) -> None:
        self._each = each
        self._waiting_max, self._placed_max = waiting, placed
        self._waiting: OrderedDict[str, deque[AttemptRecord]] = OrderedDict()
        self._placed: OrderedDict[str, tuple[AttemptRecord, deque[AttemptRecord] | None]] = (
            OrderedDict()
        )

    def __len__(self) -> int:
        return len(self._waiting) + len(self._placed)

    def of(self, uid: str) -> list[AttemptRecord]:
        """What is known of a pod, the newest last."""
        found = self._placed.get(uid)
        if found is None:
            return [*self._waiting.get(uid, ())]
        placed, before = found
        return [*(before or ()), placed]

    def scheduled(self, uid: str, node: str, score: int, now: float) -> None:
        """The pod was given a node."""
        before = self._waiting.pop(uid, None)
        again = self._placed.pop(uid, None)
        if again is not None:  # it was placed, lost its place, and is placed again
            before = before or again[1] or deque(maxlen=self._each)
            before.append(again[0])
        self._placed[uid] = (
            AttemptRecord(AttemptResult.SCHEDULED, now, now, 1, node, score),
            before,
        )
        while len(self._placed) > self._placed_max:
            self._placed.popitem(last=False)

    def rejected(self, uid: str, rejection: Diagnosis, now: float) -> None:
        """There was no node for it."""
        entries = self._waiting.get(uid)
        if entries is None:
            entries = self._waiting[uid] = deque(maxlen=self._each)
            again = self._placed.pop(uid, None)
            if again is not None:
                entries.extend((*(again[1] or ()), again[0]))
        self._waiting.move_to_end(uid)
        result = AttemptResult.ERROR if rejection.error else AttemptResult.UNSCHEDULABLE
        last = entries[-1] if entries else None
        if last is not None and last.result is result and _alike(last.rejection, rejection):
            last.times += 1
            last.last = now
        else:
            entries.append(AttemptRecord(result, now, now, rejection=_bounded(rejection)))
        while len(self._waiting) > self._waiting_max:
            self._waiting.popitem(last=False)

    def forget(self, uid: str) -> None:
        """The pod no longer exists."""
        self._waiting.pop(uid, None)
        self._placed.pop(uid, None)


def _alike(one: Diagnosis | None, other: Diagnosis) -> bool:
    return one is other or one == _bounded(other)


def _bounded(rejection: Diagnosis) -> Diagnosis:
    """The same with its most frequent reasons only."""
    if len(rejection.counts) <= _REASONS:
        return rejection
    kept = sorted(rejection.counts, key=lambda item: (-item[1], item[0]))[:_REASONS]
    return replace(rejection, counts=tuple(sorted(kept)))
