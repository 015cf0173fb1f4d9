"""From pods to conditions: checks 50 to 57 of spec/jobs.md §5, on TFJobs as their adapter sets them."""

from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.gangjob.job_simulator import START, JobSimulator, gang_job, tf_job, workers

from grange.api import conditions
from grange.api.job_status import JobStatus
from grange.api.meta import Condition
from grange.controllers.gangjob import job_conditions, job_counts, job_members, success_policy
from grange.controllers.gangjob.model import JobModel, RestartPolicy
from grange.controllers.gangjob.plan_draft import PlanDraft


@dataclass(frozen=True)
class Pods:
    """How many pods of a role are in each state, the lowest indexes first."""

    succeeded: int = 0
    failed: int = 0
    active: int = 0
    first: int = 0  # the lowest index; the indexes below it are active
    code: int = 1

    @property
    def total(self) -> int:
        return self.first + self.succeeded + self.failed + self.active


NONE = Pods()


def world_of(
    worker: Pods = NONE, chief: Pods = NONE, ps: Pods = NONE, **fields: Any
) -> JobSimulator:
    """A job whose pods ran, and now are as given."""
    model = tf_job(worker.total, ps.total, chief.total, **fields)
    world = JobSimulator(model).started()
    for role, pods in (("worker", worker), ("chief", chief), ("ps", ps)):
        names = [f"train-{role}-{index}" for index in range(pods.first, pods.total)]
        world.end(*names[: pods.succeeded])
        world.fail(*names[pods.succeeded : pods.succeeded + pods.failed], code=pods.code)
    world.step()
    return world


ONE_OK, ONE_FAILED, ONE_ACTIVE = Pods(succeeded=1), Pods(failed=1), Pods(active=1)


@pytest.mark.parametrize(
    ("chief", "phase"),
    [(ONE_OK, "Succeeded"), (ONE_ACTIVE, "Running"), (ONE_FAILED, "Failed")],
)
def test_check_50_chief_decides(chief: Pods, phase: str) -> None:
    assert world_of(chief=chief).phase == phase
    assert world_of(chief=chief, worker=Pods(active=4)).phase == phase


@pytest.mark.parametrize(
    ("worker", "phase"),
    [
        (ONE_FAILED, "Failed"),
        (ONE_OK, "Succeeded"),
        (ONE_ACTIVE, "Running"),
        (Pods(succeeded=2, first=2), "Running"),
        (Pods(failed=2, first=2), "Failed"),
        (Pods(succeeded=1, failed=2, first=1), "Failed"),
        (Pods(succeeded=1, active=3), "Succeeded"),
    ],
)
def test_check_51_without_a_chief_workers_decide(worker: Pods, phase: str) -> None:
    assert world_of(worker=worker).phase == phase


def test_check_51_two_complete_and_two_failed_workers_fail() -> None:
    world = JobSimulator(tf_job(worker=4)).started()
    world.end("train-worker-2", "train-worker-3")
    world.settle()
    world.fail("train-worker-0", "train-worker-1")
    world.step()
    assert world.phase == "Failed"


@pytest.mark.parametrize(
    ("worker", "phase"),
    [
        (Pods(succeeded=1, active=3), "Running"),
        (Pods(succeeded=4), "Succeeded"),
        (Pods(succeeded=1, failed=1, active=2), "Failed"),
    ],
)
def test_check_52_all_workers_have_to_complete(worker: Pods, phase: str) -> None:
    assert world_of(worker=worker, all_workers=True).phase == phase


@pytest.mark.parametrize(
    ("chief", "worker", "ps", "phase"),
    [
        (ONE_ACTIVE, Pods(failed=4), NONE, "Failed"),
        (ONE_ACTIVE, Pods(succeeded=4), NONE, "Running"),
        (ONE_ACTIVE, Pods(active=4), Pods(failed=1, active=1), "Failed"),
        (ONE_FAILED, Pods(succeeded=4), NONE, "Failed"),
        (ONE_OK, Pods(failed=4), NONE, "Succeeded"),
    ],
)
def test_check_53_chief_and_workers(chief: Pods, worker: Pods, ps: Pods, phase: str) -> None:
    world = world_of(chief=chief, worker=worker, ps=ps)
    assert world.phase == phase
    assert world.condition("Running") in ("True", "False")


