"""When history may go: the pure decision, and the service that carries it out."""

from hypothesis import given, settings, strategies as st

from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.tasks import Nursery
from grange.store.compaction import Compactor, Retention, RevisionSample, mark
from grange.store.errors import StorageFull
from grange.store.memory import MemoryStore

POLICY = Retention(keep_s=60, keep_revisions=1000, interval_s=10, step_revisions=5)


def observed(*pairs: tuple[float, int]) -> list[RevisionSample]:
    return [RevisionSample(at, revision) for at, revision in pairs]


def test_mark_keeps_what_is_young() -> None:
    seen = observed((0, 10), (30, 20), (60, 30), (90, 40))
    assert mark(POLICY, seen, now=59, compacted=0) == 0
    assert mark(POLICY, seen, now=60, compacted=0) == 10
    assert mark(POLICY, seen, now=100, compacted=0) == 20
    assert mark(POLICY, seen, now=100, compacted=20) == 20


def test_mark_bounds_the_number_of_revisions_whatever_their_age() -> None:
    assert mark(POLICY, observed((0, 10), (1, 5000)), now=1, compacted=0) == 4000


def test_mark_does_not_bother_for_little() -> None:
    seen = observed((0, 10))
    assert mark(POLICY, seen, now=100, compacted=6) == 6
    assert mark(POLICY, seen, now=100, compacted=5) == 10


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 700))), st.integers(0, 500))
def test_mark_never_goes_back_nor_beyond_the_last(
    steps: list[tuple[int, int]], compacted: int
) -> None:
    at, revision, seen = 0.0, compacted, []
    for seconds, writes in steps:
        at += seconds
        revision += writes
        seen.append(RevisionSample(at, revision))
    found = mark(POLICY, seen, now=at, compacted=compacted)
    assert compacted <= found <= max(revision, compacted)
    assert revision - found <= POLICY.keep_revisions or found == compacted


async def write(store: MemoryStore, count: int) -> None:
    for _ in range(count):
        await store.put("/lease", lambda revision: b"%d" % revision)


async def test_compactor_follows_at_a_distance(clock: Clock, log: Logger) -> None:
    store = MemoryStore()
    async with Nursery() as nursery:
        nursery.start(Compactor(store, clock=clock, log=log, retention=POLICY).run())
        for _ in range(30):
            await write(store, 10)
            await clock.sleep(10)
        assert store.revision == 300
        assert 220 <= store.compacted <= 240
        await clock.sleep(3600)
        assert store.compacted == 300
        nursery.cancel()


async def test_compactor_ends_with_its_store(clock: Clock, log: Logger) -> None:
    store = MemoryStore()
    compactor = Compactor(store, clock=clock, log=log, retention=POLICY)
    async with Nursery() as nursery:
        nursery.start(compactor.run())
        await write(store, 2000)
        await clock.sleep(1)
        await store.close()


class FullStore(MemoryStore):
    """Refuses the first compaction."""

    refusals = 1

    async def compact(self, revision: int) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StorageFull("no space")
        await super().compact(revision)


async def test_compactor_tries_again_after_a_refusal(
    clock: Clock, log: Logger, records: list[tuple[str, dict[str, object]]]
) -> None:
    store = FullStore()
    async with Nursery() as nursery:
        nursery.start(Compactor(store, clock=clock, log=log, retention=POLICY).run())
        await write(store, 2000)
        await clock.sleep(15)
        assert store.compacted == 0
        await clock.sleep(10)
        assert store.compacted == 1000
        nursery.cancel()
    assert [event for event, _ in records if event == "compaction failed"] == ["compaction failed"]


async def test_compactor_compacts_few_revisions_in_the_end(clock: Clock, log: Logger) -> None:
    store = MemoryStore()
    async with Nursery() as nursery:
        nursery.start(Compactor(store, clock=clock, log=log, retention=POLICY).run())
        await write(store, 2)
        await clock.sleep(POLICY.quiet_s - 20)
        assert store.compacted == 0
        await clock.sleep(40)
        assert store.compacted == 2
        nursery.cancel()
