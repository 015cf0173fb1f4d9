"""The only module that speaks SQL: an append-only log of changes in one SQLite file.

Every row is a change: its revision, key, value, when the key was created, the revision that it
replaced (0 for a creation) and whether it deleted the key. Because each row names the one it
replaced, nothing needs an index besides the revision: compaction follows the names, an earlier
state is the present one with the later rows undone, and writes only ever append.

Everything here blocks and runs on one lane of ``base.offload``, one call at a time.
"""

import shutil
import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from grange.store.change import StoreChange
from grange.store.errors import StorageFull, StoreCorrupt, StoreError, StoreTooNew
from grange.store.interface import Entry

APPLICATION_ID = 0x47524E47  # "GRNG" in the file's header: a database of ours
FORMAT = 1
PAGE_BYTES = 8192  # five pods of 1.4 KB a page; with 4096 it would be two and a third wasted

_BUSY_WAIT_MS = 5_000
_CHECKPOINT_WAIT_MS = 100  # writes wait as long, and a later checkpoint does as well
_COLUMNS = 7
_SCHEMA = """
CREATE TABLE log (
    revision INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    created INTEGER NOT NULL,
    previous INTEGER NOT NULL,
    deleted INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE TABLE mark (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), compacted INTEGER NOT NULL);
INSERT INTO mark VALUES (1, 0);
"""
# Errors after which the connection and the file are as they were before the statement. After any
# other (a failed fsync above all) it is unknown what is on disk, so the store must stop writing.
_HARMLESS = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR_WRITE,
    }
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a database holds when it is opened.

    Attributes:
        entries: the current entries by key.
        revision: the last revision that is known to have been given out.
        compacted: the compaction mark.
    """

    entries: dict[str, Entry]
    revision: int
    compacted: int


def translated(error: sqlite3.Error, file: Path) -> StoreError:
    """The room's own error for one of the library's."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _no_space(file)):
        return StorageFull(
            f"{file}: no space left on the disk, or the size limit is reached: "
            "nothing of this write is kept; free space, then try again"
        )
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return _corrupt(file, str(error))
    if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}:
        return StoreError(f"{file} cannot be written ({error}): check its permissions and the disk")
    name = getattr(error, "sqlite_errorname", "")
    return StoreError(
        f"{file}: {error}{name and f' ({name})'}: check the disk and the system's log"
    )


def _no_space(file: Path) -> bool:
    # SQLite reports "full" only for its data; for its shared index a full disk is an I/O error.
    try:
        return shutil.disk_usage(file.parent).free < PAGE_BYTES
    except OSError:
        return False