def test_check_53_chief_that_may_be_retried_restarts() -> None:
    chief = Pods(failed=1, code=137)
    world = world_of(chief=chief, worker=Pods(active=4), policy=RestartPolicy.EXIT_CODE)
    assert world.phase == "Restarting"


def types(world: JobSimulator) -> list[tuple[str, str]]:
    return [(item.type, item.status) for item in world.status.conditions]


def test_check_54_running_and_restarting_take_each_others_place() -> None:
    world = JobSimulator(tf_job(worker=2, policy=RestartPolicy.EXIT_CODE)).started()
    assert types(world) == [("Created", "True"), ("Running", "True")]
    world.fail("train-worker-0", code=130)
    world.step()
    assert types(world) == [("Created", "True"), ("Restarting", "True")]
    world.started()
    assert types(world) == [("Created", "True"), ("Running", "True")]
    world.fail("train-worker-0", code=1)
    world.settle()
    assert types(world) == [("Created", "True"), ("Running", "False"), ("Failed", "True")]


def test_check_54_nothing_is_running_or_restarting_at_the_end() -> None:
    world = JobSimulator(tf_job(worker=2, policy=RestartPolicy.EXIT_CODE)).started()
    world.fail("train-worker-0", code=130)
    world.step()
    world.fail("train-worker-1", code=1)
    world.step()
    assert types(world) == [("Created", "True"), ("Running", "False"), ("Failed", "True")]


def test_check_55_end_is_final() -> None:
    world = world_of(worker=ONE_OK)
    end = world.status
    world.forward(60)
    world.pods.clear()
    world.settle()
    world.add("worker", 0, phase="Failed", exit_codes={"tensorflow": 1})
    world.settle()
    assert world.status.conditions == end.conditions
    assert world.status.completion_time == end.completion_time
    failed = Condition(type="Failed", status="True")
    assert job_conditions.set_condition(end.conditions, failed, START) == end.conditions


def test_check_55_same_condition_changes_nothing() -> None:
    first = Condition(type="Queued", status="True", reason="OverQuota", message="a")
    before = job_conditions.set_condition((), first, START)
    later = START.replace(hour=1)
    assert job_conditions.set_condition(before, first, later) == before
    changed = Condition(type="Queued", status="True", reason="OverQuota", message="b")
    after = conditions.find(job_conditions.set_condition(before, changed, later), "Queued")
    assert after is not None
    assert (after.message, after.last_transition_time) == ("b", before[0].last_transition_time)


def test_check_56_pods_are_counted_by_how_they_ended() -> None:
    model = gang_job(workers(7, min_replicas=1))
    world = JobSimulator(model).started()
    world.end("train-worker-0", "train-worker-1", "train-worker-2")
    world.fail("train-worker-3", "train-worker-4")
    world.delete("train-worker-6")
    world.step()
    role = world.role()
    assert (role.succeeded, role.failed, role.active) == (3, 2, 1)
    world.forward(60)
    world.step()
    role = world.role()
    assert (role.succeeded, role.failed, role.active) == (3, 3, 1), "its node reported no end"


def complete(model: JobModel, completed: str) -> bool:
    world = JobSimulator(model)
    counts = job_counts.load(model, JobStatus(), ())
    counts.roles["worker"].completed |= {int(text) for text in completed.split(",") if text}
    draft = PlanDraft(world.inputs(), counts, job_members.assign(counts, (), START))
    return success_policy.met(draft) is not None


def test_check_57_worker_0_completes_the_job() -> None:
    assert not complete(tf_job(worker=4), "")
    assert complete(tf_job(worker=1), "0")
    assert complete(tf_job(worker=2), "0")
    assert not complete(tf_job(worker=2), "1")


def test_check_57_worker_0_needs_phase_and_exit_code() -> None:
    world = JobSimulator(tf_job(worker=2, policy=RestartPolicy.ON_FAILURE)).started()
    world.end("train-worker-0", phase="Running", finished_at=None)
    world.settle()
    assert world.phase == "Running"
    world.end("train-worker-0")
    world.step()
    assert world.phase == "Succeeded"


def test_check_57_job_without_workers_is_decided_by_what_it_has() -> None:
    world = JobSimulator(tf_job(ps=1)).started()
    assert world.phase == "Running"
    world.end("train-ps-0")
    world.step()
    assert world.phase == "Succeeded"
