"""What ends a job and what it leaves behind: checks 48, 58 to 60, 64, 65 and 70 of spec/jobs.md §5."""

from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec.structs import replace as with_fields
from tests.unit.gangjob.job_simulator import (
    JobSimulator,
    batch_job,
    gang_job,
    tf_job,
    workers,
)

from grange.api import timestamps
from grange.controllers.gangjob import logic
from grange.controllers.gangjob.model import CleanPodPolicy, JobModel, JobPlan, SuccessRule

ALL, RUNNING, NONE = CleanPodPolicy.ALL, CleanPodPolicy.RUNNING, CleanPodPolicy.NONE


def finished(model: JobModel, *, complete: bool = False) -> JobSimulator:
    """A job that has just succeeded: by worker 0 alone, or with all its pods complete."""
    world = JobSimulator(model).started()
    world.end(*(world.pods if complete else ["train-worker-0"]))
    world.step()
    assert world.phase == "Succeeded"
    return world


# --- deadline ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 2])
def test_check_48_job_ends_at_its_active_deadline(limit: int) -> None:
    world = JobSimulator(tf_job(worker=4, ps=2, active_deadline_s=limit))
    plan = world.step()
    if limit:
        assert (world.phase, plan.requeue_s) == ("Created", 2.0)
        world.forward(2)
        world.step()
    assert (world.phase, world.reason("Failed")) == ("Failed", "DeadlineExceeded")
    assert len(world.step().delete) == (6 if limit else 0)


def test_check_48_job_without_a_deadline_runs_on() -> None:
    world = JobSimulator(tf_job(worker=4)).started()
    world.forward(1e9)
    plan = world.step()
    assert (plan.delete, plan.requeue_s, world.phase) == ((), None, "Running")


def test_deadline_does_not_count_suspension() -> None:
    model = gang_job(workers(1), active_deadline_s=10)
    world = JobSimulator(model).started()
    world.forward(9)
    world.model = replace(model, suspend=True)
    world.settle()
    world.forward(100)
    world.model = model
    assert world.step().requeue_s == 10
    assert world.phase == "Created"


# --- clean-up ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "left"), [(ALL, 0), (RUNNING, 1), (NONE, 6)])
def test_check_58_running_pods_are_cleaned_by_policy(policy: CleanPodPolicy, left: int) -> None:
    world = finished(tf_job(worker=4, ps=2, clean_pod_policy=policy))
    plan = world.step()
    assert len(plan.delete) == len(plan.delete_services) == 6 - left
    world.settle()
    assert len(world.pods) == len(world.services) == left
    assert not any(pod.tracked for pod in world.pods.values())


@pytest.mark.parametrize(("policy", "left"), [(ALL, 0), (RUNNING, 6), (NONE, 6)])
def test_check_58_complete_pods_are_cleaned_by_policy(policy: CleanPodPolicy, left: int) -> None:
    world = finished(tf_job(worker=4, ps=2, clean_pod_policy=policy), complete=True)
    world.settle()
    assert len(world.pods) == len(world.services) == left


@pytest.mark.parametrize(("policy", "left"), [(ALL, 0), (RUNNING, 1), (NONE, 4)])
def test_check_58_pods_that_wait_count_as_running(policy: CleanPodPolicy, left: int) -> None:
    world = JobSimulator(tf_job(worker=4, clean_pod_policy=policy))
    world.step()
    world.run("train-worker-0")
    world.end("train-worker-0")
    world.settle()
    assert (world.phase, len(world.pods)) == ("Succeeded", left)


@pytest.mark.parametrize(("policy", "active"), [(ALL, 0), (RUNNING, 0), (NONE, 3)])
def test_end_counts_active_pods_that_stay(policy: CleanPodPolicy, active: int) -> None:
    world = JobSimulator(gang_job(workers(4), clean_pod_policy=policy)).started()
    world.fail("train-worker-0")
    plan = world.step()
    assert (world.phase, plan.delete) == ("Failed", ())
    assert (world.role().active, world.role().ready) == (active, active)
    writes = world.status_writes
    world.settle()
    assert world.status_writes == writes
    world.end(*(name for name in world.pods if name != "train-worker-0"))
    world.settle()
    assert world.role().active == 0


def test_pending_pods_are_cleaned_as_running_ones() -> None:
    world = JobSimulator(tf_job(worker=2))
    world.step()
    world.run("train-worker-0")
    world.end("train-worker-0")
    world.settle()
    assert list(world.pods) == ["train-worker-0"]


