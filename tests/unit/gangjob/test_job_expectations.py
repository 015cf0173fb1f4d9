"""A job waits until the caches show its own writes; a read settles what has no answer."""

import pytest
from tests.support.render_operator import RENDERJOB, render_world

from grange.api.http import Request
from grange.api.kinds import POD
from grange.api.status import ApiError, Forbidden, InternalError
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.reconcile.expectations import OVERDUE_S

FRAMES = ["film-frame-0", "film-frame-1"]


@pytest.mark.parametrize("plural", ["pods", "services"])
async def test_check_29_any_unseen_kind_holds_the_job(
    clock: Clock, rng: Stream, log: Logger, plural: str
) -> None:
    async with render_world(clock, rng, log) as world:
        path = f"/api/v1/{plural}"
        world.held_watches.add(path)
        job = await world.add_job(frames=2)
        await world.settle(1)
        assert world.operator.passes == ["film"]
        keys = {f"default/film/frame/{plural}"}
        assert set(world.jobs.unsatisfied_keys(job)) == keys
        await world.client.patch(RENDERJOB, "film", "default", patch={"spec": {"frames": 3}})
        await world.settle(3)
        assert world.operator.passes == ["film"]
        world.held_watches.clear()
        await world.settle(3)
        assert await world.pods() == [f"film-frame-{index}" for index in range(3)]
        assert world.jobs.unsatisfied_keys(job) == ()


@pytest.mark.parametrize("plural", ["pods", "services"])
@pytest.mark.parametrize("happened", [True, False])
async def test_check_28_lost_answer_is_settled_by_a_read(
    clock: Clock, rng: Stream, log: Logger, plural: str, happened: bool
) -> None:
    async with render_world(clock, rng, log) as world:
        lost = [InternalError("no answer")]

        def lose(request: Request) -> ApiError | None:
            fits = request.method == "POST" and request.path.endswith(f"/{plural}")
            return lost.pop() if fits and lost else None

        if happened:
            world.answer_gate = lose
        else:
            world.gate = lose
        await world.add_job(frames=2)
        await world.settle(2 * OVERDUE_S)
        assert await world.pods() == await world.services() == FRAMES
        assert world.creations(f"/{plural}") == (2 if happened else 3)
        assert world.jobs.expectations.expired == 0


async def test_check_28_refused_create_is_not_awaited(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with render_world(clock, rng, log) as world:
        world.gate = lambda request: (
            Forbidden("quota") if request.method == "POST" and "/pods" in request.path else None
        )
        job = await world.add_job(frames=8)
        await world.settle(0.001)
        assert world.jobs.unsatisfied_keys(job) == ()
        assert world.creations("/pods") == len(world.operator.passes), "seven more would fail, too"
        await world.settle(1)
        (event, *_) = await world.events("FailedCreatePod")
        assert "cannot create film-frame-0: quota" in event.message
        world.gate = lambda _: None
        await world.settle(10)
        assert len(await world.pods()) == 8


async def test_check_29_recreated_job_of_the_name_starts_clean(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with render_world(clock, rng, log, run=False) as world:
        old = await world.add_job()
        await world.settle(0.5)
        world.jobs.expectations.expect_creations(old.metadata.uid, ["never"], kind="pods")
        await world.client.delete(RENDERJOB, "film", "default")
        await world.settle(0.5)
        assert len(world.jobs.expectations) == 0
        await world.add_job()
        world.start(world.jobs)
        await world.settle(0.5)
        assert world.operator.passes[0] == "film"


async def test_create_that_finds_its_own_pod_succeeds(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A former owner of the shard created it, and this cache has not shown it yet."""
    async with render_world(clock, rng, log, run=False) as world:
        job = await world.add_job()
        world.held_watches.add("/api/v1/pods")
        await world.add(POD, "film-frame-0", job)
        world.start(world.jobs)
        await world.settle(1)
        assert world.creations("/pods") > 0
        assert await world.events("FailedCreatePod") == []
        world.held_watches.clear()
        await world.settle(1)
        assert await world.pods() == ["film-frame-0"]


async def test_name_of_another_owner_is_an_error(clock: Clock, rng: Stream, log: Logger) -> None:
    async with render_world(clock, rng, log) as world:
        await world.add(POD, "film-frame-0", operator="other")
        await world.add_job()
        await world.settle(1)
        (event, *_) = await world.events("FailedCreatePod")
        assert "film-frame-0" in event.message
        await world.client.delete(POD, "film-frame-0", "default", grace_period_s=0)
        await world.settle(5)
        assert (await world.events("SuccessfulCreatePod"))[0].message == "created film-frame-0"
