"""The timeline of a job's pods, as text and as a picture: pure functions of their documents."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from xml.sax.saxutils import escape

from grange.api import timestamps
from grange.api.meta import Document
from grange.cli.job_view import JobView

_LEAST_WIDTH = 20
_ROW, _LEFT, _WIDE = 22, 180, 720  # of the picture, in pixels


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a pod's life.

    Attributes:
        mark: its character.
        color: in pictures.
        meaning: for the legend.
    """

    mark: str
    color: str
    meaning: str


WAITS = Stage(".", "#c8c8c8", "waits for a node")
STARTS = Stage("-", "#e6b450", "starts")
RUNS = Stage("#", "#4a8fd4", "runs")
READY = Stage("=", "#4caf6d", "is ready")
STAGES = (WAITS, STARTS, RUNS, READY)


@dataclass(frozen=True, slots=True)
class PodSpan:
    """One pod.

    Attributes:
        name: of the pod.
        parts: its stages, each with start and end, in order.
        end: how it ended; empty while it exists and has not.
    """

    name: str
    parts: tuple[tuple[Stage, datetime, datetime], ...]
    end: str


def spans(pods: Iterable[Document], now: datetime) -> list[PodSpan]:
    """The spans of pods."""
    return [_span(pod, now) for pod in pods]


def _span(pod: Document, now: datetime) -> PodSpan:
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
    return PodSpan(str(meta["name"]), parts, phase if phase in {"Succeeded", "Failed"} else "")


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


def _bounds(found: Sequence[PodSpan]) -> tuple[datetime, timedelta]:
    begin = min((part[1] for span in found for part in span.parts), default=None)
    end = max((part[2] for span in found for part in span.parts), default=None)
    if begin is None or end is None:
        return timestamps.from_seconds(0.0), timedelta(seconds=1)
    return begin, max(end - begin, timedelta(milliseconds=1))


def text(job: JobView, found: Sequence[PodSpan], width: int) -> list[str]:
    """Lines of at most about so many columns."""
    names = max(len(span.name) for span in found) + 2
    columns = max(_LEAST_WIDTH, width - names - 12)
    begin, length = _bounds(found)
    lines = [f"{job.label}: {job.phase}, {timestamps.age(length.total_seconds())} in all"]
    for span in found:
        cells = [" "] * columns
        for stage, start, end in span.parts:
            first = int((start - begin) / length * columns)
            last = max(first + 1, round((end - begin) / length * columns))
            cells[first:last] = stage.mark * (min(last, columns) - first)
        lines.append(f"{span.name:<{names}}{''.join(cells)} {span.end}".rstrip())
    axis = f"{'0s':<{columns}}{timestamps.age(length.total_seconds())}"
    lines.append(f"{'':<{names}}{axis}")
    lines.append("  ".join(f"{stage.mark} {stage.meaning}" for stage in STAGES))
    return lines


def document(job: JobView, found: Sequence[PodSpan]) -> Document:
    """The timeline for programs."""
    items = [
        {
            "pod": span.name,
            "end": span.end,
            "stages": [
                {
                    "stage": stage.meaning,
                    "from": timestamps.rfc3339_micro(start),
                    "to": timestamps.rfc3339_micro(end),
                }
                for stage, start, end in span.parts
            ],
        }
        for span in found
    ]
    return {"job": job.label, "phase": job.phase, "pods": items}


def picture(job: JobView, found: Sequence[PodSpan]) -> str:
    """The timeline as SVG."""
    begin, length = _bounds(found)
    height = (len(found) + 3) * _ROW
    seconds = length.total_seconds()
    title = f"{job.label}: {job.phase}, {timestamps.age(seconds)} in all"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDE + 90}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<text x="8" y="16">{escape(title)}</text>',
    ]
    for at, span in enumerate(found, start=1):
        top = at * _ROW
        parts.append(f'<text x="8" y="{top + 15}">{escape(span.name)}</text>')
        for stage, start, end in span.parts:
            x = _LEFT + (start - begin) / length * _WIDE
            wide = max(1.0, (end - start) / length * _WIDE)
            hint = f"{stage.meaning}: {(end - start).total_seconds():.1f} s"
            parts.append(
                f'<rect x="{x:.1f}" y="{top + 3}" width="{wide:.1f}" height="{_ROW - 6}" '
                f'fill="{stage.color}"><title>{hint}</title></rect>'
            )
        parts.append(f'<text x="{_LEFT + _WIDE + 6}" y="{top + 15}">{span.end}</text>')
    legend = (len(found) + 1) * _ROW
    for at, stage in enumerate(STAGES):
        x = _LEFT + at * 130
        parts.append(
            f'<rect x="{x}" y="{legend + 5}" width="12" height="12" fill="{stage.color}"/>'
        )
        parts.append(f'<text x="{x + 18}" y="{legend + 15}">{stage.meaning}</text>')
    return "\n".join([*parts, "</svg>", ""])
