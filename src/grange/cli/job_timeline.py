"""The timeline of a job's pods: pure functions of their documents."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from grange.api import timestamps
from grange.api.meta import Document
from grange.cli import timeline
from grange.cli.job_view import JobView
from grange.cli.timeline import TimelineSpan, TimelineStage

WAITS = TimelineStage(".", "#c8c8c8", "waits for a node")
STARTS = TimelineStage("-", "#e6b450", "starts")
RUNS = TimelineStage("#", "#4a8fd4", "runs")
READY = TimelineStage("=", "#4caf6d", "is ready")
STAGES = (WAITS, STARTS, RUNS, READY)


def spans(pods: Iterable[Document], now: datetime) -> list[TimelineSpan]:
    """The spans of pods."""
    return [_span(pod, now) for pod in pods]


def _span(pod: Document, now: datetime) -> TimelineSpan:
    meta, status = pod["metadata"], pod.get("status") or {}
    created = timestamps.parse_or(meta.get("creationTimestamp"), now)
    started, ended = _containers(status)
    conditions = {
        str(item.get("type")): item
        for item in status.get("conditions") or ()
        if item.get("status") == "True"
    }
    bound = _time((conditions.get("PodScheduled") or {}).get("lastTransitionTime"))
    ready = _time((conditions.get("Ready") or {}).get("lastTransitionTime"))
    phase = str(status.get("phase") or "")
    last = ended if ended is not None and phase in {"Succeeded", "Failed"} else now
    # Stamps of whole seconds may lie before the creation, and stages that are unknown are skipped.
    starts = [(WAITS, created), (STARTS, bound or started), (RUNS, started), (READY, ready)]
    known = [(stage, max(at, created)) for stage, at in starts if at is not None]
    ends = [at for _, at in known[1:]] + [last]
    parts = tuple(
        (stage, at, max(at, end)) for (stage, at), end in zip(known, ends, strict=True) if end > at
    )
    if not parts and started is not None and ended is not None:
        parts = ((RUNS, started, max(started, ended)),)  # all within one second
    return TimelineSpan(str(meta["name"]), parts, phase if phase in {"Succeeded", "Failed"} else "")


def _containers(status: Document) -> tuple[datetime | None, datetime | None]:
    """When the first container started, and when the last one ended."""
    starts, ends = [], []
    for item in status.get("containerStatuses") or ():
        state = item.get("state") or {}
        for found in (state.get("running"), state.get("terminated")):
            if found and (at := _time(found.get("startedAt"))) is not None:
                starts.append(at)
            if found and (at := _time(found.get("finishedAt"))) is not None:
                ends.append(at)
    return min(starts, default=None), max(ends, default=None)


def _time(stamp: object) -> datetime | None:
    if not stamp:
        return None
    try:
        return timestamps.parse(str(stamp))
    except timestamps.TimestampError:
        return None


def title(job: JobView, found: Sequence[TimelineSpan]) -> str:
    """What stands above the lines."""
    return (
        f"{job.label}: {job.phase}, {timestamps.age(timeline.length(found).total_seconds())} in all"
    )
