"""What ``grange job`` makes of documents: views, boards, timelines and requests."""

from datetime import UTC, datetime
from typing import Any

import click
import pytest

from grange.api import minimum_attempts
from grange.api.meta import Document
from grange.cli import job_board, job_timeline, job_view, readiness, timeline
from grange.cli.verbs.job import change

NOW = datetime(2030, 1, 1, 0, 2, 0, tzinfo=UTC)


def gang_job(phase: str = "Running", **status: Any) -> Document:
    return {
        "kind": "GangJob",
        "metadata": {"name": "train", "uid": "u", "creationTimestamp": "2030-01-01T00:00:00Z"},
        "spec": {"replicaSpecs": {"ps": {"replicas": 1}, "worker": {"replicas": 4}}},
        "status": {
            "phase": phase,
            "startTime": "2030-01-01T00:01:00Z",
            "replicaStatuses": {"worker": {"active": 3, "attempt": 1, "restarts": 2}},
            **status,
        },
    }


def batch_job(**status: Any) -> Document:
    return {
        "kind": "Job",
        "metadata": {"name": "batch"},
        "spec": {"parallelism": 2, "completions": 5},
        "status": status,
    }


def condition(kind: str, message: str = "") -> Document:
    return {"type": kind, "status": "True", "message": message}


@pytest.mark.parametrize(
    ("document", "phase", "code"),
    [
        (batch_job(), "Created", 1),
        (batch_job(active=2), "Running", 1),
        (batch_job(conditions=[condition("Suspended")]), "Suspended", 1),
        (batch_job(conditions=[condition("Complete")]), "Succeeded", 0),
        (batch_job(active=1, conditions=[condition("Failed")]), "Failed", 1),
        (gang_job("", conditions=[condition("Created"), condition("Running")]), "Running", 1),
        (gang_job("Running", conditions=[condition("Succeeded")]), "Succeeded", 0),
    ],
)
def test_phase_comes_from_every_form_of_status(document: Document, phase: str, code: int) -> None:
    job = job_view.view(document)
    assert (job.phase, job.exit_code) == (phase, code)


def test_roles_are_those_of_the_spec() -> None:
    roles = {role.name: role for role in job_view.view(gang_job()).roles}
    assert (roles["ps"].wanted, roles["ps"].active) == (1, 0)
    assert (roles["worker"].wanted, roles["worker"].active, roles["worker"].attempt) == (4, 3, 1)
    (only,) = job_view.view(batch_job(active=2, succeeded=1)).roles
    assert (only.wanted, only.active, only.succeeded) == (5, 2, 1)
    # Of a Job that Grange runs, pods that wait are active in batch/v1 and not for the verbs.
    counts = {"": {"active": 1, "pending": 1, "succeeded": 1, "attempt": 2}}
    own = batch_job(active=2, succeeded=1, gangJob={"replicaStatuses": counts})
    (only,) = job_view.view(own).roles
    assert (only.active, only.succeeded, only.attempt) == (1, 1, 2)


def test_progress_has_a_bar_and_an_estimate() -> None:
    reported = gang_job(progress={"percent": 25, "message": "epoch 1/4"})
    lines = job_board.lines(job_view.view(reported), None, NOW)
    (found,) = [line for line in lines if line.startswith("Progress")]
    assert "[######------------------] 25% epoch 1/4, about 3m left" in found
    assert "3/5 active, 25% epoch 1/4" in readiness.ready(reported).text
    ended = gang_job("Succeeded", progress={"percent": 100, "message": ""})
    assert "left" not in "\n".join(job_board.lines(job_view.view(ended), None, NOW))


def test_estimate_counts_from_the_last_restart() -> None:
    running = {**condition("Running"), "lastTransitionTime": "2030-01-01T00:01:50Z"}
    reported = gang_job(progress={"percent": 25, "message": ""}, conditions=[running])
    assert job_board.progress(job_view.view(reported), NOW).endswith("25%, about 30s left")


