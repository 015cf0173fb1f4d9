"""The results of the last attempts to schedule a pod: few for each pod, and of few pods.

Equal results in a row are one record, so that a pod that failed a thousand times for one reason has
one. Waiting and scheduled pods are kept apart: many scheduled pods must not evict the records of those
that wait.
"""

from collections import OrderedDict
from dataclasses import replace
from enum import Enum

import msgspec

from grange.scheduler.diagnosis import Diagnosis

_EACH = 8
_WAITING = 10_000
_PLACED = 10_000
_REASONS = 16  # of one diagnosis; every node may have another reason


class AttemptResult(Enum):
    """The result of an attempt."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


class AttemptRecord(msgspec.Struct, gc=False):
    """One attempt, or several in a row with equal results.

    Attributes:
        first, last: when, monotonic seconds.
        score: of the chosen node; -1 when nothing was compared.
    """

    result: AttemptResult
    first: float
    last: float
    times: int = 1
    node: str = ""
    score: int = -1
    diagnosis: Diagnosis | None = None


class AttemptHistory:
    """The attempts of some pods, by UID; the oldest pods are dropped first."""

    def __init__(
        self, *, each: int = _EACH, waiting: int = _WAITING, placed: int = _PLACED
    ) -> None:
        self._each = each
        self._waiting_max, self._placed_max = waiting, placed
        self._waiting: OrderedDict[str, list[AttemptRecord]] = OrderedDict()
        self._placed: OrderedDict[str, list[AttemptRecord]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._placed)

    def of(self, uid: str) -> list[AttemptRecord]:
        """The records of a pod, the newest last."""
        return [*(self._placed.get(uid) or self._waiting.get(uid) or ())]

    def scheduled(self, uid: str, node: str, score: int, now: float) -> None:
        """A node was chosen for the pod."""
        record = AttemptRecord(AttemptResult.SCHEDULED, now, now, 1, node, score)
        self._placed[uid] = [*self._pop(uid)[-self._each :], record]
        while len(self._placed) > self._placed_max:
            self._placed.popitem(last=False)

    def rejected(self, uid: str, diagnosis: Diagnosis, now: float) -> None:
        """No node was feasible."""
        entries = self._waiting[uid] = self._pop(uid)
        result = AttemptResult.ERROR if diagnosis.error else AttemptResult.UNSCHEDULABLE
        last = entries[-1] if entries else None
        if last is not None and last.result is result and _alike(last.diagnosis, diagnosis):
            last.times += 1
            last.last = now
        else:
            entries.append(AttemptRecord(result, now, now, diagnosis=_bounded(diagnosis)))
            del entries[: -self._each]
        while len(self._waiting) > self._waiting_max:
            self._waiting.popitem(last=False)

    def forget(self, uid: str) -> None:
        """The pod no longer exists."""
        self._pop(uid)

    def _pop(self, uid: str) -> list[AttemptRecord]:
        return self._waiting.pop(uid, None) or self._placed.pop(uid, None) or []


def _alike(one: Diagnosis | None, other: Diagnosis) -> bool:
    return one is other or one == _bounded(other)


def _bounded(diagnosis: Diagnosis) -> Diagnosis:
    """The same with its most frequent reasons only."""
    if len(diagnosis.counts) <= _REASONS:
        return diagnosis
    kept = sorted(diagnosis.counts, key=lambda item: (-item[1], item[0]))[:_REASONS]
    return replace(diagnosis, counts=tuple(sorted(kept)))
