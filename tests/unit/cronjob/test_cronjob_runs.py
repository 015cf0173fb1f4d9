"""A CronJob and the Job that it makes, with both controllers and pods that run."""

import pytest
from tests.support.job_world import job_world, template

from grange.api.kinds import CRONJOB, JOB
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.cronjob.controller import SCHEDULED_ANNOTATION, CronJobController
from grange.controllers.gangjob.adapters.batchjob import BATCHJOB_ADAPTER
from grange.controllers.gangjob.controller import JobService


@pytest.mark.parametrize(
    ("zone", "schedule"), [("Europe/Berlin", "1 1 * * *"), ("Asia/Kolkata", "31 5 * * *")]
)
async def test_job_of_a_time_zone_runs_to_its_end(
    clock: Clock, rng: Stream, log: Logger, zone: str, schedule: str
) -> None:
    async with job_world(clock, rng, log) as world:
        world.start(CronJobController(world.deps), JobService(world.deps, BATCHJOB_ADAPTER))
        world.nursery.start(world.deps.informers.run())
        job = {"spec": {"completions": 1, "template": template(restartPolicy="Never")}}
        spec = {"schedule": schedule, "timeZone": zone, "jobTemplate": job}
        document = {"metadata": {"name": "report"}, "spec": spec}
        await world.client.create(CRONJOB, document, "default")

        await world.settle(59)  # the worlds of tests begin with 2026 in UTC
        assert await world.pods() == {}
        await world.settle(2)
        [made] = (await world.client.list(JOB, "default")).items
        assert made.metadata.annotations[SCHEDULED_ANNOTATION] == "2026-01-01T00:01:00Z"
        assert (await world.client.get(CRONJOB, "report", "default")).status.active
        [(name, pod)] = (await world.pods()).items()
        assert pod.status.phase == "Running"
        await world.finish(name)

        async def noted() -> bool:
            status = (await world.client.get(CRONJOB, "report", "default")).status
            return bool(status.last_successful_time) and not status.active

        await world.until(noted)
        ended = await world.client.get(JOB, made.metadata.name, "default")
        true = {item.type for item in ended.status.conditions if item.status == "True"}
        assert true == {"SuccessCriteriaMet", "Complete"}
