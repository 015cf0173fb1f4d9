"""The progress of a job, from the reports of its pods."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st
from tests.unit.gangjob.job_simulator import JobSimulator, gang_job, workers

from grange.api.job_status import JobProgress
from grange.controllers.gangjob import job_progress
from grange.controllers.gangjob.model import JobPod, RestartPolicy

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def pod(index: int, report: str, phase: str = "Running") -> JobPod:
    return JobPod(
        f"train-worker-{index}", f"uid-{index}", "worker", index, phase=phase, progress=report
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("42.5 epoch 3", (42.5, "epoch 3")),
        ("100", (100.0, "")),
        (" 7 %  of\tit ", (7.0, "of it")),
        ("0", (0.0, "")),
        ("101", None),
        ("-1", None),
        ("epoch 3", None),
        ("1.2.3", None),
        ("", None),
        ("nan", None),
    ],
)
def test_report_is_a_number_and_a_message(text: str, found: object) -> None:
    assert job_progress.parsed(text) == found


@given(st.text())
def test_any_text_is_a_report_or_none(text: str) -> None:
    found = job_progress.parsed(text)
    assert found is None or 0 <= found[0] <= 100


def test_progress_is_the_mean_and_the_message_of_the_last() -> None:
    pods = [pod(0, "50 five"), pod(1, "30 three"), pod(2, ""), pod(3, "10", "Succeeded")]
    shown, again_s = job_progress.progress(None, pods, NOW)
    assert shown == JobProgress(60.0, "three", "2026-01-01T12:00:00Z")
    assert again_s is None


def test_reports_are_shown_at_most_every_interval() -> None:
    before = JobProgress(10.0, "", "2026-01-01T12:00:00Z")
    later = NOW + timedelta(seconds=2)
    assert job_progress.progress(before, [pod(0, "20")], later) == (before, 3.0)
    shown, again_s = job_progress.progress(before, [pod(0, "20")], NOW + timedelta(seconds=5))
    assert (shown and shown.percent, again_s) == (20.0, None)


def test_progress_stays_when_the_reports_are_gone_or_the_same() -> None:
    before = JobProgress(10.0, "", "2026-01-01T12:00:00Z")
    assert job_progress.progress(before, [pod(0, "")], NOW) == (before, None)
    assert job_progress.progress(before, [replace(pod(0, "10"))], NOW) == (before, None)


def test_time_of_a_report_in_the_future_delays_nothing() -> None:
    """The clock of an earlier member may have been ahead."""
    before = JobProgress(10.0, "", "2027-01-01T12:00:00Z")
    shown, _ = job_progress.progress(before, [pod(0, "20")], NOW)
    assert shown is not None
    assert shown.percent == 20.0


def percent(world: JobSimulator) -> float | None:
    return world.status.progress.percent if world.status.progress else None


def restarted() -> JobSimulator:
    """A job of two pods that a user restarted at 60 %, a second ago."""
    world = JobSimulator(gang_job(workers(2))).started()
    world.report("60 step 18")
    world.step()
    assert percent(world) == 60
    world.forward(1)
    world.model = replace(world.model, minimum_attempts={"worker": 1})
    world.step()
    return world


def test_restart_forgets_the_progress_of_earlier_attempts() -> None:
    world = restarted()
    assert percent(world) is None
    world.step()  # the earlier pods stop, and their reports are still there
    assert percent(world) is None
    world.started()
    world.report("10 step 3")
    world.step()
    assert percent(world) == 10, "the first report after a restart is shown at once"


def test_restart_of_one_pod_keeps_the_reports_of_the_others() -> None:
    world = JobSimulator(gang_job(workers(2, restart_policy=RestartPolicy.ON_FAILURE))).started()
    world.report("60", "train-worker-0")
    world.report("20", "train-worker-1")
    world.step()
    assert percent(world) == 40
    world.fail("train-worker-1", conditions={"DisruptionTarget": "True"})
    world.step()
    assert percent(world) in {40, 60}


def test_job_that_succeeded_is_complete_at_once() -> None:
    world = restarted().started()
    world.report("60 step 18")
    world.step()
    world.report("96.67 step 29")
    world.end("train-worker-0", "train-worker-1")
    world.step()
    assert world.phase == "Succeeded"
    assert world.status.progress is not None
    assert (percent(world), world.status.progress.message) == (100, "step 29")


def test_job_that_succeeds_by_its_leader_is_complete() -> None:
    """Other pods may be stopped in the middle of their work, or be gone already."""
    before = JobProgress(60.0, "step 18", "2026-01-01T12:00:00Z")
    shown, again_s = job_progress.progress(before, [], NOW, ended="Succeeded")
    assert shown == JobProgress(100.0, "step 18", "2026-01-01T12:00:00Z")
    assert again_s is None


def test_job_that_failed_shows_its_last_report_at_once() -> None:
    before = JobProgress(60.0, "step 18", "2026-01-01T12:00:00Z")
    shown, _ = job_progress.progress(before, [pod(0, "70 step 21", "Failed")], NOW, ended="Failed")
    assert shown == JobProgress(70.0, "step 21", "2026-01-01T12:00:00Z")
    assert job_progress.progress(None, [], NOW, ended="Succeeded") == (None, None)