def is_harmless(error: sqlite3.Error) -> bool:
    """Whether the failed statement certainly left nothing behind, so that writing may go on."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code in _HARMLESS or (code & 0xFF) in _HARMLESS


def _corrupt(file: Path, reason: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"{file} is not readable as a database of Grange ({reason}): "
        "move it away and restore a copy, or start with an empty data directory"
    )


def _checksum(revision: int, value: bytes) -> int:
    # The revision is part of it, so that a value in the wrong row is noticed too.
    return zlib.crc32(value, revision & 0xFFFFFFFF)


def _connect(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        file, isolation_level=None, check_same_thread=False, timeout=_BUSY_WAIT_MS / 1000
    )


class Database:
    """The connection that writes.

    Args:
        file: the database; an empty file becomes a new one.
        max_bytes: refuse to grow beyond this; 0 for no limit.

    Raises:
        StoreCorrupt, StoreTooNew: not a database that this version can use.
        StoreError: it cannot be opened or written.
    """

    def __init__(self, file: Path, *, max_bytes: int = 0) -> None:
        self.file = file
        self.statements = 0
        self._inserts = {1: _insert(1)}
        try:
            self._connection = _connect(file)
        except sqlite3.Error as error:
            raise translated(error, file) from error
        try:
            self._prepare(max_bytes)
        except sqlite3.Error as error:
            self.close()
            raise translated(error, file) from error
        except StoreError:
            self.close()
            raise

    def _prepare(self, max_bytes: int) -> None:
        if self._number("PRAGMA application_id") != APPLICATION_ID:
            if self._number("PRAGMA schema_version") != 0:
                raise _corrupt(self.file, "it belongs to another program")
            self._create()
        found = self._number("PRAGMA user_version")
        if found > FORMAT:
            raise StoreTooNew(
                f"{self.file} has format {found}, this version knows up to {FORMAT}: "
                "use the newer version of Grange that wrote it"
            )
        self._run("PRAGMA journal_mode = WAL")
        self._run("PRAGMA synchronous = FULL")
        self._run("PRAGMA secure_delete = ON")  # deleted Secrets are overwritten, not only unlinked
        self._run("PRAGMA journal_size_limit = 16777216")  # a burst's WAL shrinks back to 16 MB
        if max_bytes:
            self._run(f"PRAGMA max_page_count = {max(1, max_bytes // PAGE_BYTES)}")

    def _create(self) -> None:
        self._run(f"PRAGMA page_size = {PAGE_BYTES}")
        self._run("PRAGMA auto_vacuum = INCREMENTAL")
        self._run("BEGIN IMMEDIATE")
        for statement in _SCHEMA.split(";"):
            if statement.strip():
                self._run(statement)
        self._run(f"PRAGMA user_version = {FORMAT}")
        self._run(f"PRAGMA application_id = {APPLICATION_ID}")
        self._run("COMMIT")

    def load(self) -> Loaded:
        """Read everything once.

        Raises:
            StoreCorrupt: a row is damaged.
        """
        entries: dict[str, Entry] = {}
        revision = 0
        try:
            compacted = self._number("SELECT compacted FROM mark")
            rows = self._connection.execute(
                "SELECT revision, key, value, created, deleted, checksum FROM log ORDER BY revision"
            )
            for revision, key, value, created, deleted, checksum in rows:
                if checksum != _checksum(revision, value):
                    raise _corrupt(self.file, f"the value of {key} at {revision} is damaged")
                if deleted:
                    entries.pop(key, None)
                else:
                    entries[key] = Entry(key, value, revision, created)
        except sqlite3.Error as error:
            raise translated(error, self.file) from error
        except (TypeError, ValueError) as error:
            raise _corrupt(self.file, str(error)) from error
        return Loaded(entries, max(revision, compacted), compacted)

    def append(self, changes: Sequence[StoreChange]) -> None:
        """Put the changes on disk, all or none: one statement, which is one transaction.

        A thread of Python gives up the interpreter at every statement and may wait for it
        milliseconds when the loop is busy; so a batch is one statement, whatever its size.

        Raises:
            sqlite3.Error: none of them is kept, where ``is_harmless`` returns True.
        """
        size = 1 << (len(changes) - 1).bit_length()  # few different statements, so they stay cached
        statement = self._inserts.get(size)
        if statement is None:
            statement = self._inserts[size] = _insert(size)
        values: list[object] = []
        extend = values.extend
        for change in changes:
            entry = change.entry
            before = change.before
            extend(
                (
                    entry.revision,
                    entry.key,
                    entry.value,
                    entry.created,
                    0 if before is None else before.revision,
                    change.deleted,
                    _checksum(entry.revision, entry.value),
                )
            )
        values.extend([None] * ((size - len(changes)) * _COLUMNS))
        self.statements += 1
        self._connection.execute(statement, values)

    def sweep(self, upto: int, rows: int) -> int:
        """Delete what cannot be read any more, for the next ``rows`` rows up to a revision.

        Returns:
            The new mark: ``upto``, or less if there is more to do.

        Raises:
            sqlite3.Error: nothing was deleted.
        """
        after = self._number("SELECT compacted FROM mark")
        last = self._number(
            "SELECT max(revision) FROM (SELECT revision FROM log"
            " WHERE revision > ? AND revision <= ? ORDER BY revision LIMIT ?)",
            (after, upto, rows),
        )
        more = last and self._number(
            "SELECT EXISTS (SELECT 1 FROM log WHERE revision > ? AND revision <= ?)", (last, upto)
        )
        mark = last if more else max(after, upto)
        try:
            self._run("BEGIN IMMEDIATE")
            self._run(
                "DELETE FROM log WHERE revision IN (SELECT previous FROM log"
                " WHERE revision > ? AND revision <= ? AND previous > 0)",
                (after, mark),
            )
            self._run(
                "DELETE FROM log WHERE revision > ? AND revision <= ? AND deleted", (after, mark)
            )
            self._run("UPDATE mark SET compacted = ?", (mark,))
            self._run("COMMIT")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            raise
        return mark

    def vacuum(self, pages: int) -> int:
        """Give up to ``pages`` free pages back to the file system; a fifth of the file may stay free.

        Returns:
            How many more are worth giving back.

        Raises:
            sqlite3.Error: nothing was given back.
        """
        free = self._number("PRAGMA freelist_count")
        total = self._number("PRAGMA page_count")
        spare = (5 * free - total) // 4  # afterwards free - spare is a fifth of total - spare
        if spare <= 0:
            return 0
        self.statements += 1
        # A row without columns comes for each page; only executescript reads on behind the first.
        self._connection.executescript(f"PRAGMA incremental_vacuum({min(spare, pages)})")
        return max(0, spare - pages)

    def truncate_wal(self) -> bool:
        """Move the write-ahead log into the file and empty it, so that no old frame stays on disk.

        Returns:
            False when a reader kept it busy; nothing is lost then, and a later call can do it.

        Raises:
            sqlite3.Error: the log could not be moved.
        """
        self._run(f"PRAGMA busy_timeout = {_CHECKPOINT_WAIT_MS}")
        try:
            return self._number("PRAGMA wal_checkpoint(TRUNCATE)") == 0
        finally:
            self._run(f"PRAGMA busy_timeout = {_BUSY_WAIT_MS}")

    def close(self) -> None:
        """Check the log into the file and release it; idempotent."""
        with suppress(sqlite3.Error):
            self._connection.close()

    def _run(self, statement: str, values: Sequence[object] = ()) -> None:
        self.statements += 1
        self._connection.execute(statement, values)

    def _number(self, query: str, values: Sequence[object] = ()) -> int:
        self.statements += 1
        row = self._connection.execute(query, values).fetchone()
        return int(row[0]) if row and row[0] is not None else 0


def _insert(rows: int) -> str:
    values = ",".join([f"({','.join('?' * _COLUMNS)})"] * rows)
    if rows == 1:
        return f"INSERT INTO log VALUES {values}"  # noqa: S608  placeholders only
    return f"INSERT INTO log SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL"  # noqa: S608  only placeholders


class HistoryReader:
    """A connection that reads old changes; sees every commit at once.

    Args:
        file: an existing database.

    Raises:
        StoreError: it cannot be opened.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self._connection = _connect(file)
            self._connection.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            raise translated(error, file) from error

    def changes(
        self, prefix: str, after: int, upto: int, *, limit: int, limit_bytes: int
    ) -> tuple[list[StoreChange], int]:
        """Changes under a prefix with ``after`` < revision ≤ ``upto``.

        Args:
            prefix: the common start of the keys.
            after: only greater revisions.
            upto: and none that is greater than this.
            limit: at most so many changes.
            limit_bytes: no more changes once these have so many bytes of values.

        Returns:
            The changes, and the revision up to which there is no other.

        Raises:
            StoreError, StoreCorrupt: it cannot be read.
        """
        found: list[StoreChange] = []
        size = 0
        try:
            rows = self._connection.execute(
                "SELECT l.revision, l.key, l.value, l.created, l.deleted, l.previous, p.value"
                " FROM log l LEFT JOIN log p ON p.revision = l.previous"
                " WHERE l.revision > ? AND l.revision <= ? AND substr(l.key, 1, ?) = ?"
                " ORDER BY l.revision LIMIT ?",
                (after, upto, len(prefix), prefix, limit),
            )
            for revision, key, value, created, deleted, previous, before in rows:
                change = StoreChange(
                    Entry(key, value, revision, created),
                    # Without its value when a compaction overtook this read: the caller rejects that.
                    Entry(key, before, previous, created) if before is not None else None,
                    deleted=bool(deleted),
                )
                found.append(change)
                size += change.size_bytes
                if size >= limit_bytes:
                    break
            rows.close()  # a statement that was not read to its end would keep the log from shrinking
        except sqlite3.Error as error:
            raise translated(error, self._file) from error
        more = len(found) == limit or size >= limit_bytes
        return found, found[-1].entry.revision if more else upto

    def close(self) -> None:
        """Release the file; idempotent."""
        with suppress(sqlite3.Error):
            self._connection.close()
