"""What every store promises, whichever implementation keeps it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.sim.disk import WeakDisk
from grange.store.errors import Compacted, FutureRevision, RevisionMismatch, StoreClosed
from grange.store.interface import Entry, Store, StoreEvent, Subscription, Write
from grange.store.memory import MemoryStore
from grange.store.sqlite import SQLiteStore
from grange.store.store_settings import Lanes, StoreSettings

BUFFER = 64


@pytest.fixture(
    params=[
        "memory",
        "weak-disk",
        "sqlite-inline",
        "sqlite-forgetful",
        pytest.param("sqlite-threads", marks=pytest.mark.e2e),
    ]
)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, log: Logger
) -> AsyncGenerator[Store, None]:
    """An empty store that closes with the test.

    The forgetful one keeps almost nothing in memory and reads the disk in tiny pieces, so that
    every promise about history is also tried against the disk.
    """
    made: Store
    if request.param == "memory":
        made = MemoryStore(buffer_events=BUFFER)
    elif request.param == "weak-disk":  # on a good day it is a store like any other
        made = WeakDisk(MemoryStore(buffer_events=BUFFER), rng=Stream(0))
    else:
        forgetful = request.param == "sqlite-forgetful"
        settings = StoreSettings(buffer_events=BUFFER)
        if forgetful:
            settings = StoreSettings(
                buffer_events=BUFFER, recent_events=1, replay_events=2, sweep_rows=2, batch_writes=3
            )
        lanes = Lanes.threads() if request.param == "sqlite-threads" else Lanes.inline()
        made = await SQLiteStore.open(tmp_path / "data", log=log, lanes=lanes, settings=settings)
    yield made
    await made.close()


def text(body: str) -> Callable[[int], bytes]:
    return lambda revision: f"{body}@{revision}".encode()


async def put(store: Store, key: str, body: str = "x", expect: int | None = None) -> Entry:
    return await store.put(key, text(body), expect=expect)


async def state(store: Store, prefix: str = "/", revision: int = 0) -> dict[str, bytes]:
    page = await store.list(prefix, revision=revision)
    return {entry.key: entry.value for entry in page.entries}


async def take(subscription: Subscription, count: int) -> list[StoreEvent]:
    events: list[StoreEvent] = []
    while len(events) < count:
        events += await anext(subscription)
    assert len(events) == count
    return events


async def take_into(events: list[StoreEvent], subscription: Subscription) -> None:
    events += await anext(subscription)


# --- writing -----------------------------------------------------------------------------------


async def test_store_starts_empty(store: Store) -> None:
    page = await store.list("/")
    assert (store.revision, store.compacted) == (0, 0)
    assert (page.entries, page.revision, page.remaining) == ([], 0, 0)
    assert store.get("/a") is None
    assert store.latest("/a") is None


async def test_put_returns_what_is_stored_with_its_own_revision(store: Store) -> None:
    first = await put(store, "/a", "one")
    second = await put(store, "/a", "two")
    assert first == Entry("/a", b"one@1", 1, 1)
    assert second == Entry("/a", b"two@2", 2, 1)
    assert store.get("/a") == second
    assert store.latest("/a") == second
    assert store.revision == 2


async def test_put_calls_the_value_once_with_the_revision(store: Store) -> None:
    given: list[int] = []

    def value(revision: int) -> bytes:
        given.append(revision)
        return b"x"

    entry = await store.put("/a", value)
    assert given == [entry.revision]


async def test_put_that_expects_absence_creates_once(store: Store) -> None:
    await put(store, "/a", expect=0)
    with pytest.raises(RevisionMismatch) as refused:
        await put(store, "/a", expect=0)
    assert (refused.value.key, refused.value.expected, refused.value.actual) == ("/a", 0, 1)
    assert store.revision == 1


async def test_put_that_expects_a_revision_replaces_only_that_one(store: Store) -> None:
    first = await put(store, "/a")
    second = await put(store, "/a", expect=first.revision)
    with pytest.raises(RevisionMismatch) as refused:
        await put(store, "/a", expect=first.revision)
    assert refused.value.actual == second.revision
    with pytest.raises(RevisionMismatch):
        await put(store, "/absent", expect=7)


async def test_put_takes_no_revision_when_its_value_fails(store: Store) -> None:
    def broken(revision: int) -> bytes:
        raise LookupError(revision)

    with pytest.raises(LookupError):
        await store.put("/a", broken)
    assert store.latest("/a") is None
    assert (await put(store, "/a")).revision == 1


@pytest.mark.parametrize("key", ["", "a\0b", "\ud800"])
async def test_put_refuses_what_cannot_be_a_key(store: Store, key: str) -> None:
    with pytest.raises(ValueError, match="not a key"):
        await put(store, key)
    assert (await put(store, "/ä/\U0010ffff")).revision == 1


async def test_delete_returns_the_final_bytes_at_its_own_revision(store: Store) -> None:
    await put(store, "/a", "one")
    gone = await store.delete("/a", value=text("last"))
    assert gone == Entry("/a", b"last@2", 2, 1)
    assert store.get("/a") is None
    assert store.latest("/a") is None
    assert store.revision == 2


async def test_delete_without_a_value_leaves_the_last_bytes(store: Store) -> None:
    await put(store, "/a", "one")
    assert (await store.delete("/a")).value == b"one@1"


async def test_delete_refuses_an_absent_key_and_a_stale_revision(store: Store) -> None:
    with pytest.raises(RevisionMismatch) as refused:
        await store.delete("/a")
    assert refused.value.actual == 0
    await put(store, "/a")
    await put(store, "/a")
    with pytest.raises(RevisionMismatch) as refused:
        await store.delete("/a", expect=1)
    assert refused.value.actual == 2
    await store.delete("/a", expect=2)


async def test_recreated_key_starts_again(store: Store) -> None:
    await put(store, "/a")
    await store.delete("/a")
    assert await put(store, "/a", expect=0) == Entry("/a", b"x@3", 3, 3)


async def test_concurrent_writers_get_distinct_rising_revisions(store: Store) -> None:
    entries: list[Entry] = []

    async def write(number: int) -> None:
        entries.extend([await put(store, f"/{number}", f"{turn}") for turn in range(10)])

    async with Nursery() as nursery:
        for number in range(20):
            nursery.start(write(number))
    assert sorted(entry.revision for entry in entries) == list(range(1, 201))
    assert store.revision == 200
    for number in range(20):
        own = [entry for entry in entries if entry.key == f"/{number}"]
        assert [entry.revision for entry in own] == sorted(entry.revision for entry in own)
        assert store.get(f"/{number}") == own[-1]


async def test_compare_and_swap_lets_one_of_many_win(store: Store) -> None:
    """Decided at acceptance: the losers learn it although the winner is not on disk yet."""
    first = await put(store, "/a")
    outcomes: list[str] = []

    async def contend() -> None:
        try:
            await put(store, "/a", expect=first.revision)
            outcomes.append("won")
        except RevisionMismatch:
            outcomes.append("lost")

    async with Nursery() as nursery:
        for _ in range(10):
            nursery.start(contend())
    assert sorted(outcomes) == ["lost"] * 9 + ["won"]


async def test_read_modify_write_on_latest_loses_nothing(store: Store) -> None:
    await store.put("/n", lambda _: b"0")

    async def increment() -> None:
        found = store.latest("/n")
        assert found is not None
        number = int(found.value) + 1
        await store.put("/n", lambda _: b"%d" % number, expect=found.revision)

    async with Nursery() as nursery:
        for _ in range(25):
            nursery.start(increment())
    found = store.get("/n")
    assert found is not None
    assert found.value == b"25"


async def test_cancelled_writer_leaves_a_whole_write_or_none(store: Store) -> None:
    async with Nursery() as nursery:
        tasks = [nursery.start(put(store, f"/{number}", "whole")) for number in range(10)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
    await put(store, "/last")
    seen = await take(store.watch("/", after=0), len((await store.list("/")).entries))
    assert [event.revision for event in seen] == sorted({event.revision for event in seen})
    for entry in (await store.list("/")).entries:
        assert entry.value.endswith(b"@%d" % entry.revision)
    for number in range(1, 10, 2):
        assert store.get(f"/{number}") is not None


# --- groups ------------------------------------------------------------------------------------


async def test_group_is_decided_write_by_write_and_answers_in_order(store: Store) -> None:
    first = await put(store, "/a")
    outcomes = await store.put_group(
        [
            Write("/b", text("b"), 0),
            Write("/a", text("stale"), 7),
            Write("/a", text("a"), first.revision),
            Write("/a", text("again"), first.revision),  # the one before it has won
            Write("/c", text("c")),
        ]
    )
    reported = [str(each) if isinstance(each, RevisionMismatch) else each for each in outcomes]
    assert reported == [
        Entry("/b", b"b@2", 2, 2),
        "/a: expected revision 7, found revision 1",
        Entry("/a", b"a@3", 3, 1),
        "/a: expected revision 1, found revision 3",
        Entry("/c", b"c@4", 4, 4),
    ]
    assert await state(store) == {"/a": b"a@3", "/b": b"b@2", "/c": b"c@4"}
    events = await take(store.watch("/", after=first.revision), 3)
    assert [(event.key, event.revision) for event in events] == [("/b", 2), ("/a", 3), ("/c", 4)]
    assert events[1].previous == b"x@1"


async def test_group_of_nothing_and_of_refusals_only(store: Store) -> None:
    assert await store.put_group([]) == []
    (refused,) = await store.put_group([Write("/a", text("a"), 3)])
    assert isinstance(refused, RevisionMismatch)
    assert store.revision == 0


async def test_group_is_seen_whole_or_not_at_all(store: Store) -> None:
    """A reader that looks at every turn never sees a part of it."""
    seen: set[int] = set()
    done = asyncio.Event()

    async def look() -> None:
        while not done.is_set():
            seen.add(len((await store.list("/g/")).entries))
            await asyncio.sleep(0)

    async with Nursery() as nursery:
        nursery.start(look())
        for turn in range(3):
            await put(store, f"/other/{turn}")
            await store.put_group([Write(f"/g/{turn}/{n}", text("x")) for n in range(20)])
        done.set()
    assert seen <= {0, 20, 40, 60}


async def test_value_errors_pass_through_and_store_goes_on(store: Store) -> None:
    def broken(revision: int) -> bytes:
        raise LookupError(revision)

    writes = [Write("/a", text("a")), Write("/b", broken), Write("/c", text("c"))]
    with pytest.raises(LookupError):
        await store.put_group(writes)
    entry = await put(store, "/d")
    events = await take(store.watch("/", after=0), entry.revision)
    assert [event.key for event in events] in (["/d"], ["/a", "/d"])
    assert [event.revision for event in events] == [*range(1, entry.revision + 1)]


async def test_cancelled_group_is_whole_or_nothing(store: Store) -> None:
    async with Nursery() as nursery:
        writes = [Write(f"/g/{n}", text("x")) for n in range(20)]
        task = nursery.start(store.put_group(writes))
        await asyncio.sleep(0)
        task.cancel()
    await put(store, "/last")
    assert len((await store.list("/g/")).entries) in {0, 20}


# --- lists -------------------------------------------------------------------------------------


async def test_list_gives_the_keys_under_the_prefix_in_order(store: Store) -> None:
    for key in ["/b/2", "/a", "/b/10", "/b/1", "/bb", "/c"]:
        await put(store, key)
    page = await store.list("/b/")
    assert [entry.key for entry in page.entries] == ["/b/1", "/b/10", "/b/2"]
    assert (page.revision, page.remaining) == (6, 0)
    assert len((await store.list("")).entries) == 6
    assert (await store.list("/zz")).entries == []


@pytest.mark.parametrize("at", [0, 9])
async def test_list_pages_add_up_to_the_list(store: Store, at: int) -> None:
    for number in range(9):
        await put(store, f"/k/{number}")
    await put(store, "/k/4", "changed")
    await store.delete("/k/5")
    await put(store, "/k/x")
    whole = await store.list("/k/", revision=at)
    after, entries, remaining = "", [], []
    for _ in range(3):
        page = await store.list("/k/", revision=at, after=after, limit=3)
        after = page.entries[-1].key
        entries += page.entries
        remaining.append(page.remaining)
        assert page.revision == whole.revision
    assert entries == whole.entries
    assert remaining == [6, 3, 0]


async def test_list_shows_every_earlier_state(store: Store) -> None:
    expected: dict[int, dict[str, bytes]] = {0: {}}
    model: dict[str, bytes] = {}
    for number in range(40):
        key = f"/{number * 7 % 5}"
        if number % 3 == 2 and key in model:
            await store.delete(key)
            del model[key]
        else:
            model[key] = (await put(store, key, f"{number}")).value
        expected[store.revision] = dict(model)
    for revision in range(1, store.revision + 1):
        assert await state(store, revision=revision) == expected[revision]
    one = {key: value for key, value in expected[20].items() if key.startswith("/1")}
    assert await state(store, "/1", revision=20) == one


async def test_list_restores_when_keys_were_created(store: Store) -> None:
    await put(store, "/a")
    await put(store, "/a")
    await store.delete("/a")
    await put(store, "/a")
    assert (await store.list("/", revision=2)).entries == [Entry("/a", b"x@2", 2, 1)]


async def test_list_refuses_the_future_and_the_compacted_past(store: Store) -> None:
    for _ in range(5):
        await put(store, "/a")
    with pytest.raises(FutureRevision):
        await store.list("/", revision=6)
    await store.compact(3)
    assert await state(store, revision=3) == {"/a": b"x@3"}
    with pytest.raises(Compacted):
        await store.list("/", revision=2)


# --- watches -----------------------------------------------------------------------------------


async def test_watch_sees_each_write_once_in_order(store: Store) -> None:
    subscription = store.watch("/w/", after=0)
    await put(store, "/w/a", "one")
    await put(store, "/other")
    await put(store, "/w/a", "two")
    await store.delete("/w/a", value=text("end"))
    assert await take(subscription, 3) == [
        StoreEvent("/w/a", 1, b"one@1", None, deleted=False),
        StoreEvent("/w/a", 3, b"two@3", b"one@1", deleted=False),
        StoreEvent("/w/a", 4, b"end@4", b"two@3", deleted=True),
    ]


async def test_watch_resumes_from_any_revision(store: Store) -> None:
    for number in range(30):
        await put(store, f"/{number % 4}", f"{number}")
    whole = await take(store.watch("/", after=0), 30)
    for after in range(30):
        subscription = store.watch("/", after=after)
        assert await take(subscription, 30 - after) == whole[after:]
        subscription.close()


async def test_watch_joins_history_and_present_without_a_seam(store: Store) -> None:
    """Writes go on while watchers read history; each still sees every revision exactly once."""
    for number in range(10):
        await put(store, f"/{number}")
    seen: dict[int, list[int]] = {}

    async def watch(after: int) -> None:
        revisions = seen.setdefault(after, [])
        async for events in store.watch("/", after=after):
            revisions.extend(event.revision for event in events)
            if revisions[-1] == 60:
                return

    async def write() -> None:
        for number in range(50):
            await put(store, f"/{number}")

    async with Nursery() as nursery:
        for after in range(10):
            nursery.start(watch(after))
        nursery.start(write())
    assert seen == {after: list(range(after + 1, 61)) for after in range(10)}


async def test_watch_shares_events_between_subscribers(store: Store) -> None:
    one, two = store.watch("/", after=0), store.watch("/a", after=0)
    await put(store, "/a")
    assert (await anext(one))[0] is (await anext(two))[0]


async def test_watch_wakes_a_waiting_reader_before_the_writer(store: Store) -> None:
    order: list[str] = []

    async def read() -> None:
        await anext(store.watch("/", after=0))
        order.append("watcher")

    async with Nursery() as nursery:
        nursery.start(read())
        await asyncio.sleep(0)
        await put(store, "/a")
        order.append("writer")
        await asyncio.sleep(0)
    assert sorted(order) == ["watcher", "writer"]


async def test_watch_shows_only_what_reads_show(store: Store) -> None:
    subscription = store.watch("/", after=0)

    async def check() -> None:
        seen = 0
        async for events in subscription:
            for event in events:
                found = store.get(event.key)
                assert found is not None
                assert found.revision >= event.revision
                assert store.revision >= event.revision
            seen += len(events)
            if seen == 40:
                return

    async with Nursery() as nursery:
        nursery.start(check())
        for number in range(40):
            nursery.start(put(store, f"/{number % 7}"))


async def test_watch_refuses_the_future_and_the_compacted_past(store: Store) -> None:
    for _ in range(5):
        await put(store, "/a")
    with pytest.raises(FutureRevision):
        store.watch("/", after=6)
    await store.compact(3)
    with pytest.raises(Compacted):
        store.watch("/", after=2)
    assert [event.revision for event in await take(store.watch("/", after=3), 2)] == [4, 5]
    store.watch("/", after=5).close()


async def test_watch_shows_a_slow_subscriber_to_list_again(store: Store) -> None:
    slow, quick = store.watch("/", after=0), store.watch("/", after=0)
    for number in range(BUFFER):
        await put(store, f"/{number}")
    assert len(await anext(quick)) == BUFFER
    await put(store, "/one-too-many")
    await put(store, "/and-more")
    for _ in range(2):
        with pytest.raises(Compacted):
            await anext(slow)
    assert len(await anext(quick)) == 2


async def test_watch_keeps_events_when_a_read_is_cancelled(store: Store) -> None:
    for number in range(5):
        await put(store, f"/{number}")
    for after in (0, 5):
        taken: list[StoreEvent] = []
        subscription = store.watch("/", after=after)
        async with Nursery() as nursery:
            task = nursery.start(take_into(taken, subscription))
            await asyncio.sleep(0)
            task.cancel()
        await put(store, "/next")
        while not taken or taken[-1].revision < store.revision:
            taken += await anext(subscription)
        assert [event.revision for event in taken] == list(range(after + 1, store.revision + 1))


async def test_progress_follows_what_was_handed_out(store: Store) -> None:
    await put(store, "/a")
    subscription = store.watch("/w", after=0)
    await put(store, "/w")
    await put(store, "/w")
    await put(store, "/a")
    assert subscription.progress <= 1
    await take(subscription, 2)
    await put(store, "/a")
    async with Nursery() as nursery:  # history on disk is only looked at when it is read
        task = nursery.start(take_into([], subscription))
        await asyncio.sleep(0.01)
        task.cancel()
    assert subscription.progress == 5


async def test_unread_events_are_taken_without_waiting(store: Store) -> None:
    subscription = store.watch("/w/", after=store.revision)
    assert subscription.take_unread() == []
    await put(store, "/w/a")
    await put(store, "/v/a")
    await store.delete("/w/a")
    events = subscription.take_unread()
    assert [(event.key, event.deleted) for event in events] == [("/w/a", False), ("/w/a", True)]
    assert subscription.take_unread() == []
    await put(store, "/w/b")
    assert [event.key for event in await take(subscription, 1)] == ["/w/b"]
    await put(store, "/w/c")
    subscription.close()
    assert subscription.take_unread() == []


async def test_closed_subscription_ends_and_lets_others_go_on(store: Store) -> None:
    one, two = store.watch("/", after=0), store.watch("/", after=0)
    await put(store, "/a")
    one.close()
    one.close()
    await put(store, "/b")
    assert [events async for events in one] == []
    assert len(await take(two, 2)) == 2


async def test_watch_works_after_the_last_of_its_prefix_closed(store: Store) -> None:
    for number in range(3):
        subscription = store.watch("/a/", after=store.revision)
        entry = await put(store, f"/a/{number}")
        assert [event.revision for event in await take(subscription, 1)] == [entry.revision]
        subscription.close()


@pytest.mark.parametrize("unread", [0, 1])
async def test_subscription_progress_excludes_what_follows_its_end(
    store: Store, unread: int
) -> None:
    """Who resumes from there would never hear of it, nor of what was unread (simulation, seed 203)."""
    subscription = store.watch("/", after=0)
    await put(store, "/a")
    await take(subscription, 1)
    for _ in range(unread):
        await put(store, "/a")
    subscription.close()
    await put(store, "/b")
    assert subscription.progress == 1


# --- compaction and closing --------------------------------------------------------------------


async def test_compact_keeps_the_state_and_later_history(store: Store) -> None:
    for number in range(12):
        await put(store, f"/{number % 3}", f"{number}")
    await store.delete("/0")
    before = await state(store)
    at_nine = await state(store, revision=9)
    await store.compact(9)
    assert store.compacted == 9
    assert store.revision == 13
    assert await state(store) == before
    assert await state(store, revision=9) == at_nine
    events = await take(store.watch("/", after=9), 4)
    assert [event.revision for event in events] == [10, 11, 12, 13]
    assert events[0].previous == b"6@7"


async def test_compact_never_goes_back(store: Store) -> None:
    for _ in range(4):
        await put(store, "/a")
    await store.compact(3)
    await store.compact(1)
    await store.compact(3)
    assert store.compacted == 3
    with pytest.raises(FutureRevision):
        await store.compact(5)


async def test_compact_runs_beside_writers(store: Store) -> None:
    async def write(number: int) -> None:
        for _ in range(20):
            await put(store, f"/{number}")

    async def compact() -> None:
        for _ in range(10):
            await store.compact(store.revision)
            await asyncio.sleep(0)

    async with Nursery() as nursery:
        nursery.start(compact())
        for number in range(5):
            nursery.start(write(number))
    assert store.revision == 100
    assert len((await store.list("/")).entries) == 5


async def test_close_finishes_writes_and_ends_watchers(store: Store) -> None:
    outcomes: list[Entry] = []

    async def write(number: int) -> None:
        outcomes.append(await put(store, f"/{number}"))

    async def watch() -> None:
        async for _ in store.watch("/", after=0):
            pass

    async with Nursery() as nursery:
        nursery.start(watch())
        for number in range(20):
            nursery.start(write(number))
        await asyncio.sleep(0)
        await store.close()
    assert len(outcomes) == 20


async def test_closed_store_refuses(store: Store) -> None:
    await put(store, "/a")
    subscription = store.watch("/", after=0)
    await store.close()
    await store.close()
    for call in (put(store, "/b"), store.delete("/a"), store.list("/"), store.compact(1)):
        with pytest.raises(StoreClosed):
            await call
    with pytest.raises(StoreClosed):
        store.watch("/", after=0)
    assert [events async for events in subscription] == []
