"""Jobs whose queue decides when they begin: the job controller and the scheduler together."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.job_world import JobWorld, job_world

from grange.api import conditions
from grange.api.kinds import PODGROUP, QUEUE
from grange.api.meta import Condition
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER
from grange.controllers.gangjob.controller import JobService
from grange.scheduler.service import Scheduler
from grange.sim import builders


@pytest.fixture
async def world(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[JobWorld]:
    """One node and one queue, each for four CPUs."""
    async with job_world(clock, rng, log) as made:
        made.binds = False
        await builders.create_node(made.client, "a", capacity={"cpu": "4", "pods": "100"})
        queue = {"metadata": {"name": "team"}, "spec": {"capacity": {"cpu": "4"}}}
        await made.client.create(QUEUE, queue)
        made.start(JobService(made.deps, GANGJOB_ADAPTER))
        made.start(Scheduler(made.deps))
        made.nursery.start(made.deps.informers.run())
        yield made


def asking(cpu: str) -> dict[str, Any]:
    requests = {"resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"containers": [{"name": "main", "command": ["work"], **requests}]}}


async def add(world: JobWorld, name: str, members: int, **spec: Any) -> None:
    role = {"replicas": members, "template": asking("1"), "restartPolicy": "Never"}
    policy = {"schedulingPolicy": {"queue": "team"}}
    await world.add_job(name, roles={"worker": role}, runPolicy=policy, **spec)


async def queued(world: JobWorld, name: str) -> Condition:
    found = conditions.find((await world.status(name)).conditions, "Queued")
    assert found is not None
    return found


async def pods_of(world: JobWorld, name: str) -> list[str]:
    return sorted(pod for pod in await world.pods() if pod.startswith(name))


async def end(world: JobWorld, name: str) -> None:
    for pod in await pods_of(world, name):
        await world.finish(pod)
    await world.reaches("Succeeded", name)


async def test_job_has_no_pods_before_its_queue_admits_it(world: JobWorld) -> None:
    await add(world, "one", 3)
    await world.reaches("Running", "one")
    await add(world, "two", 3)
    await add(world, "three", 3)
    await world.clock.sleep(5.0)
    assert await pods_of(world, "t") == []
    found = await queued(world, "two")
    assert (found.status, found.reason) == ("True", "OverQuota")
    assert found.message == (
        "over quota of queue team: cpu 6 of 4, borrowing none; position 1 in queue team"
    )
    assert (await queued(world, "three")).message.endswith("position 2 in queue team")
    assert (await world.status("two")).phase == "Queued"
    queue = await world.client.get(QUEUE, "team")
    assert (queue.status.pending, queue.status.admitted) == (2, 3)
    await end(world, "one")
    await world.reaches("Running", "two")
    assert await pods_of(world, "three") == []
    assert (await queued(world, "two")).status == "False"
    await end(world, "two")
    await world.reaches("Running", "three")


async def test_status_names_the_group_of_a_queued_job(world: JobWorld) -> None:
    await add(world, "one", 5)
    await world.reaches("Queued", "one")
    await world.clock.sleep(5.0)
    [group] = (await world.client.list(PODGROUP, "default")).items
    status = await world.status("one")
    assert (status.pod_group, status.queue) == (group.metadata.name, "team")


async def test_suspended_job_returns_its_quota(world: JobWorld) -> None:
    world.paused = True
    await add(world, "one", 3)
    await world.clock.sleep(2.0)
    assert len(await pods_of(world, "one")) == 3
    await add(world, "two", 3)
    await world.clock.sleep(2.0)
    world.paused = False
    await world.change("one", runPolicy={"suspend": True})
    await world.reaches("Running", "two")
    await world.change("one", runPolicy={"suspend": False})
    await world.reaches("Queued", "one")
    assert await pods_of(world, "one") == []
    await end(world, "two")
    await world.reaches("Running", "one")


async def test_restarted_job_is_admitted_again(world: JobWorld) -> None:
    await add(
        world, "one", 3, failurePolicy={"maxRestarts": 1, "restartStrategy": "BlockingRecreate"}
    )
    await world.reaches("Running", "one")
    first = {pod.metadata.uid for pod in (await world.pods()).values()}
    await world.finish("one-worker-0", exit_code=1)

    async def replaced() -> bool:
        found = {pod.metadata.uid for pod in (await world.pods()).values()}
        return len(found) == 3 and not found & first

    await world.until(replaced)
    await world.reaches("Running", "one")


async def test_job_without_a_queue_has_its_pods_at_once(world: JobWorld) -> None:
    await world.add_job("free", roles={"worker": {"replicas": 5, "template": asking("1")}})
    await world.reaches("Queued", "free")
    assert len(await pods_of(world, "free")) == 5


async def test_restarting_job_that_waits_for_quota_is_queued_too(world: JobWorld) -> None:
    """Both are true: it is not whole, and its pods wait. The phase is the greater of the two."""
    restarts = {"maxRestarts": 1, "restartStrategy": "BlockingRecreate"}
    await add(world, "one", 3, failurePolicy=restarts)
    await world.reaches("Running", "one")
    await add(world, "two", 3)
    await world.reaches("Queued", "two")
    await world.finish("one-worker-0", exit_code=1)
    await world.reaches("Running", "two")
    await world.clock.sleep(2.0)
    status = await world.status("one")
    found = await queued(world, "one")
    assert (status.phase, found.status, found.reason) == ("Restarting", "True", "OverQuota")
    assert conditions.is_true(status.conditions, "Restarting")
    await end(world, "two")
    await world.reaches("Running", "one")
    assert (await queued(world, "one")).status == "False"
