"""Which pods a job gets: checks 33 to 37, 61, 63, 69 and 71 of spec/jobs.md §5."""

from dataclasses import replace

import pytest
from tests.unit.gangjob.job_simulator import (
    JobSimulator,
    batch_job,
    gang_job,
    tf_job,
    workers,
)

from grange.controllers.gangjob.model import (
    Await,
    Creation,
    FailureAction,
    GangBackend,
    GangState,
    JobModel,
    RoleDependency,
    SchedulingPolicy,
    ServiceMode,
)


def creations(world: JobSimulator) -> list[tuple[str, int]]:
    return [(item.role, item.index) for item in world.plan().create]


def queued_job() -> JobModel:
    return gang_job(workers(2), scheduling=SchedulingPolicy(backend=GangBackend.VOLCANO, queue="a"))


# --- creating --------------------------------------------------------------------------------------


def test_check_33_every_index_gets_a_pod_and_a_service() -> None:
    world = JobSimulator(tf_job(worker=4, ps=2))
    plan = world.step()
    assert len(plan.create) == len(plan.create_services) == 6
    assert sorted(world.pods) == sorted(world.services)
    assert world.step().create == ()


def test_check_33_job_has_one_service_for_all_its_pods() -> None:
    assert JobSimulator(gang_job(workers(4))).plan().create_services == ("train",)
    model = gang_job(workers(4), services=ServiceMode.NONE)
    assert JobSimulator(model).plan().create_services == ()


def test_check_34_pending_pods_are_left_alone() -> None:
    world = JobSimulator(tf_job(worker=4, ps=2))
    world.step()
    world.step()
    assert world.condition("Running") == ""
    assert len(world.created) == 6
    world.run()
    world.step()
    assert world.condition("Running") == "True"
    assert world.status.start_time == "2026-01-01T00:00:00Z"
    assert world.role("Worker").active == world.role("Worker").ready == 4
    assert world.role("PS").active == 2


def test_check_35_missing_pods_are_created() -> None:
    world = JobSimulator(tf_job(worker=4, ps=2))
    world.add("worker", 0)
    world.add("worker", 1)
    world.add("ps", 0)
    assert creations(world) == [("PS", 1), ("Worker", 2), ("Worker", 3)]
    world.add("worker", 2)
    world.add("ps", 1)
    world.run("train-worker-0")
    assert creations(world) == [("Worker", 3)]
    world.step()
    assert world.condition("Running") == "True"


def test_check_36_one_complete_worker_does_not_end_the_job() -> None:
    world = JobSimulator(tf_job(worker=4)).started()
    world.end("train-worker-1")
    world.settle()
    assert world.role("Worker").succeeded == 1
    assert world.phase == "Running"
    assert creations(world) == []


def test_check_37_success_deletes_nothing_before_it_is_written() -> None:
    world = JobSimulator(tf_job(worker=2, ps=1)).started()
    world.end("train-worker-0", "train-worker-1")
    plan = world.step()
    assert world.phase == "Succeeded"
    assert not plan.delete
    assert not plan.delete_services
    assert plan.requeue_s == 0
    assert [item.pod.name for item in world.step().delete] == ["train-ps-0"]


def test_creation_waits_for_the_end_of_the_backoff() -> None:
    world = JobSimulator(gang_job(workers(2)), held={("worker", 1): 2.5})
    plan = world.plan()
    assert plan.create == (Creation("worker", 0, 0),)
    assert plan.requeue_s == 2.5


def test_creation_respects_parallelism() -> None:
    world = JobSimulator(batch_job(4, parallelism=2))
    assert creations(world) == [("", 0), ("", 1)]
    world.started()
    world.end("train--0")
    world.settle()
    assert sorted(world.pods) == ["train--0", "train--1", "train--2"]


def test_lower_parallelism_deletes_pods_without_a_charge() -> None:
    world = JobSimulator(batch_job(4, parallelism=3)).started()
    world.model = batch_job(4, parallelism=1)
    assert [item.pod.name for item in world.step().delete] == ["train--1", "train--2"]
    world.settle()
    assert list(world.pods) == ["train--0"]
    assert (world.status.restarts, world.status.uncharged_restarts) == (0, 0)
    assert (world.phase, world.role("").failed) == ("Running", 0)


