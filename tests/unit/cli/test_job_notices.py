"""What is printed while the logs of a job are followed that waits, restarts or is left."""

import asyncio
from typing import Any

import pytest

from grange.api.meta import Document
from grange.cli import job_notices, job_view
from grange.cli.job_notices import JobNotices
from grange.cli.job_view import JobView


def job(phase: str, message: str = "", **meta: Any) -> JobView:
    condition = {"type": phase, "status": "True", "reason": "Why", "message": message}
    found: Document = {
        "kind": "GangJob",
        "metadata": {"name": "train", "namespace": "default", **meta},
        "spec": {"replicaSpecs": {"worker": {"replicas": 1}}},
        "status": {"phase": phase, "conditions": [condition] if phase else []},
    }
    return job_view.view(found)


def test_notices_show_each_phase_and_reason_once() -> None:
    notices = JobNotices()
    lines = [
        notices.line(item)
        for item in (
            job(""),
            job("Created"),
            job("Queued", "no room"),
            job("Queued", "no room"),
            job("Queued", "over quota"),
            job("Running", "it runs"),
            job("Running", "it runs still"),
            job("Restarting", "worker 1 failed"),
            job("Succeeded"),
        )
    ]
    assert [line for line in lines if line] == [
        "gj/train is queued: Why: no room",
        "gj/train is queued: Why: over quota",
        "gj/train is running",
        "gj/train is restarting: Why: worker 1 failed",
    ]


def test_notices_are_silent_for_a_job_that_runs() -> None:
    notices = JobNotices()
    assert notices.line(job("Running")) == ""
    assert notices.line(job("Suspended", "by a user")) == "gj/train is suspended: Why: by a user"


@pytest.mark.parametrize(("namespace", "option"), [("default", ""), ("team", " -n default")])
async def test_interrupt_leaves_the_job_running(
    namespace: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def follow() -> None:
        with job_notices.left_running(job("Queued"), namespace):
            await asyncio.Event().wait()

    task = asyncio.create_task(follow())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"gj/train goes on; to delete it: grange delete gj/train{option}\n"
