"""Spans of time on lines, as text and as a picture: pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from xml.sax.saxutils import escape

from grange.api import timestamps
from grange.api.meta import Document

_LEAST_WIDTH = 20
_ROW, _LEFT, _WIDE = 22, 180, 720  # of the picture, in pixels


@dataclass(frozen=True, slots=True)
class TimelineStage:
    """A part of a life.

    Attributes:
        mark: its character.
        color: in pictures.
        meaning: for the legend.
    """

    mark: str
    color: str
    meaning: str


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """One line.

    Attributes:
        name: of the object.
        parts: its stages, each with start and end, in order.
        end: how it ended; empty while it exists and has not.
    """

    name: str
    parts: tuple[tuple[TimelineStage, datetime, datetime], ...]
    end: str


def length(found: Sequence[TimelineSpan]) -> timedelta:
    """From the first start to the last end."""
    return _bounds(found)[1]


def text(
    title: str, found: Sequence[TimelineSpan], stages: Sequence[TimelineStage], width: int
) -> list[str]:
    """Lines of at most about so many columns."""
    names = max(len(span.name) for span in found) + 2
    columns = max(_LEAST_WIDTH, width - names - 12)
    begin, whole = _bounds(found)
    lines = [title]
    for span in found:
        cells = [" "] * columns
        for stage, start, end in span.parts:
            first = min(int((start - begin) / whole * columns), columns - 1)
            last = max(first + 1, round((end - begin) / whole * columns))
            cells[first:last] = stage.mark * (min(last, columns) - first)
        lines.append(f"{span.name:<{names}}{''.join(cells)} {span.end}".rstrip())
    axis = f"{'0s':<{columns}}{timestamps.age(whole.total_seconds())}"
    lines.append(f"{'':<{names}}{axis}")
    lines.append("  ".join(f"{stage.mark} {stage.meaning}" for stage in stages))
    return lines


def documents(kind: str, found: Sequence[TimelineSpan]) -> list[Document]:
    """The lines for programs; their names are under ``kind``."""
    return [
        {
            kind: span.name,
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


def picture(title: str, found: Sequence[TimelineSpan], stages: Sequence[TimelineStage]) -> str:
    """The lines as SVG."""
    begin, whole = _bounds(found)
    height = (len(found) + 3) * _ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDE + 90}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<text x="8" y="16">{escape(title)}</text>',
    ]
    for at, span in enumerate(found, start=1):
        top = at * _ROW
        parts.append(f'<text x="8" y="{top + 15}">{escape(span.name)}</text>')
        for stage, start, end in span.parts:
            x = _LEFT + (start - begin) / whole * _WIDE
            wide = max(1.0, (end - start) / whole * _WIDE)
            hint = f"{stage.meaning}: {(end - start).total_seconds():.1f} s"
            parts.append(
                f'<rect x="{x:.1f}" y="{top + 3}" width="{wide:.1f}" height="{_ROW - 6}" '
                f'fill="{stage.color}"><title>{hint}</title></rect>'
            )
        parts.append(f'<text x="{_LEFT + _WIDE + 6}" y="{top + 15}">{escape(span.end)}</text>')
    legend = (len(found) + 1) * _ROW
    for at, stage in enumerate(stages):
        x = _LEFT + at * 130
        parts.append(
            f'<rect x="{x}" y="{legend + 5}" width="12" height="12" fill="{stage.color}"/>'
        )
        parts.append(f'<text x="{x + 18}" y="{legend + 15}">{stage.meaning}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _bounds(found: Sequence[TimelineSpan]) -> tuple[datetime, timedelta]:
    begin = min((part[1] for span in found for part in span.parts), default=None)
    end = max((part[2] for span in found for part in span.parts), default=None)
    if begin is None or end is None:
        return timestamps.from_seconds(0.0), timedelta(seconds=1)
    return begin, max(end - begin, timedelta(milliseconds=1))
