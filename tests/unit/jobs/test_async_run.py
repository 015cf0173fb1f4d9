"""Handles of jobs against a real API server in memory."""

import json
from collections.abc import AsyncIterator

import pytest
from tests.support.job_world import JobWorld, job_world

from grange.api.kinds import POD
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER
from grange.controllers.gangjob.controller import JobService
from grange.jobs.async_run import AsyncJobRun, start
from grange.jobs.job_options import RoleOptions
from grange.jobs.run_errors import JobDeleted, JobFailed, ResultUnavailable


@pytest.fixture
async def world(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[JobWorld]:
    async with job_world(clock, rng, log) as made:
        service = JobService(made.deps, GANGJOB_ADAPTER)
        made.nursery.start(made.deps.informers.run())
        made.start(service)
        yield made


def train() -> int:
    return 1


async def end(world: JobWorld, name: str, message: str, exit_code: int = 0) -> None:
    """End a member that leaves a termination message."""
    state = {"terminated": {"exitCode": exit_code, "reason": "Ended", "message": message}}
    status = {
        "phase": "Failed" if exit_code else "Succeeded",
        "containerStatuses": [
            {"name": "main", "image": "", "imageID": "", "ready": False, "restartCount": 0}
            | {"state": state}
        ],
    }
    await world.client.patch(POD, name, "default", patch={"status": status}, subresource="status")


async def running(world: JobWorld, name: str = "train") -> None:
    await world.reaches("Running", name)


async def test_results_are_what_the_members_leave(world: JobWorld) -> None:
    job = await start(world.client, train, name="train", replicas=2)
    await running(world)
    assert (await job.status()).phase == "Running"
    for index in range(2):
        await end(world, f"train-worker-{index}", json.dumps({"value": index + 7}))
    assert (await job.wait(60)).phase == "Succeeded"
    assert await job.result() == 7
    assert await job.results() == (7, 8)
    again = await AsyncJobRun.attach(world.client, "train")
    assert await again.results("worker") == (7, 8)
    with pytest.raises(KeyError, match="train has worker"):
        await job.results("chief")


async def test_result_is_that_of_the_leader(world: JobWorld) -> None:
    roles: dict[str, int | RoleOptions] = {"worker": 1, "chief": RoleOptions(leader=True)}
    job = await start(world.client, train, name="train", roles=roles)
    await running(world)
    await end(world, "train-worker-0", json.dumps({"value": "worker"}))
    await end(world, "train-chief-0", json.dumps({"value": "chief"}))
    assert await job.result() == "chief"
    assert await job.results("worker") == ("worker",)


async def test_failure_has_the_members_message(world: JobWorld) -> None:
    job = await start(world.client, train, name="train", replicas=2)
    await running(world)
    await end(world, "train-worker-1", "ValueError: no data", exit_code=1)
    with pytest.raises(JobFailed, match=r"(?s)job train has failed.*\[worker-1\] ValueError: no"):
        await job.result()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("", "no termination message"),
        ("7", "no termination message"),
        ('{"unavailable": "it has 5000 bytes"}', "it has 5000 bytes"),
    ],
)
async def test_missing_result_has_a_reason(world: JobWorld, message: str, reason: str) -> None:
    job = await start(world.client, train, name="train")
    await running(world)
    await end(world, "train-worker-0", message)
    with pytest.raises(ResultUnavailable, match=reason):
        await job.result()


async def test_result_of_a_pod_that_is_gone(world: JobWorld) -> None:
    policy = {"spec": {"runPolicy": {"cleanPodPolicy": "All"}}}
    job = await start(world.client, train, name="train", overrides=policy)
    await running(world)
    await end(world, "train-worker-0", '{"value": 1}')
    await job.wait()
    await world.until(lambda: _gone(world))
    with pytest.raises(ResultUnavailable, match="its pod is gone"):
        await job.result()


async def _gone(world: JobWorld) -> bool:
    return not await world.pods()


async def test_command_has_no_result(world: JobWorld) -> None:
    job = await start(world.client, ["sh", "-c", "true"], name="train")
    await running(world)
    await end(world, "train-worker-0", "")
    assert await job.result() is None


async def test_cancelled_job_is_gone(world: JobWorld) -> None:
    async with await start(world.client, train, name="train") as job:
        await running(world)
        with pytest.raises(TimeoutError):
            await job.wait(5)
    with pytest.raises(JobDeleted, match="default/train"):
        await job.wait(60)
    await job.cancel()
    with pytest.raises(JobDeleted):
        await job.status()


async def test_job_of_the_same_name_is_another_one(world: JobWorld) -> None:
    job = await start(world.client, train, name="train")
    await running(world)
    await job.cancel()
    other = await start(world.client, train, name="train")
    with pytest.raises(JobDeleted):
        await job.status()
    with pytest.raises(JobDeleted):
        await job.wait()
    await job.cancel()
    assert (await other.status()).phase != "Failed"
