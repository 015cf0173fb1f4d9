"""From acknowledged changes to watchers: recent history in memory, bounded buffers, prefixes.

A subscription is in one of two modes. *Live*: it is registered under its prefix and every matching
event is put into its buffer as it is acknowledged. *Replaying*: it is not registered; each read
takes the next piece of history after its position, from the disk or from the recent changes kept
here, and it goes live in the same step in which it catches up. So no event is missed between the
two and none comes twice, and a write costs only the subscriptions that want it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

from grange.store.change import StoreChange
from grange.store.errors import Compacted
from grange.store.interface import StoreEvent

History = Callable[[str, int], Awaitable[tuple[Sequence[StoreChange], int]]]
"""Reads changes under a prefix after a revision from the disk, with the last revision read."""


class ChangeHistory:
    """The last changes, bounded by number and bytes.

    Args:
        revision: history up to here is not in memory.
        max_events: keep at most so many.
        max_bytes: keep at most so many bytes of values.
    """

    def __init__(self, revision: int, *, max_events: int, max_bytes: int) -> None:
        self.floor = revision  # every change after this revision is kept
        self._changes: deque[StoreChange] = deque()
        self._bytes = 0
        self._max_events = max_events
        self._max_bytes = max_bytes

    def __len__(self) -> int:
        return len(self._changes)

    def append(self, change: StoreChange) -> None:
        """Keep a change and drop the oldest beyond the bounds."""
        self._changes.append(change)
        self._bytes += change.size_bytes
        while len(self._changes) > self._max_events or self._bytes > self._max_bytes:
            oldest = self._changes.popleft()
            self._bytes -= oldest.size_bytes
            self.floor = oldest.entry.revision

    def since(self, revision: int) -> list[StoreChange]:
        """The changes after a revision that is not below the floor, oldest first."""
        found = []
        for change in reversed(self._changes):
            if change.entry.revision <= revision:
                break
            found.append(change)
        found.reverse()
        return found


class Hub:
    """The subscriptions and the recent changes.

    Args:
        recent: where acknowledged changes are kept for those who resume.
        revision: the last acknowledged revision.
        history: reads what ``recent`` no longer has.
        buffer_events: how many unread events a live subscription may have.
        buffer_bytes: how many bytes of values those may have, beyond the first.
    """

    def __init__(
        self,
        recent: ChangeHistory,
        revision: int,
        history: History,
        *,
        buffer_events: int,
        buffer_bytes: int,
    ) -> None:
        self.recent = recent
        self.revision = revision
        self.history = history
        self.buffer_events = buffer_events
        self.buffer_bytes = buffer_bytes
        self._all: dict[HubSubscription, None] = {}
        self._live: dict[str, dict[HubSubscription, None]] = {}
        self._groups_of: dict[int, int] = {}  # length of prefix → how many prefixes have it
        self._lengths: list[int] = []  # the same lengths, ascending

    def __len__(self) -> int:
        return len(self._all)

    def subscribe(self, prefix: str, after: int) -> "HubSubscription":
        """A subscription that has seen everything up to ``after``."""
        subscription = HubSubscription(self, prefix, after)
        self._all[subscription] = None
        subscription.try_catch_up()
        return subscription

    def deliver(self, changes: Iterable[StoreChange]) -> None:
        """Hand acknowledged changes to the live subscriptions, in the order of their revisions."""
        lagging: list[HubSubscription] = []
        for change in changes:
            self.recent.append(change)
            entry = change.entry
            key = entry.key
            for length in self._lengths:
                if length > len(key):
                    break
                group = self._live.get(key[:length])
                if group:
                    event, size = change.event, change.size_bytes
                    lagging += [each for each in group if not each.offer(event, size)]
            self.revision = entry.revision
        for subscription in lagging:
            self.unregister(subscription)

    def register(self, subscription: "HubSubscription") -> None:
        """Let a subscription have every matching change from now on."""
        prefix = subscription.prefix
        group = self._live.get(prefix)
        if group is None:
            group = self._live[prefix] = {}
            self._count(len(prefix), 1)
        group[subscription] = None

    def unregister(self, subscription: "HubSubscription") -> None:
        """The opposite; does nothing for one that is not live."""
        prefix = subscription.prefix
        group = self._live.get(prefix)
        if group is not None and subscription in group:
            del group[subscription]
            if not group:
                del self._live[prefix]
                self._count(len(prefix), -1)

    def _count(self, length: int, change: int) -> None:
        self._groups_of[length] = self._groups_of.get(length, 0) + change
        if not self._groups_of[length]:
            del self._groups_of[length]
        self._lengths = sorted(self._groups_of)

    def forget(self, subscription: "HubSubscription") -> None:
        """A subscription was closed."""
        self.unregister(subscription)
        self._all.pop(subscription, None)

    def close(self) -> None:
        """End every subscription."""
        for subscription in list(self._all):
            subscription.close()


class HubSubscription:
    """One watcher; made by ``Hub.subscribe``.

    Attributes:
        prefix: the common start of its keys.
    """

    def __init__(self, hub: Hub, prefix: str, after: int) -> None:
        self.prefix = prefix
        self._hub = hub
        self._position = after  # while replaying: everything up to here was handed out
        self._live = False
        self._buffer: list[StoreEvent] = []
        self._buffered_bytes = 0  # of what came since it went live
        self._lagging = False
        self._closed = False
        self._changed = asyncio.Event()

    def __aiter__(self) -> "HubSubscription":
        """Itself."""
        return self

    async def __anext__(self) -> list[StoreEvent]:
        """All unread events, at least one, each exactly once and in revision order.

        One consumer at a time.

        Raises:
            Compacted: it fell further behind than its buffer, or than the history that is kept.
            StopAsyncIteration: it or the store was closed.
        Cancellation: nothing is lost.
        """
        while True:
            if self._closed:
                raise StopAsyncIteration
            if self._lagging:
                raise Compacted("the watcher fell too far behind: list again")
            if self._buffer:
                events, self._buffer = self._buffer, []
                self._buffered_bytes = 0
                return events
            if self._live:
                self._changed.clear()
                await self._changed.wait()
            elif not self.try_catch_up() and (events := await self._replay()):
                return events

    def take_unread(self) -> list[StoreEvent]:
        """The unread events that are in memory.

        Raises:
            Compacted: it fell too far behind, or events before those in memory are unread.
        """
        if self._closed:
            return []
        if self._lagging or not (self._buffer or self._live or self.try_catch_up()):
            raise Compacted("the watcher fell too far behind: list again")
        events, self._buffer = self._buffer, []
        self._buffered_bytes = 0
        return events

    async def _replay(self) -> list[StoreEvent]:
        """The next piece of history; the position moves without another await after the read."""
        changes, position = await self._hub.history(self.prefix, self._position)
        if self._closed:
            return []
        self._position = position
        return [change.event for change in changes]

    def try_catch_up(self) -> bool:
        """Go live if what is missing is in memory and fits the buffer; return whether it did."""
        recent = self._hub.recent
        if self._position < recent.floor:
            return False
        missed = [
            change.event
            for change in recent.since(self._position)
            if change.entry.key.startswith(self.prefix)
        ]
        if len(missed) > self._hub.buffer_events:
            self._position = missed[self._hub.buffer_events - 1].revision
            self._buffer = missed[: self._hub.buffer_events]
            return True
        self._buffer = missed
        self._live = True
        self._hub.register(self)
        return True

    def offer(self, event: StoreEvent, size: int) -> bool:
        """Take an event of so many bytes into the buffer; False, once, if it does not fit."""
        if self._lagging:
            return True
        self._changed.set()
        hub, buffer = self._hub, self._buffer
        self._buffered_bytes += size
        if len(buffer) < hub.buffer_events and (
            self._buffered_bytes <= hub.buffer_bytes or not buffer
        ):
            buffer.append(event)
            return True
        self._buffer = []
        self._lagging = True
        return False

    @property
    def progress(self) -> int:
        """Every event up to this revision under the prefix has been handed out."""
        if self._buffer:
            return self._buffer[0].revision - 1
        return self._hub.revision if self._live and not self._lagging else self._position

    def close(self) -> None:
        """End it; idempotent."""
        if not self._closed:
            # Neither what is unread nor what comes now will be handed out.
            self._position, self._live = self.progress, False
            self._closed = True
            self._buffer = []
            self._changed.set()
            self._hub.forget(self)
