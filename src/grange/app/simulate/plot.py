"""A comparison as an SVG picture: what was allocated, and what was fragmented.

Written out by hand: a library for plots would be the largest dependency, for two diagrams of lines.
"""

from collections.abc import Callable, Sequence
from html import escape

from grange.api.gpus import GPU_MILLI
from grange.app.simulate.replay import ReplayPoint, ReplayRun
from grange.app.simulate.report import policies

# Distinguishable with colour blindness (after Okabe and Ito, 2008).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#888888")
_WIDTH, _HEIGHT = 460, 340
_LEFT, _TOP, _BOTTOM, _RIGHT = 62, 44, 52, 18
_LEGEND = 24
_HOUR_S, _DAY_S = 3600.0, 86_400.0

_Pairs = list[tuple[float, float]]


def draw(runs: Sequence[ReplayRun], title: str, *, by_load: bool) -> str:
    """The picture.

    Args:
        runs: of one comparison.
        title: what was simulated.
        by_load: the horizontal axis is requested load rather than time.
    """
    gpus = bool(runs) and runs[0].resource == GPU_MILLI
    what = "GPUs" if gpus else "CPUs"
    panels: list[tuple[str, Callable[[ReplayPoint], float]]] = [
        (f"{what} allocated, % of capacity", lambda point: 100 * point.allocated)
    ]
    if gpus:
        panels.append(("GPUs fragmented, % of capacity", lambda point: 100 * point.fragmented))
    else:
        panels.append(("pods waiting", lambda point: float(point.waiting)))
    along, unit = _axis(runs, by_load=by_load)
    found = policies(runs)
    columns = 4
    legend = _LEGEND * -(-max(1, len(found)) // columns)
    width, height = _WIDTH * len(panels), _HEIGHT + legend + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="22" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    for at, (heading, value) in enumerate(panels):
        lines = {
            name: [[(along(point), value(point)) for point in run.points] for run in mine]
            for name, mine in found.items()
        }
        parts.append(f'<g transform="translate({at * _WIDTH} 16)">')
        parts += _panel(heading, unit, lines)
        parts.append("</g>")
    for at, name in enumerate(found):
        x = _LEFT + (at % columns) * (width - _LEFT) // columns
        y = _HEIGHT + 30 + _LEGEND * (at // columns)
        colour = _COLOURS[at % len(_COLOURS)]
        parts.append(f'<path d="M{x} {y - 4}h22" stroke="{colour}" stroke-width="3"{_dashed(at)}/>')
        parts.append(f'<text x="{x + 28}" y="{y}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _dashed(at: int) -> str:
    return ' stroke-dasharray="6 3"' if at >= len(_COLOURS) else ""


def _axis(
    runs: Sequence[ReplayRun], *, by_load: bool
) -> tuple[Callable[[ReplayPoint], float], str]:
    if by_load:
        return lambda point: 100 * point.requested, "requested, % of capacity"
    last = max((point.at_s for run in runs for point in run.points), default=0.0)
    if last > 3 * _DAY_S:
        return lambda point: point.at_s / _DAY_S, "days"
    if last > 3 * _HOUR_S:
        return lambda point: point.at_s / _HOUR_S, "hours"
    return lambda point: point.at_s, "seconds"


def _panel(heading: str, unit: str, lines: dict[str, list[_Pairs]]) -> list[str]:
    pairs = [pair for runs in lines.values() for run in runs for pair in run]
    most_x = _ceiling(max((x for x, _ in pairs), default=1.0))
    most_y = _ceiling(max((y for _, y in pairs), default=1.0))
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return _LEFT + width * x / most_x[0], _TOP + height * (1 - y / most_y[0])

    parts = [f'<text x="{_LEFT}" y="{_TOP - 12}">{escape(heading)}</text>']
    for tick in _ticks(*most_y):
        x, y = place(0, tick)
        parts.append(f'<path d="M{x:.1f} {y:.1f}h{width}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in _ticks(*most_x):
        x, y = place(tick, 0)
        parts.append(f'<path d="M{x:.1f} {y:.1f}v5" stroke="#888888"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 19:.1f}" text-anchor="middle">{tick:g}</text>')
    x, y = place(most_x[0] / 2, 0)
    parts.append(f'<text x="{x:.1f}" y="{y + 38:.1f}" text-anchor="middle">{escape(unit)}</text>')
    for at, runs in enumerate(lines.values()):
        colour = _COLOURS[at % len(_COLOURS)]
        for run in runs:
            if run:
                path = "L".join("{:.1f} {:.1f}".format(*place(*pair)) for pair in run)
                parts.append(
                    f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.6"'
                    f'{_dashed(at)} stroke-opacity="0.85"/>'
                )
    return parts


def _ceiling(most: float) -> tuple[float, float]:
    """The end of an axis and the distance of its ticks."""
    step = 1.0
    while most / step > 8:
        step *= 2.5 if str(step).startswith("2") else 2.0
    while most / step < 3 and step > 1e-9:
        step /= 2.5 if str(step).startswith("5") else 2.0
    ticks = max(1, -int(-most // step))
    return ticks * step, step


def _ticks(most: float, step: float) -> list[float]:
    return [step * at for at in range(round(most / step) + 1)]
