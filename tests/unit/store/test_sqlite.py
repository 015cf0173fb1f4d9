"""What is particular to the store on disk: grouping, refusals, restarts, space, work."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from grange.base.log import Logger
from grange.base.offload import Inline
from grange.base.tasks import Child, Nursery
from grange.store.errors import (
    Compacted,
    RevisionMismatch,
    StorageFull,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
)
from grange.store.interface import Entry, Write
from grange.store.sqlite import SQLiteStore
from grange.store.store_settings import Lanes, StoreSettings

T = TypeVar("T")
Records = list[tuple[str, dict[str, object]]]


class Lane(Inline):
    """A lane that a test can hold shut before or after the work, or break."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.exit = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.exit.set()
        self.calls = 0
        self.open_calls = 0  # so many calls pass the gate although it is shut
        self.failures: list[Exception] = []  # the next calls fail with these
        self.closed = False

    async def run(self, work: Callable[[], T]) -> T:
        self.calls += 1
        if self.calls > self.open_calls:
            await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        result = await super().run(work)
        await self.exit.wait()
        return result

    def close(self) -> None:
        super().close()
        self.closed = True


def failure(code: int, text: str = "something") -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


FULL = sqlite3.SQLITE_FULL
FSYNC = sqlite3.SQLITE_IOERR_FSYNC


@asynccontextmanager
async def opened(
    directory: Path, log: Logger, lane: Lane | None = None, settings: StoreSettings | None = None
) -> AsyncGenerator[SQLiteStore, None]:
    lanes = Lanes(writer=lane or Lane(), reader=Inline())
    store = await SQLiteStore.open(directory, log=log, lanes=lanes, settings=settings)
    try:
        yield store
    finally:
        await store.close()


def body(revision: int) -> bytes:
    return b"body@%d" % revision


