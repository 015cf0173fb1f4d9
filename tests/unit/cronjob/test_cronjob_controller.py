"""The CronJob controller against a real API server in memory."""

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from grange.api import timestamps
from grange.api.http import Request, User
from grange.api.kinds import CRONJOB, EVENT, JOB
from grange.api.kinds.batchjob import BatchJob
from grange.api.status import ApiError, Cause, Forbidden
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.cronjob.controller import SCHEDULED_ANNOTATION, CronJobController
from grange.reconcile import owners
from grange.sim.api_fixture import ApiFixture, opened

TEMPLATE = {
    "metadata": {"labels": {"app": "backup"}},
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "backup"}],
            }
        }
    },
}


class CronWorld(ApiFixture):
    """A server with one controller, and Jobs that end by hand."""

    async def add(self, **spec: Any) -> None:
        wanted = {"schedule": "* * * * *", "jobTemplate": TEMPLATE, **spec}
        await self.client.create(
            CRONJOB, {"metadata": {"name": "backup"}, "spec": wanted}, "default"
        )

    async def jobs(self) -> list[BatchJob]:
        return (await self.client.list(JOB)).items

    async def finish(self, job: BatchJob) -> None:
        now = timestamps.rfc3339(self.clock.now())
        status = {
            "startTime": now,
            "completionTime": now,
            "succeeded": 1,
            "conditions": [
                {"type": "SuccessCriteriaMet", "status": "True"},
                {"type": "Complete", "status": "True"},
            ],
        }
        await self.client.patch(
            JOB, job.metadata.name, "default", patch={"status": status}, subresource="status"
        )


