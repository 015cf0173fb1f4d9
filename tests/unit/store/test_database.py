"""The file: what is written, what is found again, and files that are not ours."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from grange.store.change import StoreChange
from grange.store.database import (
    APPLICATION_ID,
    FORMAT,
    Database,
    HistoryReader,
    is_harmless,
    translated,
)
from grange.store.errors import StorageFull, StoreCorrupt, StoreError, StoreTooNew
from grange.store.interface import Entry


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def creation(revision: int, body: bytes = b"value") -> StoreChange:
    return StoreChange(Entry(f"/k/{revision}", body, revision, revision), None, deleted=False)


def filled(file: Path, rows: int = 200) -> None:
    database = Database(file)
    database.append([creation(revision, b"x" * 1400) for revision in range(1, rows + 1)])
    database.close()


def test_database_is_recognised_and_durable(file: Path) -> None:
    Database(file).close()
    raw = sqlite3.connect(file)
    assert raw.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert raw.execute("PRAGMA user_version").fetchone() == (FORMAT,)
    assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert raw.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    raw.close()
    database = Database(file)
    assert database._number("PRAGMA synchronous") == 2
    database.close()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100, 512])
def test_append_writes_a_batch_of_any_size_in_one_statement(file: Path, size: int) -> None:
    database = Database(file)
    before = database.statements
    database.append([creation(revision) for revision in range(1, size + 1)])
    assert database.statements - before == 1
    assert sorted(database.load().entries) == sorted(f"/k/{r}" for r in range(1, size + 1))
    database.close()


def test_append_is_all_or_nothing(file: Path) -> None:
    database = Database(file)
    database.append([creation(3)])
    with pytest.raises(sqlite3.IntegrityError):
        database.append([creation(2), creation(3), creation(4)])
    assert list(database.load().entries) == ["/k/3"]
    database.close()


def test_load_remembers_the_revision_of_compacted_tombstones(file: Path) -> None:
    """Else a restart would give out revisions that watchers have seen already."""
    database = Database(file)
    first = Entry("/k", b"v", 1, 1)
    database.append([StoreChange(first, None, deleted=False)])
    database.append([StoreChange(Entry("/k", b"v", 2, 1), first, deleted=True)])
    assert database.sweep(2, 100) == 2
    database.close()
    database = Database(file)
    loaded = database.load()
    assert (loaded.entries, loaded.revision, loaded.compacted) == ({}, 2, 2)
    assert database._number("SELECT count(*) FROM log") == 0
    database.close()


def test_sweep_goes_in_pieces_and_keeps_what_can_be_asked_for(file: Path) -> None:
    database = Database(file)
    before = None
    for revision in range(1, 11):
        entry = Entry("/k", b"%d" % revision, revision, 1)
        database.append([StoreChange(entry, before, deleted=False)])
        before = entry
    assert [database.sweep(8, 3) for _ in range(3)] == [3, 6, 8]
    kept = [row[0] for row in database._connection.execute("SELECT revision FROM log")]
    assert kept == [8, 9, 10]
    assert database.sweep(8, 3) == 8
    database.close()


def test_sweep_skips_gaps_between_revisions(file: Path) -> None:
    database = Database(file)
    database.append([creation(5), creation(90)])
    assert database.sweep(40, 10) == 40
    assert database.sweep(95, 10) == 95
    database.close()


def test_failed_sweep_leaves_no_transaction_behind(file: Path) -> None:
    database = Database(file)
    database.append([creation(1)])
    blocker = sqlite3.connect(file, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    database._connection.execute("PRAGMA busy_timeout = 1")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        database.sweep(1, 10)
    blocker.execute("ROLLBACK")
    blocker.close()
    database.append([creation(2)])
    assert database.sweep(2, 10) == 2
    database.close()


def test_sweep_that_fails_halfway_is_undone(file: Path) -> None:
    database = Database(file)
    database.append([creation(1)])
    first = Entry("/k/1", b"value", 1, 1)
    database.append([StoreChange(Entry("/k/1", b"value", 2, 1), first, deleted=False)])
    database._run(
        "CREATE TRIGGER refuse BEFORE UPDATE ON mark BEGIN SELECT RAISE(FAIL, 'refused'); END"
    )
    with pytest.raises(sqlite3.IntegrityError, match="refused"):
        database.sweep(2, 10)
    assert database._number("SELECT count(*) FROM log") == 2
    database._run("DROP TRIGGER refuse")
    assert database.sweep(2, 10) == 2
    assert database._number("SELECT count(*) FROM log") == 1
    database.close()


def test_vacuum_gives_space_back_in_pieces(file: Path) -> None:
    filled(file, 300)
    database = Database(file)
    pages = database._number("PRAGMA page_count")
    database._run("DELETE FROM log")
    left: list[int] = []
    while not left or left[-1]:
        left.append(database.vacuum(10))
    assert left == [*range(left[0], 0, -10), 0]
    assert database._number("PRAGMA page_count") < pages / 5
    assert database.vacuum(10) == 0
    database.close()
    assert file.stat().st_size < pages * 8192 / 5


def test_size_limit_refuses_as_a_full_disk_does(file: Path) -> None:
    database = Database(file, max_bytes=200_000)
    with pytest.raises(sqlite3.OperationalError) as refused:
        for revision in range(1, 1000):
            database.append([creation(revision, b"x" * 1400)])
    assert refused.value.sqlite_errorcode == sqlite3.SQLITE_FULL
    assert len(database.load().entries) > 50
    database.close()


def io_error() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    error.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"
    return error


def test_io_error_on_a_full_disk_is_reported_as_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's shared index is not grown by its own write calls, so it cannot know."""
    file = tmp_path / "store.db"
    assert "SQLITE_IOERR_SHMSIZE" in str(translated(io_error(), file))
    assert not isinstance(translated(io_error(), file), StorageFull)
    assert not isinstance(translated(io_error(), file / "absent" / "store.db"), StorageFull)
    full = shutil.disk_usage(tmp_path)._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    assert isinstance(translated(io_error(), file), StorageFull)
    assert not is_harmless(io_error())


