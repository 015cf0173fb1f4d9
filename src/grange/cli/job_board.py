"""The board of one job, line by line: pure functions of its view, its pods and the time."""

from collections.abc import Sequence
from datetime import datetime

from grange.api import timestamps
from grange.api.fields import lookup
from grange.api.meta import Document
from grange.api.printing import cells, pods
from grange.cli import job_view
from grange.cli.job_view import JobView
from grange.cli.printers import table

_BAR = 24
_ROLE_HEAD = ["ROLE", "WANTED", "ACTIVE", "READY", "SUCCEEDED", "FAILED", "RESTARTS", "ATTEMPT"]
_POD_HEAD = ["POD", "INDEX", "STATUS", "NODE", "AGE"]


def lines(job: JobView, members: Sequence[Document] | None, now: datetime) -> list[str]:
    """The board.

    Args:
        job: the job.
        members: its pods; None leaves their table out.
        now: wall time.
    """
    facts = {
        "Job": job.label,
        "Phase": job.phase,
        "Message": job.message,
        "Restarts": _restarts(job),
        "Queue": _queue(job),
        "Time": duration(job, now),
        "Progress": progress(job, now),
    }
    shown = {key: value for key, value in facts.items() if value}
    width = max(map(len, shown)) + 2
    found = [f"{key + ':':<{width}}{value}" for key, value in shown.items()]
    found += ["", *table.render([_ROLE_HEAD, *map(_role, job.roles)])]
    if members:
        rows = [_pod(pod, now.timestamp()) for pod in members]
        found += ["", *table.render([_POD_HEAD, *rows])]
    return found


def _restarts(job: JobView) -> str:
    text = f"{job.restarts} charged, {job.uncharged} not charged"
    return f"{text}, {job.in_place} in place" if job.in_place else text


def _queue(job: JobView) -> str:
    return f"{job.queue}, uses {job.quota_used}" if job.quota_used else job.queue


def duration(job: JobView, now: datetime) -> str:
    """For how long it has run, or ran."""
    start = job.started or job.created
    if not start:
        return ""
    begin = timestamps.parse_or(start, now)
    end = timestamps.parse_or(job.ended, now) if job.ended else now
    seconds = max(0.0, (end - begin).total_seconds())
    return f"{'took' if job.ended else 'for'} {timestamps.age(seconds)}"


def progress(job: JobView, now: datetime) -> str:
    """A bar, the report, and how long the rest takes at the same pace; empty without a report."""
    if job.percent is None:
        return ""
    percent = min(100.0, max(0.0, job.percent))
    full = round(_BAR * percent / 100)
    text = f"[{'#' * full}{'-' * (_BAR - full)}] {percent:g}% {job.report}".rstrip()
    begin = job.runs_since or job.started  # a restart begins at 0 %
    if job.is_finished or not begin or not 0 < percent < 100:
        return text
    elapsed_s = (now - timestamps.parse_or(begin, now)).total_seconds()
    left_s = max(0.0, elapsed_s) * (100 - percent) / percent
    return f"{text}, about {timestamps.age(left_s)} left"


def _role(role: job_view.RoleView) -> list[str]:
    counts = (
        role.wanted,
        role.active,
        role.ready,
        role.succeeded,
        role.failed,
        role.restarts,
        role.attempt,
    )
    return [role.name, *map(str, counts)]


def _pod(pod: Document, now: float) -> list[str]:
    return [
        str(pod["metadata"]["name"]),
        job_view.member_of(pod)[1],
        str(pods.status(pod, now)),
        str(lookup(pod, "spec.nodeName") or "<none>"),
        cells.age_of(pod["metadata"].get("creationTimestamp"), now),
    ]
