"""The promises of a store, whichever implementation keeps them.

Revisions are integers from 1 up, one for every accepted write, in the order of acceptance, across
all keys. A write is *accepted* synchronously (its compare-and-swap is decided against everything
accepted before it) and *acknowledged* when the awaiting call returns: then it is on disk, and only
then can any read or watcher see it. If the disk refuses a batch, every write that was accepted but
not acknowledged fails, and nothing of it was ever visible.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """A key's value.

    Attributes:
        key: the key.
        value: the bytes.
        revision: when it was last written.
        created: when it was created; a deleted and recreated key starts anew.
    """

    key: str
    value: bytes
    revision: int
    created: int


@dataclass(frozen=True, slots=True)
class Event:
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


class Subscription(Protocol):
    """A bounded, ordered stream of events under one prefix."""

    def __aiter__(self) -> "Subscription":
        """Itself."""

    async def __anext__(self) -> list[Event]:
        """The next events, at least one, each exactly once and in revision order.

        Raises:
            Compacted: this subscriber fell further behind than its buffer; it must list again.
            StopAsyncIteration: the subscription or the store was closed.
        """

    @property
    def progress(self) -> int:
        """Every event up to this revision under the prefix has been handed out (for bookmarks)."""

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

    def get(self, key: str) -> Entry | None:
        """The acknowledged value."""

    def latest(self, key: str) -> Entry | None:
        """The accepted value, acknowledged or not: the base for a read-modify-write."""

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
            Compacted, FutureRevision: the revision cannot be shown.
        """

    async def put(
        self, key: str, value: Callable[[int], bytes], *, expect: int | None = None
    ) -> Entry:
        """Write a value that may contain its own revision.

        Args:
            key: the key.
            value: called once, at acceptance, with the write's revision; must not await or raise.
            expect: None writes whatever is there; 0 only if the key is absent; otherwise only if
                the key's accepted revision is this one.

        Raises:
            RevisionMismatch: ``expect`` does not hold.
            StorageFull, StoreClosed: nothing was written.
        Cancellation: the write may still happen; it is atomic either way.
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
        """

    def watch(self, prefix: str, *, after: int) -> Subscription:
        """Events under the prefix with a revision greater than ``after``, then the ones to come.

        Raises:
            Compacted: part of that history is gone.
            FutureRevision: ``after`` is beyond the last acknowledged revision.
        """

    async def compact(self, revision: int) -> None:
        """Forget history up to and including the revision; current values stay.

        Raises:
            FutureRevision: beyond the last acknowledged revision.
        """

    async def close(self) -> None:
        """Finish accepted writes, end subscriptions, release the files; idempotent."""
