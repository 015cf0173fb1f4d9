"""What a comparison found: as a table, and as JSON."""

from collections.abc import Sequence
from statistics import fmean

from grange.api.gpus import GPU_MILLI
from grange.api.meta import Document
from grange.app.simulate.replay import ReplayPoint, ReplayRun
from grange.cli.printers import table


def policies(runs: Sequence[ReplayRun]) -> dict[str, list[ReplayRun]]:
    """The runs of each policy, policies in the order in which they were asked for."""
    found: dict[str, list[ReplayRun]] = {}
    for run in runs:
        found.setdefault(run.policy, []).append(run)
    return found


def peak(run: ReplayRun) -> ReplayPoint:
    """The moment when most was allocated; nothing at all for a run without points."""
    nothing = ReplayPoint(0.0, 0.0, 0.0, 0.0, 0)
    return max(run.points, key=lambda point: (point.allocated, -point.at_s), default=nothing)


def _percent(values: Sequence[float]) -> str:
    return f"{100 * fmean(values):.1f}%"


def _seconds(value: float) -> str:
    return f"{value:.0f}s" if value >= 10 else f"{value:.1f}s"


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def as_table(runs: Sequence[ReplayRun]) -> str:
    """One line a policy: means over its runs."""
    header = ["POLICY", "LOAD", "ALLOCATED", "FRAGMENTED", "PLACED", "UNPLACED", "WAIT P99"]
    rows = []
    for policy, mine in policies(runs).items():
        waits = [wait for run in mine for wait in run.waits_s]
        gpus = mine[0].resource == GPU_MILLI
        rows.append(
            [
                policy,
                _percent([max((p.requested for p in run.points), default=0.0) for run in mine]),
                _percent([peak(run).allocated for run in mine]),
                _percent([peak(run).fragmented for run in mine]) if gpus else "-",
                f"{fmean(run.placed for run in mine):.0f}",
                f"{fmean(run.unplaced for run in mine):.0f}",
                _seconds(quantile(waits, 0.99)),
            ]
        )
    return "\n".join(table.render([header, *rows]))


def as_document(runs: Sequence[ReplayRun], *, nodes: int) -> Document:
    """Everything, for other programs. Shares are of what all nodes offer."""
    return {
        "nodes": nodes,
        "resource": runs[0].resource if runs else "",
        "runs": [
            {
                "policy": run.policy,
                "seed": run.seed,
                "pods": run.pods,
                "placed": run.placed,
                "unplaced": run.unplaced,
                "reasons": run.reasons,
                "waitSeconds": {
                    "p50": round(quantile(run.waits_s, 0.5), 3),
                    "p99": round(quantile(run.waits_s, 0.99), 3),
                    "max": round(max(run.waits_s, default=0.0), 3),
                },
                "allocated": round(peak(run).allocated, 6),
                "fragmented": round(peak(run).fragmented, 6),
                "decisions": run.decisions,
                "elapsedSeconds": round(run.elapsed_s, 3),
                "points": [
                    {
                        "atSeconds": round(point.at_s, 3),
                        "requested": round(point.requested, 6),
                        "allocated": round(point.allocated, 6),
                        "fragmented": round(point.fragmented, 6),
                        "waiting": point.waiting,
                    }
                    for point in run.points
                ],
            }
            for run in runs
        ],
    }
