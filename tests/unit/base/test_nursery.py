"""A nursery owns its children: nothing outlives its block and no cancellation is lost."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from grange.base.clock import Clock
from grange.base.tasks import Nursery
from grange.sim.loop import VirtualLoop


class Boom(Exception):
    pass


class Bang(Exception):
    pass


async def fail(clock: Clock, after_s: float, error: BaseException) -> None:
    await clock.sleep(after_s)
    raise error


async def note_end(clock: Clock, trace: list[str], name: str, seconds: float = 3600.0) -> None:
    try:
        await clock.sleep(seconds)
        trace.append(f"{name} done")
    except asyncio.CancelledError:
        trace.append(f"{name} cancelled")
        raise


async def fail_in_cleanup(clock: Clock, error: Exception) -> None:
    try:
        await clock.sleep(3600)
    except asyncio.CancelledError:
        raise error from None


async def test_block_waits_for_all_children_in_order(clock: Clock) -> None:
    trace: list[str] = []
    async with Nursery() as nursery:
        for number in range(4):
            nursery.start(note_end(clock, trace, str(number), seconds=5.0))
        assert len(nursery) == 4
    assert trace == ["0 done", "1 done", "2 done", "3 done"]
    assert clock.monotonic() == 5.0
    assert len(nursery) == 0
    assert nursery


async def test_result_of_a_child_is_there_after_the_block(clock: Clock) -> None:
    async def answer() -> int:
        await clock.sleep(1)
        return 42

    async with Nursery() as nursery:
        child = nursery.start(answer(), name="answer")
        assert not child.done()
    assert child.result() == 42
    assert not child.cancelled()


async def test_first_failure_cancels_the_rest_youngest_first(clock: Clock) -> None:
    trace: list[str] = []
    with pytest.raises(ExceptionGroup) as caught:
        async with Nursery("room") as nursery:
            nursery.start(note_end(clock, trace, "oldest"))
            nursery.start(fail(clock, 1, Boom()))
            nursery.start(note_end(clock, trace, "middle"))
            nursery.start(note_end(clock, trace, "youngest"))
    assert trace == ["youngest cancelled", "middle cancelled", "oldest cancelled"]
    assert [type(error) for error in caught.value.exceptions] == [Boom]
    assert str(caught.value).startswith("room: 1 failed")
    assert clock.monotonic() == 1.0


async def test_failure_interrupts_body_and_leaves_owner_uncancelled(clock: Clock) -> None:
    with pytest.raises(ExceptionGroup):
        async with Nursery() as nursery:
            nursery.start(fail(clock, 1, Boom()))
            await clock.sleep(3600)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await clock.sleep(1)  # no stray cancellation
    assert clock.monotonic() == 2.0


async def test_failures_are_collected_in_the_order_of_failing(clock: Clock) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with Nursery() as nursery:
            nursery.start(fail_in_cleanup(clock, Bang("a")))
            nursery.start(fail(clock, 1, Boom("b")))
            nursery.start(fail_in_cleanup(clock, Bang("c")))
    assert [str(error) for error in caught.value.exceptions] == ["b", "c", "a"]


async def test_error_of_the_body_comes_first(clock: Clock) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with Nursery() as nursery:
            nursery.start(fail_in_cleanup(clock, Bang()))
            await clock.sleep(1)
            raise Boom
    assert [type(error) for error in caught.value.exceptions] == [Boom, Bang]


async def test_body_that_converts_cancellation_is_uncancelled(
    clock: Clock,
) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with Nursery() as nursery:
            nursery.start(fail(clock, 1, Boom()))
            try:
                await clock.sleep(3600)
            except asyncio.CancelledError:
                raise Bang from None
    assert [type(error) for error in caught.value.exceptions] == [Bang, Boom]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_cancelled_child_is_not_a_failure(clock: Clock) -> None:
    async with Nursery() as nursery:
        child = nursery.start(clock.sleep(3600))
        await clock.sleep(1)
        assert child.cancel()
    assert child.cancelled()
    assert clock.monotonic() == 1.0


async def test_cancel_from_the_body_lets_the_body_finish(clock: Clock) -> None:
    trace: list[str] = []
    async with Nursery() as nursery:
        nursery.start(note_end(clock, trace, "child"))
        await clock.sleep(1)
        nursery.cancel()
        await clock.sleep(1)
        trace.append("body")
    assert trace == ["child cancelled", "body"]


async def test_cancel_from_a_child_ends_all_without_error(clock: Clock) -> None:
    trace: list[str] = []

    async def stop() -> None:
        await clock.sleep(1)
        nursery.cancel()

    async with Nursery() as nursery:
        nursery.start(note_end(clock, trace, "sibling"))
        nursery.start(stop())
        await note_end(clock, trace, "body")
    assert sorted(trace) == ["body cancelled", "sibling cancelled"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert clock.monotonic() == 1.0


async def test_cancel_twice_is_cancel_once(clock: Clock) -> None:
    def stop() -> None:
        nursery.cancel()
        nursery.cancel()

    async with Nursery() as nursery:
        asyncio.get_running_loop().call_later(1, stop)
        await clock.sleep(3600)
    await clock.sleep(1)
    assert clock.monotonic() == 2.0


async def test_owner_s_cancellation_cancels_children_and_passes_on(clock: Clock) -> None:
    trace: list[str] = []

    async def owner() -> None:
        async with Nursery() as inner:
            inner.start(note_end(clock, trace, "child"))
            await note_end(clock, trace, "body")

    async with Nursery() as nursery:
        child = nursery.start(owner())
        await clock.sleep(1)
        child.cancel()
    assert child.cancelled()
    assert trace == ["body cancelled", "child cancelled"]


async def test_owner_cancellation_while_waiting_passes_on(clock: Clock) -> None:
    trace: list[str] = []

    async def slow_child() -> None:
        try:
            await clock.sleep(3600)
        finally:
            await clock.sleep(5)
            trace.append("child cleaned up")

    async def owner() -> None:
        async with Nursery() as inner:
            inner.start(slow_child())

    async with Nursery() as nursery:
        child = nursery.start(owner())
        await clock.sleep(1)
        child.cancel()
    assert child.cancelled()
    assert trace == ["child cleaned up"]
    assert clock.monotonic() == 6.0


async def test_second_cancellation_reaches_slow_children(
    clock: Clock,
) -> None:
    async def stubborn() -> None:
        try:
            await clock.sleep(3600)
        finally:
            await clock.sleep(3600)

    async def owner() -> None:
        async with Nursery() as inner:
            inner.start(stubborn())

    async with Nursery() as nursery:
        child = nursery.start(owner())
        await clock.sleep(1)
        child.cancel()
        await clock.sleep(1)
        child.cancel()
    assert child.cancelled()
    assert clock.monotonic() == 2.0


async def test_converted_cancellation_arrives_at_the_next_await(
    clock: Clock,
) -> None:
    """A worker that survives errors must still end when it is cancelled."""
    survived: list[str] = []

    async def worker() -> None:
        while True:
            try:
                async with Nursery() as inner:
                    inner.start(fail_in_cleanup(clock, Boom()))
            except* Boom:
                survived.append("boom")
            await clock.sleep(1)

    async with Nursery() as nursery:
        child = nursery.start(worker())
        await clock.sleep(1)
        child.cancel()
    assert survived == ["boom"]
    assert child.cancelled()
    assert clock.monotonic() == 1.0


async def test_timeout_around_failing_nursery_leaves_no_cancellation(
    clock: Clock,
) -> None:
    with pytest.raises(ExceptionGroup):
        async with clock.timeout(1), Nursery() as nursery:
            nursery.start(fail_in_cleanup(clock, Boom()))
    await clock.sleep(1)
    assert clock.monotonic() == 2.0


async def test_timeout_around_a_nursery_is_a_timeout(clock: Clock) -> None:
    trace: list[str] = []
    with pytest.raises(TimeoutError):
        async with clock.timeout(1), Nursery() as nursery:
            nursery.start(note_end(clock, trace, "child"))
            await clock.sleep(3600)
    assert trace == ["child cancelled"]


async def test_own_and_foreign_cancellation_at_once_pass_the_foreign(
    clock: Clock,
) -> None:
    async def owner() -> None:
        async with Nursery() as inner:
            asyncio.get_running_loop().call_at(1, inner.cancel)
            await clock.sleep(3600)

    async with Nursery() as nursery:
        child = nursery.start(owner())
        asyncio.get_running_loop().call_at(1, child.cancel)
    assert child.cancelled()


async def test_nursery_in_the_cleanup_of_a_cancelled_owner_works(clock: Clock) -> None:
    trace: list[str] = []

    async def owner() -> None:
        try:
            await clock.sleep(3600)
        finally:
            async with Nursery() as inner:
                asyncio.get_running_loop().call_later(2, inner.cancel)
                inner.start(note_end(clock, trace, "kept", seconds=1))
                inner.start(note_end(clock, trace, "stopped"))
                await clock.sleep(3600)

    async with Nursery() as nursery:
        child = nursery.start(owner())
        await clock.sleep(1)
        child.cancel()
    assert child.cancelled()
    assert trace == ["kept done", "stopped cancelled"]


async def test_body_awaiting_cancelled_future_raises_cancellation() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with Nursery():
            await future


async def test_nested_nurseries_end_inside_out(clock: Clock) -> None:
    trace: list[str] = []
    with pytest.raises(ExceptionGroup) as caught:
        async with Nursery("outer") as outer:
            outer.start(note_end(clock, trace, "outer"))
            async with Nursery("inner") as inner:
                inner.start(note_end(clock, trace, "inner"))
                inner.start(fail(clock, 1, Boom()))
    assert trace == ["inner cancelled", "outer cancelled"]
    inner_group = caught.value.exceptions[0]
    assert isinstance(inner_group, ExceptionGroup)
    assert isinstance(inner_group.exceptions[0], Boom)


async def test_failure_outside_cancels_the_nursery_inside(clock: Clock) -> None:
    trace: list[str] = []
    with pytest.raises(ExceptionGroup) as caught:
        async with Nursery("outer") as outer:
            outer.start(fail(clock, 1, Boom()))
            async with Nursery("inner") as inner:
                inner.start(note_end(clock, trace, "inner"))
                await clock.sleep(3600)
    assert trace == ["inner cancelled"]
    assert [type(error) for error in caught.value.exceptions] == [Boom]


async def test_outer_failure_and_failing_cleanup_leave_no_cancellation(
    clock: Clock,
) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with Nursery("outer") as outer:
            outer.start(fail(clock, 1, Boom()))
            async with Nursery("inner") as inner:
                inner.start(fail_in_cleanup(clock, Bang()))
    assert caught.value.subgroup(Bang) is not None
    assert caught.value.subgroup(Boom) is not None
    await clock.sleep(1)
    assert clock.monotonic() == 2.0


async def test_child_may_start_siblings_until_the_last_has_ended(clock: Clock) -> None:
    trace: list[str] = []

    async def parent() -> None:
        await clock.sleep(1)
        nursery.start(note_end(clock, trace, "grandchild", seconds=1))

    async with Nursery() as nursery:
        nursery.start(parent())
    assert trace == ["grandchild done"]


async def test_start_in_a_cancelled_nursery_never_takes_a_step(clock: Clock) -> None:
    trace: list[str] = []
    async with Nursery() as nursery:
        nursery.cancel()
        child = nursery.start(note_end(clock, trace, "late"))
    assert child.cancelled()
    assert trace == []


async def test_start_outside_the_block_is_refused(clock: Clock) -> None:
    nursery = Nursery("shop")
    with pytest.raises(RuntimeError, match="shop: start"):
        nursery.start(clock.sleep(1))
    async with nursery:
        pass
    with pytest.raises(RuntimeError, match="shop: start"):
        nursery.start(clock.sleep(1))


async def test_entering_twice_is_refused() -> None:
    nursery = Nursery()
    async with nursery:
        with pytest.raises(RuntimeError, match="once"):
            async with nursery:
                pass


async def test_generator_with_a_nursery_closes_bare(clock: Clock) -> None:
    trace: list[str] = []

    async def ticks() -> AsyncGenerator[int, None]:
        async with Nursery() as nursery:
            nursery.start(note_end(clock, trace, "child"))
            while True:
                await clock.sleep(1)
                yield 1

    async with aclosing(ticks()) as stream:
        assert await anext(stream) == 1
    assert trace == ["child cancelled"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interpreter_errors_pass_bare_after_children_ended(
    error: type[BaseException],
) -> None:
    trace: list[str] = []

    async def interrupted() -> None:
        raise error

    async def waits() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            trace.append("ended")

    async def main() -> None:
        async with Nursery() as nursery:
            nursery.start(waits())
            nursery.start(interrupted())

    loop = VirtualLoop()
    task = loop.create_task(main())
    try:
        with pytest.raises(error):  # asyncio lets it out of the loop at once
            loop.run_until_complete(task)
        with pytest.raises(error):
            loop.run_until_complete(task)
    finally:
        loop.close()
    assert trace == ["ended"]
    # Else it is reported when the collector finds the task, in the middle of another test.
    assert isinstance(task.exception(), error)


async def test_raised_group_does_not_hold_the_frame_that_raised_it(clock: Clock) -> None:
    """Otherwise everything the owner had open lives until the collector comes by."""
    group: BaseException | None = None
    try:
        async with Nursery() as nursery:
            nursery.start(fail(clock, 1, Boom()))
    except* Boom as caught:
        group = caught
    assert group is not None
    frames = []
    trace = group.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    held = [name for frame in frames for name, value in frame.f_locals.items() if value is group]
    assert held in ([], ["group"], ["caught", "group"])
