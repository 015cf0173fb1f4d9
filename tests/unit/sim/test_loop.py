"""Virtual time: it moves only when nothing else can, and reports when nothing ever will."""

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

import pytest

from grange.sim.loop import Deadlock, Livelock, VirtualLoop, where
from grange.sim.runner import Leak, Runner, run


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.close()


async def ticks() -> AsyncGenerator[int, None]:
    while True:
        await asyncio.sleep(1)
        yield 1


def test_a_year_costs_nothing() -> None:
    async def main() -> float:
        await asyncio.sleep(3600.0 * 24 * 365)
        return asyncio.get_running_loop().time()

    assert run(main(), horizon_s=1e12) == 3600.0 * 24 * 365


def test_time_is_exact_for_each_timer(loop: VirtualLoop) -> None:
    seen: list[float] = []
    for when in (0.3, 0.1, 0.2):
        loop.call_at(when, lambda: seen.append(loop.time()))
    loop.call_at(1.0, loop.stop)
    loop.run_forever()
    assert seen == [0.1, 0.2, 0.3]


def test_equal_deadlines_fire_in_the_order_of_asking(loop: VirtualLoop) -> None:
    seen: list[int] = []
    for number in range(50):
        loop.call_at(float(number % 2), seen.append, number)
    loop.call_at(2.0, loop.stop)
    loop.run_forever()
    assert seen == [*range(0, 50, 2), *range(1, 50, 2)]


def test_due_timers_fire_however_late_it_is(loop: VirtualLoop) -> None:
    """Far out, a float's spacing is larger than the resolution that asyncio assumes."""
    loop.call_later(1e9 + 0.1, loop.stop)
    loop._horizon_s = 1e12
    loop.run_forever()
    assert loop.time() == 1e9 + 0.1


def test_timer_within_the_resolution_moves_time(loop: VirtualLoop) -> None:
    """Also where something else is ready, for which time stands still."""
    fired: list[float] = []

    async def main() -> None:
        await asyncio.sleep(1.0 - 4e-7)
        loop.call_at(1.0, lambda: fired.append(loop.time()))
        while not fired:  # noqa: ASYNC110  something is to be ready all the time
            await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert fired == [1.0]


def test_cancelled_timers_do_not_move_time(loop: VirtualLoop) -> None:
    loop.call_later(3600, loop.stop).cancel()
    loop.call_later(1, loop.stop)
    loop.run_forever()
    assert loop.time() == 1.0


def test_deadlock_names_the_tasks_and_where_they_wait(loop: VirtualLoop) -> None:
    async def inner() -> None:
        await asyncio.get_running_loop().create_future()

    async def outer() -> None:
        await inner()

    task = loop.create_task(outer(), name="the culprit")
    with pytest.raises(Deadlock) as caught:
        loop.run_until_complete(task)
    assert "the culprit: " in str(caught.value)
    assert "outer (test_loop.py:" in str(caught.value)
    assert "inner (test_loop.py:" in str(caught.value)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)


def test_where_sees_through_generators(loop: VirtualLoop) -> None:
    async def main() -> None:
        stream = ticks()
        await anext(stream)
        await stream.aclose()

    task = loop.create_task(main())
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert "main" in where(task)
    assert "ticks (test_loop.py:" in where(task)
    loop.run_until_complete(task)


def test_livelock_is_stopped_at_the_horizon() -> None:
    async def forever() -> None:
        async with aclosing(ticks()) as stream:
            async for _ in stream:
                pass

    with pytest.raises(Livelock, match="virtual time passed 3600 s"):
        run(forever(), horizon_s=3600)


def test_tasks_are_numbered_by_their_loop() -> None:
    async def name() -> str:
        task = asyncio.get_running_loop().create_task(asyncio.sleep(0))
        await task
        return task.get_name()

    assert run(name()) == run(name()) == "task-2"


def test_closed_loop_takes_no_timers() -> None:
    loop = VirtualLoop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, print)


async def test_time_stands_still_while_a_thread_works() -> None:
    loop = asyncio.get_running_loop()
    release = threading.Event()
    timer = loop.call_later(1, release.set)
    work = loop.run_in_executor(None, release.wait, 0.05)
    assert await work is False
    assert loop.time() == 0.0
    timer.cancel()


async def test_thread_of_another_owner_may_wake_an_idle_loop() -> None:
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(woken.set,))
    thread.start()
    await woken.wait()
    thread.join()


