"""The store of the embedded control plane: one SQLite file, everything current in memory.

How a write goes: ``put`` decides on the loop, at once, in ``StoreState``, and queues the change. The
writer (one task, one lane of ``base.offload``) takes whatever is queued as one transaction; while
it is on its way to the disk the next batch gathers, so a lone write does not wait and a crowd
shares one fsync. When the commit is on disk the loop, in one step without an await, moves the
changes to the acknowledged state, hands them to the watchers and resolves the callers.

If the disk refuses, everything accepted and not acknowledged fails together, because later changes
were decided on top of earlier ones. Compaction runs between batches on the same lane, in pieces.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from grange.base.log import Logger
from grange.store.change import StoreChange
from grange.store.database import Database, HistoryReader, Loaded, is_harmless, translated
from grange.store.directory import DataDirectory
from grange.store.errors import (
    Compacted,
    FutureRevision,
    RevisionMismatch,
    StoreClosed,
    StoreError,
    WriteDeclined,
)
from grange.store.hub import ChangeHistory, Hub, HubSubscription
from grange.store.interface import Entry, Page, Write
from grange.store.store_settings import Lanes, StoreSettings, StoreStatistics
from grange.store.store_state import StoreState


@dataclass(slots=True)
class _Files:
    directory: DataDirectory
    database: Database
    history: HistoryReader


class SQLiteStore:
    """A durable ``Store`` in a directory; made by ``open``."""

    def __init__(
        self, files: _Files, loaded: Loaded, lanes: Lanes, settings: StoreSettings, log: Logger
    ) -> None:
        self._files = files
        self._lanes = lanes
        self._settings = settings
        self._log = log
        self._state = StoreState(loaded.entries, loaded.revision)
        recent = ChangeHistory(
            loaded.revision, max_events=settings.recent_events, max_bytes=settings.recent_bytes
        )
        self._hub = Hub(
            recent,
            loaded.revision,
            self._history,
            buffer_events=settings.buffer_events,
            buffer_bytes=settings.buffer_bytes,
        )
        self._compacted = loaded.compacted  # what may not be read any more
        self._swept = loaded.compacted  # how far it is gone from the disk
        self._sweepers: list[asyncio.Future[None]] = []
        self._queue: list[StoreChange] = []
        # One for each change; None for a change of a group that is not the group's last.
        self._callers: list[asyncio.Future[Entry] | None] = []
        self._refusal = ""  # why no write is accepted any more
        self._closing = False
        self._writes = self._batches = self._largest_batch = self._failed_batches = 0
        self._loop = asyncio.get_running_loop()
        self._work = asyncio.Event()
        # Not in a nursery: the store lives between open() and close(), which are no block.
        self._writer = self._loop.create_task(self._write(), name="store-writer")

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        log: Logger,
        lanes: Lanes | None = None,
        settings: StoreSettings | None = None,
    ) -> "SQLiteStore":
        """Open the store in a directory, which is created if it is missing.

        Args:
            directory: holds ``store.db``, SQLite's companions of it, and ``store.lock``.
            log: where refused commits are logged.
            lanes: where blocking calls run; threads by default. The store closes them.
            settings: bounds.

        Raises:
            StoreBusy: another process has it.
            StoreCorrupt, StoreTooNew: the database cannot be used.
            StorageFull, StoreError: the directory or the database cannot be written.
        Cancellation: everything is released.
        """
        lanes = lanes or Lanes.threads()
        settings = settings or StoreSettings()
        opened: list[Database | HistoryReader] = []
        held: list[DataDirectory] = []

        def load() -> tuple[_Files, Loaded]:
            held.append(DataDirectory.acquire(directory))
            database = Database(held[0].database, max_bytes=settings.max_bytes)
            opened.append(database)
            loaded = database.load()
            history = HistoryReader(held[0].database)
            opened.append(history)
            return _Files(held[0], database, history), loaded

        try:
            files, loaded = await lanes.writer.run(load)
        except BaseException:
            lanes.close()  # waits for load(), which may still run after a cancellation
            for each in opened:
                each.close()
            for lock in held:
                lock.release()
            raise
        return cls(files, loaded, lanes, settings, log)

    # --- reading -------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """The last acknowledged revision; 0 in an empty store."""
        return self._state.revision

    @property
    def compacted(self) -> int:
        """History up to and including this revision is gone; 0 if none is."""
        return self._compacted

    @property
    def setbacks(self) -> int:
        """How often accepted writes were undone since the store was opened."""
        return self._failed_batches

    def get(self, key: str) -> Entry | None:
        """The acknowledged value."""
        return self._state.get(key)

    def latest(self, key: str) -> Entry | None:
        """The accepted value, acknowledged or not: the base for a read-modify-write."""
        return self._state.latest(key)

    async def list(
        self, prefix: str, *, revision: int = 0, after: str = "", limit: int = 0
    ) -> Page:
        """Entries whose key starts with the prefix, sorted by key.

        The newest state comes from memory without an await; an earlier one is the newest with the
        changes since then undone.

        Raises:
            Compacted: the revision is before the compaction mark, or became so meanwhile.
            FutureRevision: it is beyond the last acknowledged revision.
            StoreClosed: the store is closed.
            StoreError: the history cannot be read.
        """
        self._check_open()
        if revision in {0, self._state.revision}:
            return self._state.page(prefix, after, limit)
        self._check_revision(revision)
        then: dict[str, Entry | None] = {}
        position = revision
        while position < self._hub.recent.floor:
            changes, position = await self._history(prefix, position)
            self._check_revision(revision)
            for change in changes:
                then.setdefault(change.entry.key, change.before)
        for change in self._hub.recent.since(position):
            if change.entry.key.startswith(prefix):
                then.setdefault(change.entry.key, change.before)
        return self._state.page_at(revision, then, prefix, after, limit)

    def watch(self, prefix: str, *, after: int) -> HubSubscription:
        """Events under the prefix with a revision greater than ``after``, then the ones to come.

        Raises:
            Compacted: ``after`` is before the compaction mark.
            FutureRevision: ``after`` is beyond the last acknowledged revision.
            StoreClosed: the store is closed.
        """
        self._check_open()
        self._check_revision(after)
        return self._hub.subscribe(prefix, after)

    async def _history(self, prefix: str, after: int) -> tuple[Sequence[StoreChange], int]:
        """The next piece of history from the disk; checks the mark when it has been read."""
        self._check_revision(after)
        read = partial(
            self._files.history.changes,
            prefix,
            after,
            self._state.revision,  # the disk may be ahead of what is acknowledged
            limit=self._settings.replay_events,
            limit_bytes=self._settings.replay_bytes,
        )
        found = await self._lanes.reader.run(read)
        self._check_open()
        self._check_revision(after)
        return found

    def _check_open(self) -> None:
        if self._closing:
            raise StoreClosed("the store is closed")

    def _check_revision(self, revision: int) -> None:
        if revision > self._state.revision:
            raise FutureRevision(
                f"revision {revision} is ahead: the last is {self._state.revision}"
            )
        if revision < self._compacted:
            raise Compacted(f"revision {revision} is gone: compacted up to {self._compacted}")

    # --- writing -------------------------------------------------------------------------------

    async def put(
        self, key: str, value: Callable[[int], bytes], *, expect: int | None = None
    ) -> Entry:
        """Write a value that may contain its own revision; returns when it is on disk.

        Raises:
            RevisionMismatch: ``expect`` does not hold.
            StorageFull, StoreClosed: nothing was written.
            StoreError: the disk refused the write for another reason, which the message names.
        Cancellation: the write may still happen; it is atomic either way.
        """
        if self._refusal:
            raise StoreClosed(self._refusal)
        return await self._accept([self._state.put(key, value, expect)])

    async def put_group(
        self, writes: Sequence[Write]
    ) -> Sequence[Entry | RevisionMismatch | WriteDeclined]:
        """Many puts at once; returns when all that are accepted are on disk, in one transaction.

        Raises:
            StorageFull, StoreClosed: nothing was written.
            StoreError: the disk refused the group for another reason, which the message names.
            ValueError, or what else a value raised: the writes before that one may still happen.
        Cancellation: the group may still be written; all that is accepted of it, or nothing.
        """
        if self._refusal:
            raise StoreClosed(self._refusal)
        outcomes: list[Entry | RevisionMismatch | WriteDeclined] = []
        accepted: list[StoreChange] = []
        written: asyncio.Future[Entry] | None = None
        put = self._state.put
        try:
            for key, value, expect in writes:
                try:
                    change = put(key, value, expect)
                except (RevisionMismatch, WriteDeclined) as refusal:
                    outcomes.append(refusal)
                else:
                    accepted.append(change)
                    outcomes.append(change.entry)
        finally:  # what was accepted has its revision: it must be written, whatever came after it
            if accepted:
                written = self._accept(accepted)
        if written is not None:
            await written
        return outcomes

    async def delete(
        self,
        key: str,
        *,
        value: Callable[[int], bytes] | None = None,
        expect: int | None = None,
    ) -> Entry:
        """Delete a key; returns when that is on disk.

        Raises:
            RevisionMismatch: the key is absent (actual 0), or ``expect`` does not hold.
            StorageFull, StoreClosed: nothing was written.
            StoreError: the disk refused the write for another reason, which the message names.
        Cancellation: the deletion may still happen; it is atomic either way.
        """
        if self._refusal:
            raise StoreClosed(self._refusal)
        return await self._accept([self._state.delete(key, value, expect)])

    def _accept(self, changes: Sequence[StoreChange]) -> "asyncio.Future[Entry]":
        """Queue changes that are written together; completes when they are, with the last's entry."""
        caller: asyncio.Future[Entry] = self._loop.create_future()
        self._queue += changes
        self._callers += [None] * (len(changes) - 1)
        self._callers.append(caller)
        self._work.set()
        return caller

    async def compact(self, revision: int) -> None:
        """Forget history up to and including the revision; returns when it is off the disk.

        Raises:
            FutureRevision: beyond the last acknowledged revision.
            StoreClosed: the store is closed.
            StorageFull, StoreError: the disk refused; what was forgotten stays forgotten.
        Cancellation: the compaction goes on.
        """
        if self._refusal:
            raise StoreClosed(self._refusal)
        if revision > self._state.revision:
            raise FutureRevision(
                f"cannot compact to {revision}: the last is {self._state.revision}"
            )
        if revision <= self._compacted:
            return
        # First the promise, then the rows: readers of history check the mark afterwards.
        self._compacted = revision
        done: asyncio.Future[None] = self._loop.create_future()
        self._sweepers.append(done)
        self._work.set()
        await done

    async def close(self) -> None:
        """Finish accepted writes, end subscriptions, release the files; idempotent.

        Cancellation: the closing goes on.
        """
        self._closing = True
        self._refusal = self._refusal or "the store is closed"
        self._work.set()
        await asyncio.shield(self._writer)

    # --- the writer ----------------------------------------------------------------------------

    async def _write(self) -> None:
        try:
            while True:
                if self._queue:
                    await self._commit()
                if self._sweepers and not self._closing:
                    await self._sweep()
                elif not self._queue:
                    if self._closing:
                        return
                    self._work.clear()
                    await self._work.wait()
        except BaseException as error:
            self._refusal = f"the store has failed ({type(error).__name__}: {error}): restart"
            raise
        finally:
            self._closing = True
            self._fail_callers(StoreClosed(self._refusal))
            self._fail_sweepers(StoreClosed(self._refusal))
            self._hub.close()
            await self._release()

    async def _commit(self) -> None:
        size = min(self._settings.batch_writes, len(self._queue))
        while self._callers[size - 1] is None:  # a group is not split
            size += 1
        changes = self._queue[:size]  # more may be queued behind them while the lane works
        try:
            await self._lanes.writer.run(partial(self._files.database.append, changes))
        except sqlite3.Error as error:
            self._refuse(error, size)
            return
        callers = self._callers[:size]
        del self._queue[:size], self._callers[:size]
        acknowledge = self._state.acknowledge
        for change in changes:
            acknowledge(change)
        self._hub.deliver(changes)
        for caller, change in zip(callers, changes, strict=True):
            if caller is not None and not caller.done():  # it may have been cancelled
                caller.set_result(change.entry)
        self._writes += size
        self._batches += 1
        self._largest_batch = max(self._largest_batch, size)

    def _refuse(self, error: sqlite3.Error, size: int) -> None:
        """Roll back everything accepted; stop for good if the disk's state is unknown."""
        self._failed_batches += 1
        failure = translated(error, self._files.database.file)
        if not is_harmless(error):
            self._refusal = f"the store has failed and only reads ({failure}): restart"
        self._log.error("commit refused", writes=size, waiting=len(self._queue), error=failure)
        self._state.rollback()
        self._fail_callers(failure, cause=error)

    def _fail_callers(self, failure: StoreError, *, cause: BaseException | None = None) -> None:
        callers, self._callers = self._callers, []
        self._queue = []
        for caller in callers:
            if caller is not None and not caller.done():
                each = type(failure)(str(failure))  # one each: raising adds to its traceback
                each.__cause__ = cause
                caller.set_exception(each)

    async def _sweep(self) -> None:
        """One piece of compaction, so that writes never wait for more than one."""
        database = self._files.database
        settings = self._settings
        target = self._compacted
        try:
            if self._swept < target:
                piece = partial(database.sweep, target, settings.sweep_rows)
                self._swept = await self._lanes.writer.run(piece)
                return
            left = await self._lanes.writer.run(partial(database.vacuum, settings.vacuum_pages))
            if not left and target == self._compacted:
                await self._lanes.writer.run(database.truncate_wal)
        except sqlite3.Error as error:
            failure = translated(error, database.file)
            self._log.error("compaction refused", revision=target, error=failure)
            self._fail_sweepers(failure)
            return
        if not left and target == self._compacted:
            sweepers, self._sweepers = self._sweepers, []
            for done in sweepers:
                if not done.done():
                    done.set_result(None)

    def _fail_sweepers(self, failure: StoreError) -> None:
        sweepers, self._sweepers = self._sweepers, []
        for done in sweepers:
            if not done.done():
                done.set_exception(type(failure)(str(failure)))

    async def _release(self) -> None:
        try:
            await self._lanes.reader.run(self._files.history.close)
            await self._lanes.writer.run(self._files.database.close)
        finally:
            with suppress(sqlite3.Error):
                self._lanes.close()
            self._files.directory.release()

    def statistics(self) -> StoreStatistics:
        """Counts, which ``/metrics`` shows."""
        return StoreStatistics(
            revision=self._state.revision,
            keys=len(self._state),
            waiting=len(self._queue),
            writes=self._writes,
            batches=self._batches,
            largest_batch=self._largest_batch,
            failed_batches=self._failed_batches,
            statements=self._files.database.statements,
        )
