"""The queue's promises: no key twice in the queue, none with two workers, none lost."""

from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from grange.base.backoff import Exponential, FailureLimiter, TokenBucket
from grange.base.clock import Clock
from grange.base.tasks import Nursery
from grange.reconcile.workqueue import Core, ShutDown, WorkQueue, field_limiter

ITEMS = st.sampled_from("abcd")


def unlimited() -> FailureLimiter:
    return FailureLimiter(bucket=TokenBucket(rate_per_s=1e6, burst=1_000_000))


# --- the pure core ------------------------------------------------------------------------------


class Naive:
    """The same promises, written without any thought for speed."""

    def __init__(self) -> None:
        self.queue: list[str] = []
        self.wanted_again: list[str] = []
        self.processing: list[str] = []
        self.delayed: dict[str, float] = {}
        self.failed: dict[str, int] = {}
        self.down = False

    def add(self, item: str) -> None:
        if self.down or item in self.queue or item in self.wanted_again:
            return
        (self.wanted_again if item in self.processing else self.queue).append(item)

    def add_after(self, item: str, seconds: float, now: float) -> None:
        if self.down:
            return
        if seconds <= 0:
            self.add(item)
        else:
            self.delayed[item] = min(self.delayed.get(item, 1e9), now + seconds)

    def promote(self, now: float, order: list[str]) -> None:
        """Due items come in the order of their times; ``order`` settles equal times."""
        due = sorted(
            (at, order.index(item), item) for item, at in self.delayed.items() if at <= now
        )
        for _, _, item in due:
            del self.delayed[item]
            self.add(item)

    def done(self, item: str) -> None:
        if item in self.processing:
            self.processing.remove(item)
        if item in self.wanted_again:
            self.wanted_again.remove(item)
            self.queue.append(item)


class QueueMachine(RuleBasedStateMachine):
    """Drives the core and the naive model alike."""

    def __init__(self) -> None:
        super().__init__()
        self.core: Core[str] = Core(
            FailureLimiter(
                exponential=Exponential(initial_s=1.0, cap_s=8.0),
                bucket=TokenBucket(rate_per_s=1e6, burst=1_000_000),
            )
        )
        self.model = Naive()
        self.now = 0.0
        self.order: list[str] = []  # the order in which delays were set

    def _noted(self, item: str) -> None:
        if item in self.order:
            self.order.remove(item)
        self.order.append(item)

    @rule(item=ITEMS)
    def add(self, item: str) -> None:
        self.core.add(item)
        self.model.add(item)

    @rule(item=ITEMS, tenths=st.integers(-1, 40))
    def add_after(self, item: str, tenths: int) -> None:
        earlier = self.model.delayed.get(item, 1e9)
        self.core.add_after(item, tenths / 8, self.now)
        self.model.add_after(item, tenths / 8, self.now)
        if self.model.delayed.get(item, 1e9) < earlier:
            self._noted(item)

    @rule(item=ITEMS)
    def fail(self, item: str) -> None:
        if not self.model.down:
            count = self.model.failed.get(item, 0) + 1
            self.model.failed[item] = count
            earlier = self.model.delayed.get(item, 1e9)
            self.model.add_after(item, min(8.0, 2.0 ** (count - 1)), self.now)
            if self.model.delayed[item] < earlier:
                self._noted(item)
        self.core.add_rate_limited(item, self.now)

    @rule(item=ITEMS)
    def forget(self, item: str) -> None:
        self.core.forget(item)
        self.model.failed.pop(item, None)

    @rule(eighths=st.integers(0, 24))
    def wait(self, eighths: int) -> None:
        self.now += eighths / 8
        self.core.promote(self.now)
        self.model.promote(self.now, self.order)

    @rule()
    def take(self) -> None:
        expected = self.model.queue.pop(0) if self.model.queue else None
        if expected is not None:
            assert expected not in self.model.processing
            self.model.processing.append(expected)
        assert self.core.pop() == expected

    @rule(item=ITEMS)
    def done(self, item: str) -> None:
        if item in self.model.processing:
            self.core.done(item)
            self.model.done(item)

    @rule()
    def shut_down(self) -> None:
        self.core.shut_down()
        self.model.down = True
        self.model.delayed.clear()

    @invariant()
    def agrees(self) -> None:
        assert len(self.core) == len(self.model.queue)
        assert self.core.next_deadline() == min(self.model.delayed.values(), default=None)
        assert self.core.drained == (self.model.down and not self.model.queue)
        statistics = self.core.statistics()
        assert statistics.processing == len(self.model.processing)
        assert statistics.delayed == len(self.model.delayed)
        for item in "abcd":
            assert self.core.failures(item) == self.model.failed.get(item, 0)