class Crowd:
    """Calls that run side by side and what became of them."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self.done: list[Entry] = []
        self.failed: list[StoreError] = []

    def start(self, call: Awaitable[Entry]) -> Child[None]:
        async def run() -> None:
            try:
                self.done.append(await call)
            except StoreError as error:
                self.failed.append(error)

        return self._nursery.start(run())


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# --- acceptance and grouping -------------------------------------------------------------------


async def test_write_is_invisible_until_it_is_on_disk(tmp_path: Path, log: Logger) -> None:
    lane = Lane()
    async with opened(tmp_path, log, lane) as store, Nursery() as nursery:
        crowd = Crowd(nursery)
        watcher = store.watch("/", after=0)
        lane.gate.clear()
        crowd.start(store.put("/a", body, expect=0))
        await turns()
        assert (store.get("/a"), store.revision) == (None, 0)
        assert store.latest("/a") == Entry("/a", b"body@1", 1, 1)
        assert (await store.list("/")).entries == []
        assert crowd.done == []
        crowd.start(store.put("/a", body, expect=0))
        await turns()
        assert [type(error) for error in crowd.failed] == [RevisionMismatch]
        lane.gate.set()
        assert [event.revision for event in await anext(watcher)] == [1]
        assert store.get("/a") == Entry("/a", b"body@1", 1, 1)
    assert crowd.done == [Entry("/a", b"body@1", 1, 1)]


async def test_history_stops_at_what_is_acknowledged(tmp_path: Path, log: Logger) -> None:
    """A commit can be on disk before the loop knows: a watcher must not see it before everybody."""
    lane = Lane()
    async with opened(tmp_path, log, lane, StoreSettings(recent_events=1)) as store:
        for _ in range(5):
            await store.put("/a", body)
        async with Nursery() as nursery:
            lane.exit.clear()
            nursery.start(store.put("/a", body))
            await turns()
            assert rows(tmp_path) == 6
            watcher = store.watch("/", after=0)
            assert [event.revision for event in await anext(watcher)] == [1, 2, 3, 4, 5]
            assert watcher.progress == store.revision == 5
            assert (await store.list("/", revision=3)).entries[0].revision == 3
            lane.exit.set()
            assert [event.revision for event in await anext(watcher)] == [6]


async def test_writes_that_wait_share_one_transaction_of_one_statement(
    tmp_path: Path, log: Logger
) -> None:
    lane = Lane()
    async with opened(tmp_path, log, lane) as store:
        before = store.statistics()
        async with Nursery() as nursery:
            lane.gate.clear()
            nursery.start(store.put("/first", body))
            await turns()
            for number in range(100):
                nursery.start(store.put(f"/{number}", body))
            await turns()
            assert store.statistics().waiting == 101
            lane.gate.set()
        after = store.statistics()
        assert (after.batches, after.writes, after.largest_batch) == (2, 101, 100)
        assert after.statements - before.statements == 2
        assert (after.keys, after.revision, after.waiting) == (101, 101, 0)


async def test_batches_are_bounded(tmp_path: Path, log: Logger) -> None:
    settings = StoreSettings(batch_writes=10)
    async with opened(tmp_path, log, settings=settings) as store:
        async with Nursery() as nursery:
            for number in range(35):
                nursery.start(store.put(f"/{number}", body))
        found = store.statistics()
        assert (found.batches, found.largest_batch) == (4, 10)


async def test_group_is_one_statement_and_never_split(tmp_path: Path, log: Logger) -> None:
    settings = StoreSettings(batch_writes=10)
    lane = Lane()
    async with opened(tmp_path, log, lane, settings=settings) as store:
        before = store.statistics()
        await store.put_group([Write(f"/a/{number}", body) for number in range(35)])
        after = store.statistics()
        assert (after.batches, after.largest_batch) == (1, 35)
        assert after.statements - before.statements == 1
        async with Nursery() as nursery:
            lane.gate.clear()
            for number in range(9):
                nursery.start(store.put(f"/{number}", body))
            nursery.start(store.put_group([Write(f"/b/{number}", body) for number in range(5)]))
            nursery.start(store.put("/last", body))
            await turns()
            lane.gate.set()
        found = store.statistics()
        assert (found.batches - after.batches, found.writes - after.writes) == (2, 15)


async def test_group_that_the_disk_refuses_leaves_nothing(tmp_path: Path, log: Logger) -> None:
    lane = Lane()
    async with opened(tmp_path, log, lane) as store:
        await store.put("/a", body)
        lane.failures.append(failure(FULL))
        with pytest.raises(StorageFull):
            await store.put_group([Write("/a", body), Write("/b", body)])
        assert [each.value for each in (await store.list("/")).entries] == [b"body@1"]
        assert store.latest("/b") is None
        outcomes = await store.put_group([Write("/a", body, 1), Write("/b", body, 0)])
        revisions = [each.revision for each in outcomes if isinstance(each, Entry)]
        assert revisions == [4, 5]  # none of the refused revisions comes again
        await store.close()
        with pytest.raises(StoreClosed):
            await store.put_group([Write("/a", body)])


async def test_lone_write_waits_for_no_timer(tmp_path: Path, log: Logger) -> None:
    async with opened(tmp_path, log) as store:
        before = asyncio.get_running_loop().time()
        await store.put("/a", body)
        assert asyncio.get_running_loop().time() == before


async def test_cancelled_caller_leaves_its_write_to_land(tmp_path: Path, log: Logger) -> None:
    lane = Lane()
    async with opened(tmp_path, log, lane) as store:
        async with Nursery() as nursery:
            crowd = Crowd(nursery)
            lane.gate.clear()
            cancelled = crowd.start(store.put("/cancelled", body))
            crowd.start(store.put("/other", body))
            await turns()
            cancelled.cancel()
            await turns()
            lane.gate.set()
        assert [entry.key for entry in crowd.done] == ["/other"]
        assert store.get("/cancelled") == Entry("/cancelled", b"body@1", 1, 1)


# --- refusals of the disk ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (FULL, StorageFull),
        (sqlite3.SQLITE_BUSY, StoreError),
        (sqlite3.SQLITE_READONLY, StoreError),
        (sqlite3.SQLITE_IOERR_WRITE, StoreError),
    ],
)
async def test_refused_batch_rolls_back_exactly_and_writing_goes_on(
    tmp_path: Path, log: Logger, code: int, kind: type[StoreError]
) -> None:
    lane = Lane()
    async with opened(tmp_path, log, lane) as store:
        for key in ("/changed", "/deleted", "/kept"):
            await store.put(key, body)
        before = await store.list("/")
        watcher = store.watch("/", after=3)
        async with Nursery() as nursery:
            crowd = Crowd(nursery)
            lane.gate.clear()
            crowd.start(store.put("/changed", body, expect=1))
            crowd.start(store.delete("/deleted"))
            await turns()
            crowd.start(store.put("/changed", body, expect=4))  # on top of one in flight
            crowd.start(store.put("/new", body, expect=0))
            await turns()
            lane.failures.append(failure(code))
            lane.gate.set()
        assert crowd.done == []
        assert [type(error) for error in crowd.failed] == [kind] * 4
        assert len({id(error) for error in crowd.failed}) == 4
        assert isinstance(crowd.failed[0].__cause__, sqlite3.OperationalError)
        assert str(tmp_path / "store.db") in str(crowd.failed[0])
        assert await store.list("/") == before
        for key in ("/changed", "/deleted", "/new"):
            assert store.latest(key) == store.get(key)
        entry = await store.put("/new", body, expect=0)
        assert entry.revision == 8  # none of the refused revisions comes again
        assert [event.revision for event in await anext(watcher)] == [8]
        found = store.statistics()
        assert (found.failed_batches, found.waiting, found.revision) == (1, 0, 8)
    async with opened(tmp_path, log) as store:
        assert [each.key for each in (await store.list("/")).entries] == [
            "/changed",
            "/deleted",
            "/kept",
            "/new",
        ]
        assert store.revision == 8


async def test_cancelled_callers_of_a_refused_batch_are_left_alone(
    tmp_path: Path, log: Logger
) -> None:
    lane = Lane()
    async with opened(tmp_path, log, lane) as store:
        async with Nursery() as nursery:
            crowd = Crowd(nursery)
            lane.gate.clear()
            cancelled = crowd.start(store.put("/a", body))
            await turns()
            cancelled.cancel()
            await turns()
            lane.failures.append(failure(FULL))
            lane.gate.set()
        assert (crowd.done, crowd.failed) == ([], [])


async def test_full_disk_refuses_until_there_is_space(
    tmp_path: Path, log: Logger, records: Records
) -> None:
    """The real error of SQLite, through the size limit."""
    settings = StoreSettings(max_bytes=1 << 20, recent_events=10)
    acknowledged: list[Entry] = []
    async with opened(tmp_path, log, settings=settings) as store:
        with pytest.raises(StorageFull, match=r"free space, then try again"):
            while True:
                acknowledged.append(await store.put("/lease", lambda _: b"x" * 10_000))
        assert len(acknowledged) > 50
        assert store.get("/lease") == acknowledged[-1]
        with pytest.raises(StorageFull):
            await store.put("/big", lambda _: b"x" * 100_000)
        await store.compact(store.revision)
        again = await store.put("/lease", lambda _: b"y" * 10_000)
        assert again.revision > acknowledged[-1].revision + 1
    assert [event for event, _ in records].count("commit refused") == 2
    async with opened(tmp_path, log, settings=settings) as store:
        assert store.get("/lease") == again


async def test_failed_fsync_stops_writing_for_good_but_not_reading(
    tmp_path: Path, log: Logger
) -> None:
    """After it it is unknown what is on disk: going on could acknowledge what is not there."""
    lane = Lane()
    async with opened(tmp_path, log, lane) as store:
        await store.put("/a", body)
        lane.failures.append(failure(FSYNC, "disk I/O error"))
        with pytest.raises(StoreError, match="disk I/O error"):
            await store.put("/a", body)
        for call in (store.put("/b", body), store.delete("/a")):
            with pytest.raises(StoreClosed, match=r"has failed and only reads .*disk I/O error"):
                await call
        with pytest.raises(StoreClosed):
            await store.compact(1)
        assert store.get("/a") == Entry("/a", b"body@1", 1, 1)
        assert len((await store.list("/")).entries) == 1
        assert [event.revision for event in await anext(store.watch("/", after=0))] == [1]
    async with opened(tmp_path, log) as store:
        assert (await store.put("/a", body)).revision == 2


async def test_bug_in_the_writer_fails_everybody_and_close_shows(
    tmp_path: Path, log: Logger
) -> None:
    lane = Lane()
    store = await SQLiteStore.open(tmp_path, log=log, lanes=Lanes(lane, Inline()))
    watcher = store.watch("/", after=0)
    lane.failures.append(ZeroDivisionError("a bug"))
    with pytest.raises(StoreClosed, match="a bug"):
        await store.put("/a", body)
    with pytest.raises(StoreClosed, match="a bug"):
        await store.put("/a", body)
    with pytest.raises(StopAsyncIteration):
        await anext(watcher)
    with pytest.raises(ZeroDivisionError):
        await store.close()
    async with opened(tmp_path, log) as again:
        assert again.revision == 0


async def test_refused_compaction_is_logged_and_the_next_finishes_it(
    tmp_path: Path, log: Logger
) -> None:
    lane = Lane()
    async with opened(tmp_path, log, lane) as store:
        for _ in range(10):
            await store.put("/a", body)
        lane.failures.append(failure(FULL))
        with pytest.raises(StorageFull):
            await store.compact(5)
        assert store.compacted == 5  # the promise stands although the rows are still there
        with pytest.raises(Compacted):
            store.watch("/", after=4)
        await store.put("/a", body)
        await store.compact(8)
        assert rows(tmp_path) == 4


def rows(directory: Path) -> int:
    raw = sqlite3.connect(directory / "store.db")
    try:
        return int(raw.execute("SELECT count(*) FROM log").fetchone()[0])
    finally:
        raw.close()


# --- compaction and space ----------------------------------------------------------------------


async def test_writes_pass_between_the_pieces_of_a_compaction(tmp_path: Path, log: Logger) -> None:
    settings = StoreSettings(sweep_rows=1)
    async with opened(tmp_path, log, settings=settings) as store:
        for _ in range(200):
            await store.put("/a", body)
        order: list[str] = []

        async def compact() -> None:
            await store.compact(200)
            order.append("compacted")

        async with Nursery() as nursery:
            nursery.start(compact())
            await turns()
            for _ in range(5):
                await store.put("/b", body)
                order.append("written")
        assert order == ["written"] * 5 + ["compacted"]
        assert store.statistics().batches == 205


async def test_second_compaction_waits_for_its_own_rows(tmp_path: Path, log: Logger) -> None:
    lane = Lane()
    async with opened(tmp_path, log, lane) as store:
        for _ in range(10):
            await store.put("/a", body)
        left: list[int] = []

        async def compact(revision: int) -> None:
            await store.compact(revision)
            left.append(rows(tmp_path))

        async with Nursery() as nursery:
            lane.open_calls = lane.calls + 1  # the sweep; then the vacuum waits
            lane.gate.clear()
            nursery.start(compact(3))
            await turns()
            nursery.start(compact(8))
            await turns()
            lane.gate.set()
        assert left == [3, 3]
        assert store.compacted == 8


async def test_cancelled_compaction_goes_on(tmp_path: Path, log: Logger) -> None:
    async with opened(tmp_path, log, settings=StoreSettings(sweep_rows=10)) as store:
        for _ in range(100):
            await store.put("/a", body)
        async with Nursery() as nursery:
            task = nursery.start(store.compact(100))
            await turns(3)
            task.cancel()
        await asyncio.sleep(1)
        assert rows(tmp_path) == 1


async def put_many(store: SQLiteStore, prefix: str, count: int, value: bytes) -> None:
    async with Nursery() as nursery:
        for number in range(count):
            nursery.start(store.put(f"{prefix}{number}", lambda _: value))


async def test_file_stays_small_under_lease_updates(tmp_path: Path, log: Logger) -> None:
    settings = StoreSettings(recent_events=10)
    sizes: list[int] = []
    async with opened(tmp_path, log, settings=settings) as store:
        await put_many(store, "/pods/", 100, b"p" * 1400)
        for _ in range(20):
            for _ in range(5):
                await put_many(store, "/leases/", 50, b"l" * 400)
            await store.compact(store.revision)
            sizes.append(database_bytes(tmp_path))
    live = 100 * 1400 + 50 * 400
    written_between = 5 * 50 * 400
    assert max(sizes) < 1.5 * (live + written_between)
    assert max(sizes[10:]) <= max(sizes[:10])


async def test_file_shrinks_after_a_mass_deletion(tmp_path: Path, log: Logger) -> None:
    async with opened(tmp_path, log, settings=StoreSettings(recent_events=10)) as store:
        await put_many(store, "/", 600, b"x" * 5_000)
        await store.compact(store.revision)
        assert database_bytes(tmp_path) > 3_000_000
        async with Nursery() as nursery:
            for number in range(600):
                nursery.start(store.delete(f"/{number}", value=lambda _: b""))
        await store.compact(store.revision)
        assert database_bytes(tmp_path) < 100_000
    assert (tmp_path / "store.db").stat().st_size < 100_000


def database_bytes(directory: Path) -> int:
    """The size of the database whether it is checked into the file yet or not."""
    raw = sqlite3.connect(directory / "store.db")
    try:
        pages = raw.execute("PRAGMA page_count").fetchone()[0]
        return int(pages * raw.execute("PRAGMA page_size").fetchone()[0])
    finally:
        raw.close()


async def test_history_that_is_compacted_while_it_is_read_is_refused(
    tmp_path: Path, log: Logger
) -> None:
    reader = Lane()
    lanes = Lanes(Lane(), reader)
    store = await SQLiteStore.open(
        tmp_path, log=log, lanes=lanes, settings=StoreSettings(recent_events=1)
    )
    for _ in range(10):
        await store.put("/a", body)
    watcher = store.watch("/", after=2)
    outcomes: list[str] = []

    async def expect(kind: type[StoreError], call: Awaitable[object]) -> None:
        with pytest.raises(kind):
            await call
        outcomes.append(kind.__name__)

    reader.gate.clear()
    async with Nursery() as nursery:
        nursery.start(expect(Compacted, store.list("/", revision=3)))
        nursery.start(expect(Compacted, watcher.__anext__()))
        await turns()
        await store.compact(9)
        reader.gate.set()
    reader.gate.clear()
    async with Nursery() as nursery:
        await store.put("/a", body)
        nursery.start(expect(StoreClosed, store.list("/", revision=9)))
        await turns()
        nursery.start(store.close())
        await turns()
        reader.gate.set()
    assert outcomes == ["Compacted", "Compacted", "StoreClosed"]


# --- opening and closing -----------------------------------------------------------------------


async def test_reopened_store_shows_the_same_state_and_history(tmp_path: Path, log: Logger) -> None:
    async with opened(tmp_path, log) as store:
        for number in range(20):
            await store.put(f"/{number % 6}", body)
        await store.delete("/0")
        before = await store.list("/")
        earlier = await store.list("/", revision=15)
        history = await anext(store.watch("/", after=0))
    async with opened(tmp_path, log) as store:
        assert await store.list("/") == before
        assert await store.list("/", revision=15) == earlier
        assert await anext(store.watch("/", after=0)) == history
        assert (await store.put("/0", body, expect=0)).revision == 22


async def test_second_store_in_a_directory_is_refused(tmp_path: Path, log: Logger) -> None:
    async with opened(tmp_path, log) as store:
        lane = Lane()
        with pytest.raises(StoreBusy, match="in use by process"):
            await SQLiteStore.open(tmp_path, log=log, lanes=Lanes(lane, Inline()))
        assert lane.closed
        await store.put("/a", body)


async def test_unusable_database_leaves_the_directory_unlocked(tmp_path: Path, log: Logger) -> None:
    (tmp_path / "store.db").write_bytes(b"garbage" * 1000)
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match="restore a copy"):
            await SQLiteStore.open(tmp_path, log=log, lanes=Lanes.inline())


async def test_damaged_value_is_noticed_when_opening(tmp_path: Path, log: Logger) -> None:
    async with opened(tmp_path, log) as store:
        await store.put("/a", body)
    raw = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    raw.execute("UPDATE log SET value = CAST('body@9' AS BLOB)")
    raw.close()
    with pytest.raises(StoreCorrupt, match="value of /a at 1 is damaged"):
        await SQLiteStore.open(tmp_path, log=log, lanes=Lanes.inline())
    raw = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    raw.execute("UPDATE log SET value = CAST('body@1' AS BLOB)")
    raw.close()
    async with opened(tmp_path, log) as store:
        assert store.get("/a") == Entry("/a", b"body@1", 1, 1)


async def test_cancelled_open_releases_everything(tmp_path: Path, log: Logger) -> None:
    lane = Lane()
    lane.gate.clear()
    async with Nursery() as nursery:
        task = nursery.start(SQLiteStore.open(tmp_path, log=log, lanes=Lanes(lane, Inline())))
        await turns()
        task.cancel()
    assert lane.closed
    async with opened(tmp_path, log):
        pass


async def test_close_drains_and_survives_its_own_cancellation(tmp_path: Path, log: Logger) -> None:
    lane = Lane()
    store = await SQLiteStore.open(tmp_path, log=log, lanes=Lanes(lane, Inline()))
    async with Nursery() as nursery:
        crowd = Crowd(nursery)
        lane.gate.clear()
        for number in range(3):
            crowd.start(store.put(f"/{number}", body))
        await turns()
        closing = nursery.start(store.close())
        await turns()
        closing.cancel()
        await turns()
        lane.gate.set()
    await store.close()
    assert len(crowd.done) == 3
    assert lane.closed
    async with opened(tmp_path, log) as again:
        assert again.revision == 3


async def test_close_gives_up_a_compaction(tmp_path: Path, log: Logger) -> None:
    store = await SQLiteStore.open(
        tmp_path, log=log, lanes=Lanes.inline(), settings=StoreSettings(sweep_rows=1)
    )
    for _ in range(50):
        await store.put("/a", body)

    async def compact() -> None:
        with pytest.raises(StoreClosed):
            await store.compact(50)

    async with Nursery() as nursery:
        nursery.start(compact())
        await turns()
        await store.close()
    async with opened(tmp_path, log) as again:
        assert 0 < again.compacted < 50
        await again.compact(50)
    assert rows(tmp_path) == 1


def bytes_on_disk(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.iterdir()))


@pytest.mark.parametrize("size", [40, 1_000, 30_000])
async def test_deleted_values_leave_the_disk(tmp_path: Path, log: Logger, size: int) -> None:
    """Rows of every size: in a page, and with separate pages."""

    def value(name: str, number: int) -> Callable[[int], bytes]:
        body = f"{name}-{number:05}-".encode() * (size // 10)
        return lambda _revision: body

    async with opened(tmp_path, log) as store:
        for number in range(60):
            await store.put(f"/secrets/{number}", value("secret", number))
            await store.put(f"/others/{number}", value("public", number))
        for number in range(0, 60, 2):
            await store.put(f"/secrets/{number}", lambda _: b"rotated")
        for number in range(60):
            await store.delete(f"/secrets/{number}", value=lambda _: b"gone")
        assert b"secret-000" in bytes_on_disk(tmp_path)
        await store.compact(store.revision)
        left = bytes_on_disk(tmp_path)
        assert b"secret-000" not in left
        assert b"public-000" in left
    assert b"secret-000" not in bytes_on_disk(tmp_path)
