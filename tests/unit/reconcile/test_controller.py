"""The controller loop: every key is served, failures wait and return, nothing else suffers."""

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from grange.api.meta import ObjectKey
from grange.api.status import ApiError, Conflict, Invalid, ServiceUnavailable
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import exposition, registry
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.reconcile.controller import Controller, Done, Requeue, Result, Terminal

A, B = ObjectKey("ns", "a"), ObjectKey("ns", "b")
Records = list[tuple[str, dict[str, Any]]]
Reconcile = Callable[[ObjectKey], Awaitable[Result]]


async def drive(controller: Controller, clock: Clock, seconds: float) -> None:
    async with Nursery() as nursery:
        nursery.start(controller.run())
        await clock.sleep(seconds)
        nursery.cancel()


async def test_done_is_done(clock: Clock, rng: Stream, log: Logger) -> None:
    seen: list[ObjectKey] = []

    async def reconcile(key: ObjectKey) -> Result:
        seen.append(key)
        return Done()

    controller = Controller("test", reconcile, clock=clock, rng=rng, log=log)
    controller.enqueue(A)
    controller.enqueue(A)
    controller.enqueue(B)
    await drive(controller, clock, 100)
    assert seen == [A, B]
    assert controller.statistics().done == 2


async def test_requeue_comes_back_after_its_time_and_is_no_failure(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    at: list[float] = []

    async def reconcile(key: ObjectKey) -> Result:
        at.append(clock.monotonic())
        return Requeue(10)

    controller = Controller("test", reconcile, clock=clock, rng=rng, log=log)
    controller.enqueue(A)
    await drive(controller, clock, 35)
    assert at == [0, 10, 20, 30]
    assert controller.queue.failures(A) == 0


async def test_failure_is_retried_with_growing_delays(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    at: list[float] = []

    async def reconcile(key: ObjectKey) -> Result:
        at.append(round(clock.monotonic(), 3))
        if len(at) < 5:
            raise ZeroDivisionError
        return Done()

    controller = Controller("test", reconcile, clock=clock, rng=rng, log=log)
    controller.enqueue(A)
    await drive(controller, clock, 100)
    assert at == [0, 0.005, 0.015, 0.035, 0.075]
    assert controller.queue.failures(A) == 0, "success forgets the failures"
    assert controller.statistics().failed == 4


async def test_crash_of_one_key_does_not_touch_the_others(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    served: list[ObjectKey] = []

    async def reconcile(key: ObjectKey) -> Result:
        if key == A:
            raise ZeroDivisionError
        served.append(key)
        return Done()

    controller = Controller("test", reconcile, clock=clock, rng=rng, log=log)
    controller.enqueue(A)
    controller.enqueue(B)
    await drive(controller, clock, 1)
    assert served == [B]


async def test_terminal_is_not_retried(
    clock: Clock, rng: Stream, log: Logger, records: Records
) -> None:
    count = 0

    async def reconcile(key: ObjectKey) -> Result:
        nonlocal count
        count += 1
        raise Terminal("the template is invalid")

    controller = Controller("test", reconcile, clock=clock, rng=rng, log=log)
    controller.enqueue(A)
    await drive(controller, clock, 2000)
    assert count == 1
    assert controller.statistics().terminal == 1
    assert [facts["outcome"] for event, facts in records if event == "reconciled"] == ["terminal"]


async def test_check_30_one_key_is_never_with_two_workers(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    active: set[ObjectKey] = set()
    runs: list[ObjectKey] = []

    async def reconcile(key: ObjectKey) -> Result:
        assert key not in active
        active.add(key)
        await clock.sleep(1)
        active.remove(key)
        runs.append(key)
        return Done()

    controller = Controller("test", reconcile, workers=4, clock=clock, rng=rng, log=log)
    async with Nursery() as nursery:
        nursery.start(controller.run())
        for _ in range(20):
            controller.enqueue(A)
            controller.enqueue(B)
            await clock.sleep(0.1)
        await clock.sleep(5)
        nursery.cancel()
    assert controller.statistics().failed == 0
    assert runs.count(A) == runs.count(B) == 3


async def test_check_32_shut_down_finishes_what_is_queued_and_returns(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    seen: list[ObjectKey] = []

    async def reconcile(key: ObjectKey) -> Result:
        await clock.sleep(1)
        seen.append(key)
        return Requeue(5)

    controller = Controller("test", reconcile, clock=clock, rng=rng, log=log)
    controller.enqueue(A)
    controller.enqueue(B)
    async with Nursery() as nursery:
        nursery.start(controller.run())
        await clock.sleep(0.5)
        controller.shut_down()
        controller.enqueue(ObjectKey("ns", "late"))
    assert seen == [A, B]


async def test_every_reconcile_logs_one_line_and_failures_a_trace(
    clock: Clock, rng: Stream, log: Logger, records: Records
) -> None:
    outcomes: list[Exception | Result] = [
        Done(),
        Requeue(1),
        ZeroDivisionError("boom"),
        Conflict("changed"),
        Done(),
    ]

    async def reconcile(key: ObjectKey) -> Result:
        await clock.sleep(2)
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    controller = Controller("test", reconcile, clock=clock, rng=rng, log=log)
    controller.enqueue(A)
    async with Nursery() as nursery:
        nursery.start(controller.run())
        await clock.sleep(5)
        controller.enqueue(A)
        await clock.sleep(95)
        nursery.cancel()
    lines = [facts for event, facts in records if event == "reconciled"]
    assert [facts["outcome"] for facts in lines] == ["done", "requeue", "error", "error", "done"]
    assert {facts["elapsed_s"] for facts in lines} == {2}
    assert {facts["controller"] for facts in lines} == {"test"}
    assert [facts.get("attempt") for facts in lines] == [None, None, 1, 2, None]
    assert "boom" in lines[2]["trace"]
    assert "trace" not in lines[3], "a conflict is the normal race, not a crash"


async def test_outcomes_are_counted_per_controller(clock: Clock, rng: Stream, log: Logger) -> None:
    async def reconcile(key: ObjectKey) -> Result:
        return Done()

    metrics = registry()
    one, controller = (
        Controller(name, reconcile, clock=clock, rng=rng, log=log, metrics=metrics)
        for name in ("one", "two")
    )
    for each in (one, controller):
        each.enqueue(A)
        await drive(each, clock, 1)
    text = exposition(metrics).decode()
    assert 'grange_reconcile_total{controller="one",outcome="done"} 1.0' in text
    assert 'grange_reconcile_seconds_count{controller="two"} 1.0' in text
    controller.enqueue(A)
    controller.enqueue(B)
    assert 'grange_workqueue_depth{controller="two"} 2.0' in exposition(metrics).decode()


async def test_cancelling_stops_reconciles_at_work(clock: Clock, rng: Stream, log: Logger) -> None:
    ended: list[str] = []

    async def reconcile(key: ObjectKey) -> Result:
        try:
            await clock.sleep(1000)
        finally:
            ended.append(key.name)
        return Done()

    controller = Controller("test", reconcile, workers=2, clock=clock, rng=rng, log=log)
    controller.enqueue(A)
    controller.enqueue(B)
    await drive(controller, clock, 1)
    assert sorted(ended) == ["a", "b"]
    assert controller.statistics().active == 0


@pytest.mark.parametrize("workers", [1, 3])
async def test_busy_controller_lets_others_run(
    clock: Clock, rng: Stream, log: Logger, workers: int
) -> None:
    """A reconcile that never really waits must not keep the loop to itself."""

    async def reconcile(key: ObjectKey) -> Result:
        controller.queue.add(key)  # wanted again forever
        return Done()

    controller = Controller("test", reconcile, workers=workers, clock=clock, rng=rng, log=log)
    controller.enqueue(A)
    turns = 0
    async with Nursery() as nursery:
        nursery.start(controller.run())
        for _ in range(50):
            await clock.sleep(0)
            turns += 1
        nursery.cancel()
    assert turns == 50


@pytest.mark.parametrize("passing", [ServiceUnavailable, Conflict])
async def test_failures_that_end_by_themselves_wait_little(
    clock: Clock, rng: Stream, log: Logger, passing: type[ApiError]
) -> None:
    """A refusal of the object itself waits longer and longer; a server that is away is asked on."""
    at: dict[ObjectKey, list[float]] = {A: [], B: []}

    async def reconcile(key: ObjectKey) -> Result:
        at[key].append(clock.monotonic())
        raise (passing if key == A else Invalid)("no")

    controller = Controller("test", reconcile, clock=clock, rng=rng, log=log)
    controller.enqueue(A)
    controller.enqueue(B)
    await drive(controller, clock, 600)
    gaps = {key: max(b - a for a, b in pairwise(times)) for key, times in at.items()}
    assert gaps[A] == pytest.approx(5.0)
    assert gaps[B] > 100.0
