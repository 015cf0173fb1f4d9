"""The promises of a store, whichever implementation keeps them.

Revisions are integers from 1 up, one for every accepted write, in the order of acceptance, across
all keys. A write is *accepted* synchronously (its compare-and-swap is decided against everything
accepted before it) and *acknowledged* when the awaiting call returns: then it is on disk, and only
then can any read or watcher see it. If the disk refuses a batch, every write that was accepted but
not acknowledged fails, and nothing of it was ever visible; its revision is not given out again
while the store is open, so gaps are possible but no number ever means two things.

History reaches back to the compaction mark: the state at the mark and every write after it can be
asked for, what was before the mark cannot.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from grange.store.errors import RevisionMismatch, WriteDeclined


# Entries and events are Structs that the garbage collector does not track: they can be part of no
# cycle, and there are 100,000 of them for as long as the store is open. They also cost a third of
# a dataclass to make, once for every write.
class Entry(msgspec.Struct, frozen=True, gc=False):
    """A key's value.

    Attributes:
        key: the key.
        value: the bytes.
        revision: when it was last written.
        created: when it was created; a deleted and recreated key starts again.
    """

    key: str
    value: bytes
    revision: int
    created: int


class StoreEvent(msgspec.Struct, frozen=True, gc=False):
    """One write as watchers see it.

    Attributes:
        key: the key.
        revision: the write's revision.
        value: the new bytes; for a deletion the final bytes that the deleter left.
        previous: the bytes before; None for a creation.
        deleted: whether the key is gone.
    """

    key: str
    revision: int
    value: bytes
    previous: bytes | None
    deleted: bool


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list, sorted by key.

    Attributes:
        entries: the entries.
        revision: the state that the list shows.
        remaining: how many more entries follow the last one.
    """

    entries: list[Entry]
    revision: int
    remaining: int


class Write(NamedTuple):
    """One of the puts of a group.

    Attributes:
        key: as for ``put``.
        value: as for ``put``.
        expect: as for ``put``.
    """

    key: str
    value: Callable[[int], bytes]
    expect: int | None = None


def check_key(key: str) -> None:
    """Refuse what cannot be a key: the empty string, NUL, and text without a UTF-8 form.

    Raises:
        ValueError: naming the key.
    """
    if not key or "\0" in key or not (key.isascii() or _has_utf8_form(key)):
        raise ValueError(f"not a key: {key!r}")


def _has_utf8_form(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


class Subscription(Protocol):
    """A bounded, ordered stream of events under one prefix."""

    def __aiter__(self) -> "Subscription":
        """Itself."""

    async def __anext__(self) -> list[StoreEvent]:
        """The next events, at least one, each exactly once and in revision order.

        Raises:
            Compacted: this subscriber fell further behind than its buffer, or history that it had
                not read yet was compacted; it must list again.
            StopAsyncIteration: the subscription or the store was closed.
        Cancellation: nothing is lost; the next call hands the events out.
        """

    def take_unread(self) -> list[StoreEvent]:
        """What ``__anext__`` would return without waiting; empty where it would wait or end.

        Raises:
            Compacted: as there, and also where the next events are only on the disk; list again.
        """

    @property
    def progress(self) -> int:
        """Every event up to this revision under the prefix has been handed out (for bookmarks).

        It stays where it is once the subscription is closed: what was unread never comes.
        """

    def close(self) -> None:
        """End it; idempotent."""


class Store(Protocol):
    """Revisioned bytes."""

    @property
    def revision(self) -> int:
        """The last acknowledged revision; 0 in an empty store."""

    @property
    def compacted(self) -> int:
        """History up to and including this revision is gone; 0 if none is."""

    @property
    def setbacks(self) -> int:
        """How often accepted writes were undone since the store was opened.

        A caller that keeps sums over what is accepted checks this before relying on them.
        """

    def get(self, key: str) -> Entry | None:
        """The acknowledged value."""

    def latest(self, key: str) -> Entry | None:
        """The accepted value, acknowledged or not: the base for a read-modify-write.

        None also for a key whose deletion is accepted.
        """

    async def list(
        self, prefix: str, *, revision: int = 0, after: str = "", limit: int = 0
    ) -> Page:
        """Entries whose key starts with the prefix, sorted by key.

        Args:
            prefix: the common start of the keys.
            revision: the state to show; 0 is the newest acknowledged.
            after: only keys greater than this one.
            limit: at most so many entries; 0 is all.

        Raises:
            Compacted: the revision is before the compaction mark.
            FutureRevision: it is beyond the last acknowledged revision.
            StoreClosed: the store is closed.
        """

    async def put(
        self, key: str, value: Callable[[int], bytes], *, expect: int | None = None
    ) -> Entry:
        """Write a value that may contain its own revision.

        Args:
            key: not empty, without NUL; ``ValueError`` otherwise.
            value: called once, at acceptance, with the write's revision, and not if the write is
                refused before; if it raises, the write is not accepted and the error passes through.
                What it sees through ``latest`` is all that was accepted before.
            expect: None writes whatever is there; 0 only if the key is absent; otherwise only if
                the key's accepted revision is this one.

        Raises:
            RevisionMismatch: ``expect`` does not hold.
            StorageFull, StoreClosed: nothing was written.
            StoreError: the disk refused the write for another reason, which the message names.
        Cancellation: the write may still happen; it is atomic either way.
        """

    async def put_group(
        self, writes: Sequence[Write]
    ) -> Sequence[Entry | RevisionMismatch | WriteDeclined]:
        """Many puts at once, each decided for itself, those that are accepted on disk together.

        Args:
            writes: decided in this order; several may be of one key.

        Returns:
            For each write what ``put`` would have returned, or the refusal that it would have
            raised, by the expected revision or by the value (``WriteDeclined``); only when all of the
            accepted ones are on disk.

        Raises:
            StorageFull, StoreClosed: nothing of the group was written.
            StoreError: the disk refused the group for another reason, which the message names.
            ValueError, or what else a value raised: the writes before that one may still happen.
        Cancellation: the group may still be written; all that is accepted of it, or nothing.
        """

    async def delete(
        self,
        key: str,
        *,
        value: Callable[[int], bytes] | None = None,
        expect: int | None = None,
    ) -> Entry:
        """Delete a key; watchers get ``value(revision)``, or the last bytes without it.

        Returns:
            An entry with the final bytes and the deletion's revision.

        Raises:
            RevisionMismatch: the key is absent (actual 0), or ``expect`` does not hold.
            StorageFull, StoreClosed: nothing was written.
            StoreError: the disk refused the write for another reason, which the message names.
        Cancellation: the deletion may still happen; it is atomic either way.
        """

    def watch(self, prefix: str, *, after: int) -> Subscription:
        """Events under the prefix with a revision greater than ``after``, then the ones to come.

        Raises:
            Compacted: ``after`` is before the compaction mark.
            FutureRevision: ``after`` is beyond the last acknowledged revision.
            StoreClosed: the store is closed.
        """

    async def compact(self, revision: int) -> None:
        """Forget history up to and including the revision; current values stay.

        Raises:
            FutureRevision: beyond the last acknowledged revision.
            StoreClosed: the store is closed.
            StorageFull, StoreError: the disk refused; what was forgotten stays forgotten.
        Cancellation: the compaction goes on.
        """

    async def close(self) -> None:
        """Finish accepted writes, end subscriptions, release the files; idempotent."""
