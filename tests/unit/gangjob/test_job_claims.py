"""Which pods and Services belong to a job: adopted, kept, released, or another's."""

from typing import Any

import pytest
from tests.support.render_operator import RENDERJOB, RenderJob, RenderWorld, render_world

from grange.api.http import Request
from grange.api.kinds import POD, SERVICE
from grange.api.meta import controller_of
from grange.api.scheme import KindInfo
from grange.api.status import ApiError, Conflict, InternalError
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

KINDS = pytest.mark.parametrize("kind", [POD, SERVICE], ids=["pods", "services"])
HOLD = ("example.com/hold",)


async def claim(world: RenderWorld, kind: KindInfo[Any], job: RenderJob) -> list[str]:
    """Names of what belongs to the job, when the caches show all that the test did."""
    await world.settle(0.5)
    if kind is POD:
        return [pod.metadata.name for pod in await world.jobs.get_pods_for_job(job)]
    return [service.metadata.name for service in await world.jobs.get_services_for_job(job)]


async def owner(world: RenderWorld, kind: KindInfo[Any], name: str) -> str:
    """UID of the controller; empty for none."""
    reference = controller_of((await world.client.get(kind, name, "default")).metadata)
    return reference.uid if reference is not None else ""


async def terminating(world: RenderWorld) -> RenderJob:
    """The job ``film``, as it is while it is being deleted."""
    await world.add_job()
    patch = {"metadata": {"finalizers": [*HOLD]}}
    await world.client.patch(RENDERJOB, "film", "default", patch=patch)
    await world.client.delete(RENDERJOB, "film", "default")
    return await world.client.get(RENDERJOB, "film", "default")


@KINDS
async def test_check_9_owned_and_matching_orphans_are_claimed(
    clock: Clock, rng: Stream, log: Logger, kind: KindInfo[Any]
) -> None:
    async with render_world(clock, rng, log, run=False) as world:
        job = await world.add_job()
        await world.add(kind, "a", job)
        await world.add(kind, "b")
        await world.add(kind, "foreign", operator="other")
        await world.add(kind, "of-another", job="other")
        world.requests.clear()
        assert await claim(world, kind, job) == ["a", "b"]
        assert await owner(world, kind, "b") == job.metadata.uid
        assert await owner(world, kind, "foreign") == ""
        assert len(world.requests) == 1


@KINDS
async def test_check_10_terminating_job_claims_its_own_alone(
    clock: Clock, rng: Stream, log: Logger, kind: KindInfo[Any]
) -> None:
    async with render_world(clock, rng, log, run=False) as world:
        job = await terminating(world)
        await world.add(kind, "own", job)
        await world.add(kind, "orphan")
        assert await claim(world, kind, job) == ["own"]
        assert await owner(world, kind, "orphan") == ""


@KINDS
async def test_check_11_object_of_another_uid_is_not_claimed(
    clock: Clock, rng: Stream, log: Logger, kind: KindInfo[Any]
) -> None:
    async with render_world(clock, rng, log, run=False) as world:
        old = await world.add_job("film")
        await world.add(kind, "a", old)
        other = await world.add_job("other")
        assert await claim(world, kind, other) == []
        assert await owner(world, kind, "a") == old.metadata.uid


@KINDS
async def test_check_12_relabelled_object_is_released(
    clock: Clock, rng: Stream, log: Logger, kind: KindInfo[Any]
) -> None:
    async with render_world(clock, rng, log, run=False) as world:
        job = await world.add_job()
        await world.add(kind, "a", job, operator="")
        assert await claim(world, kind, job) == []
        assert await owner(world, kind, "a") == ""


@KINDS
async def test_check_13_terminating_object_is_kept_but_not_adopted(
    clock: Clock, rng: Stream, log: Logger, kind: KindInfo[Any]
) -> None:
    async with render_world(clock, rng, log, run=False) as world:
        job = await world.add_job()
        await world.add(kind, "own", job, finalizers=HOLD)
        await world.add(kind, "orphan", finalizers=HOLD)
        for name in ("own", "orphan"):
            await world.client.delete(kind, name, "default", grace_period_s=0)
        assert await claim(world, kind, job) == ["own"]
        assert await owner(world, kind, "orphan") == ""


@KINDS
async def test_check_14_adoption_asks_the_server_once(
    clock: Clock, rng: Stream, log: Logger, kind: KindInfo[Any]
) -> None:
    """The cache shows the job; the server's answer counts, for Services as for pods."""
    async with render_world(clock, rng, log, run=False) as world:
        job = await world.add_job()
        await world.add(kind, "own", job)
        for name in "abc":
            await world.add(kind, name)
        await world.settle(0.5)
        reads = 0

        def refuse(request: Request) -> ApiError | None:
            nonlocal reads
            if request.method == "GET" and request.path.endswith("/renderjobs/film"):
                reads += 1
                return InternalError("cannot read")
            return None

        world.gate = refuse
        with pytest.raises(InternalError, match="cannot read"):
            await claim(world, kind, job)
        assert reads == 1
        world.gate = lambda _: None
        assert await claim(world, kind, job) == ["own", "a", "b", "c"]


@KINDS
async def test_check_14_recreated_job_blocks_adoption_by_the_old(
    clock: Clock, rng: Stream, log: Logger, kind: KindInfo[Any]
) -> None:
    async with render_world(clock, rng, log, run=False) as world:
        old = await world.add_job()
        await world.client.delete(RENDERJOB, "film", "default")
        await world.add_job()
        await world.add(kind, "orphan")
        with pytest.raises(Conflict, match="is another object now"):
            await claim(world, kind, old)
        assert await owner(world, kind, "orphan") == ""
