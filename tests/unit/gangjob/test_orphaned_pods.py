"""Pods whose job is gone are released, also where the controller was away or may not write."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest
from tests.support.job_world import JobWorld, job_world

from grange.api.http import Request, Response
from grange.api.kinds import GANGJOB, POD, SERVICE
from grange.api.status import Conflict
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER
from grange.controllers.gangjob.controller import JobService


@pytest.fixture
async def world(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[JobWorld]:
    async with job_world(clock, rng, log) as made:
        yield made


async def leave_orphans(world: JobWorld) -> None:
    """A job with pods, deleted while no controller runs; another has its name."""
    first = world.new_deps()
    running = [world.nursery.start(first.informers.run())]
    running += world.start(JobService(first, GANGJOB_ADAPTER))
    await world.add_job(replicas=2)
    await world.reaches("Running")
    for child in running:
        child.cancel()
    await world.settle()
    await world.client.delete(GANGJOB, "train", "default")
    await world.client.delete(SERVICE, "train", "default")  # as the garbage collector does
    await world.add_job(replicas=2)
    for name in await world.pods():
        await world.client.delete(POD, name, "default")


async def test_orphans_are_released_when_pods_are_listed_first(world: JobWorld) -> None:
    await leave_orphans(world)
    before = {pod.metadata.uid for pod in (await world.pods()).values()}

    async def jobs_come_later(
        request: Request, handle: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        if request.method == "GET" and request.path.endswith("/gangjobs"):
            await world.clock.sleep(1.0)
        return await handle(request)

    world.intercept = jobs_come_later
    world.nursery.start(world.deps.informers.run())
    world.start(JobService(world.deps, GANGJOB_ADAPTER))

    async def replaced() -> bool:
        found = {pod.metadata.uid for pod in (await world.pods()).values()}
        return len(found) == 2 and not found & before

    await world.until(replaced)
    await world.reaches("Running")


async def test_orphans_are_released_after_refused_writes(world: JobWorld) -> None:
    """A member without a session may not write, and nothing in the API shows when it may again."""
    await leave_orphans(world)
    refused: list[str] = []

    def gate(request: Request, limit: int) -> Conflict | None:
        if request.method == "PATCH" and "/pods/" in request.path and len(refused) < limit:
            refused.append(request.path)
            return Conflict("the session is lost")
        return None

    world.gate = partial(gate, limit=4)
    world.nursery.start(world.deps.informers.run())
    world.start(JobService(world.deps, GANGJOB_ADAPTER))
    await world.reaches("Running")
    assert len(refused) == 4
