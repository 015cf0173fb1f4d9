"""The progress of a job, from the reports of its pods."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from grange.api.job_status import JobProgress
from grange.controllers.gangjob import job_progress
from grange.controllers.gangjob.model import JobPod

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
