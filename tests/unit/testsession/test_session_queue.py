"""The queue of the library: Q1-Q6, aging, and sessions that can never run."""

from collections.abc import Mapping

from hypothesis import given, strategies as st

from grange.api.kinds.testsession import TestSession
from grange.api.meta import ObjectMeta
from grange.controllers.testsession.library.session_queue import SessionQueue
from grange.placement.machine_pools import (
    Pool,
    PoolCapacityError,
    PoolUnknownError,
    ReservationManager,
)


class Unlimited:
    """Has machines for all."""

    def reserve(self, holder: str, need: Mapping[str, int]) -> None:
        pass

    def unreserve(self, holder: str, need: Mapping[str, int] | None = None) -> None:
        pass


def queue_of(capacity: int, free: int | None = None) -> SessionQueue:
    manager = ReservationManager()
    manager.add_pool(Pool("p", capacity if free is None else free, capacity))
    return SessionQueue(manager, aging_s=60.0)


def enqueue(queue: SessionQueue, now_s: float = 0.0, **needs: int) -> None:
    for name, count in needs.items():
        queue.enqueue(TestSession(metadata=ObjectMeta(name=name)), {"p": count}, now_s)


def dequeued(queue: SessionQueue, now_s: float = 0.0) -> list[str]:
    """The names of all that can be taken now."""
    names = []
    while (entry := queue.dequeue(now_s)) is not None:
        names.append(entry.name)
    return names


def test_q1_count_is_the_number_enqueued() -> None:
    queue = queue_of(1)
    enqueue(queue, a=1, b=1, c=1)
    assert queue.count == 3
    assert dequeued(queue) == ["a"]
    assert queue.count == 2  # those that wait alone


def test_q2_enqueue_keeps_the_order() -> None:
    queue = queue_of(0)
    enqueue(queue, b=1, a=9, c=1)
    assert [entry.name for entry in queue.waiting()] == ["b", "a", "c"]


def test_q3_unlimited_machines_are_first_in_first_out() -> None:
    queue = SessionQueue(Unlimited(), aging_s=60.0)
    enqueue(queue, b=7, a=1, c=9)
    assert dequeued(queue) == ["b", "a", "c"]


def test_q4_first_that_fits_is_taken() -> None:
    queue = queue_of(5, free=3)
    enqueue(queue, five=5, three=3, one=1)
    assert dequeued(queue) == ["three"]


def test_q5_empty_queue_has_none() -> None:
    assert queue_of(5).dequeue(0.0) is None


def test_q6_machines_that_are_given_back_are_used() -> None:
    queue = queue_of(7)
    enqueue(queue, five=5, four=4, two=2)
    assert dequeued(queue) == ["five", "two"]
    for name in ("five", "two", "two"):  # twice is harmless
        queue.done(name)
    assert dequeued(queue) == ["four"]


def test_large_session_is_not_starved() -> None:
    queue = queue_of(2)
    enqueue(queue, now_s=0.0, s0=1)
    assert dequeued(queue) == ["s0"]
    enqueue(queue, now_s=1.0, large=2)
    taken = []
    for second in range(2, 120):  # one small session each second, which takes a second
        enqueue(queue, now_s=second, **{f"s{second}": 1})
        taken += dequeued(queue, now_s=second)
        queue.done(f"s{second - 1}" if second > 2 else "s0")
        if "large" in taken:
            break
    assert taken[-1] == "large"
    assert 58 <= len(taken) <= 62


def test_aged_session_closes_its_own_pools_only() -> None:
    manager = ReservationManager()
    manager.add_pool(Pool("p", 1, 2))
    manager.add_pool(Pool("q", 1, 1))
    queue = SessionQueue(manager, aging_s=60.0)
    enqueue(queue, large=2, small=1)
    queue.enqueue(TestSession(metadata=ObjectMeta(name="other")), {"q": 1}, 0.0)
    assert dequeued(queue, now_s=60.0) == ["other"]


def test_impossible_sessions_are_taken_out() -> None:
    queue = queue_of(2, free=0)
    queue.enqueue(TestSession(metadata=ObjectMeta(name="unknown")), {"x": 1}, 0.0)
    enqueue(queue, large=3, waits=2)
    assert queue.dequeue(0.0) is None
    found = {entry.name: error for entry, error in queue.take_impossible()}
    assert isinstance(found["unknown"], PoolUnknownError)
    assert isinstance(found["large"], PoolCapacityError)
    assert [entry.name for entry in queue.waiting()] == ["waits"]
    assert queue.take_impossible() == []


def test_looking_for_the_impossible_reserves_nothing() -> None:
    queue = queue_of(1)
    enqueue(queue, a=1)
    assert queue.take_impossible() == []
    assert dequeued(queue) == ["a"]


def test_impossible_sessions_are_looked_for_by_name() -> None:
    queue = queue_of(1)
    enqueue(queue, a=2, b=2)
    assert [entry.name for entry, _ in queue.take_impossible(lambda e: e.name == "b")] == ["b"]


def test_removed_session_is_not_dequeued() -> None:
    queue = queue_of(1)
    enqueue(queue, a=1)
    removed = queue.remove("a")
    assert removed is not None
    assert (removed.name, queue.remove("a"), queue.dequeue(0.0)) == ("a", None, None)
    assert "a" not in queue


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 6), st.integers(0, 6))
def test_session_is_passed_only_by_those_that_fit(
    needs: list[int], capacity: int, in_use: int
) -> None:
    free = max(0, capacity - in_use)
    queue = queue_of(capacity, free=free)
    enqueue(queue, **{f"s{index}": need for index, need in enumerate(needs)})
    expected, left = [], free
    for index, need in enumerate(needs):
        if need <= left:
            expected.append(f"s{index}")
            left -= need
    assert dequeued(queue) == expected
