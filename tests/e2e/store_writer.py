"""The process that test_store_crash kills: writes under load and reports what it was promised.

    store_writer.py DIRECTORY SEED AFTER,AFTER,…

Opens the store, resumes one watcher for each AFTER and prints lines, each in one write so that a
kill leaves it whole or absent:

    R revision                          open, with the store at this revision
    A revision key deleted checksum     this write was acknowledged
    W watcher revision key deleted checksum
"""

import asyncio
import os
import sys
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.store.errors import RevisionMismatch
from grange.store.sqlite import SQLiteStore

PREFIXES = ["/", "/a/", "/b/", "/a/1"]
KEYS = [f"/{shelf}/{number}" for shelf in "abc" for number in range(60)]
WRITERS = 24
PIPE_ATOMIC = 4096


def report(lines: Iterable[str]) -> None:
    """Write lines in pieces that the kernel keeps whole."""
    piece = b""
    for line in lines:
        encoded = line.encode() + b"\n"
        if len(piece) + len(encoded) > PIPE_ATOMIC:
            os.write(1, piece)
            piece = b""
        piece += encoded
    if piece:
        os.write(1, piece)


def whole(key: str, filling: int) -> Callable[[int], bytes]:
    """A value that can show whether it is complete: its key and revision, filling, a checksum."""

    def value(revision: int) -> bytes:
        body = f"{key}|{revision}|{'x' * filling}|".encode()
        return body + b"%08x" % zlib.crc32(body)

    return value


async def write(store: SQLiteStore, rng: Stream) -> None:
    while True:
        key = rng.choice(KEYS)
        value = whole(key, rng.choice([10, 400, 1400, 9000]))
        deletes = rng.integer(0, 4) == 0
        try:
            if deletes:
                entry = await store.delete(key, value=value)
            else:
                entry = await store.put(key, value)
        except RevisionMismatch:  # there is nothing to delete
            continue
        report([f"A {entry.revision} {key} {deletes:d} {zlib.crc32(entry.value)}"])


async def watch(store: SQLiteStore, watcher: int, after: int) -> None:
    async for events in store.watch(PREFIXES[watcher], after=after):
        report(
            f"W {watcher} {event.revision} {event.key} {event.deleted:d} {zlib.crc32(event.value)}"
            for event in events
        )


async def compact(store: SQLiteStore, upto: int, rng: Stream) -> None:
    """Compact what every watcher had seen before, in steps, so that kills hit sweeps as well."""
    while store.compacted < upto:
        await asyncio.sleep(rng.uniform(0.0, 0.01))
        await store.compact(min(upto, store.compacted + rng.integer(1, 2_000)))


async def main() -> None:
    directory, seed, resumed = sys.argv[1:]
    after = [int(revision) for revision in resumed.split(",")]
    rng = Stream(int(seed), "crash")
    store = await SQLiteStore.open(Path(directory), log=Logger("crash"))
    report([f"R {store.revision}"])
    async with Nursery() as nursery:
        for watcher, revision in enumerate(after):
            nursery.start(watch(store, watcher, revision))
        for writer in range(WRITERS):
            nursery.start(write(store, rng.fork(f"writer{writer}")))
        nursery.start(compact(store, min(after), rng.fork("compact")))


if __name__ == "__main__":
    asyncio.run(main())