# --- files that cannot be used -----------------------------------------------------------------


def test_garbage_is_refused_with_the_file_and_a_remedy(file: Path) -> None:
    file.write_bytes(b"this is not a database" * 1000)
    with pytest.raises(StoreCorrupt, match=f"{file} .* restore a copy"):
        Database(file)
    assert file.read_bytes().startswith(b"this is not")


def test_database_of_another_program_is_left_alone(file: Path) -> None:
    other = sqlite3.connect(file)
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()
    with pytest.raises(StoreCorrupt, match="belongs to another program"):
        Database(file)


def test_newer_format_is_refused_with_both_numbers(file: Path) -> None:
    Database(file).close()
    raw = sqlite3.connect(file)
    raw.execute(f"PRAGMA user_version = {FORMAT + 1}")
    raw.commit()
    raw.close()
    with pytest.raises(
        StoreTooNew, match=f"format {FORMAT + 1}, this version knows up to {FORMAT}"
    ):
        Database(file)


def test_truncated_file_is_corrupt(file: Path) -> None:
    filled(file)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(StoreCorrupt, match=str(file)):
        Database(file).load()


def test_damage_anywhere_is_noticed_or_harmless(file: Path) -> None:
    """Whatever page is hit: either an error that names the file, or every value is intact."""
    filled(file)
    whole = file.read_bytes()
    noticed = 0
    for at in range(100, len(whole) - 64, len(whole) // 60):
        file.write_bytes(whole[:at] + b"\xa5" * 64 + whole[at + 64 :])
        try:
            database = Database(file)
        except StoreError:
            noticed += 1
            continue
        try:
            entries = database.load().entries
            assert all(entry.value == b"x" * 1400 for entry in entries.values())
        except StoreCorrupt:
            noticed += 1
        finally:
            database.close()
    assert noticed > 40


def test_damaged_value_is_corrupt_and_named(file: Path) -> None:
    filled(file, 1)
    raw = sqlite3.connect(file)
    raw.execute("UPDATE log SET value = CAST(replace(value, 'xxxx', 'xxxy') AS BLOB)")
    raw.commit()
    raw.close()
    database = Database(file)
    with pytest.raises(StoreCorrupt, match=r"value of /k/1 at 1 is damaged"):
        database.load()
    database.close()


def test_row_of_the_wrong_type_is_corrupt(file: Path) -> None:
    filled(file, 1)
    raw = sqlite3.connect(file)
    raw.execute("UPDATE log SET value = 'text'")
    raw.commit()
    raw.close()
    database = Database(file)
    with pytest.raises(StoreCorrupt, match=str(file)):
        database.load()
    database.close()


def test_missing_directory_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"absent.*cannot be written"):
        Database(tmp_path / "absent" / "store.db")
    with pytest.raises(StoreError, match="absent"):
        HistoryReader(tmp_path / "absent" / "store.db")


def test_history_on_a_damaged_table_names_the_file(file: Path) -> None:
    filled(file, 1)
    raw = sqlite3.connect(file)
    raw.execute("DROP TABLE log")
    raw.commit()
    raw.close()
    history = HistoryReader(file)
    with pytest.raises(StoreError, match=str(file)):
        history.changes("/", 0, 1, limit=10, limit_bytes=100)
    history.close()


def test_history_is_read_in_pieces_of_some_bytes(file: Path) -> None:
    filled(file, 10)  # of 1,400 bytes each
    history = HistoryReader(file)
    database = Database(file)
    first, position = history.changes("/", 0, 10, limit=100, limit_bytes=3_000)
    assert ([each.entry.revision for each in first], position) == ([1, 2, 3], 3)
    assert database.truncate_wal()  # no read is left open
    rest, position = history.changes("/", 3, 10, limit=100, limit_bytes=30_000)
    assert (len(rest), position) == (7, 10)
    exact, position = history.changes("/", 0, 10, limit=100, limit_bytes=first[0].size_bytes)
    assert ([each.entry.revision for each in exact], position) == ([1], 1)
    few, position = history.changes("/", 0, 10, limit=4, limit_bytes=30_000)
    assert (len(few), position) == (4, 4)
    history.close()
    database.close()