TestQueueMachine: Any = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_check_30_adds_collapse_and_rerun_follows_adds_at_work() -> None:
    core: Core[str] = Core(unlimited())
    for _ in range(5):
        core.add("a")
    assert core.pop() == "a"
    assert core.pop() is None
    for _ in range(5):
        core.add("a")
    assert core.pop() is None, "never two workers on a key"
    core.done("a")
    assert core.pop() == "a"
    core.done("a")
    assert core.pop() is None


def test_check_31_delays_keep_the_earliest_time() -> None:
    core: Core[str] = Core(unlimited())
    core.add_after("a", 10, now=0)
    core.add_after("a", 5, now=0)
    core.add_after("a", 20, now=0)
    assert core.next_deadline() == 5
    assert core.promote(4.9) == 0
    assert core.promote(5) == 1
    assert core.next_deadline() is None, "the later times are forgotten, not delivered again"
    core.add_after("b", 0, now=0)
    core.add_after("c", -1, now=0)
    assert [core.pop(), core.pop(), core.pop()] == ["a", "b", "c"]


def test_check_31_failures_double_to_the_cap_and_forget_resets() -> None:
    limiter = unlimited()
    delays = [limiter.when("a", 0.0) for _ in range(20)]
    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert delays[-1] == 1000.0
    limiter.forget("a")
    assert limiter.when("a", 0.0) == 0.005


def test_check_31_overall_bucket_throttles_after_its_burst() -> None:
    limiter = field_limiter()
    delays = [limiter.when(number, 0.0) for number in range(103)]
    assert delays[99] == 0.005
    assert delays[100:] == [pytest.approx(0.1), pytest.approx(0.2), pytest.approx(0.3)]


def test_check_32_shutdown_drains_then_stops() -> None:
    core: Core[str] = Core(unlimited())
    core.add("a")
    core.add_after("b", 1, now=0)
    core.shut_down()
    core.add("c")
    before = core.drained
    assert core.pop() == "a"
    assert (before, core.drained) == (False, True)
    assert core.promote(10) == 0


# --- the waiting shell --------------------------------------------------------------------------


async def test_get_waits_for_an_item(clock: Clock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock)
    taken: list[tuple[float, str]] = []

    async def worker() -> None:
        item = await queue.get()
        taken.append((clock.monotonic(), item))

    async with Nursery() as nursery:
        nursery.start(worker())
        await clock.sleep(3)
        queue.add("a")
    assert taken == [(3, "a")]


async def test_delayed_items_arrive_on_time_whatever_was_asked_first(clock: Clock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock, unlimited())
    taken: list[tuple[float, str]] = []
    queue.add_after("late", 10)
    queue.add_after("early", 2)
    queue.add_after("late", 7)
    queue.add_rate_limited("failed")

    for _ in range(3):
        item = await queue.get()
        taken.append((round(clock.monotonic(), 3), item))
        queue.done(item)
    assert taken == [(0.005, "failed"), (2, "early"), (7, "late")]


async def test_each_item_goes_to_one_of_many_waiting_workers(clock: Clock) -> None:
    queue: WorkQueue[int] = WorkQueue(clock)
    taken: list[int] = []

    async def worker() -> None:
        while True:
            try:
                item = await queue.get()
            except ShutDown:
                return
            taken.append(item)
            await clock.sleep(1)
            queue.done(item)

    async with Nursery() as nursery:
        for _ in range(4):
            nursery.start(worker())
        await clock.sleep(1)
        for item in range(8):
            queue.add(item)
        await clock.sleep(5)
        queue.shut_down()
    assert sorted(taken) == list(range(8))
    assert clock.monotonic() == 6


async def test_cancelled_waiter_loses_no_item(clock: Clock) -> None:
    """The wake-up of a worker that is cancelled in the same turn must reach another."""
    queue: WorkQueue[str] = WorkQueue(clock)
    taken: list[str] = []

    async def worker() -> None:
        taken.append(await queue.get())

    async with Nursery() as nursery:
        first = nursery.start(worker())
        nursery.start(worker())
        await clock.sleep(1)
        queue.add("a")
        first.cancel()
    assert taken == ["a"]


async def test_check_32_shutdown_wakes_all_waiting_workers(clock: Clock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock)
    ended: list[int] = []

    async def worker(number: int) -> None:
        with pytest.raises(ShutDown):
            await queue.get()
        ended.append(number)

    async with Nursery() as nursery:
        for number in range(3):
            nursery.start(worker(number))
        queue.add_after("never", 60)
        await clock.sleep(1)
        queue.shut_down()
        queue.add("ignored")
    assert ended == [0, 1, 2]
    assert len(queue) == 0
    assert clock.monotonic() == 1


async def test_statistics_show_depth_and_retries(clock: Clock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add("a")
    queue.add("b")
    queue.add_after("c", 5)
    queue.add_rate_limited("d")
    await queue.get()
    numbers = queue.statistics()
    assert (numbers.depth, numbers.processing, numbers.delayed) == (1, 1, 2)
    assert (numbers.adds, numbers.retries) == (2, 1)
    queue.shut_down()
