"""What the store costs: puts a second with two watchers, memory a stored entry, loading.

Alone: ``python -m bench.store``.
"""

import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from grange.base.log import Logger
from grange.base.tasks import Nursery
from grange.store.sqlite import SQLiteStore

ENTRIES = 100_000
BODY = b'{"kind":"Pod","metadata":{"resourceVersion":"%d","name":"%s"},"spec":"' + b"x" * 1300


def resident_bytes() -> int:
    """The resident set of this process."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


def body_of(name: bytes) -> Callable[[int], bytes]:
    return lambda revision: (BODY % (revision, name)) + b'"}'


async def open_store(directory: Path) -> SQLiteStore:
    return await SQLiteStore.open(directory, log=Logger("bench"))


async def puts(store: SQLiteStore, writers: int, each: int, *, start: int = 0) -> float:
    """Seconds that ``writers`` callers need for ``each`` creations one after the other."""

    async def write(writer: int) -> None:
        for number in range(each):
            name = b"pod-%07d" % (start + writer * each + number)
            await store.put("/core/pods/default/" + name.decode(), body_of(name), expect=0)

    began = time.perf_counter()
    async with Nursery() as nursery:
        for writer in range(writers):
            nursery.start(write(writer))
    return time.perf_counter() - began


async def in_scratch(measure: Callable[[Path], Awaitable[dict[str, float]]]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as scratch:
        return await measure(Path(scratch) / "data")


async def throughput(directory: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    store = await open_store(directory)
    watchers = [store.watch("/core/pods/", after=0) for _ in range(2)]

    async def read(index: int) -> None:
        async for _ in watchers[index]:
            pass

    async with Nursery() as nursery:
        for index in range(len(watchers)):
            nursery.start(read(index))
        start = 0
        for writers, count in ((1, 4_000), (32, 32_000), (256, 64_000)):
            each = count // writers
            elapsed = await puts(store, writers, each, start=start)
            found[f"puts_{writers}_per_s"] = writers * each / elapsed
            start += count
        for watcher in watchers:
            watcher.close()
    await store.close()
    return found


async def size(directory: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    store = await open_store(directory)
    gc.collect()
    before = resident_bytes()
    await puts(store, 256, ENTRIES // 256)
    gc.collect()
    found["bytes_per_entry"] = (resident_bytes() - before) / len(
        (await store.list("/", limit=0)).entries
    )
    await store.close()
    del store
    gc.collect()
    began = time.perf_counter()
    store = await open_store(directory)
    found["load_100k_s"] = time.perf_counter() - began
    await store.close()
    return found


async def measure() -> dict[str, float]:
    """Figures of one run, by name; two watchers follow the throughput."""
    return {**await in_scratch(size), **await in_scratch(throughput)}


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for name, value in runner.run(measure()).items():
            print(f"{name:32} {value:12,.2f}")
