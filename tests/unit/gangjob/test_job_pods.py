"""Pods as the core of jobs looks at them, and how they ended."""

from typing import Any

import msgspec
import pytest
from tests.unit.gangjob.job_simulator import START

from grange.api import interrupted_restarts, timestamps
from grange.api.kinds.pod import Pod
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.job_pods import TRACKING_FINALIZER, job_pod
from grange.controllers.gangjob.model import JobPod
from grange.controllers.gangjob.pod_outcomes import PodOutcome, outcome

LABELS = JobLabels(("op", "jobs"), "job", "role", "index", attempt="attempt")


def pod(status: dict[str, Any], **metadata: Any) -> JobPod:
    meta = {
        "name": "train-worker-1",
        "uid": "u",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"role": "Worker", "index": "1", "attempt": "2"},
        **metadata,
    }
    document = {"metadata": meta, "spec": {"nodeName": "n"}, "status": status}
    return job_pod(msgspec.convert(document, Pod), LABELS)


def ended(name: str, code: int, second: int, **fields: Any) -> dict[str, Any]:
    at = f"2026-01-01T00:00:{second:02}Z"
    state = {"terminated": {"exitCode": code, "finishedAt": at, **fields}}
    return {"name": name, "restartCount": 1, "state": state}


def test_pod_that_runs_is_read() -> None:
    found = pod(
        {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "initContainerStatuses": [ended("init", 0, 1)],
            "containerStatuses": [{"name": "main", "restartCount": 2}],
        },
        finalizers=[TRACKING_FINALIZER],
    )
    assert (found.role, found.index, found.attempt) == ("worker", 1, 2)
    assert (found.phase, found.ready, found.tracked, found.scheduled) == ("Running", *[True] * 3)
    assert (found.restart_counts, found.exit_codes) == (3, {"init": 0})
    assert (found.finished_at, found.created_at) == (None, START)
    assert (found.conditions, found.resource_version) == ({"Ready": "True"}, "7")


def test_restarts_after_stops_of_the_node_are_left_out() -> None:
    found = pod(
        {
            "phase": "Running",
            "conditions": [msgspec.to_builtins(interrupted_restarts.condition(2))],
            "containerStatuses": [{"name": "main", "restartCount": 3}],
        }
    )
    assert found.restart_counts == 1


def test_end_of_a_pod_is_read() -> None:
    found = pod(
        {
            "phase": "Failed",
            "reason": "Evicted",
            "containerStatuses": [
                ended("main", 137, 9, reason="OOMKilled", message="too\nmuch"),
                ended("log", 0, 5, reason="Completed", message="bye"),
            ],
        }
    )
    assert found.finished_at == timestamps.parse("2026-01-01T00:00:09Z")
    assert found.exit_codes == {"main": 137, "log": 0}
    assert found.reasons == {"Evicted", "OOMKilled", "Completed"}
    assert (found.message, found.tracked) == ("too much", False)


def test_deletion_of_a_pod_is_read() -> None:
    found = pod(
        {"phase": "Running"},
        deletionTimestamp="2026-01-01T00:00:40Z",
        deletionGracePeriodSeconds=30,
    )
    assert found.deleting
    assert found.deletion_requested_at == timestamps.parse("2026-01-01T00:00:10Z")
    assert found.deletion_due_at == timestamps.parse("2026-01-01T00:00:40Z")


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "x", "²"])
def test_malformed_numbers_are_none(text: str) -> None:
    found = pod({}, labels={"role": "worker", "index": text, "attempt": text})
    assert (found.index, found.attempt, found.phase) == (-1, 0, "Pending")


def test_pod_of_a_job_without_roles_is_read() -> None:
    labels = JobLabels(("op", "jobs"), "job", "", "index")
    found = job_pod(Pod(), labels)
    assert (found.role, found.index) == ("", -1)


def at(second: int) -> Any:
    return timestamps.parse(f"2026-01-01T00:00:{second:02}Z")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"phase": "Pending"}, PodOutcome.LIVE),
        ({"phase": "Succeeded"}, PodOutcome.COMPLETE),
        ({"phase": "Failed"}, PodOutcome.FAILED),
        ({"phase": "Failed", "conditions": {"DisruptionTarget": "True"}}, PodOutcome.DISRUPTED),
        ({"phase": "Failed", "conditions": {"DisruptionTarget": "False"}}, PodOutcome.FAILED),
    ],
)
def test_outcome_of_a_pod(fields: dict[str, Any], expected: PodOutcome) -> None:
    assert outcome(JobPod("p", "u", "w", 0, **fields), START) is expected


@pytest.mark.parametrize(
    ("phase", "finished", "expected"),
    [
        ("Succeeded", 9, PodOutcome.COMPLETE),
        ("Succeeded", 10, PodOutcome.DISRUPTED),
        ("Failed", 9, PodOutcome.FAILED),
        ("Failed", 10, PodOutcome.DISRUPTED),
        ("Failed", None, PodOutcome.DISRUPTED),
    ],
)
def test_outcome_of_a_deleted_pod(phase: str, finished: int | None, expected: PodOutcome) -> None:
    found = JobPod(
        "p",
        "u",
        "w",
        0,
        phase=phase,
        deleting=True,
        deletion_requested_at=at(10),
        deletion_due_at=at(40),
        finished_at=None if finished is None else at(finished),
    )
    assert outcome(found, START) is expected


def test_outcome_of_a_pod_that_is_stopping() -> None:
    fields: dict[str, Any] = {"deleting": True, "deletion_requested_at": at(10)}
    found = JobPod("p", "u", "w", 0, scheduled=True, deletion_due_at=at(20), **fields)
    assert outcome(found, at(24)) is PodOutcome.STOPPING
    assert outcome(found, at(25)) is PodOutcome.DISRUPTED
    forced = JobPod("p", "u", "w", 0, scheduled=True, deletion_due_at=at(10), **fields)
    assert outcome(forced, at(10)) is PodOutcome.DISRUPTED
    unscheduled = JobPod("p", "u", "w", 0, deletion_due_at=at(20), **fields)
    assert outcome(unscheduled, at(10)) is PodOutcome.DISRUPTED
