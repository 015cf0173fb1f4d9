"""Reports what tests cost in processor time, which a busy machine does not change much.

Loaded with ``-p tests.support.durations``, as ``make test-durations`` does. Works with and without
workers: each test's cost travels with its report.
"""

import os
import time
from collections import defaultdict
from collections.abc import Generator

import pytest

SLOWEST = 40
_COST = "processor_s"

_started = pytest.StashKey[float]()
_costs: dict[str, float] = {}


def _spent_s() -> float:
    """Processor seconds of this process and of the children that it has waited for."""
    return time.process_time() + sum(os.times()[2:4])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note where the test begins."""
    item.stash[_started] = _spent_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the cost of the whole test to its last report."""
    report = yield
    if call.when == "teardown":
        report.user_properties.append((_COST, _spent_s() - item.stash[_started]))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the costs where the reports arrive."""
    for name, value in report.user_properties:
        if name == _COST and isinstance(value, float):
            _costs[report.nodeid] = value


def _lines(title: str, costs: dict[str, float], most: int | None = None) -> list[str]:
    ranked = sorted(costs.items(), key=lambda item: -item[1])[:most]
    return [title, *(f"{cost:8.2f} s  {name}" for name, cost in ranked)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the sum, the folders and the slowest tests; all seeds and examples of one together."""
    folders: dict[str, float] = defaultdict(float)
    tests: dict[str, float] = defaultdict(float)
    for test, cost in _costs.items():
        folders[test.partition("::")[0].rpartition("/")[0]] += cost
        tests[test.partition("[")[0]] += cost
    terminalreporter.section(f"processor time: {sum(folders.values()):.1f} s")
    for line in _lines("by folder", folders) + _lines("slowest tests", tests, SLOWEST):
        terminalreporter.write_line(line)
