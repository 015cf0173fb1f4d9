"""Blocking work leaves the loop, and comes back with its result or its error."""

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from grange.base.clock import Clock
from grange.base.offload import Inline, Offload, Threads
from grange.base.tasks import Nursery


class Boom(Exception):
    pass


@pytest.fixture(params=["threads", "inline"])
def offload(request: pytest.FixtureRequest) -> Iterator[Offload]:
    made: Offload = Threads("lane") if request.param == "threads" else Inline()
    yield made
    made.close()


async def test_result_comes_back(offload: Offload) -> None:
    assert await offload.run(lambda: 6 * 7) == 42


async def test_error_comes_back(offload: Offload) -> None:
    def broken() -> None:
        raise Boom

    with pytest.raises(Boom):
        await offload.run(broken)


async def test_one_lane_keeps_the_order(offload: Offload) -> None:
    done: list[int] = []
    async with Nursery() as nursery:
        for number in range(20):
            nursery.start(offload.run(partial(done.append, number)))
    assert done == list(range(20))


async def test_closed_refuses_work_and_closes_twice(offload: Offload) -> None:
    offload.close()
    offload.close()
    with pytest.raises(RuntimeError):
        await offload.run(lambda: None)


async def test_threads_are_named_and_end_with_the_pool() -> None:
    pool = Threads("lane")
    name = await pool.run(lambda: threading.current_thread().name)
    assert name.startswith("lane")
    pool.close()
    assert all(not thread.name.startswith("lane") for thread in threading.enumerate())


async def test_work_that_has_begun_goes_on_after_cancellation(clock: Clock) -> None:
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        release.wait()
        ended.set()

    pool = Threads("lane")
    async with Nursery() as nursery:
        child = nursery.start(pool.run(work))
        while not begun.is_set():
            await clock.sleep(0)
        child.cancel()
        release.set()
    assert child.cancelled()
    pool.close()
    assert ended.is_set()


async def test_virtual_time_stands_still_while_a_thread_works(clock: Clock) -> None:
    pool = Threads("lane")
    async with Nursery() as nursery:
        nap = nursery.start(clock.sleep(3600))
        async with clock.timeout(1):  # a thread needs real time, and no virtual time at all
            for _ in range(20):
                await pool.run(lambda: sum(range(10_000)))
        assert clock.monotonic() == 0.0
        nap.cancel()
    pool.close()