def test_pods_that_stop_use_up_the_parallelism() -> None:
    model = batch_job(4, parallelism=2, default_action=FailureAction.RESTART_JOB)
    world = JobSimulator(model).started()
    world.fail("train--0")
    assert [item.index for item in world.step().create] == [2]
    assert creations(world) == []


# --- surplus and duplicates ------------------------------------------------------------------------


def test_check_61_scale_down_removes_the_highest_indexes() -> None:
    world = JobSimulator(gang_job(workers(3))).started()
    world.model = gang_job(workers(1))
    assert [item.pod.name for item in world.step().delete] == ["train-worker-1", "train-worker-2"]
    world.settle()
    assert list(world.pods) == ["train-worker-0"]
    assert (world.role().failed, world.status.restarts, world.phase) == (0, 0, "Running")


def test_check_61_scale_up_creates_the_next_indexes() -> None:
    world = JobSimulator(gang_job(workers(1))).started()
    uid = world.uid("train-worker-0")
    world.model = gang_job(workers(3))
    assert creations(world) == [("worker", 1), ("worker", 2)]
    world.started()
    assert world.uid("train-worker-0") == uid
    assert world.status.restarts == 0


def test_check_61_services_follow_the_scale() -> None:
    world = JobSimulator(tf_job(worker=3)).started()
    world.model = tf_job(worker=1)
    assert world.step().delete_services == ("train-worker-1", "train-worker-2")


def test_duplicate_of_an_index_is_deleted() -> None:
    world = JobSimulator(gang_job(workers(1)))
    world.add("worker", 0, name="b", phase="Running", ready=False, scheduled=True)
    world.add("worker", 0, name="a", phase="Running", ready=True, scheduled=True)
    world.add("worker", 0, name="c", phase="Running", ready=True, scheduled=True)
    assert sorted(item.pod.name for item in world.plan().delete) == ["b", "c"]


def test_pod_of_no_role_or_index_is_deleted() -> None:
    world = JobSimulator(gang_job(workers(1)))
    world.add("evaluator", 0)
    world.add("worker", -1, name="x")
    assert sorted(i.pod.name for i in world.plan().delete) == ["train-evaluator-0", "x"]


def test_late_pod_of_a_complete_index_is_deleted() -> None:
    world = JobSimulator(gang_job(workers(2))).started()
    world.end("train-worker-1")
    world.settle()
    world.delete("train-worker-1")
    world.settle()
    assert list(world.pods) == ["train-worker-0"]
    assert creations(world) == []
    world.add("worker", 1)
    assert [item.pod.name for item in world.plan().delete] == ["train-worker-1"]


# --- gang ------------------------------------------------------------------------------------------


def test_check_63_no_pod_before_the_gang_is_admitted() -> None:
    world = JobSimulator(queued_job(), gang=GangState(admitted=False))
    plan = world.step()
    assert plan.gang is True
    assert plan.create == ()
    world.gang = replace(world.gang, name="train-gang", reason="OverQuota", message="queue a: full")
    world.step()
    assert world.phase == "Queued"
    assert (world.reason("Queued"), world.message("Queued")) == ("OverQuota", "queue a: full")
    assert (world.status.pod_group, world.status.queue) == ("train-gang", "a")
    world.gang = GangState(exists=True, admitted=True)
    assert len(world.step().create) == 2
    assert (world.condition("Queued"), world.phase) == ("False", "Created")


def test_check_63_gang_is_removed_at_the_end_and_on_suspend() -> None:
    model = gang_job(workers(1), scheduling=SchedulingPolicy())
    world = JobSimulator(model).started()
    seen = [world.gang.exists]
    world.model = replace(model, suspend=True)
    world.settle()
    seen.append(world.gang.exists)
    world.model = model
    world.started()
    seen.append(world.gang.exists)
    world.end("train-worker-0")
    world.settle()
    seen.append(world.gang.exists)
    assert seen == [True, False, True, False]


def test_queued_pods_of_a_gang_make_the_job_queued() -> None:
    world = JobSimulator(gang_job(workers(1), scheduling=SchedulingPolicy()))
    world.gang = GangState(reason="NoRoom", message="2 of 3 fit")
    world.settle()
    assert world.phase == "Queued"
    world.run()
    world.gang = replace(world.gang, scheduled=True)
    world.settle()
    assert (world.phase, world.condition("Queued")) == ("Running", "False")


