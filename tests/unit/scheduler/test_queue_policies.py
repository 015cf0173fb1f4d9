"""Queue policies: the default one, and that another is one module and one line."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from pathlib import Path

import pytest
from tests.support.gang_cluster import Bench

from grange.api.kinds.queue import QUEUE_LABEL
from grange.scheduler.config import SchedulerConfig
from grange.scheduler.gangs import queue_policies
from grange.scheduler.gangs.queue_policies import DEFAULT, POLICIES

CPU = {"cpu": "1"}
IN_QUEUE = {QUEUE_LABEL: "q"}
FIFO = '''
"""FIFO: by age alone, whatever the priority."""


class FIFO:
    def __init__(self, overtakes: int) -> None:
        self._overtakes = overtakes

    def rank(self, priority: int, since: float) -> tuple[float, float]:
        return 0.0, since

    def claims(self, overtaken: int) -> bool:
        return overtaken >= self._overtakes
'''


@contextmanager
def built(folder: Path, name: str, source: str, line: str) -> Iterator[None]:
    """A policy is there for a while: a module in the package, and a line of its table."""
    module = f"{queue_policies.__name__}.{name}"
    (folder / f"{name}.py").write_text(source)
    queue_policies.__path__.append(str(folder))
    invalidate_caches()
    try:
        POLICIES[line] = getattr(import_module(module), line)
        yield
    finally:
        POLICIES.pop(line, None)
        queue_policies.__path__.remove(str(folder))
        sys.modules.pop(module, None)
        vars(queue_policies).pop(name, None)


def admitted(config: SchedulerConfig) -> set[str]:
    """Which of two pods gets the quota: one waits for longer, the other is more important."""
    bench = Bench(policy=POLICIES[config.queue_policy](config.overtakes))
    bench.nodes("a")
    bench.quota("q", cpu="1")
    bench.pods("first", labels=IN_QUEUE, requests=CPU)
    bench.run()
    bench.pods("old", labels=IN_QUEUE, requests=CPU)
    bench.run(1.0)
    bench.pods("important", labels=IN_QUEUE, requests=CPU, priority=5)
    assert set(bench.run(1.0)) == {"first"}
    bench.gone("first")
    return set(bench.run(1.0))


def test_queue_policy_is_one_module_and_one_line(tmp_path: Path) -> None:
    with built(tmp_path, "fifo", FIFO, "FIFO"):
        assert admitted(SchedulerConfig(queue_policy="FIFO")) == {"old"}
    with pytest.raises(ValueError, match="queue_policy must be one of BestEffortFIFO"):
        SchedulerConfig(queue_policy="FIFO")


def test_default_queue_policy_admits_by_priority_then_age() -> None:
    assert admitted(SchedulerConfig()) == {"important"}
    policy = POLICIES[DEFAULT](3)
    assert policy.rank(1, 9.0) < policy.rank(0, 1.0) < policy.rank(0, 2.0)
    assert [policy.claims(count) for count in (2, 3, 4)] == [False, True, True]
