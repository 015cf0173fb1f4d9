"""Restarts that a user asks for with the annotation of minimum attempts."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.support.job_world import JobWorld, job_world
from tests.unit.gangjob.job_simulator import JobSimulator, gang_job, workers

from grange.api import minimum_attempts
from grange.api.kinds import GANGJOB
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER
from grange.controllers.gangjob.controller import JobService


@pytest.fixture
async def served(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[JobWorld]:
    async with job_world(clock, rng, log) as made:
        service = JobService(made.deps, GANGJOB_ADAPTER)
        made.nursery.start(made.deps.informers.run())
        made.start(service)
        yield made


async def test_annotation_of_a_running_job_restarts_it(served: JobWorld) -> None:
    await served.add_job(replicas=2)
    await served.reaches("Running")
    before = {pod.metadata.uid for pod in (await served.pods()).values()}
    notes = {"annotations": {minimum_attempts.ANNOTATION: "worker=1"}}
    await served.client.patch(GANGJOB, "train", "default", patch={"metadata": notes})

    async def replaced() -> bool:
        pods = (await served.pods()).values()
        return len(pods) == 2 and not before & {pod.metadata.uid for pod in pods}

    await served.until(replaced)
    await served.reaches("Running")
    status = await served.status()
    assert (status.restarts, status.uncharged_restarts) == (0, 1)


@pytest.mark.parametrize(
    ("text", "attempts"),
    [
        ("", {}),
        ("worker=2, Launcher=1", {"worker": 2, "launcher": 1}),
        ("worker=-1,ps=x,=3,chief", {}),
        ("worker=9999999999999999999999", {}),
    ],
)
def test_malformed_entries_are_left_out(text: str, attempts: dict[str, int]) -> None:
    assert minimum_attempts.parse(text) == attempts


def test_annotation_survives_a_round_trip() -> None:
    attempts = {"worker": 2, "ps": 0}
    assert minimum_attempts.parse(minimum_attempts.written(attempts)) == attempts


def asked(world: JobSimulator, **attempts: int) -> JobSimulator:
    world.model = replace(world.model, minimum_attempts=attempts)
    return world


def test_requested_restart_replaces_all_pods_once() -> None:
    world = asked(JobSimulator(gang_job(workers(2))).started(), worker=1)
    plan = world.step()
    assert len(plan.delete) == 2
    assert world.phase == "Restarting"
    assert "restarted by a user" in world.message("Restarting")
    world.started()
    assert world.phase == "Running"
    assert world.role().attempt == 1
    assert (world.status.restarts, world.status.uncharged_restarts) == (0, 1)
    assert not world.step().delete


def test_failure_before_a_requested_restart_is_forgotten() -> None:
    world = asked(JobSimulator(gang_job(workers(2))).started(), worker=1)
    world.fail("train-worker-1", code=1)
    world.step()
    world.started()
    assert world.phase == "Running"
    assert (world.status.restarts, world.role().attempt) == (0, 1)


def test_finished_job_is_not_restarted() -> None:
    world = JobSimulator(gang_job(workers(1))).started()
    world.end("train-worker-0")
    world.step()
    assert world.phase == "Succeeded"
    plan = asked(world, worker=5).step()
    assert (plan.create, world.phase, world.role().attempt) == ((), "Succeeded", 0)
