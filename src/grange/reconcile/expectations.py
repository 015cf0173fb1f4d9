"""Expectations: not acting on a cache that has not yet shown our own writes.

Before a reconcile creates or deletes, it notes what it is about to do; the informer's handlers
tick the notes off; until all are ticked off, or five minutes have passed, the owner is left alone.
Without this, a reconcile that runs before its own pods come back through the watch would create
them again.

The notes are names (creations) and UIDs (deletions) kept for the UID of the owner, not counters:
an observation counts once however often it is delivered, another client's object never satisfies
ours, and an owner that was deleted and created again starts clean.

Each expectation has a time from which the server is to be asked about it (``unanswered`` does
that): at once after a write whose outcome is unknown, else when the cache has not shown it for
some seconds. The time limit is a net for what that misses, not a means of flow control.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from grange.api.status import ApiError, InsufficientStorage
from grange.base.clock import Clock
from grange.client.errors import Unreachable

TIMEOUT_S = 300.0
OVERDUE_S = 5.0
"""The cache shows a write much sooner; after so long the server is asked."""
# Who asks again after ``remaining_s`` must not be a rounding error too early: where time does not
# move by itself (virtual time) it would ask forever.
_RESOLUTION_S = 1e-3


@dataclass(slots=True)
class _Deletion:
    kind: str
    name: str
    read_at: float


@dataclass(slots=True)
class _Record:
    since: float
    creations: dict[tuple[str, str], float]  # when to ask the server
    deletions: dict[str, _Deletion]


@dataclass(frozen=True, slots=True)
class Doubtful:
    """A write about which the server is to be asked.

    Attributes:
        kind: the plural, as the expectation was noted with.
        name: of the object.
        uid: of the object to be deleted; empty for a creation.
    """

    kind: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Awaited:
    """What an owner still waits for: qualified names ``kind/name`` and UIDs, oldest first."""

    creations: tuple[str, ...] = ()
    deletions: tuple[str, ...] = ()


class ExpectedWrites:
    """Creations or deletions of one pass, all of them expected before the first is sent.

    Args:
        keys: names or UIDs of the objects.
        failed: notes that the write of one did not happen, or may not have.
    """

    def __init__(self, keys: Iterable[str], failed: Callable[[str, BaseException], object]) -> None:
        self.unsent = dict.fromkeys(keys)
        self._failed = failed

    @contextmanager
    def sending(self, key: str) -> Iterator[None]:
        """Around the request for one; an error is noted, and raised again."""
        del self.unsent[key]
        try:
            yield
        except BaseException as error:
            self._failed(key, error)
            raise


class Expectations:
    """What each owner waits for.

    Args:
        clock: for the time limit.
        timeout_s: after so long without a new expectation the owner is free again.

    Attributes:
        expired: how often an owner was freed by the time limit, which means that events were lost
            or a write's outcome was never known.
    """

    def __init__(self, clock: Clock, *, timeout_s: float = TIMEOUT_S) -> None:
        self.expired = 0
        self._clock = clock
        self._timeout_s = timeout_s
        self._records: dict[str, _Record] = {}

    def expect_creations(self, owner_uid: str, names: Iterable[str], *, kind: str = "") -> None:
        """Wait for objects of these names; call before creating them. Restarts the time limit.

        Args:
            owner_uid: whose.
            names: their full names (``generateName`` cannot be awaited).
            kind: the plural, where one owner makes several kinds.
        """
        record = self._record(owner_uid)
        for name in names:
            record.creations[kind, name] = self._overdue_at()
        self._drop_if_met(owner_uid, record)

    def expect_deletions(self, owner_uid: str, names: Mapping[str, str], *, kind: str = "") -> None:
        """Wait for these objects to go; call before deleting them. Restarts the time limit.

        Args:
            owner_uid: whose.
            names: of the objects, by UID.
            kind: the plural, where one owner makes several kinds.
        """
        record = self._record(owner_uid)
        for uid, name in names.items():
            record.deletions[uid] = _Deletion(kind, name, self._overdue_at())
        self._drop_if_met(owner_uid, record)

    @contextmanager
    def creating(
        self, owner_uid: str, names: Iterable[str], *, kind: str = ""
    ) -> Iterator[ExpectedWrites]:
        """Expect creations, around their requests; what was not sent at the end is not awaited."""
        writes = ExpectedWrites(
            names, lambda name, error: self.creation_failed(owner_uid, name, error, kind=kind)
        )
        self.expect_creations(owner_uid, writes.unsent, kind=kind)
        try:
            yield writes
        finally:
            for name in writes.unsent:
                self.creation_observed(owner_uid, name, kind=kind)

    @contextmanager
    def deleting(
        self, owner_uid: str, names: Mapping[str, str], *, kind: str = ""
    ) -> Iterator[ExpectedWrites]:
        """Expect deletions, around their requests; what was not sent at the end is not awaited."""
        writes = ExpectedWrites(
            names, lambda uid, error: self.deletion_failed(owner_uid, uid, error)
        )
        self.expect_deletions(owner_uid, names, kind=kind)
        try:
            yield writes
        finally:
            for uid in writes.unsent:
                self.deletion_observed(owner_uid, uid)

    def creation_observed(self, owner_uid: str, name: str, *, kind: str = "") -> None:
        """An object of this name has appeared; unknown ones are ignored."""
        record = self._records.get(owner_uid)
        if record is not None:
            record.creations.pop((kind, name), None)
            self._drop_if_met(owner_uid, record)

    def deletion_observed(self, owner_uid: str, uid: str) -> None:
        """An object has gone, or is on its way where that counts; once per UID."""
        record = self._records.get(owner_uid)
        if record is not None:
            record.deletions.pop(uid, None)
            self._drop_if_met(owner_uid, record)

    def creation_failed(
        self, owner_uid: str, name: str, error: BaseException, *, kind: str = ""
    ) -> None:
        """A create did not happen; if the outcome is not known, the server is to be asked at once."""
        if not outcome_unknown(error):
            self.creation_observed(owner_uid, name, kind=kind)
            return
        record = self._records.get(owner_uid)
        if record is not None and (kind, name) in record.creations:
            record.creations[kind, name] = self._clock.monotonic()

    def deletion_failed(self, owner_uid: str, uid: str, error: BaseException) -> None:
        """A delete did not happen; if the outcome is not known, the server is to be asked at once."""
        if not outcome_unknown(error):
            self.deletion_observed(owner_uid, uid)
            return
        record = self._records.get(owner_uid)
        if record is not None and uid in record.deletions:
            record.deletions[uid].read_at = self._clock.monotonic()

    def doubtful(self, owner_uid: str) -> tuple[Doubtful, ...]:
        """The writes about which the server is to be asked now."""
        now = self._clock.monotonic() + _RESOLUTION_S
        return tuple(write for write, at in self._writes(owner_uid) if at <= now)

    def unsettled(self, owner_uid: str) -> tuple[Doubtful, ...]:
        """All writes that the owner waits for, oldest first, creations before deletions."""
        return tuple(write for write, _ in self._writes(owner_uid))

    def confirmed(self, owner_uid: str, write: Doubtful) -> None:
        """The server has what was written, so the cache will show it."""
        record = self._records.get(owner_uid)
        if record is None:
            return
        if write.uid and write.uid in record.deletions:
            record.deletions[write.uid].read_at = self._overdue_at()
        elif not write.uid and (write.kind, write.name) in record.creations:
            record.creations[write.kind, write.name] = self._overdue_at()

    def refuted(self, owner_uid: str, write: Doubtful) -> None:
        """The server has not what was written, so the cache will never show it."""
        if write.uid:
            self.deletion_observed(owner_uid, write.uid)
        else:
            self.creation_observed(owner_uid, write.name, kind=write.kind)

    def satisfied(self, owner_uid: str) -> bool:
        """Whether the cache has shown all that this owner did, or the time is up."""
        record = self._records.get(owner_uid)
        if record is None:
            return True
        if self.remaining_s(owner_uid) > _RESOLUTION_S:
            return False
        self.expired += 1
        del self._records[owner_uid]
        return True

    def remaining_s(self, owner_uid: str) -> float:
        """Seconds until the time limit frees the owner; zero when it is free. Requeue after it."""
        record = self._records.get(owner_uid)
        if record is None:
            return 0.0
        return max(0.0, record.since + self._timeout_s - self._clock.monotonic())

    def next_read_s(self, owner_uid: str) -> float:
        """Seconds until the server is to be asked, or the time limit frees the owner."""
        record = self._records.get(owner_uid)
        if record is None:
            return 0.0
        reads = (*record.creations.values(), *(item.read_at for item in record.deletions.values()))
        soonest = min(reads, default=math.inf) - self._clock.monotonic()
        return max(_RESOLUTION_S, min(soonest, self.remaining_s(owner_uid)))

    def awaited(self, owner_uid: str) -> Awaited:
        """What the owner still waits for: for logs and explanations."""
        record = self._records.get(owner_uid)
        if record is None:
            return Awaited()
        names = tuple(f"{kind}/{name}" if kind else name for kind, name in record.creations)
        return Awaited(names, tuple(record.deletions))

    def forget(self, owner_uid: str) -> None:
        """The owner is gone."""
        self._records.pop(owner_uid, None)

    def __len__(self) -> int:
        """Owners that wait for something."""
        return len(self._records)

    def _writes(self, owner_uid: str) -> Iterator[tuple[Doubtful, float]]:
        """What is awaited, and when the server is to be asked about it."""
        record = self._records.get(owner_uid)
        if record is None:
            return
        for key, at in record.creations.items():
            yield Doubtful(*key), at
        for uid, item in record.deletions.items():
            yield Doubtful(item.kind, item.name, uid), item.read_at

    def _record(self, owner_uid: str) -> _Record:
        now = self._clock.monotonic()
        record = self._records.get(owner_uid)
        if record is None:
            record = self._records[owner_uid] = _Record(now, {}, {})
        record.since = now
        return record

    def _overdue_at(self) -> float:
        return self._clock.monotonic() + OVERDUE_S

    def _drop_if_met(self, owner_uid: str, record: _Record) -> None:
        if not record.creations and not record.deletions:
            self._records.pop(owner_uid, None)


def outcome_unknown(error: BaseException) -> bool:
    """Whether a write that ended this way may have happened all the same.

    True for a timeout and for a server error, which may come from a proxy or from a server that
    gave up on a write that was made, and for anything that is not an ordinary exception (a
    cancellation). False where no connection was made, and where the disk refused.
    """
    if isinstance(error, (Unreachable, InsufficientStorage)):
        return False
    return not isinstance(error, Exception) or (isinstance(error, ApiError) and error.code >= 500)
