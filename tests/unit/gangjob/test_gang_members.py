"""A gang waits for no member that can not come any more."""

from typing import Any

from hypothesis import given, strategies as st
from tests.unit.gangjob.wired_jobs import model, role

from grange.api.job_status import JobStatus, RoleStatus
from grange.controllers.gangjob.gang_backends import quorum
from grange.controllers.gangjob.gang_members import without_finished
from grange.controllers.gangjob.model import JobModel, JobPod


def status(**fields: Any) -> JobStatus:
    return JobStatus(replica_statuses={"worker": RoleStatus(**fields)})


def ended(index: int, phase: str = "Succeeded", **fields: Any) -> JobPod:
    return JobPod(f"train-worker-{index}", f"uid-{index}", "worker", index, phase=phase, **fields)


def job(**fields: Any) -> JobModel:
    return model(role("worker", 4, **fields))


def test_job_at_work_is_left_as_it_is() -> None:
    wanted = job()
    assert without_finished(wanted, status(), [ended(1, "Running")]) is wanted


def test_completed_index_counts_while_its_pod_exists() -> None:
    written = status(completed_indexes="0-1")
    assert quorum(without_finished(job(), written, [ended(0), ended(1)])) == 4
    assert quorum(without_finished(job(), written, [ended(0)])) == 3
    assert quorum(without_finished(job(), written, [ended(0), ended(1, deleting=True)])) == 3


def test_index_that_is_given_up_does_not_count() -> None:
    written = status(failed_indexes="3")
    assert quorum(without_finished(job(), written, [ended(3, "Failed")])) == 3


def test_smaller_quorums_stay_as_long_as_they_can() -> None:
    written = status(completed_indexes="0-1")
    assert quorum(without_finished(job(min_replicas=1), written, [])) == 1
    assert quorum(without_finished(job(min_available=3), written, [])) == 2


def test_malformed_indexes_are_ignored() -> None:
    wanted = job()
    assert without_finished(wanted, status(completed_indexes="x"), []) is wanted


@given(st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)), st.integers(1, 8))
def test_quorum_can_be_reached(done: set[int], kept: set[int], least: int) -> None:
    """By the pods that there are and those that will come."""
    wanted = model(role("worker", 8, min_available=least))
    written = status(completed_indexes=",".join(map(str, sorted(done))))
    pods = [ended(index) for index in done & kept]
    reachable = 8 - len(done) + len(pods)
    assert quorum(without_finished(wanted, written, pods)) == min(least, reachable)
