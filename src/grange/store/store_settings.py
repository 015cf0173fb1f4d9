"""What a SQLite store is given, the bounds and the lanes, and its statistics."""

from dataclasses import dataclass

from grange.base.offload import Inline, Offload, Threads


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Bounds of a store; the defaults suit a control plane of 100,000 objects."""

    buffer_events: int = 16_384
    """How many unread events a watcher may have before it must list again."""
    buffer_bytes: int = 16 << 20
    """And how many bytes of values those may have; one event may have more."""
    recent_events: int = 8_192
    """How many changes are kept in memory for watchers that resume."""
    recent_bytes: int = 8 << 20
    """How many bytes of values those may have."""
    batch_writes: int = 512
    """At most so many writes in one transaction, so that no batch holds the loop for long."""
    max_bytes: int = 0
    """Refuse writes with ``StorageFull`` when the database has reached this size; 0 is no limit."""
    sweep_rows: int = 1_000
    """So many rows are compacted in one transaction; a batch of writes waits for at most one."""
    vacuum_pages: int = 128
    """So many free pages are given back to the file system in one transaction."""
    replay_events: int = 1_000
    """So many old changes are read from the disk at once."""
    replay_bytes: int = 8 << 20
    """But no more once they have so many bytes of values."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """Where blocking calls run; the store closes them."""

    writer: Offload
    """One call at a time, in order."""
    reader: Offload
    """One call at a time, in order."""

    @classmethod
    def threads(cls) -> "Lanes":
        """A thread each."""
        return cls(Threads("store-writer"), Threads("store-reader"))

    @classmethod
    def inline(cls) -> "Lanes":
        """On the loop, for simulation and tests."""
        return cls(Inline(), Inline())

    def close(self) -> None:
        """Wait for running calls and refuse more."""
        self.writer.close()
        self.reader.close()


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """A moment in the life of a store; counts are since it was opened."""

    revision: int
    keys: int
    waiting: int
    """Accepted and not yet acknowledged."""
    writes: int
    """Acknowledged."""
    batches: int
    """Transactions that wrote them."""
    largest_batch: int
    failed_batches: int
    statements: int
    """SQL statements of the writing connection, everything included."""
