"""A write without an answer costs a read and no waiting, whether or not it happened."""

import asyncio
from collections.abc import Callable

import pytest
from tests.support.controller_world import World, world

from grange.api.http import Request
from grange.api.status import ApiError, InternalError, ServiceUnavailable, Timeout
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.controllers.replication.controller import ReplicationService

SOON_S = 3.0
UNKNOWN = [Timeout("no answer"), InternalError("proxy"), ServiceUnavailable("the stream broke")]

Gate = Callable[[Request], ApiError | None]


def once(method: str, error: ApiError, count: int = 1) -> Gate:
    """Fails the first writes of a method to pods."""
    left = count

    def gate(request: Request) -> ApiError | None:
        nonlocal left
        if request.method == method and "/pods" in request.path and left:
            left -= 1
            return error
        return None

    return gate


async def started(there: World, replicas: int = 3) -> ReplicationService:
    for name in ("a", "b", "c", "d"):
        await there.add_node(name)
    service = ReplicationService(there.deps)
    there.start(service)
    await there.add_controller(replicas=replicas, placement="Packed")
    return service


@pytest.mark.parametrize("error", UNKNOWN, ids=lambda error: error.reason)
@pytest.mark.parametrize("happened", [False, True])
async def test_create_without_answer_is_settled_by_name(
    happened: bool, error: ApiError, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        gate = once("POST", error, count=2)
        if happened:
            there.answer_gate = gate
        else:
            there.gate = gate
        await started(there)
        took_s = await there.until(lambda: there.ready(3))
        assert took_s < SOON_S
        assert len(await there.pods()) == 3


@pytest.mark.parametrize("error", UNKNOWN, ids=lambda error: error.reason)
@pytest.mark.parametrize("happened", [False, True])
async def test_delete_without_answer_is_settled_by_uid(
    happened: bool, error: ApiError, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, replicas=4)
        await there.until(lambda: there.ready(4))
        gate = once("DELETE", error)
        if happened:
            there.answer_gate = gate
        else:
            there.gate = gate
        await there.change(replicas=2)
        took_s = await there.until(lambda: there.ready(2))
        assert took_s < SOON_S


async def test_outage_after_an_unanswered_write_adds_no_wait(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The server goes away with the request and is back after a minute."""
    async with world(clock, rng, log) as there:
        away = False

        def gate(request: Request) -> ApiError | None:
            nonlocal away
            if request.method == "POST" and "/pods" in request.path:
                away = True
            return ServiceUnavailable("away") if away else None

        there.gate = gate
        await started(there)
        await there.settle(60.0)
        there.gate = lambda request: None
        took_s = await there.until(lambda: there.ready(3))
        assert took_s < 10.0


async def test_cancelled_create_is_settled_when_the_loop_runs_again(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A process that loses a controller and gets it back does not wait for what it never sent."""
    async with world(clock, rng, log) as there:
        for name in ("a", "b", "c"):
            await there.add_node(name)
        service = ReplicationService(there.deps)
        await there.add_controller(replicas=2, placement="Packed")
        sent = asyncio.Event()
        async with Nursery("first") as first:

            def gate(request: Request) -> ApiError | None:
                if request.method == "POST" and "/pods" in request.path and not sent.is_set():
                    sent.set()
                    first.cancel()
                    return Timeout("never sent")
                return None

            there.gate = gate
            first.start(service.run())
        assert sent.is_set()
        there.start(service)
        took_s = await there.until(lambda: there.ready(2))
        assert took_s < SOON_S
