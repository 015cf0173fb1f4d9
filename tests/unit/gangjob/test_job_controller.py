"""The library of operators: what it creates, what wakes a job, and what a job waits for."""

from typing import Any

import pytest
from msgspec import structs
from tests.support.render_operator import RENDERJOB, RenderWorld, render_world

from grange.api.kinds import POD, SERVICE
from grange.api.meta import Condition, Document, controller_of
from grange.api.scheme import AnyKind, KindInfo
from grange.api.status import InternalError
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.gangjob.controller_interface import JobControllerConfiguration
from grange.controllers.gangjob.job_controller import CachesNotSynced
from grange.reconcile.owner_handler import DeletedFinalStateUnknown
from grange.sim.api_fixture import opened

# --- create path ------------------------------------------------------------------------------


async def test_check_33_each_replica_gets_a_pod_and_a_service(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with render_world(clock, rng, log) as world:
        job = await world.add_job(frames=4, servers=2)
        await world.settle()
        names = [f"film-frame-{i}" for i in range(4)] + [f"film-server-{i}" for i in range(2)]
        assert await world.pods() == await world.services() == names
        kinds: tuple[AnyKind, ...] = (POD, SERVICE)
        for kind in kinds:
            for obj in (await world.client.list(kind, labels="example.com/job=film")).items:
                assert controller_of(obj.metadata) == world.jobs.gen_owner_reference(job)
        assert len(await world.events("SuccessfulCreatePod")) == 6
        assert len(await world.events("SuccessfulCreateService")) == 6


async def test_check_4_owner_reference_is_complete(clock: Clock, rng: Stream, log: Logger) -> None:
    async with render_world(clock, rng, log, run=False) as world:
        job = await world.add_job()
        reference = world.jobs.gen_owner_reference(job)
        assert (reference.api_version, reference.kind) == ("example.com/v1", "RenderJob")
        assert (reference.name, reference.uid) == ("film", job.metadata.uid)
        assert (reference.controller, reference.block_owner_deletion) == (True, True)


async def test_check_38_labels_of_the_replica_override_the_template(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with render_world(clock, rng, log, run=False) as world:
        job = await world.add_job()
        template: Document = {
            "metadata": {
                "labels": {"team": "film", "example.com/role": "x"},
                "annotations": {"a": "b"},
            },
            "spec": {"containers": [{"name": "main"}]},
        }
        pod = world.jobs.new_pod(job, "Frame", 3, template, leader=True)
        assert pod["metadata"]["name"] == "film-frame-3"
        assert pod["metadata"]["annotations"] == {"a": "b"}
        assert pod["metadata"]["labels"] == {
            "team": "film",
            "example.com/operator": "render",
            "example.com/job": "film",
            "example.com/role": "frame",
            "example.com/index": "3",
            "grange.dev/job-role": "master",
        }
        service = world.jobs.new_service(job, "Frame", 3, [])
        assert service["metadata"]["name"] == "film-frame-3"
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        assert "grange.dev/job-role" not in service["spec"]["selector"]
        assert (service["spec"]["clusterIP"], pod["spec"]) == ("None", template["spec"])


async def test_check_6_7_methods_filter_and_slice_both_kinds(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with render_world(clock, rng, log) as world:
        job = await world.add_job(frames=3, servers=1)
        await world.settle()
        pods = await world.jobs.get_pods_for_job(job)
        services = await world.jobs.get_services_for_job(job)
        frames = world.jobs.filter_pods_for_replica_type(pods, "Frame")
        assert len(world.jobs.filter_services_for_replica_type(services, "Server")) == 1
        assert [len(found) for found in world.jobs.get_pod_slices(frames, 2)] == [1, 1, 1]
        assert len(world.jobs.get_pod_slices(frames, 2, overflow=False)) == 2
        named = world.jobs.filter_services_for_replica_type(services, "Frame")
        assert [len(found) for found in world.jobs.get_service_slices(named, 4)] == [1, 1, 1, 0]


# --- one object for each index -------------------------------------------------------------------


async def test_duplicates_of_an_index_are_deleted_but_the_best(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with render_world(clock, rng, log, run=False) as world:
        job = await world.add_job(frames=2)
        await world.add(POD, "older", job)
        await clock.sleep(2)
        ready = await world.add(POD, "ready", job)
        conditions = [{"type": "Ready", "status": "True"}]
        patch = {"status": {"phase": "Running", "conditions": conditions}}
        await world.client.patch(POD, "ready", "default", patch=patch, subresource="status")
        await world.add(POD, "beyond", job, index="2")
        await world.add(POD, "unnumbered", job, index="x")
        await world.add(SERVICE, "old", job)
        await clock.sleep(2)
        await world.add(SERVICE, "young", job)
        world.start(world.jobs)
        await world.settle()
        assert await world.pods() == ["film-frame-1", "ready"]
        assert await world.services() == ["film-frame-1", "old"]
        live = await world.client.get(POD, "ready", "default")
        assert live.metadata.uid == ready.metadata.uid
        messages = [event.message for event in await world.events("SuccessfulDeletePod")]
        assert sorted(messages) == [
            "deleted beyond: index 2 is not below the 2 replicas",
            "deleted older: another object has index 0",
            "deleted unnumbered: metadata.labels[example.com/index] of default/unnumbered: "
            "'x' is not a decimal number",
        ]


async def test_relabelled_replica_gives_its_name_back(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Labelled as index 0, the pod of index 1 would hold a name that index 1 needs."""
    async with render_world(clock, rng, log) as world:
        await world.add_job(frames=2)
        await world.settle()
        await world.client.delete(POD, "film-frame-0", "default", grace_period_s=0)
        patch = {"metadata": {"labels": {"example.com/index": "0"}}}
        await world.client.patch(POD, "film-frame-1", "default", patch=patch)
        await world.settle()
        for index in (0, 1):
            pod = await world.client.get(POD, f"film-frame-{index}", "default")
            assert pod.metadata.labels["example.com/index"] == str(index)


async def test_fewer_replicas_delete_the_highest_indexes(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with render_world(clock, rng, log) as world:
        await world.add_job(frames=3)
        await world.settle()
        patch = {"spec": {"frames": 1}}
        await world.client.patch(RENDERJOB, "film", "default", patch=patch)
        await world.settle()
        assert await world.pods() == await world.services() == ["film-frame-0"]


async def test_pod_being_deleted_keeps_its_index(clock: Clock, rng: Stream, log: Logger) -> None:
    """Its name is not free: a second pod of the index would run as well."""
    async with render_world(clock, rng, log, run=False) as world:
        job = await world.add_job()
        await world.add(POD, "film-frame-0", job, finalizers=("example.com/hold",))
        await world.client.delete(POD, "film-frame-0", "default", grace_period_s=0)
        world.start(world.jobs)
        await world.settle()
        assert await world.pods() == ["film-frame-0"]
        assert world.creations("/pods") == 0
        patch = {"metadata": {"finalizers": None}}
        await world.client.patch(POD, "film-frame-0", "default", patch=patch)
        await world.settle()
        assert await world.pods() == ["film-frame-0"]
        assert world.creations("/pods") == 1


# --- what wakes a job --------------------------------------------------------------------------


async def test_check_21_pod_that_changes_hands_wakes_both_jobs(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with render_world(clock, rng, log) as world:
        job, other = await world.add_job(frames=0), await world.add_job("other", frames=0)
        pod = await world.add(POD, "a", job)
        await world.settle()
        world.operator.passes.clear()
        reference = world.jobs.gen_owner_reference(other)
        moved = structs.replace(pod.metadata, owner_references=(reference,), resource_version="x")
        world.jobs.update_pod(pod, pod)
        world.jobs.update_pod(pod, structs.replace(pod, metadata=moved))
        await world.settle(0.5)
        assert sorted(world.operator.passes) == ["film", "other"]


@pytest.mark.parametrize("kind", [POD, SERVICE], ids=["pods", "services"])
async def test_check_23_lost_object_is_replaced(
    clock: Clock, rng: Stream, log: Logger, kind: KindInfo[Any]
) -> None:
    async with render_world(clock, rng, log) as world:
        await world.add_job(frames=2)
        await world.settle()
        lost = await world.client.get(kind, "film-frame-1", "default")
        await world.client.delete(kind, "film-frame-1", "default", grace_period_s=0)
        await world.settle(1)
        found = await world.client.get(kind, "film-frame-1", "default")
        assert found.metadata.uid != lost.metadata.uid


async def test_check_22_tombstones_settle_expectations_and_wake(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """An operator that watches by other means hands over what it has."""
    async with render_world(clock, rng, log, run=False) as world:
        job = await world.add_job()
        uid = job.metadata.uid
        pod, service = await world.add(POD, "a", job), await world.add(SERVICE, "a", job)
        await world.settle()
        world.jobs.expectations.expect_deletions(uid, {pod.metadata.uid: "a"}, kind="pods")
        world.jobs.expectations.expect_deletions(uid, {service.metadata.uid: "a"}, kind="services")
        world.jobs.delete_pod(DeletedFinalStateUnknown(pod.key))
        world.jobs.delete_service(DeletedFinalStateUnknown(service.key))
        assert not world.jobs.expectations.satisfied(uid)
        world.jobs.delete_pod(DeletedFinalStateUnknown(pod.key, pod))
        assert not world.jobs.expectations.satisfied(uid)
        world.jobs.delete_service(DeletedFinalStateUnknown(service.key, service))
        assert world.jobs.expectations.satisfied(uid)
        assert len(world.jobs.loop.queue) == 1


async def test_check_24_invalid_job_fails_and_gets_no_pods(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with render_world(clock, rng, log) as world:
        await world.add_job(frames=-1)
        await world.settle(60)
        job = await world.client.get(RENDERJOB, "film", "default")
        (failed,) = job.status.conditions
        assert (failed.type, failed.status, failed.reason) == ("Failed", "True", "InvalidJobSpec")
        assert failed.message == "spec.frames: -1 is less than 0; give a number of frames"
        (event,) = await world.events("InvalidJobSpec")
        assert (event.type, event.count) == ("Warning", 1)
        assert (await world.pods(), world.operator.passes) == ([], ["film"])


async def test_check_24_finished_job_keeps_its_outcome(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with render_world(clock, rng, log, run=False) as world:
        await world.add_job(frames=-1)
        since = "2026-01-01T00:00:00Z"
        done = [
            {
                "message": "all",
                "type": "Succeeded",
                "status": "True",
                "reason": "Done",
                "lastTransitionTime": since,
            }
        ]
        patch = {"status": {"conditions": done}}
        await world.client.patch(RENDERJOB, "film", "default", patch=patch, subresource="status")
        world.start(world.jobs)
        await world.settle()
        job = await world.client.get(RENDERJOB, "film", "default")
        assert [item.type for item in job.status.conditions] == ["Succeeded"]


async def test_deleted_job_is_finalized_not_reconciled(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with render_world(clock, rng, log, run=False) as world:
        await world.add_job()
        patch = {"metadata": {"finalizers": ["example.com/hold"]}}
        await world.client.patch(RENDERJOB, "film", "default", patch=patch)
        await world.client.delete(RENDERJOB, "film", "default")
        world.start(world.jobs)
        await world.settle()
        assert (world.operator.passes, await world.pods()) == ([], [])


# --- status, timers, run -----------------------------------------------------------------------


async def test_pass_waits_for_the_echo_of_its_status(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with render_world(clock, rng, log) as world:
        job = await world.add_job(frames=0)
        await world.settle()
        world.operator.passes.clear()
        job = await world.client.get(RENDERJOB, "film", "default")
        world.held_watches.add("/apis/example.com/v1/renderjobs")
        await world.jobs.update_job_status(job, {"succeeded": 1})
        world.jobs.loop.enqueue(job.key)
        await world.settle(2)
        assert world.operator.passes == []
        world.held_watches.clear()
        await world.settle(1)
        assert world.operator.passes == ["film"]
        known = world.jobs.get_job_from_informer_cache("default", "film")
        live = await world.jobs.get_job_from_api_client("default", "film")
        assert known == live
        assert live.status.succeeded == 1


async def test_status_that_is_there_is_not_written_again(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with render_world(clock, rng, log, run=False) as world:
        job = await world.add_job(frames=0)
        done = Condition(type="Succeeded", status="True", reason="Done", message="all")
        for _ in range(2):
            conditions = world.jobs.updated_conditions(job.status.conditions, done)
            job = await world.jobs.update_job_status(
                job, {"succeeded": 1, "conditions": conditions}
            )
            await clock.sleep(5)
        assert len(world.requests) == 1
        (found,) = job.status.conditions
        assert (found.type, found.reason, job.status.succeeded) == ("Succeeded", "Done", 1)


async def test_sync_loop_period_repeats_passes(clock: Clock, rng: Stream, log: Logger) -> None:
    config = JobControllerConfiguration(reconciler_sync_loop_period_s=15)
    async with render_world(clock, rng, log, config) as world:
        await world.add_job(frames=0)
        await world.settle(46)
        assert len(world.operator.passes) == 4


async def test_check_32_shut_down_ends_run_after_what_is_queued(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with render_world(clock, rng, log, run=False) as world:
        await world.add_job(frames=0)
        await world.settle()
        (running,) = world.start(world.jobs)
        world.jobs.shut_down()
        await world.settle()
        assert running.done()
        running.result()
        assert world.operator.passes == ["film"]


async def test_check_32_caches_that_never_sync_are_an_error(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    config = JobControllerConfiguration(cache_sync_timeout_s=30)
    fixture = RenderWorld(clock, rng, log, config)
    async with opened(fixture) as world:
        world.gate = lambda request: (
            InternalError("no") if request.path.endswith("/services") else None
        )
        world.nursery.start(world.deps.informers.run())
        with pytest.raises(CachesNotSynced, match=r"no complete list of services after 30 s"):
            await world.jobs.run()
        assert clock.monotonic() == 30
