"""One accepted write and what was there before it: what the parts of the SQLite store hand around.

A change knows both sides, so history can be read forwards (events for watchers) and backwards (the
state at an earlier revision).
"""

from grange.store.interface import Entry, StoreEvent


class StoreChange:
    """One write.

    A plain class rather than a dataclass because one is made for every write.

    Attributes:
        entry: the new value; for a deletion the final bytes with the deletion's revision.
        before: the key's entry before; None for a creation.
        deleted: whether the key is gone.
    """

    __slots__ = ("_event", "before", "deleted", "entry")

    def __init__(self, entry: Entry, before: Entry | None, *, deleted: bool) -> None:
        self.entry = entry
        self.before = before
        self.deleted = deleted
        self._event: StoreEvent | None = None

    @property
    def event(self) -> StoreEvent:
        """The change as watchers see it; one object, shared between them."""
        if self._event is None:
            entry = self.entry
            before = None if self.before is None else self.before.value
            self._event = StoreEvent(entry.key, entry.revision, entry.value, before, self.deleted)
        return self._event

    @property
    def size_bytes(self) -> int:
        """What keeping the change in memory costs at most."""
        before = 0 if self.before is None else len(self.before.value)
        return len(self.entry.value) + before