def test_services_without_pods_do_not_stay() -> None:
    world = finished(tf_job(worker=2, clean_pod_policy=NONE))
    world.pods.clear()
    assert world.step().delete_services == ("train-worker-0", "train-worker-1")


def test_service_of_a_job_stays_with_its_pods() -> None:
    model = gang_job(workers(2), success=(SuccessRule(any_of=True),))
    assert finished(model).step().delete_services == ()
    assert finished(replace(model, clean_pod_policy=ALL)).step().delete_services == ("train",)


def test_late_pod_of_a_finished_job_does_not_stay() -> None:
    world = finished(tf_job(worker=2, clean_pod_policy=NONE))
    world.forward(5)
    world.add("worker", 2)
    assert [item.pod.name for item in world.step().delete] == ["train-worker-2"]


def test_check_59_suspension_ignores_the_clean_policy() -> None:
    model = tf_job(worker=2, clean_pod_policy=NONE)
    world = JobSimulator(model).started()
    world.model = replace(model, suspend=True)
    world.settle()
    assert (world.pods, world.services) == ({}, set())
    waiting = JobSimulator(model)
    waiting.step()
    assert {pod.phase for pod in waiting.pods.values()} == {"Pending"}
    waiting.model = replace(model, suspend=True)
    waiting.settle()
    assert waiting.pods == {}
    ended = finished(model)
    ended.model = replace(model, suspend=True)
    ended.settle()
    assert len(ended.pods) == 2
    assert ended.condition("Suspended") == ""


# --- time to live ------------------------------------------------------------------------------------


def test_check_60_job_without_a_time_to_live_stays() -> None:
    world = finished(tf_job(worker=1))
    world.forward(1e9)
    world.settle()
    assert not world.job_deleted


def test_check_60_job_is_deleted_when_its_time_is_over() -> None:
    world = finished(tf_job(worker=1, ttl_s=10))
    world.forward(4)
    plan = world.step()
    assert (plan.delete_job, plan.requeue_s) == (False, 6.0)
    world.forward(6)
    assert world.plan().delete_job
    assert finished(tf_job(worker=1, ttl_s=0)).plan().delete_job


def test_check_60_completion_in_the_future_defers_the_deletion() -> None:
    world = finished(tf_job(worker=1, ttl_s=10))
    later = timestamps.rfc3339(world.now + timedelta(seconds=100))
    world.status = with_fields(world.status, completion_time=later)
    assert (world.plan().delete_job, world.plan().requeue_s) == (False, 110)


def test_check_60_missing_completion_time_is_completed() -> None:
    world = finished(tf_job(worker=1, ttl_s=10))
    end = world.status.completion_time
    world.status = with_fields(world.status, completion_time="")
    assert not world.step().delete_job
    assert world.status.completion_time == end


# --- suspension --------------------------------------------------------------------------------------


def test_check_64_job_created_suspended_has_no_pods() -> None:
    world = JobSimulator(tf_job(worker=2, suspend=True))
    plan = world.step()
    assert (plan.create, plan.create_services, world.status.start_time) == ((), (), "")
    assert (world.phase, world.reason("Suspended")) == ("Suspended", "TFJobSuspended")
    assert not world.step().events


def test_check_64_suspension_and_resumption_of_a_running_job() -> None:
    model = tf_job(worker=2)
    world = JobSimulator(model).started()
    started = world.status.start_time
    world.model = replace(model, suspend=True)
    plan = world.step()
    assert len(plan.delete) == len(plan.delete_services) == 2
    assert world.role("Worker").active == 0
    assert (world.condition("Running"), world.condition("Suspended")) == ("False", "True")
    world.settle()
    world.forward(60)
    world.model = model
    world.step()
    assert (world.condition("Suspended"), world.reason("Suspended")) == ("False", "TFJobResumed")
    assert world.status.start_time > started
    world.started()
    assert (world.phase, len(world.pods)) == ("Running", 2)
    assert (world.status.restarts, world.status.uncharged_restarts) == (0, 0)


def test_resumption_waits_for_pods_that_stop() -> None:
    model = tf_job(worker=2)
    world = JobSimulator(model).started()
    world.model = replace(model, suspend=True)
    world.step()
    world.model = model
    world.step()
    assert world.plan().create == ()
    world.stop_deleted()
    world.started()
    assert (world.phase, world.role("Worker").failed) == ("Running", 0)
    assert world.role("Worker").attempt == 1


