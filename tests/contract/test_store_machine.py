"""The SQLite store and the model side by side, driven at random: they must agree on everything."""

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from grange.base.log import Logger
from grange.base.tasks import Nursery
from grange.sim.runner import Runner
from grange.store.errors import Compacted, FutureRevision, RevisionMismatch, StoreError
from grange.store.interface import Entry, Page, Store, StoreEvent, Subscription, Write
from grange.store.memory import MemoryStore
from grange.store.sqlite import SQLiteStore
from grange.store.store_settings import Lanes, StoreSettings

T = TypeVar("T")

KEYS = ["/a", "/a/1", "/a/2", "/a/10", "/b/1", "/b/2", "/bb", "/ä", "/\U0010ffff"]
PREFIXES = ["", "/", "/a", "/a/", "/b", "/b/", "/\U0010ffff", "/none"]
keys = st.sampled_from(KEYS)
prefixes = st.sampled_from(PREFIXES)
bodies = st.binary(max_size=40)
# How far back from the last revision; "mark" is the oldest state that can still be shown.
back = st.sampled_from(["mark", "mark", 0, 0]) | st.integers(-1, 20)
REFUSALS = (RevisionMismatch, Compacted, FutureRevision)

# Small bounds, so that a few dozen steps reach every border: history in memory and on disk, pieces
# of replays, sweeps and batches.
SETTINGS = StoreSettings(
    recent_events=4, recent_bytes=300, batch_writes=3, sweep_rows=3, vacuum_pages=1, replay_events=2
)


def _numbered(body: bytes, revision: int) -> bytes:
    return body + b"@%d" % revision


class Watcher:
    """The same subscription on both stores, and what they have given so far."""

    def __init__(self, prefix: str, after: int, model: Subscription, real: Subscription) -> None:
        self.prefix = prefix
        self.after = after
        self.model = model
        self.real = real
        self.expected: list[StoreEvent] = []
        self.seen: list[StoreEvent] = []
        self.gone = False


