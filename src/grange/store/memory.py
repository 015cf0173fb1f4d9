"""The executable specification of a store: a dict, its keys in order, a plain list of history.

Everything here is meant to be obviously right first. Simulations run on it, so a read does not
look at what it does not need. ``SQLiteStore`` must behave the same; the contract suite and a state
machine compare the two. A write is accepted and acknowledged in one step, so ``latest`` and
``get`` agree.
"""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from itertools import islice, takewhile

from grange.store.errors import (
    Compacted,
    FutureRevision,
    RevisionMismatch,
    StoreClosed,
    WriteDeclined,
)
from grange.store.interface import Entry, Page, StoreEvent, Write, check_key

_BUFFER_EVENTS = 16_384  # the default of SQLiteStore


async def _turn() -> None:
    """Let others run, as a store with a disk does: a tight loop of writes must not starve them."""
    turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(turn.set)
    await turn.wait()


class MemoryStore:
    """A store that forgets everything when it is dropped.

    Args:
        buffer_events: how many unread events a subscriber may have before it must list again.
    """

    def __init__(self, *, buffer_events: int = _BUFFER_EVENTS) -> None:
        self._buffer_events = buffer_events
        self._entries: dict[str, Entry] = {}
        self._keys: list[str] = []  # of the entries, in order
        self._history: list[
            tuple[StoreEvent, Entry | None]
        ] = []  # each write and what was there before
        self._subscriptions: list[MemorySubscription] = []
        self._revision = 0
        self._compacted = 0
        self._closed = False

    @property
    def revision(self) -> int:
        """The last acknowledged revision; 0 in an empty store."""
        return self._revision

    @property
    def compacted(self) -> int:
        """History up to and including this revision is gone; 0 if none is."""
        return self._compacted

    @property
    def setbacks(self) -> int:
        """How often accepted writes were undone: never, as they are acknowledged at once."""
        return 0

    def get(self, key: str) -> Entry | None:
        """The acknowledged value."""
        return self._entries.get(key)

    def latest(self, key: str) -> Entry | None:
        """The accepted value; here the same as the acknowledged one."""
        return self._entries.get(key)

    async def list(
        self, prefix: str, *, revision: int = 0, after: str = "", limit: int = 0
    ) -> Page:
        """Entries under the prefix, sorted by key, now or at an earlier revision.

        Raises:
            Compacted, FutureRevision: the revision cannot be shown.
            StoreClosed: the store is closed.
        """
        self._check_open()
        shown = revision or self._revision
        self._check_revision(shown)
        state, keys = self._entries, self._keys
        if shown < self._revision:
            state = self._at(shown)
            keys = sorted(state)
        start = max(bisect_left(keys, prefix), bisect_right(keys, after))
        keys = list(takewhile(lambda key: key.startswith(prefix), islice(keys, start, None)))
        taken = keys[:limit] if limit else keys
        return Page([state[key] for key in taken], shown, len(keys) - len(taken))

    def _at(self, revision: int) -> dict[str, Entry]:
        """All entries as they were at an earlier revision."""
        state = dict(self._entries)
        for event, before in reversed(self._since(revision)):
            if before is None:
                del state[event.key]
            else:
                state[event.key] = before
        return state

    def _since(self, revision: int) -> Sequence[tuple[StoreEvent, Entry | None]]:
        """The writes after a revision: history is in order of revision."""
        at = bisect_right(self._history, revision, key=lambda item: item[0].revision)
        return self._history[at:]

    async def put(
        self, key: str, value: Callable[[int], bytes], *, expect: int | None = None
    ) -> Entry:
        """Write a value that may contain its own revision.

        Raises:
            RevisionMismatch: ``expect`` does not hold.
            StoreClosed: nothing was written.
        """
        entry = self._put(key, value, expect)
        await _turn()
        return entry

    async def put_group(
        self, writes: Sequence[Write]
    ) -> Sequence[Entry | RevisionMismatch | WriteDeclined]:
        """Many puts at once, each decided for itself.

        Raises:
            StoreClosed: nothing was written.
        """
        self._check_open()
        outcomes: list[Entry | RevisionMismatch | WriteDeclined] = []
        for write in writes:
            try:
                outcomes.append(self._put(*write))
            except (RevisionMismatch, WriteDeclined) as refusal:
                outcomes.append(refusal)
        await _turn()
        return outcomes

    def _put(self, key: str, value: Callable[[int], bytes], expect: int | None) -> Entry:
        self._check_open()
        check_key(key)
        before = self._entries.get(key)
        actual = before.revision if before else 0
        if expect is not None and expect != actual:
            raise RevisionMismatch(key, expected=expect, actual=actual)
        revision = self._revision + 1
        body = value(revision)
        entry = Entry(key, body, revision, before.created if before else revision)
        event = StoreEvent(key, revision, body, before.value if before else None, deleted=False)
        if before is None:
            insort(self._keys, key)
        self._entries[key] = entry
        self._record(event, before)
        return entry

    async def delete(
        self,
        key: str,
        *,
        value: Callable[[int], bytes] | None = None,
        expect: int | None = None,
    ) -> Entry:
        """Delete a key; watchers get ``value(revision)``, or the last bytes without it.

        Raises:
            RevisionMismatch: the key is absent (actual 0), or ``expect`` does not hold.
            StoreClosed: nothing was written.
        """
        self._check_open()
        before = self._entries.get(key)
        if before is None:
            raise RevisionMismatch(key, expected=expect or 0, actual=0)
        if expect is not None and expect != before.revision:
            raise RevisionMismatch(key, expected=expect, actual=before.revision)
        revision = self._revision + 1
        body = value(revision) if value else before.value
        event = StoreEvent(key, revision, body, before.value, deleted=True)
        del self._entries[key]
        del self._keys[bisect_left(self._keys, key)]
        self._record(event, before)
        await _turn()
        return Entry(key, body, revision, before.created)

    def _record(self, event: StoreEvent, before: Entry | None) -> None:
        self._revision = event.revision
        self._history.append((event, before))
        for subscription in self._subscriptions:
            subscription._offer(event)

    def watch(self, prefix: str, *, after: int) -> "MemorySubscription":
        """Events under the prefix with a revision greater than ``after``, then the ones to come.

        Raises:
            Compacted: part of that history is gone.
            FutureRevision: ``after`` is beyond the last acknowledged revision.
            StoreClosed: the store is closed.
        """
        self._check_open()
        self._check_revision(after)
        missed = [event for event, _ in self._since(after)]
        subscription = MemorySubscription(self, prefix, missed, self._buffer_events)
        self._subscriptions.append(subscription)
        return subscription

    async def compact(self, revision: int) -> None:
        """Forget history up to and including the revision; current values stay.

        Raises:
            FutureRevision: beyond the last acknowledged revision.
            StoreClosed: the store is closed.
        """
        self._check_open()
        if revision > self._revision:
            raise FutureRevision(f"cannot compact to {revision}: the last is {self._revision}")
        if revision > self._compacted:
            self._compacted = revision
            self._history = list(self._since(revision))

    async def close(self) -> None:
        """End subscriptions and refuse further calls; idempotent."""
        self._closed = True
        for subscription in list(self._subscriptions):
            subscription.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")

    def _check_revision(self, revision: int) -> None:
        if revision > self._revision:
            raise FutureRevision(f"revision {revision} is ahead: the last is {self._revision}")
        if revision < self._compacted:
            raise Compacted(f"revision {revision} is gone: compacted up to {self._compacted}")