# --- attempts --------------------------------------------------------------------------------------


def test_check_69_pods_of_an_earlier_attempt_are_deleted() -> None:
    model = gang_job(workers(2), default_action=FailureAction.RESTART_JOB)
    world = JobSimulator(model).started()
    old = world.uid("train-worker-1")
    world.fail("train-worker-0")
    plan = world.step()
    assert len(plan.delete) == 2
    assert plan.create == ()
    world.settle()
    assert world.role().attempt == 1
    assert {pod.attempt for pod in world.pods.values()} == {1}
    assert world.uid("train-worker-1") != old


def test_check_69_names_are_free_before_a_replacement() -> None:
    world = JobSimulator(gang_job(workers(2), default_action=FailureAction.RESTART_JOB)).started()
    world.fail("train-worker-0")
    world.step()
    assert creations(world) == [("worker", 0)]
    world.model = replace(world.model, blocking_restart=True)
    assert creations(world) == []
    world.stop_deleted()
    assert creations(world) == [("worker", 0), ("worker", 1)]


# --- order of roles --------------------------------------------------------------------------------


def ordered(condition: Await) -> JobModel:
    dependency = RoleDependency("Driver", condition)
    driver = workers(1, name="driver")
    return gang_job(driver, workers(2, depends_on=(dependency,)), services=ServiceMode.POD)


def test_check_71_role_waits_until_another_is_ready() -> None:
    world = JobSimulator(ordered(Await.READY))
    world.step()
    assert list(world.pods) == ["train-driver-0"]
    world.run()
    assert creations(world) == [("worker", 0), ("worker", 1)]


def test_check_71_role_waits_until_another_is_complete() -> None:
    world = JobSimulator(ordered(Await.COMPLETE)).started()
    assert list(world.pods) == ["train-driver-0"]
    world.end("train-driver-0")
    world.settle()
    assert len(world.pods) == 3
    assert world.phase == "Running"


@pytest.mark.parametrize("condition", [Await.READY, Await.COMPLETE])
def test_job_fails_when_a_role_waits_in_vain(condition: Await) -> None:
    """All that it waits for has ended, and is not complete; nor does a third role start any more."""
    driver = workers(2, name="driver", backoff_limit_per_index=0)
    worker = workers(1, depends_on=(RoleDependency("driver", condition),))
    last = workers(1, name="last", depends_on=(RoleDependency("worker", condition),))
    job = gang_job(driver, worker, last, default_action=FailureAction.RESTART_POD)
    world = JobSimulator(replace(job, services=ServiceMode.POD))
    world.step()
    world.fail("train-driver-0")
    world.end("train-driver-1")
    world.settle()
    assert (world.phase, world.reason("Failed")) == ("Failed", "FailedIndexes")
    assert "driver: 1; what waits for them never starts: worker, last" in world.message("Failed")


def test_job_that_waits_for_a_server_given_up_fails() -> None:
    """The other server does not end, and the role that waits for both to be ready never starts."""
    server = workers(2, name="server", backoff_limit_per_index=0, completes=False)
    worker = workers(1, depends_on=(RoleDependency("server", Await.READY),))
    job = gang_job(server, worker, default_action=FailureAction.RESTART_POD)
    world = JobSimulator(replace(job, services=ServiceMode.POD))
    world.step()
    world.run("train-server-0")
    world.fail("train-server-1")
    world.settle()
    assert (world.phase, world.reason("Failed")) == ("Failed", "FailedIndexes")
    assert "server: 1; what waits for them never starts: worker" in world.message("Failed")


def test_check_71_started_role_does_not_wait_again() -> None:
    world = JobSimulator(ordered(Await.READY)).started()
    world.disrupt("train-driver-0")
    world.disrupt("train-worker-1")
    world.step()
    assert creations(world) == [("driver", 0), ("worker", 1)]


def test_check_71_resume_replays_the_order() -> None:
    model = ordered(Await.READY)
    world = JobSimulator(model).started()
    world.model = replace(model, suspend=True)
    world.settle()
    world.model = model
    world.step()
    assert list(world.pods) == ["train-driver-0"]