@pytest.fixture
async def world(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[CronWorld]:
    async with opened(
        CronWorld(clock, rng, log, user=User("grange:admin", ("system:masters",)))
    ) as made:
        deps = made.new_deps()
        made.start(CronJobController(deps))
        made.nursery.start(deps.informers.run())
        yield made


async def test_jobs_are_created_at_their_times_and_pruned(world: CronWorld) -> None:
    await world.add(successfulJobsHistoryLimit=2)
    await world.settle(5)
    for minute in range(4):
        await world.settle(60)
        jobs = await world.jobs()
        assert len(jobs) == min(minute + 1, 3)
        await world.finish(max(jobs, key=lambda job: job.metadata.name))
    await world.settle(5)
    jobs = await world.jobs()
    assert len(jobs) == 2
    for job in jobs:
        assert job.metadata.labels == {"app": "backup"}
        assert job.metadata.annotations[SCHEDULED_ANNOTATION].endswith(":00Z")
    cron = await world.client.get(CRONJOB, "backup", "default")
    assert not cron.status.active
    assert cron.status.last_schedule_time
    assert cron.status.last_successful_time


async def test_a_job_is_created_once_for_a_time_over_restarts(
    world: CronWorld, clock: Clock, rng: Stream, log: Logger
) -> None:
    await world.add()
    others = [world.new_deps(), world.new_deps()]
    for deps in others:  # as if each had taken over without seeing what was done
        world.start(CronJobController(deps))
        world.nursery.start(deps.informers.run())
    await world.settle(61)
    assert len(await world.jobs()) == 1


async def test_a_name_of_another_object_is_reported(world: CronWorld) -> None:
    await world.add(schedule="0 0 * * *", suspend=True)
    due = timestamps.parse("2026-01-02T00:00:00Z")
    name = f"backup-{int(due.timestamp()) // 60}"
    taken = {"metadata": {"name": name}, "spec": TEMPLATE["spec"]}
    await world.client.create(JOB, taken, "default")
    patch = {"spec": {"suspend": False}}
    await world.client.patch(CRONJOB, "backup", "default", patch=patch)
    await world.settle(24 * 3600 + 5)
    events = (await world.client.list(EVENT)).items
    assert [event.reason for event in events if event.type == "Warning"] == ["FailedCreate"]


async def test_interval_of_seconds_makes_a_job_each_time(world: CronWorld) -> None:
    await world.add(schedule="@every 20s", successfulJobsHistoryLimit=9)
    await world.settle(65)
    jobs = await world.jobs()
    times = sorted(job.metadata.annotations[SCHEDULED_ANNOTATION] for job in jobs)
    pairs = pairwise(map(timestamps.parse, times))
    assert [(late - early).seconds for early, late in pairs] == [20, 20]


async def test_skipped_time_is_reported_once(world: CronWorld) -> None:
    await world.add(schedule="* * * * *", suspend=True, startingDeadlineSeconds=5)
    await world.settle(90)
    await world.client.patch(CRONJOB, "backup", "default", patch={"spec": {"suspend": False}})
    for number in range(4):  # whatever changes the CronJob makes another pass
        await world.settle(2)
        patch = {"metadata": {"labels": {"pass": str(number)}}}
        await world.client.patch(CRONJOB, "backup", "default", patch=patch)
    await world.settle(2)
    [missed] = [item for item in (await world.client.list(EVENT)).items if item.type == "Warning"]
    assert (missed.reason, missed.count) == ("MissSchedule", 1)
    assert await world.jobs() == []


async def test_time_that_waits_for_a_job_is_reported_once(world: CronWorld) -> None:
    await world.add(concurrencyPolicy="Forbid")
    await world.settle(121)
    for number in range(3):
        patch = {"metadata": {"labels": {"pass": str(number)}}}
        await world.client.patch(CRONJOB, "backup", "default", patch=patch)
        await world.settle(2)
    events = (await world.client.list(EVENT)).items
    assert [item.count for item in events if item.reason == "JobAlreadyActive"] == [1]
    await world.settle(60)
    events = (await world.client.list(EVENT)).items
    assert [item.count for item in events if item.reason == "JobAlreadyActive"] == [1, 1]


async def test_refused_job_is_reported_and_tried_again(world: CronWorld) -> None:
    def gate(request: Request) -> ApiError | None:
        if request.method == "POST" and request.path.endswith("/jobs"):
            return Forbidden("exceeded quota: jobs", kind="jobs", name="")
        return None

    world.gate = gate
    await world.add(schedule="*/10 * * * *")
    await world.settle(605)
    events = (await world.client.list(EVENT)).items
    assert {(item.type, item.reason) for item in events} == {("Warning", "FailedCreate")}
    assert "exceeded quota: jobs" in events[0].message
    world.gate = lambda request: None
    await world.settle(120)
    assert len(await world.jobs()) == 1


async def test_ending_namespace_gets_no_event_of_a_refused_job(world: CronWorld) -> None:
    ending = Forbidden("is being terminated", causes=[Cause(reason="NamespaceTerminating")])
    world.gate = lambda request: ending if request.path.endswith("/jobs") else None
    await world.add(schedule="*/10 * * * *")
    await world.settle(605)
    assert (await world.client.list(EVENT)).items == []


async def test_replaced_jobs_are_deleted_first(world: CronWorld) -> None:
    await world.add(concurrencyPolicy="Replace")
    await world.settle(61)
    [first] = await world.jobs()
    await world.settle(60)
    names = {job.metadata.name for job in await world.jobs() if not job.metadata.deletion_timestamp}
    assert len(names) == 1
    assert first.metadata.name not in names


async def test_job_of_a_user_is_not_replaced(world: CronWorld) -> None:
    await world.add(concurrencyPolicy="Replace")
    cron = await world.client.get(CRONJOB, "backup", "default")
    reference = msgspec.to_builtins(owners.owner_reference(CRONJOB, cron))
    annotations = {"cronjob.kubernetes.io/instantiate": "manual"}
    meta = {"name": "by-hand", "annotations": annotations, "ownerReferences": [reference]}
    await world.client.create(JOB, {"metadata": meta, "spec": TEMPLATE["spec"]}, "default")
    await world.settle(125)
    found = [job.metadata.name for job in await world.jobs() if not job.metadata.deletion_timestamp]
    assert "by-hand" in found
    assert len(found) == 2
    cron = await world.client.get(CRONJOB, "backup", "default")
    assert [item.name for item in cron.status.active] == [min(found)]  # backup-NUMBER