def test_complete_indexes_stay_complete_over_a_suspension() -> None:
    model = batch_job(2)
    world = JobSimulator(model).started()
    world.end("train--0")
    world.settle()
    world.model = replace(model, suspend=True)
    world.settle()
    world.model = model
    world.started()
    assert list(world.pods) == ["train--1"]


# --- deletion ----------------------------------------------------------------------------------------


def test_deleted_job_with_a_refused_spec_lets_go_of_its_pods() -> None:
    """Else a deletion in the foreground never ends."""
    world = JobSimulator(tf_job(worker=2)).started()
    world.model = replace(world.model, roles=(), deleting=True)
    plan = logic.reject(world.inputs(), "spec.tfReplicaSpecs: is empty")
    assert (len(plan.release), plan.status, plan.gang) == (2, world.status, False)


def test_deleted_job_lets_go_of_its_pods() -> None:
    world = JobSimulator(tf_job(worker=2)).started()
    world.model = replace(world.model, deleting=True)
    plan = world.plan()
    assert len(plan.release) == 2
    assert (plan.status, plan.create, plan.delete) == (world.status, (), ())


# --- success policy and writes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "done"),
    [
        (SuccessRule(any_of=True), (2,)),
        (SuccessRule(count=2), (1, 3)),
        (SuccessRule(indexes=frozenset({1, 2})), (1, 2)),
        (SuccessRule(roles=frozenset({"worker"})), (0, 1, 2, 3)),
        (SuccessRule(any_of=True, indexes=frozenset({1, 2})), (2,)),
    ],
)
def test_check_70_success_rules(rule: SuccessRule, done: tuple[int, ...]) -> None:
    world = JobSimulator(gang_job(workers(4), success=(rule,))).started()
    for index in done[:-1]:
        world.end(f"train-worker-{index}")
        world.settle()
        assert world.phase == "Running"
    world.end(f"train-worker-{done[-1]}")
    world.step()
    assert world.phase == "Succeeded"


def test_check_70_success_precedes_a_failure_of_the_same_pass() -> None:
    world = JobSimulator(gang_job(workers(2), success=(SuccessRule(any_of=True),))).started()
    world.fail("train-worker-0")
    world.end("train-worker-1")
    world.step()
    assert world.phase == "Succeeded"
    assert world.role().failed == 1


def test_draining_job_waits_for_its_last_pods() -> None:
    rule = SuccessRule(any_of=True, drain=True)
    world = JobSimulator(batch_job(3, success=(rule,), backoff_limit=0)).started()
    world.end("train--0")
    world.settle()
    assert world.phase == "Running"
    world.fail("train--1")
    world.settle()
    assert (world.phase, world.plan().create) == ("Running", ())
    world.end("train--2")
    world.step()
    assert world.phase == "Succeeded"


def test_check_70_finished_job_deletes_active_pods() -> None:
    model = gang_job(workers(4), success=(SuccessRule(any_of=True),))
    world = finished(model)
    world.settle()
    assert list(world.pods) == ["train-worker-0"]


def test_check_70_pass_without_change_writes_nothing() -> None:
    world = JobSimulator(tf_job(worker=4, ps=2)).started()
    writes, events = world.status_writes, len(world.events)
    for _ in range(3):
        world.step()
    assert (world.status_writes, len(world.events)) == (writes, events)


def test_check_70_events_follow_the_status() -> None:
    world = JobSimulator(tf_job(worker=1)).started()
    world.end("train-worker-0")
    world.step(limit=0)
    assert "TFJobSucceeded" not in [event.reason for event in world.events]
    world.settle()
    reasons = [event.reason for event in world.events]
    assert reasons == ["TFJobCreated", "TFJobRunning", "TFJobSucceeded"]


def test_check_24_invalid_spec_fails_the_job_once() -> None:
    world = JobSimulator(replace(tf_job(), roles=()))
    plan = logic.reject(world.inputs(), "spec.tfReplicaSpecs: is empty")
    assert plan.status.phase == "Failed"
    assert [event.reason for event in plan.events] == ["TFJobCreated", "InvalidJobSpec"]
    world.status = plan.status
    again = logic.reject(world.inputs(), "spec.tfReplicaSpecs: is empty")
    assert again == JobPlan(plan.status, gang=False)
