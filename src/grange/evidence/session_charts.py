"""The drawings of a session's page, as SVG: a timeline, and a plot of a figure over its runs; pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

from grange.evidence import session_record
from grange.evidence.plain_text import clean
from grange.evidence.regression import RegressionCheck
from grange.evidence.session_record import SessionRecord

_WIDTH = 900
_LABEL = 190  # of it, left of the bars
_ROW = 24
_PLOT_HEIGHT = 140
_PAD = 12
_MOST_ROWS = 60
_MOST_MARKS = 200


@dataclass(frozen=True, slots=True)
class _Bar:
    label: str
    style: str
    begin: datetime
    end: datetime


def timeline(record: SessionRecord) -> str:
    """Phases and components as bars, events as marks; empty where no times are known."""
    bars = [*_phases(record), *_components(record)]
    marks = [
        (when, f"{event.type} {event.message}".strip())
        for event in record.events[:_MOST_MARKS]
        if (when := session_record.instant(event.time)) is not None
    ]
    times = [bar.begin for bar in bars] + [bar.end for bar in bars] + [when for when, _ in marks]
    if not bars or min(times) == max(times):
        return ""
    first, span = min(times), (max(times) - min(times)).total_seconds()

    def x(when: datetime) -> float:
        return _LABEL + (when - first).total_seconds() / span * (_WIDTH - _LABEL - _PAD)

    left_out = len(bars) - _MOST_ROWS
    bars = bars[:_MOST_ROWS]
    height = (len(bars) + 1) * _ROW + _PAD
    drawn = [_opening(height, "Timeline of the session")]
    for row, bar in enumerate(bars):
        y = row * _ROW + 4
        width = max(2.0, x(bar.end) - x(bar.begin))
        seconds = (bar.end - bar.begin).total_seconds()
        drawn.append(f'<text x="0" y="{y + 13}">{_text(bar.label)}</text>')
        drawn.append(
            f'<rect class="{bar.style}" x="{x(bar.begin):.1f}" y="{y}" width="{width:.1f}" '
            f'height="{_ROW - 8}" rx="2"><title>{_text(bar.label)}: {seconds:.1f} s</title></rect>'
        )
    bottom = len(bars) * _ROW + 4
    for when, text in marks:
        drawn.append(
            f'<line class="mark" x1="{x(when):.1f}" y1="0" x2="{x(when):.1f}" y2="{bottom}">'
            f"<title>{_text(text)}</title></line>"
        )
    for part in range(5):
        at = _LABEL + part / 4 * (_WIDTH - _LABEL - _PAD)
        anchor = "end" if part == 4 else "start" if part == 0 else "middle"
        label = f"{span * part / 4:.1f} s"
        drawn.append(f'<text x="{at:.0f}" y="{bottom + 16}" text-anchor="{anchor}">{label}</text>')
    drawn.append("</svg>")
    if left_out > 0:
        drawn.append(f"<p>{left_out} further components are not drawn.</p>")
    return "".join(drawn)


def _phases(record: SessionRecord) -> Iterator[_Bar]:
    created, started, run, end = (
        session_record.instant(text)
        for text in (
            *(record.creation_time, record.start_time, record.run_time, record.completion_time),
        )
    )
    steps = [
        ("waiting for machines", "queued", created, started or end),
        ("provisioning", "provisioning", started, run or end),
        ("running and clean-up", "running", run, end),
    ]
    for label, style, begin, until in steps:
        if begin is not None and until is not None and until >= begin:
            yield _Bar(label, style, begin, until)


def _components(record: SessionRecord) -> Iterator[_Bar]:
    last = session_record.instant(record.completion_time)
    for item in record.components:
        begin = session_record.instant(item.started_time)
        end = session_record.instant(item.finished_time) or last
        if begin is not None and end is not None and end >= begin:
            yield _Bar(item.name, "failed" if item.is_failed else "component", begin, end)


def plot(values: Sequence[float], check: RegressionCheck, unit: str) -> str:
    """The runs of a figure in order, the last one marked, with the baseline and change points."""
    if len(values) < 2:
        return ""
    bounds: list[float] = [*values]
    if check.baseline is not None:
        bounds.append(check.baseline)
    low, high = min(bounds), max(bounds)
    margin = (high - low) * 0.1 or abs(high) * 0.1 or 1.0
    low, high = low - margin, high + margin

    def x(index: float) -> float:
        return _PAD + index / (len(values) - 1) * (_WIDTH - _LABEL - 2 * _PAD)

    def y(value: float) -> float:
        return _PAD + (high - value) / (high - low) * (_PLOT_HEIGHT - 2 * _PAD)

    right = _WIDTH - _LABEL
    drawn = [_opening(_PLOT_HEIGHT, "Runs of the figure")]
    for point in check.change_points:
        at = x(point - 0.5)
        drawn.append(
            f'<line class="change" x1="{at:.1f}" y1="{_PAD}" x2="{at:.1f}" '
            f'y2="{_PLOT_HEIGHT - _PAD}"><title>the level changed</title></line>'
        )
    if check.baseline is not None:
        at = y(check.baseline)
        drawn.append(
            f'<line class="baseline" x1="{_PAD}" y1="{at:.1f}" x2="{right - _PAD}" y2="{at:.1f}"/>'
            f'<text x="{right}" y="{at + 4:.1f}">baseline {_number(check.baseline, unit)}</text>'
        )
    points = " ".join(f"{x(index):.1f},{y(value):.1f}" for index, value in enumerate(values))
    drawn.append(f'<polyline points="{points}"/>')
    for index, value in enumerate(values):
        style = f"last {check.verdict.lower()}" if index == len(values) - 1 else "run"
        drawn.append(
            f'<circle class="{style}" cx="{x(index):.1f}" cy="{y(value):.1f}" '
            f'r="{5 if style != "run" else 2.5}"><title>{_number(value, unit)}</title></circle>'
        )
    drawn += [
        f'<text x="{right}" y="{_PAD + 4}">{_number(max(values), unit)} largest</text>',
        f'<text x="{right}" y="{_PLOT_HEIGHT - 4}">{_number(min(values), unit)} least</text>',
        "</svg>",
    ]
    return "".join(drawn)


def _opening(height: float, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" role="img" '
        f'aria-label="{label}">'
    )


def _number(value: float, unit: str) -> str:
    return _text(f"{value:.6g} {unit}".strip())


def _text(text: str) -> str:
    return escape(clean(text))


def rows(cells: Iterable[Sequence[str]]) -> str:
    """Rows of a table from cells that are HTML already."""
    return "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in cells)