class MemorySubscription:
    """A watcher with its unread events; made by ``MemoryStore.watch``."""

    def __init__(
        self, store: MemoryStore, prefix: str, missed: list[StoreEvent], buffer_events: int
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._unread = [event for event in missed if event.key.startswith(prefix)]
        self._buffer_events = buffer_events
        self._overflowed = False
        self._closed = False
        self._end = 0  # once it is closed: how far it came
        self._changed = asyncio.Event()

    def __aiter__(self) -> "MemorySubscription":
        """Itself."""
        return self

    async def __anext__(self) -> list[StoreEvent]:
        """All unread events, at least one.

        Raises:
            Compacted: it fell further behind than its buffer.
            StopAsyncIteration: it or the store was closed.
        """
        while True:
            if self._closed:
                raise StopAsyncIteration
            if self._overflowed:
                raise Compacted("the watcher fell too far behind: list again")
            if self._unread:
                events, self._unread = self._unread, []
                return events
            self._changed.clear()
            await self._changed.wait()

    def take_unread(self) -> list[StoreEvent]:
        """The unread events.

        Raises:
            Compacted: it fell further behind than its buffer.
        """
        if self._overflowed and not self._closed:
            raise Compacted("the watcher fell too far behind: list again")
        events, self._unread = ([] if self._closed else self._unread), []
        return events

    def _offer(self, event: StoreEvent) -> None:
        if event.key.startswith(self._prefix):
            if len(self._unread) >= self._buffer_events:
                self._overflowed = True
            else:
                self._unread.append(event)
            self._changed.set()

    @property
    def progress(self) -> int:
        """Every event up to this revision under the prefix has been handed out."""
        if self._closed:
            return self._end
        return self._unread[0].revision - 1 if self._unread else self._store.revision

    def close(self) -> None:
        """End it; idempotent."""
        if not self._closed:
            self._end = self.progress
            self._closed = True
            self._store._subscriptions.remove(self)
            self._changed.set()
