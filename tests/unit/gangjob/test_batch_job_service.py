"""Jobs of batch/v1, from their manifest to their end, against a real API server in memory."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.job_world import JobWorld, job_world, template

from grange.api import minimum_attempts
from grange.api.kinds import JOB, POD
from grange.api.kinds.batchjob import BatchJobStatus
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.verbs.job import change
from grange.controllers.gangjob.adapters.batchjob import BATCHJOB_ADAPTER, INDEX
from grange.controllers.gangjob.controller import JobService


@pytest.fixture
async def world(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[JobWorld]:
    async with job_world(clock, rng, log) as made:
        made.start(JobService(made.deps, BATCHJOB_ADAPTER))
        made.nursery.start(made.deps.informers.run())
        yield made


async def add(world: JobWorld, **spec: Any) -> None:
    wanted = {"template": template(restartPolicy="Never"), **spec}
    await world.client.create(JOB, {"metadata": {"name": "work"}, "spec": wanted}, "default")


async def status(world: JobWorld) -> BatchJobStatus:
    return (await world.client.get(JOB, "work", "default")).status


async def conditions(world: JobWorld) -> set[str]:
    """The types of the conditions that are true."""
    return {item.type for item in (await status(world)).conditions if item.status == "True"}


async def has(world: JobWorld, condition: str) -> None:
    """Wait until a condition is true."""

    async def reached() -> bool:
        return condition in await conditions(world)

    await world.until(reached)


async def running(world: JobWorld) -> list[str]:
    return sorted(
        name
        for name, pod in (await world.pods()).items()
        if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp
    )


async def runs(world: JobWorld, *names: str) -> None:
    """Wait until these pods run, and no others."""

    async def reached() -> bool:
        return await running(world) == list(names)

    await world.until(reached)


async def test_indexed_job_completes_each_index_once(world: JobWorld) -> None:
    await add(world, completionMode="Indexed", completions=4, parallelism=2)
    await runs(world, "work-0", "work-1")
    assert (await status(world)).active == 2
    pods = await world.pods()
    assert [pods[name].metadata.annotations[INDEX] for name in sorted(pods)] == ["0", "1"]
    await world.finish("work-1")
    await runs(world, "work-0", "work-2")
    await world.finish("work-0")
    await runs(world, "work-2", "work-3")
    await world.finish("work-2")
    await world.finish("work-3")
    await has(world, "Complete")
    ended = await status(world)
    assert (ended.completed_indexes, ended.succeeded, ended.active) == ("0-3", 4, 0)
    assert ended.start_time
    assert ended.completion_time
    assert await conditions(world) == {"SuccessCriteriaMet", "Complete"}


async def test_active_counts_pods_that_wait_to_start(world: JobWorld) -> None:
    world.paused = True
    await add(world, completions=3, parallelism=2)
    await world.settle(2)
    waiting = await status(world)
    assert (waiting.active, waiting.ready) == (2, 0)
    assert waiting.gang_job is not None
    assert waiting.gang_job.phase == "Created"
    world.paused = False
    await world.settle(2)
    started = await status(world)
    assert (started.active, started.ready) == (2, 2)
    await world.finish("work-0")
    await world.settle(2)
    world.paused = True
    await world.finish("work-1")
    await world.settle(2)
    last = await status(world)
    assert (last.active, last.ready, last.succeeded) == (1, 1, 2)
    await world.client.delete(POD, "work-2", "default", grace_period_s=0)
    await world.settle(2)
    again = await status(world)
    assert (again.active, again.ready) == (1, 0), "one that is being deleted is not active"
    assert again.gang_job is not None
    assert again.gang_job.phase == "Restarting"


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ({}, "CompletionsReached"),
        ({"successPolicy": {"rules": [{"succeededCount": 1}]}}, "SuccessPolicy"),
    ],
)
async def test_reason_of_success_is_that_of_kubernetes(
    world: JobWorld, policy: Any, reason: str
) -> None:
    await add(world, completionMode="Indexed", completions=2, parallelism=2, **policy)
    await runs(world, "work-0", "work-1")
    await world.finish("work-1")
    await world.settle()
    if not policy:
        await world.finish("work-0")
    await has(world, "Complete")
    found = {item.type: item.reason for item in (await status(world)).conditions}
    assert found == {"SuccessCriteriaMet": reason, "Complete": reason}


async def test_messages_name_no_role(world: JobWorld) -> None:
    """A Job has one, without a name."""
    limits = {"backoffLimitPerIndex": 0, "maxFailedIndexes": 3}
    await add(world, completionMode="Indexed", completions=3, parallelism=3, **limits)
    await runs(world, "work-0", "work-1", "work-2")
    world.paused = True
    for name in ("work-0", "work-1", "work-2"):
        patch = {"metadata": {"finalizers": None}}
        await world.client.patch(POD, name, "default", patch=patch)
        await world.client.delete(POD, name, "default", grace_period_s=0)
    await world.settle(3)
    kept = (await status(world)).gang_job
    assert kept is not None
    [found] = [item for item in kept.conditions if item.type == "Restarting"]
    assert found.message == "no pod runs any more"
    world.paused = False
    await runs(world, "work-0", "work-1", "work-2")
    await world.finish("work-0")
    await world.finish("work-1", 3)
    await world.finish("work-2", 3)
    await has(world, "Failed")
    [failed] = [item for item in (await status(world)).conditions if item.type == "Failed"]
    assert failed.message == "all indexes have ended, and some are given up (2)"


async def test_requested_restart_replaces_the_pods(world: JobWorld) -> None:
    """Commands name the only role of a Job ``worker``."""
    await add(world, completionMode="Indexed", completions=2, parallelism=2)
    await runs(world, "work-0", "work-1")
    before = {pod.metadata.uid for pod in (await world.pods()).values()}
    found = await world.client.get_document(JOB, "work", "default")
    attempts = minimum_attempts.written(change.requested_attempts(found, "") or {})
    notes = {"annotations": {minimum_attempts.ANNOTATION: attempts}}
    await world.client.patch(JOB, "work", "default", patch={"metadata": notes})

    async def replaced() -> bool:
        pods = (await world.pods()).values()
        return len(pods) == 2 and not before & {pod.metadata.uid for pod in pods}

    await world.until(replaced)
    await runs(world, "work-0", "work-1")
    kept = (await status(world)).gang_job
    assert kept is not None
    assert (kept.restarts, kept.uncharged_restarts) == (0, 1)


async def test_suspended_job_goes_on_where_it_was(world: JobWorld) -> None:
    await add(world, completionMode="Indexed", completions=2, parallelism=2)
    await runs(world, "work-0", "work-1")
    await world.finish("work-0")
    await runs(world, "work-1")
    await world.client.patch(JOB, "work", "default", patch={"spec": {"suspend": True}})
    await has(world, "Suspended")
    await runs(world)
    await world.settle(5)
    assert (await status(world)).active == 0
    await world.client.patch(JOB, "work", "default", patch={"spec": {"suspend": False}})
    await runs(world, "work-1")
    assert await conditions(world) == set()
    await world.finish("work-1")
    await has(world, "Complete")
    assert (await status(world)).completed_indexes == "0-1"


async def test_job_fails_at_its_backoff_limit(world: JobWorld) -> None:
    await add(world, backoffLimit=2)
    for _ in range(3):
        await runs(world, "work-0")
        await world.finish("work-0", 1)
        await runs(world)
    await has(world, "Failed")
    ended = await status(world)
    assert (ended.failed, ended.succeeded, ended.active) == (3, 0, 0)
    assert {item.reason for item in ended.conditions} == {"BackoffLimitExceeded"}
    assert await conditions(world) == {"FailureTarget", "Failed"}
    await world.settle(60)
    assert await running(world) == []


async def test_ignored_failures_back_off(world: JobWorld) -> None:
    rule = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}}
    await add(world, backoffLimit=0, podFailurePolicy={"rules": [rule]})
    for wait_s in (0, 1, 2, 4, 8):
        await runs(world, "work-0")
        await world.finish("work-0", 7)
        if wait_s:
            await world.settle(wait_s - 0.2)
            assert await running(world) == []
        else:
            await runs(world)
    await runs(world, "work-0")
    await world.finish("work-0")
    await has(world, "Complete")


async def test_finished_job_is_deleted_after_its_ttl(world: JobWorld) -> None:
    await add(world, ttlSecondsAfterFinished=30)
    await runs(world, "work-0")
    await world.finish("work-0")
    await has(world, "Complete")
    await world.settle(29)
    assert "Complete" in await conditions(world)
    await world.settle(3)
    with pytest.raises(NotFound):
        await status(world)
