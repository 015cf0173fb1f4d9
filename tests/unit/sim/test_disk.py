"""A full disk refuses writes before anything is accepted, and reads go on."""

import pytest

from grange.base.rng import Stream
from grange.sim.disk import WeakDisk
from grange.store.errors import StorageFull
from grange.store.memory import MemoryStore


async def test_full_disk_refuses_writes_and_shows_what_was_there() -> None:
    disk = WeakDisk(MemoryStore(), rng=Stream(0))
    await disk.put("/a", lambda revision: b"1")
    disk.full = True
    with pytest.raises(StorageFull):
        await disk.put("/a", lambda revision: b"2")
    with pytest.raises(StorageFull):
        await disk.delete("/a")
    entry = disk.get("/a")
    assert entry is not None
    assert entry.value == b"1"
    assert disk.revision == 1
    disk.full = False
    assert (await disk.put("/a", lambda revision: b"3")).revision == 2
    await disk.close()


async def test_refusals_now_and_then_leave_no_gap_in_revisions() -> None:
    disk = WeakDisk(MemoryStore(), rng=Stream(0))
    disk.refuse = 0.5
    refused, revisions = 0, []
    for _ in range(50):
        try:
            revisions.append((await disk.put("/a", lambda revision: b"x")).revision)
        except StorageFull:
            refused += 1
    assert 0 < refused < 50
    assert revisions == list(range(1, 50 - refused + 1))
    await disk.close()
