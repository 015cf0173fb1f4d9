"""``make bench``: run scenarios, print medians, and write docs/reference/benchmarks.md.

python -m bench [--runs N] [--no-write] [SCENARIO…]
"""

import argparse
import datetime as dt
import inspect
import json
import os
import platform
import statistics
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import uvloop

from bench.figures import SCENARIOS, Figure

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "benchmarks.md"
_MARK = "<!-- {} -->"


def machine() -> str:
    """The machine, in words."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores of {model}, {memory:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def run_once(scenario: str) -> dict[str, float]:
    """One run in a separate process."""
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--one", scenario],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode != 0:
        raise SystemExit(f"{scenario} failed:\n{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def one(scenario: str) -> None:
    """The inside of ``run_once``."""
    measured = import_module(f"bench.{scenario}").measure()
    if inspect.iscoroutine(measured):
        measured = uvloop.run(measured)  # as ``grange up`` does
    print(json.dumps(measured))


def number(value: float) -> str:
    """A value with three significant digits or so."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def rows(figures: tuple[Figure, ...], runs: list[dict[str, float]]) -> list[str]:
    """Lines of the table for one scenario."""
    lines = []
    for figure in figures:
        values = [run[figure.key] for run in runs if figure.key in run]
        if not values:
            continue
        median = statistics.median(values)
        bound = (
            "" if figure.goal is None else ("≤ " if figure.at_most else "≥ ") + number(figure.goal)
        )
        met = {True: "yes", False: "**no**", None: ""}[figure.met(median)]
        lines.append(
            f"| {figure.title} | {number(median)} {figure.unit} | "
            f"{number(min(values))} to {number(max(values))} | {bound} | {met} | "
            f"{figure.reference} |"
        )
    return lines


def write(scenario: str, lines: list[str]) -> None:
    """Replace the scenario's block of the page."""
    start, stop = _MARK.format(f"begin {scenario}"), _MARK.format(f"end {scenario}")
    text = PAGE.read_text()
    if start not in text:
        text += f"\n## {scenario}\n\n{start}\n{stop}\n"
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(stop)
    PAGE.write_text(before + "\n".join([start, *lines, stop]) + after)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("scenarios", nargs="*", help=", ".join(SCENARIOS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--one", default="")
    options = parser.parse_args()
    if options.one:
        one(options.one)
        return
    unknown = [name for name in options.scenarios if name not in SCENARIOS]
    if unknown:
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    print(machine())
    today = dt.datetime.now(dt.UTC).date().isoformat()
    heading = [
        f"Measured {today}, medians of {options.runs} runs, on {machine()}.",
        "",
        "| what | median | range | goal | met | kube-apiserver 1.36 + etcd 3.5 |",
        "|---|---|---|---|---|---|",
    ]
    for scenario in options.scenarios or SCENARIOS:
        runs = []
        for at in range(options.runs):
            print(f"{scenario}: run {at + 1} of {options.runs} …", file=sys.stderr, flush=True)
            runs.append(run_once(scenario))
        lines = rows(SCENARIOS[scenario], runs)
        print("\n".join(lines), flush=True)
        if not options.no_write:
            write(scenario, heading + lines)


if __name__ == "__main__":
    main()
