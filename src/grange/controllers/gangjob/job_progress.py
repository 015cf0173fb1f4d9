"""How far a job is, from what its pods report.

A pod reports by its annotation ``grange.dev/progress``: a number from 0 to 100, and a message after
it. Grange's agent keeps the annotation equal to the file GRANGE_PROGRESS_FILE of a pod that has it;
elsewhere a pod writes it through the API.
"""

import re
from collections.abc import Iterable
from datetime import datetime

from grange.api import timestamps
from grange.api.job_status import SUCCEEDED, JobProgress
from grange.controllers.gangjob.model import JobPod

INTERVAL_S = 5.0
"""The status shows a new report at most so often: each costs a write."""

_REPORT = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,6})?)(?![0-9.])\s*%?\s*(.*)", re.DOTALL)
_LONGEST = 200


def parsed(text: str) -> tuple[float, str] | None:
    """Percent and message of a report; None for text that begins with no number up to 100."""
    found = _REPORT.fullmatch(text)
    if found is None:
        return None
    percent = float(found[1])
    return (percent, " ".join(found[2].split())[:_LONGEST]) if percent <= 100 else None


def progress(
    before: JobProgress | None, pods: Iterable[JobPod], now: datetime, *, ended: str = ""
) -> tuple[JobProgress | None, float | None]:
    """The progress to show, and in how many seconds to look again.

    The percentage is the mean over the pods that report, of which those that succeeded count as
    complete; the message is that of the pod that is behind the others. A job that has succeeded is
    complete, whatever its pods reported last.

    Args:
        before: what is shown; it stays where no pod reports any more.
        pods: of the job's current attempt.
        now: time.
        ended: the job's phase if it has ended: then nothing delays what is shown.
    """
    found = _reported(pods)
    if found is None:
        found = None if before is None else (before.percent, before.message)
    if found is None:
        return None, None
    percent, message = found
    if ended == SUCCEEDED:
        percent = 100.0
    if before is not None:
        if (before.percent, before.message) == (percent, message):
            return before, None
        since = timestamps.parse_or(before.updated_at, timestamps.EPOCH)
        left_s = INTERVAL_S - (now - since).total_seconds()
        if not ended and 0 < left_s <= INTERVAL_S:
            return before, left_s
    return JobProgress(percent, message, timestamps.rfc3339(now)), None


def _reported(pods: Iterable[JobPod]) -> tuple[float, str] | None:
    """Percent and message of the pods together; None where none reports."""
    reports = [
        ((100.0, found[1]) if pod.phase == "Succeeded" else found, pod.name)
        for pod in pods
        if pod.progress and (found := parsed(pod.progress)) is not None
    ]
    if not reports:
        return None
    percent = round(sum(report[0] for report, _ in reports) / len(reports), 1)
    (_, message), _ = min(reports, key=lambda item: (item[0][0], item[1]))
    return percent, message
