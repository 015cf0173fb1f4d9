"""Fan-out: every subscriber gets each event once, in order, or learns that it lagged."""

import asyncio
from collections.abc import Sequence

import pytest

from grange.base.tasks import Nursery
from grange.store.change import StoreChange
from grange.store.errors import Compacted
from grange.store.hub import ChangeHistory, Hub
from grange.store.interface import Entry, StoreEvent


def change(revision: int, key: str = "/k", body: bytes = b"x") -> StoreChange:
    return StoreChange(Entry(key, body, revision, revision), None, deleted=False)


class Disk:
    """History as the disk has it: everything, in pieces of two."""

    def __init__(self) -> None:
        self.changes: list[StoreChange] = []
        self.reads = 0

    async def history(self, prefix: str, after: int) -> tuple[Sequence[StoreChange], int]:
        self.reads += 1
        await asyncio.sleep(0)
        found = [each for each in self.changes if each.entry.revision > after][:2]
        position = found[-1].entry.revision if found else after
        return [each for each in found if each.entry.key.startswith(prefix)], position


def hub_of(
    disk: Disk, *, recent_events: int = 3, buffer_events: int = 10, buffer_bytes: int = 1_000
) -> Hub:
    recent = ChangeHistory(0, max_events=recent_events, max_bytes=1_000)
    return Hub(recent, 0, disk.history, buffer_events=buffer_events, buffer_bytes=buffer_bytes)


def write(hub: Hub, disk: Disk, *changes: StoreChange) -> None:
    disk.changes.extend(changes)
    hub.deliver(changes)


def revisions(events: Sequence[StoreEvent]) -> list[int]:
    return [event.revision for event in events]


def test_recent_keeps_the_last_by_number() -> None:
    recent = ChangeHistory(10, max_events=3, max_bytes=1_000)
    assert (recent.floor, recent.since(10)) == (10, [])
    for revision in range(11, 17):
        recent.append(change(revision))
    assert recent.floor == 13
    assert [each.entry.revision for each in recent.since(13)] == [14, 15, 16]
    assert [each.entry.revision for each in recent.since(15)] == [16]
    assert recent.since(16) == []


def test_recent_keeps_the_last_by_bytes() -> None:
    recent = ChangeHistory(0, max_events=100, max_bytes=100)
    for revision in range(1, 11):
        recent.append(change(revision, body=b"x" * 30))
    assert len(recent) == 3
    recent.append(change(11, body=b"x" * 500))
    assert len(recent) == 0
    assert recent.floor == 11


def test_change_makes_one_event_for_everybody() -> None:
    before = Entry("/k", b"old", 1, 1)
    made = StoreChange(Entry("/k", b"new", 2, 1), before, deleted=True)
    assert made.event is made.event
    assert made.event == StoreEvent("/k", 2, b"new", b"old", deleted=True)
    assert made.size_bytes == 6


async def test_delivery_touches_only_the_matching_subscriptions() -> None:
    disk = Disk()
    hub = hub_of(disk)
    wanted = [hub.subscribe(prefix, 0) for prefix in ("", "/", "/a", "/a/1")]
    others = [hub.subscribe(prefix, 0) for prefix in ("/b", "/a/2", "/a/1x", "/a/1/and/longer")]
    write(hub, disk, change(1, "/a/1"))
    assert [revisions(await anext(each)) for each in wanted] == [[1]] * 4
    assert all(each.progress == 1 for each in others)
    assert len(hub) == 8
    hub.close()
    assert len(hub) == 0


async def test_old_subscription_replays_from_disk_and_goes_live() -> None:
    disk = Disk()
    hub = hub_of(disk)
    write(hub, disk, *(change(revision) for revision in range(1, 10)))
    subscription = hub.subscribe("/", 1)
    seen: list[int] = []
    while len(seen) < 8:
        seen += revisions(await anext(subscription))
    assert seen == list(range(2, 10))
    assert disk.reads == 3  # 2-3, 4-5, 6-7; the rest is in memory
    write(hub, disk, change(10))
    assert revisions(await anext(subscription)) == [10]
    assert disk.reads == 3


async def test_subscription_within_recent_never_reads_the_disk() -> None:
    disk = Disk()
    hub = hub_of(disk)
    write(hub, disk, *(change(revision) for revision in range(1, 10)))
    subscription = hub.subscribe("/", 6)
    assert revisions(await anext(subscription)) == [7, 8, 9]
    assert disk.reads == 0


async def test_replay_skips_pieces_without_a_match() -> None:
    disk = Disk()
    hub = hub_of(disk)
    write(hub, disk, *(change(revision, "/other") for revision in range(1, 9)), change(9, "/k"))
    subscription = hub.subscribe("/k", 0)
    assert subscription.progress == 0
    assert revisions(await anext(subscription)) == [9]
    assert subscription.progress == 9


async def test_more_recent_history_than_the_buffer_comes_in_pieces() -> None:
    disk = Disk()
    hub = hub_of(disk, recent_events=100, buffer_events=3)
    write(hub, disk, *(change(revision) for revision in range(1, 9)))
    subscription = hub.subscribe("/", 0)
    pieces = [revisions(await anext(subscription)) for _ in range(3)]
    assert pieces == [[1, 2, 3], [4, 5, 6], [7, 8]]


async def test_lagging_subscription_holds_no_events() -> None:
    disk = Disk()
    hub = hub_of(disk, buffer_events=3)
    subscription = hub.subscribe("/", 0)
    write(hub, disk, *(change(revision) for revision in range(1, 20)))
    assert subscription._buffer == []
    assert hub._live == {}
    with pytest.raises(Compacted):
        await anext(subscription)
    subscription.close()
    assert len(hub) == 0


async def test_unread_events_are_bounded_in_bytes() -> None:
    disk = Disk()
    hub = hub_of(disk, buffer_bytes=100)
    reading, lagging = hub.subscribe("/", 0), hub.subscribe("/", 0)
    for revision in range(1, 4):
        write(hub, disk, change(revision, body=b"x" * 40))
        if revision == 2:
            assert revisions(await anext(reading)) == [1, 2]
    assert revisions(await anext(reading)) == [3]
    assert lagging._buffer == []
    with pytest.raises(Compacted):
        await anext(lagging)


async def test_event_larger_than_the_buffer_is_delivered() -> None:
    disk = Disk()
    hub = hub_of(disk, buffer_bytes=100)
    subscription = hub.subscribe("/", 0)
    for revision in range(1, 4):
        write(hub, disk, change(revision, body=b"x" * 400))
        assert revisions(await anext(subscription)) == [revision]


async def test_closing_while_a_replay_reads_ends_the_subscription() -> None:
    disk = Disk()
    hub = hub_of(disk)
    write(hub, disk, *(change(revision) for revision in range(1, 10)))
    subscription = hub.subscribe("/", 0)
    seen: list[StoreEvent] = []

    async def read() -> None:
        async for events in subscription:
            seen.extend(events)

    async with Nursery() as nursery:
        nursery.start(read())
        await asyncio.sleep(0)
        subscription.close()
    assert seen == []