def test_board_shows_the_quota_and_the_restarts_in_place() -> None:
    counts = {"worker": {"active": 3, "inPlaceRestarts": 2}}
    job = gang_job(queue="team", quotaUsed={"pods": 3, "cpu": "1500m"}, replicaStatuses=counts)
    lines = job_board.lines(job_view.view(job), None, NOW)
    shown = [line.partition(":")[2].strip() for line in lines if line[:5] in ("Queue", "Resta")]
    assert shown == ["0 charged, 0 not charged, 2 in place", "team, uses cpu 1500m, pods 3"]
    waiting = job_board.lines(job_view.view(gang_job(queue="team")), None, NOW)
    assert [line.split() for line in waiting if line.startswith("Queue")] == [["Queue:", "team"]]


def test_wait_for_success_ends_with_a_failure() -> None:
    failed = gang_job("Failed", conditions=[condition("Failed", "worker 1 failed")])
    for wanted in ("Succeeded", "Complete"):
        state = readiness.has_condition(wanted, "True")(failed)
        assert state.failed
        assert "worker 1 failed" in state.text
    assert readiness.has_condition("Failed", "True")(failed).done
    assert not readiness.has_condition("Succeeded", "True")(gang_job()).failed


def test_restart_asks_for_one_attempt_more_once() -> None:
    document = gang_job()
    assert change.requested_attempts(document, "") == {"ps": 1, "worker": 2}
    assert change.requested_attempts(document, "Worker") == {"worker": 2}
    document["metadata"]["annotations"] = {minimum_attempts.ANNOTATION: "worker=2"}
    assert change.requested_attempts(document, "worker") is None
    assert change.requested_attempts(document, "ps") == {"ps": 1, "worker": 2}
    with pytest.raises(click.UsageError, match="its roles are ps, worker"):
        change.requested_attempts(document, "chief")


def test_scale_never_adds_a_role() -> None:
    assert change.scaled(gang_job(), {"Worker": 6}) == {
        "spec": {"replicaSpecs": {"worker": {"replicas": 6}}}
    }
    assert change.scaled(batch_job(), {"worker": 3}) == {"spec": {"parallelism": 3}}
    with pytest.raises(click.UsageError, match="no role chief"):
        change.scaled(gang_job(), {"chief": 1})


def pod(name: str, created: int, bound: int, started: int, ended: int | None) -> Document:
    def at(second: int) -> str:
        return f"2030-01-01T00:00:{second:02}Z"

    state: Document = {"running": {"startedAt": at(started)}}
    if ended is not None:
        state = {"terminated": {"startedAt": at(started), "finishedAt": at(ended)}}
    return {
        "metadata": {"name": name, "creationTimestamp": at(created)},
        "status": {
            "phase": "Running" if ended is None else "Succeeded",
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(bound)}
            ],
            "containerStatuses": [{"name": "main", "state": state}],
        },
    }


def test_timeline_shows_who_waited_and_ran() -> None:
    job = job_view.view(gang_job())
    now = datetime(2030, 1, 1, 0, 0, 40, tzinfo=UTC)
    spans = job_timeline.spans([pod("a", 0, 10, 20, 40), pod("<b>", 0, 20, 30, None)], now)
    title = job_timeline.title(job, spans)
    lines = timeline.text(title, spans, job_timeline.STAGES, 55)
    assert lines[1].split()[0] == "a"
    assert lines[1].endswith("Succeeded")
    stages = [[stage.mark for stage, _, _ in span.parts] for span in spans]
    assert stages == [[".", "-", "#"], [".", "-", "#"]]
    assert [(e - s).total_seconds() for _, s, e in spans[1].parts] == [20, 10, 10]
    assert "&lt;b&gt;" in timeline.picture(title, spans, job_timeline.STAGES)


def test_timeline_of_a_pod_without_times_is_no_error() -> None:
    bare: Document = {"metadata": {"name": "a"}, "status": {}}
    spans = job_timeline.spans([bare], NOW)
    title = job_timeline.title(job_view.view(gang_job()), spans)
    assert timeline.text(title, spans, job_timeline.STAGES, 80)


def test_timeline_shows_pods_that_ran_within_a_second() -> None:
    """Stamps have whole seconds: the lines of short jobs were empty."""
    spans = job_timeline.spans([pod("a", 0, 0, 0, 0), pod("b", 3, 3, 3, 3)], NOW)
    lines = timeline.text("title", spans, job_timeline.STAGES, 55)
    assert [line.count("#") for line in lines[1:3]] == [1, 1]
