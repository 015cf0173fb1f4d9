"""Whether a figure has changed: change points of a series, and a comparison with a baseline; pure.

A single bad run is noise, and a slow drift never fails a comparison with the run before. The level of
a series is therefore what holds since its last change point, found by E-divisive (Matteson and James,
"A Nonparametric Approach for Multiple Change Point Analysis of Multivariate Data", Journal of the
American Statistical Association 109, 2014): the split that maximises the energy distance between both
sides, accepted where random orders of the same values seldom do as well. The permutations come from a
fixed seed, so the same series always has the same verdict.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from grange.base.plurals import be, counted
from grange.base.rng import Stream

BETTER, WORSE, UNCHANGED = "Better", "Worse", "Unchanged"
NOT_ENOUGH_RUNS = "NotEnoughRuns"
MOST_RUNS = 100
"""Earlier values are left out: the cost grows with the square of their number."""

_FEWEST = 5  # runs that make a baseline
_SEGMENT = 3  # runs on each side of a change point
_NEW = 10  # runs for which a level is new: later it is what runs are compared with
_NORMAL = 1.4826  # of a normal distribution: its standard deviation over the median absolute one
_DEVIATIONS = 3
_PERMUTATIONS = 199
_SIGNIFICANCE = 0.01
_SEED = 1


@dataclass(frozen=True, slots=True)
class RegressionCheck:
    """The outcome of a comparison.

    Attributes:
        verdict: ``Better``, ``Worse``, ``Unchanged`` or ``NotEnoughRuns``.
        value: median of the runs since the last change point, or of the last run where it is new.
        baseline: what it is compared with; None where there is none.
        change: relative, positive where the value is larger.
        change_points: indices of the runs at which the level changed.
        message: the comparison in words.
    """

    verdict: str
    value: float
    baseline: float | None = None
    change: float = 0.0
    change_points: tuple[int, ...] = ()
    message: str = ""


def check(
    values: Sequence[float],
    *,
    better: str = "",
    threshold: float = 0.1,
    baseline: Sequence[float] = (),
) -> RegressionCheck:
    """Compare the newest level of a series with what was there before.

    Args:
        values: of the runs in the order of time; the last is the one in question.
        better: ``Lower``, ``Higher``, or empty where any change counts as worse.
        threshold: relative change that counts.
        baseline: values to compare with; by default those of the level before the last change
            point or, where the level is not new, those of the level without the last run.
    """
    values = values[-MOST_RUNS:]
    if not values:
        return RegressionCheck(NOT_ENOUGH_RUNS, 0.0, message="there are no runs")
    points = change_points(values)
    start = points[-1] if points else 0
    if baseline:
        return _compare(values[start:], baseline, better, threshold, points)
    if len(values) <= _FEWEST:
        count = len(values)
        message = f"{counted(count, 'run')} {be(count)} too few; {_FEWEST + 1} are needed"
        return RegressionCheck(NOT_ENOUGH_RUNS, values[-1], message=message)
    if points and len(values) - start <= _NEW:
        previous = points[-2] if len(points) > 1 else 0
        return _compare(values[start:], values[previous:start], better, threshold, points)
    # The level holds for long: only the last run can be new.
    before = values[start:-1]
    found = _compare(values[-1:], before, better, threshold, points)
    if found.verdict != UNCHANGED and _is_usual(values[-1], before):
        message = f"{found.message}, which single runs vary by"
        return replace(found, verdict=UNCHANGED, message=message)
    return found


def change_points(values: Sequence[float]) -> tuple[int, ...]:
    """Indices at which a new level begins, in order."""
    rng = Stream(_SEED)
    found: list[int] = []
    waiting = [(0, len(values))]
    while waiting:
        start, stop = waiting.pop()
        at = _split(values[start:stop], rng)
        if at is not None:
            found.append(start + at)
            waiting += [(start, start + at), (start + at, stop)]
    return tuple(sorted(found))


def _split(values: Sequence[float], rng: Stream) -> int | None:
    """Where the level changes most, if that is significant."""
    if len(values) < 2 * _SEGMENT or min(values) == max(values):
        return None
    at, best = _best_split(values)
    as_good = 0
    most = int(_SIGNIFICANCE * (_PERMUTATIONS + 1)) - 1
    for _ in range(_PERMUTATIONS):
        as_good += _best_split(rng.shuffled(values))[1] >= best
        if as_good > most:
            return None
    return at


def _best_split(values: Sequence[float]) -> tuple[int, float]:
    """The split with the largest scaled energy distance of its sides, and that distance.

    Distances are summed as the split moves by one, which costs n for each split.
    """
    count = len(values)
    left = sum(abs(a - b) for i, a in enumerate(values[:_SEGMENT]) for b in values[:i])
    right = sum(
        abs(a - b) for i, a in enumerate(values[_SEGMENT:]) for b in values[_SEGMENT : _SEGMENT + i]
    )
    between = sum(abs(a - b) for a in values[:_SEGMENT] for b in values[_SEGMENT:])
    best, best_at = float("-inf"), _SEGMENT
    for at in range(_SEGMENT, count - _SEGMENT + 1):
        if at > _SEGMENT:
            moved = values[at - 1]
            to_left = sum(abs(moved - other) for other in values[: at - 1])
            to_right = sum(abs(moved - other) for other in values[at:])
            left += to_left
            right -= to_right
            between += to_right - to_left
        n, m = at, count - at
        energy = 2 * between / (n * m) - left / _pairs(n) - right / _pairs(m)
        scaled = n * m / (n + m) * energy
        if scaled > best:
            best, best_at = scaled, at
    return best_at, best


def _pairs(count: int) -> float:
    return count * (count - 1) / 2


def _compare(
    recent: Sequence[float],
    before: Sequence[float],
    better: str,
    threshold: float,
    points: tuple[int, ...],
) -> RegressionCheck:
    value, baseline = statistics.median(recent), statistics.median(before)
    if baseline:
        change = (value - baseline) / abs(baseline)
    else:
        change = 0.0 if value == 0 else float("inf") if value > 0 else float("-inf")
    verdict = UNCHANGED
    if abs(change) >= threshold and change != 0:
        is_better = (better == "Lower" and change < 0) or (better == "Higher" and change > 0)
        verdict = BETTER if is_better else WORSE
    since = f" for {len(recent)} runs" if len(recent) > 1 else ""
    message = (
        f"{value:g}{since} against {baseline:g} in {counted(len(before), 'run')} ({change:+.1%})"
    )
    return RegressionCheck(verdict, value, baseline, change, points, message)


def _is_usual(value: float, before: Sequence[float]) -> bool:
    """Whether it lies within three deviations of the median, by the median absolute deviation."""
    middle = statistics.median(before)
    deviation = _NORMAL * statistics.median(abs(other - middle) for other in before)
    return abs(value - middle) <= _DEVIATIONS * deviation
