"""The PodDisruptionBudget and the PodGroup of a job."""

import pytest
from tests.support.render_operator import TEMPLATE, render_world

from grange.api.kinds import PODDISRUPTIONBUDGET, PODGROUP
from grange.api.meta import controller_of
from grange.api.status import AlreadyExists
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.gangjob.controller_interface import JobControllerConfiguration


async def test_budget_follows_its_job(clock: Clock, rng: Stream, log: Logger) -> None:
    async with render_world(clock, rng, log, run=False) as world:
        job = await world.add_job(frames=4)
        made = await world.jobs.sync_pdb(job, 4)
        assert (made.spec.min_available, made.metadata.name) == (4, "film")
        assert made.spec.selector is not None
        assert made.spec.selector.match_labels == world.jobs.gen_labels("film")
        assert controller_of(made.metadata) == world.jobs.gen_owner_reference(job)
        world.requests.clear()
        assert await world.jobs.sync_pdb(job, 4) == made
        assert world.requests == [], "nothing has changed"
        assert (await world.jobs.sync_pdb(job, 3)).spec.min_available == 3
        assert await world.jobs.delete_pdb(job)
        assert not await world.jobs.delete_pdb(job)


async def test_budget_of_another_owner_is_left_alone(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with render_world(clock, rng, log, run=False) as world:
        job = await world.add_job()
        meta = {"name": "film", "namespace": "default"}
        theirs = await world.client.create(
            PODDISRUPTIONBUDGET, {"metadata": meta, "spec": {"minAvailable": 1}}
        )
        with pytest.raises(AlreadyExists, match="belongs to another owner; delete it or rename"):
            await world.jobs.sync_pdb(job, 2)
        assert not await world.jobs.delete_pdb(job)
        assert await world.client.get(PODDISRUPTIONBUDGET, "film", "default") == theirs


async def test_pod_group_takes_the_fields_of_its_spec(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    config = JobControllerConfiguration(enable_gang_scheduling=True)
    async with render_world(clock, rng, log, config, run=False) as world:
        job = await world.add_job(frames=2)
        await world.jobs.sync_pod_group(job, {"minMember": 2, "scheduleTimeoutSeconds": 9})
        group = await world.client.get(PODGROUP, "film", "default")
        assert (group.spec.min_member, group.spec.schedule_timeout_seconds) == (2, 9)
        await world.jobs.sync_pod_group(job, {"minMember": 3, "scheduleTimeoutSeconds": None})
        group = await world.client.get(PODGROUP, "film", "default")
        assert (group.spec.min_member, group.spec.schedule_timeout_seconds) == (3, None)
        pod = world.jobs.new_pod(job, "frame", 0, TEMPLATE)
        assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "film"
        assert pod["spec"]["schedulerName"] == "grange"
        assert await world.jobs.delete_pod_group(job)
