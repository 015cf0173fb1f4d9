"""Kill the writing process with SIGKILL, again and again: nothing that was promised is lost."""

import asyncio
import sys
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.e2e.planes import LIMIT_S

from grange.base.log import Logger
from grange.base.rng import Stream
from grange.store.interface import StoreEvent
from grange.store.sqlite import SQLiteStore

WRITER = Path(__file__).with_name("store_writer.py")
KILLS = 55
PREFIXES = ["/", "/a/", "/b/", "/a/1"]  # as in store_writer

Write = tuple[int, str, bool, int]  # revision, key, deleted, checksum


@dataclass
class Report:
    """What the killed process was promised, and what its watchers saw."""

    opened_at: int | None = None
    acknowledged: list[Write] = field(default_factory=list)
    seen: list[list[Write]] = field(default_factory=lambda: [[] for _ in PREFIXES])

    @classmethod
    def parse(cls, output: bytes) -> "Report":
        report = cls()
        for line in output.decode().splitlines(keepends=True):
            assert line.endswith("\n"), "the kernel keeps short writes whole"
            kind, *words = line.split()
            if kind == "R":
                report.opened_at = int(words[0])
            elif kind == "A":
                report.acknowledged.append(_write(words))
            else:
                report.seen[int(words[0])].append(_write(words[1:]))
        return report


def _write(words: list[str]) -> Write:
    revision, key, deleted, checksum = words
    return int(revision), key, deleted == "1", int(checksum)


def _write_of(event: StoreEvent) -> Write:
    return event.revision, event.key, event.deleted, zlib.crc32(event.value)


def _is_whole(key: str, revision: int, value: bytes) -> bool:
    body, checksum = value[:-8], value[-8:]
    return body.startswith(f"{key}|{revision}|".encode()) and zlib.crc32(body) == int(checksum, 16)


async def _run_and_kill(
    directory: Path, seed: int, after: list[int], delay_s: float, writes: int | None
) -> Report:
    """Kill the writer a moment after so many writes, or after its start where none are awaited.

    Counted, since a busy machine may not let it write within any time of a clock.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(WRITER),
        str(directory),
        str(seed),
        ",".join(map(str, after)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    output = bytearray()
    try:
        if writes is not None:
            async with asyncio.timeout(LIMIT_S):
                output += await process.stdout.readline()
                while output.count(b"\nA ") < writes:
                    piece = await process.stdout.read(1 << 12)
                    assert piece, bytes(output[-500:])
                    output += piece
        try:
            async with asyncio.timeout(delay_s):
                while piece := await process.stdout.read(1 << 16):
                    output += piece
                raise AssertionError(f"the writer ended by itself: {bytes(output[-500:])!r}")
        except TimeoutError:
            pass
    finally:
        process.kill()
        output += await process.stdout.read()
        await process.wait()
    return Report.parse(bytes(output))


async def _history(store: SQLiteStore, after: int) -> list[StoreEvent]:
    events: list[StoreEvent] = []
    subscription = store.watch("", after=after)
    while store.revision > (events[-1].revision if events else after):
        events += await anext(subscription)
    subscription.close()
    return events


@asynccontextmanager
async def _opened(directory: Path, log: Logger) -> AsyncGenerator[SQLiteStore, None]:
    store = await SQLiteStore.open(directory, log=log)
    try:
        yield store
    finally:
        await store.close()


class Observer:
    """Knows what has happened so far, and compares each reopened store with it."""

    def __init__(self) -> None:
        self.after = [0] * len(PREFIXES)  # what each watcher saw last
        self.revision = 0  # the store's after the last kill
        self.state: dict[str, Write] = {}
        self.compacted = self.acknowledged = self.kills_under_load = self.compactions = 0

    async def check(self, store: SQLiteStore, report: Report) -> None:
        assert report.opened_at in {None, self.revision}
        events = await _history(store, self.revision)
        self._check_history(events, report)
        await self._check_state(store)
        self._check_watchers(await _history(store, min(self.after)), report)
        self.revision = store.revision
        self.compactions += store.compacted > self.compacted
        self.compacted = store.compacted
        self.acknowledged += len(report.acknowledged)
        self.kills_under_load += bool(report.acknowledged)

    def _check_history(self, events: list[StoreEvent], report: Report) -> None:
        history = [_write_of(event) for event in events]
        revisions = [write[0] for write in history]
        assert revisions == sorted(set(revisions))
        assert all(revision > self.revision for revision in revisions)
        assert set(report.acknowledged) <= set(history), "acknowledged and not there"
        for event in events:
            assert _is_whole(event.key, event.revision, event.value)
        self.state.update((write[1], write) for write in history)

    async def _check_state(self, store: SQLiteStore) -> None:
        entries = (await store.list("")).entries
        found = {entry.key: (entry.revision, zlib.crc32(entry.value)) for entry in entries}
        assert found == {
            key: (revision, checksum)
            for revision, key, deleted, checksum in self.state.values()
            if not deleted
        }
        assert all(_is_whole(entry.key, entry.revision, entry.value) for entry in entries)

    def _check_watchers(self, backlog: list[StoreEvent], report: Report) -> None:
        for watcher, (prefix, seen) in enumerate(zip(PREFIXES, report.seen, strict=True)):
            last = seen[-1][0] if seen else self.after[watcher]
            assert seen == [
                _write_of(event)
                for event in backlog
                if event.key.startswith(prefix) and self.after[watcher] < event.revision <= last
            ]
            self.after[watcher] = last


@pytest.mark.e2e
async def test_store_keeps_its_promises_when_killed(
    tmp_path: Path, rng: Stream, log: Logger
) -> None:
    directory = tmp_path / "data"
    observer = Observer()
    for number in range(KILLS):
        if number % 8 == 7:  # may hit the opening itself
            delay_s, writes = rng.uniform(0.05, 0.4), None
        else:
            delay_s, writes = rng.uniform(0.0, 0.03), rng.integer(0, 100)
        report = await _run_and_kill(directory, number, observer.after, delay_s, writes)
        async with _opened(directory, log) as store:
            await observer.check(store, report)
    assert observer.acknowledged > 1_000
    assert observer.kills_under_load >= KILLS // 2
    assert observer.compactions > KILLS // 4