class StoreMachine(RuleBasedStateMachine):
    """Every rule does the same to both stores and compares results, errors and state."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = Runner()
        self.scratch = tempfile.TemporaryDirectory()
        self.directory = Path(self.scratch.name) / "data"
        self.watchers: list[Watcher] = []

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)

    @initialize()
    def open(self) -> None:
        self.run(self._open())

    async def _open(self) -> None:
        self.model = MemoryStore()
        self.real = await self._open_real()

    async def _open_real(self) -> SQLiteStore:
        return await SQLiteStore.open(
            self.directory, log=Logger("machine"), lanes=Lanes.inline(), settings=SETTINGS
        )

    def teardown(self) -> None:
        if hasattr(self, "real"):
            self.run(self.model.close())
            self.run(self.real.close())
        self.runner.close()
        self.scratch.cleanup()

    def both(self, call: Callable[[Store], Coroutine[Any, Any, T]]) -> T | None:
        """Call on both and compare; None if both refused in the same words."""

        async def attempt(store: Store) -> T | tuple[type[StoreError], str]:
            try:
                return await call(store)
            except REFUSALS as refusal:
                return type(refusal), str(refusal)

        model = self.run(attempt(self.model))
        real = self.run(attempt(self.real))
        assert real == model
        return None if isinstance(model, tuple) else model

    # --- writes --------------------------------------------------------------------------------

    def _at(self, back: int | str) -> int:
        if isinstance(back, str):
            return self.model.compacted
        return max(0, self.model.revision - back)

    def _expectation(self, key: str, choice: str) -> int | None:
        found = self.model.get(key)
        present = found.revision if found else 0
        return {"any": None, "present": present, "absent": 0, "stale": present + 1}[choice]

    expectations = st.sampled_from(["any", "any", "present", "absent", "stale"])

    @rule(key=keys, body=bodies, choice=expectations)
    def put(self, key: str, body: bytes, choice: str) -> None:
        expect = self._expectation(key, choice)
        self.both(lambda store: store.put(key, lambda r: body + b"@%d" % r, expect=expect))

    @rule(key=keys, body=st.none() | bodies, choice=expectations)
    def delete(self, key: str, body: bytes | None, choice: str) -> None:
        expect = self._expectation(key, choice)
        value = None if body is None else (lambda r: body + b"@%d" % r)
        self.both(lambda store: store.delete(key, value=value, expect=expect))

    @rule(writes=st.lists(st.tuples(keys, st.booleans(), bodies), min_size=2, max_size=12))
    def write_at_once(self, writes: list[tuple[str, bool, bytes]]) -> None:
        """A crowd of writers in one turn of the loop: decided in order, committed in groups."""

        async def crowd(store: Store) -> list[Entry | str]:
            results: list[Entry | str] = [""] * len(writes)

            async def write(index: int, key: str, deletes: bool, body: bytes) -> None:
                try:
                    if deletes:
                        results[index] = await store.delete(key)
                    else:
                        results[index] = await store.put(key, lambda _: body)
                except RevisionMismatch as refusal:
                    results[index] = str(refusal)

            async with Nursery() as nursery:
                for index, (key, deletes, body) in enumerate(writes):
                    nursery.start(write(index, key, deletes, body))
            return results

        self.both(crowd)

    @rule(writes=st.lists(st.tuples(keys, expectations, bodies), max_size=12))
    def write_group(self, writes: list[tuple[str, str, bytes]]) -> None:
        """A group is decided as its writes one after the other are."""
        group = [
            Write(key, partial(_numbered, body), self._expectation(key, choice))
            for key, choice, body in writes
        ]

        async def put(store: Store) -> list[Entry | str]:
            outcomes = await store.put_group(group)
            return [str(each) if isinstance(each, StoreError) else each for each in outcomes]

        self.both(put)

    # --- reads ---------------------------------------------------------------------------------

    @rule(prefix=prefixes, after=st.sampled_from(["", *KEYS]), limit=st.integers(0, 4))
    def list_now(self, prefix: str, after: str, limit: int) -> None:
        self.both(lambda store: store.list(prefix, after=after, limit=limit))

    @rule(
        prefix=prefixes,
        after=st.sampled_from(["", *KEYS]),
        limit=st.integers(0, 4),
        back=back,
    )
    def list_then(self, prefix: str, after: str, limit: int, back: int | str) -> None:
        at = self._at(back)

        def show(store: Store) -> Coroutine[Any, Any, Page]:
            return store.list(prefix, revision=at, after=after, limit=limit)

        self.both(show)

    # --- watches -------------------------------------------------------------------------------

    @rule(prefix=prefixes, back=back)
    def watch(self, prefix: str, back: int | str) -> None:
        after = self._at(back)
        made: list[Subscription | tuple[type[StoreError], str]] = []
        for store in (self.model, self.real):
            try:
                made.append(self.run(_watch(store, prefix, after)))
            except REFUSALS as refusal:
                made.append((type(refusal), str(refusal)))
        model, real = made
        if isinstance(model, tuple) or isinstance(real, tuple):
            assert model == real
        else:
            self.watchers.append(Watcher(prefix, after, model, real))

    @precondition(lambda self: self.watchers)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        self._read(data.draw(st.sampled_from(self.watchers)))

    def _read(self, watcher: Watcher) -> None:
        """Read all there is; a watcher behind the mark may have to list again instead."""
        if watcher.gone:
            return
        watcher.expected += self.run(_pending(watcher.model))
        try:
            watcher.seen += self.run(_pending(watcher.real))
        except Compacted:
            last = watcher.seen[-1].revision if watcher.seen else watcher.after
            unread = [event for event in watcher.expected if event.revision > last]
            assert watcher.real.progress < self.real.compacted, unread
            watcher.gone = True
            watcher.model.close()
            watcher.real.close()
            assert watcher.seen == watcher.expected[: len(watcher.seen)]
        else:
            assert watcher.seen == watcher.expected
            assert watcher.real.progress == self.real.revision == watcher.model.progress

    @precondition(lambda self: self.watchers)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        """Leave, and come back where the last event that was seen left off."""
        watcher = data.draw(st.sampled_from(self.watchers))
        watcher.model.close()
        watcher.real.close()
        self.watchers.remove(watcher)
        assert self.run(_pending(watcher.real)) == []
        last = watcher.seen[-1].revision if watcher.seen else watcher.after
        self.watch(watcher.prefix, self.model.revision - last)

    # --- compaction and restarts ---------------------------------------------------------------

    @rule(back=back)
    def compact(self, back: int | str) -> None:
        at = self._at(back)
        self.both(lambda store: store.compact(at))

    @rule()
    def reopen(self) -> None:
        """Nothing but the subscriptions may notice."""
        for watcher in self.watchers:
            watcher.model.close()
            watcher.real.close()
        self.watchers.clear()

        async def restart() -> None:
            await self.real.close()
            self.real = await self._open_real()

        self.run(restart())

    @rule()
    def read_everything(self) -> None:
        for watcher in self.watchers:
            self._read(watcher)

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "real"):
            return
        assert self.real.revision == self.model.revision
        assert self.real.compacted == self.model.compacted
        for key in KEYS:
            assert self.real.get(key) == self.model.get(key)
            assert self.real.latest(key) == self.model.latest(key)


async def _watch(store: Store, prefix: str, after: int) -> Subscription:
    return store.watch(prefix, after=after)


async def _pending(subscription: Subscription) -> list[StoreEvent]:
    """All events that are there already; ends when the subscription waits or has ended."""
    found: list[StoreEvent] = []
    failures: list[Compacted] = []

    async def read() -> None:
        try:
            async for events in subscription:
                found.extend(events)
        except Compacted as failure:
            failures.append(failure)

    async with Nursery() as nursery:
        nursery.start(read())
        await asyncio.sleep(1.0)  # virtual: only passes when nothing else can run
        nursery.cancel()
    if failures:
        raise failures[0]
    return found


StoreMachine.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
test_sqlite_store_agrees_with_the_model = StoreMachine.TestCase