async def test_real_descriptors_are_waited_for() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    timer = threading.Timer(0.02, theirs.send, args=(b"x",))
    timer.start()
    assert await loop.sock_recv(ours, 1) == b"x"
    timer.join()
    ours.close()
    theirs.close()


def test_run_returns_the_result_and_raises_the_error() -> None:
    async def answer() -> int:
        return 42

    async def broken() -> None:
        raise KeyError("k")

    assert run(answer()) == 42
    with pytest.raises(KeyError):
        run(broken())


def test_run_reports_tasks_that_were_left() -> None:
    kept: list[asyncio.Task[None]] = []

    async def careless() -> None:
        kept.append(asyncio.get_running_loop().create_task(asyncio.sleep(9), name="stray"))

    with pytest.raises(Leak, match="task left running: stray"):
        run(careless())
    assert kept[0].cancelled()


def test_run_reports_errors_that_no_client_looked_at() -> None:
    async def broken() -> None:
        raise KeyError("k")

    async def careless() -> None:
        task = asyncio.get_running_loop().create_task(broken())
        del task
        await asyncio.sleep(1)

    with pytest.raises(Leak, match="never retrieved: KeyError: 'k'"):
        run(careless())


def test_run_reports_generators_that_were_dropped() -> None:
    async def careless() -> None:
        async for _ in ticks():
            break
        await asyncio.sleep(1)

    with pytest.raises(Leak, match="aclosing"):
        run(careless())


def test_deadlock_lets_the_coroutine_clean_up_on_the_way_out() -> None:
    trace: list[str] = []

    async def stuck() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(5)
            trace.append("cleaned up")

    with pytest.raises(Deadlock):
        run(stuck())
    assert trace == ["cleaned up"]


def test_task_that_ignores_cancellation_for_ever_is_reported() -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                continue

    runner = Runner()
    with pytest.raises(Deadlock):
        runner.run(stubborn())
    with pytest.raises(Leak, match="does not end when cancelled"):
        runner.close()


def test_held_generator_has_one_task_from_beginning_to_end() -> None:
    tasks: list[object] = []

    async def resource() -> AsyncGenerator[str, None]:
        tasks.append(asyncio.current_task())
        yield "value"
        tasks.append(asyncio.current_task())

    runner = Runner()
    held = runner.open(resource(), name="resource")
    assert held.value == "value"
    held.close()
    runner.close()
    assert tasks[0] is tasks[1]


def test_held_generator_s_errors_are_raised_where_they_happen() -> None:
    async def broken_opening() -> AsyncGenerator[str, None]:
        yield str(1 // 0)

    async def broken_closing() -> AsyncGenerator[str, None]:
        yield "value"
        raise KeyError("closing")

    async def yields_twice() -> AsyncGenerator[str, None]:
        yield "value"
        yield "again"

    runner = Runner()
    with pytest.raises(ZeroDivisionError):
        runner.open(broken_opening(), name="x")
    held = runner.open(broken_closing(), name="y")
    with pytest.raises(KeyError, match="closing"):
        held.close()
    twice = runner.open(yields_twice(), name="z")
    with pytest.raises(RuntimeError, match="exactly once"):
        twice.close()
    runner.close()


def test_held_generator_sees_the_cancellation_at_its_yield() -> None:
    trace: list[str] = []

    async def resource() -> AsyncGenerator[str, None]:
        try:
            yield "value"
        except asyncio.CancelledError:
            trace.append("cancelled")
            raise

    runner = Runner()
    held = runner.open(resource(), name="x")
    held.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        held.close()
    runner.close()
    assert trace == ["cancelled"]


def test_run_reports_generators_that_were_left_open() -> None:
    kept: list[AsyncGenerator[int, None]] = []

    async def careless() -> None:
        kept.append(ticks())
        await anext(kept[0])

    with pytest.raises(Leak, match=r"generator left open: .*ticks"):
        run(careless())


def test_alarm_inside_a_callback_stops_the_loop() -> None:
    """Otherwise a test's real-time limit could go off unheard."""

    class Alarm(BaseException):
        pass

    def go_off() -> None:
        raise Alarm

    async def busy() -> None:
        asyncio.get_running_loop().call_later(1, go_off)
        await asyncio.sleep(3600)

    with pytest.raises(Alarm):
        run(busy())


async def ready() -> None:
    await asyncio.sleep(0)


def test_spinning_without_letting_time_pass_is_stopped() -> None:
    async def spin() -> None:
        while True:
            await ready()

    with pytest.raises(Livelock, match="time has stood still at virtual second 0"):
        run(spin())
