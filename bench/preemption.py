"""Pods decided a second by preemption, by the engine alone.

The shape is that of kube-scheduler's own benchmark: every node of 4 CPUs is full of unimportant pods
of 900m, and important pods of 3 CPUs come. Each takes two decisions: one that finds no node, chooses
victims and nominates; and, when the victims are gone, one that takes the promised room. Both are
counted, and so are the events of the victims' deletion.

Alone: ``python -m bench.preemption``; ``--profile FILE`` writes a profile of one run.
"""

import argparse
import cProfile
import json
import time
from pathlib import Path

from bench.scheduler import NODES
from grange.app import gc_tuning
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.scheduler import plugins
from grange.scheduler.cache import Cache
from grange.scheduler.cycle import Assumed, Cycle, Unschedulable
from grange.scheduler.event_handlers import EventHandlers
from grange.scheduler.framework import Profile
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.schedule_one import ScheduleOne
from grange.sim import builders

LOW = {"cpu": "900m", "memory": "500Mi"}
HIGH = {"cpu": "3", "memory": "500Mi"}
OURS = frozenset({"default-scheduler"})


class Cluster:
    """A full cluster, and important pods that wait."""

    def __init__(self, nodes: int, pods: int) -> None:
        profile = Profile(plugins.DEFAULT)
        self.now = 0.0
        self.cache, self.queue = Cache(), SchedulingQueue(profile)
        rng = Stream(1)
        self.cycle = Cycle(profile, self.cache, offset=lambda count: rng.integer(0, count - 1))
        self.loop = ScheduleOne(self.cycle, self.queue)
        self.handlers = EventHandlers(
            self.cycle,
            self.queue,
            OURS,
            now=lambda: self.now,
            log=Logger("bench"),
        )
        for number in range(nodes):
            self.handlers.node_added(builders.node(f"node-{number}", zone=f"zone-{number % 3}"))
        for number in range(4 * nodes):
            node = f"node-{number % nodes}"
            self.handlers.pod_added(builders.pod(f"low-{number}", requests=LOW, nodeName=node))
        for number in range(pods):
            self.handlers.pod_added(builders.pod(f"high-{number}", requests=HIGH, priority=10))
        self.cache.update_node_info_snapshot(self.cycle.snapshot)

    def preempt_one_by_one(self) -> int:
        """Each pod's victims go at once, before the next pod is tried; how many were placed."""
        placed = 0
        while (outcome := self._next()) is not None:
            if isinstance(outcome, Assumed):
                placed += 1
            elif isinstance(outcome, Unschedulable):
                self._evict(outcome)
        return placed

    def preempt_all_first(self) -> int:
        """All pods are tried before any victim goes, so that each leaves the others their room."""
        waiting = []
        while isinstance(outcome := self._next(), Unschedulable):
            waiting.append(outcome)
        for one in waiting:
            self._evict(one)
        placed = 0
        while isinstance(self._next(), Assumed):
            placed += 1
        return placed

    def _next(self) -> object:
        self.queue.flush(self.now)
        outcome = self.loop.schedule_one(self.now)
        if outcome is None and len(self.queue):
            self.now += 2.0  # a backoff
            self.queue.flush(self.now)
            outcome = self.loop.schedule_one(self.now)
        return outcome

    def _evict(self, outcome: Unschedulable) -> None:
        result = outcome.post_filter
        assert result is not None, outcome.diagnosis.message
        self.cycle.nominator.evicting.pop(outcome.queued.uid, None)
        for victim in result.victims:
            self.handlers.pod_deleted(victim.pod)


def rate(
    nodes: int, pods: int, *, all_first: bool, profiler: cProfile.Profile | None = None
) -> float:
    """Pods a second."""
    cluster = Cluster(nodes, pods)
    if profiler is not None:
        profiler.enable()
    started = time.perf_counter()
    placed = cluster.preempt_all_first() if all_first else cluster.preempt_one_by_one()
    elapsed = time.perf_counter() - started
    if profiler is not None:
        profiler.disable()
    assert placed == pods, placed
    return pods / elapsed


def measure() -> dict[str, float]:
    gc_tuning.tune()  # as a server does
    return {
        "preemption_per_s": rate(NODES, 2_000, all_first=False),
        "preemption_crowd_per_s": rate(NODES, 1_000, all_first=True),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--all-first", action="store_true")
    options = parser.parse_args()
    if options.profile is None:
        print(json.dumps(measure(), indent=2))
        return
    profiler = cProfile.Profile()
    found = rate(NODES, 1_000, all_first=options.all_first, profiler=profiler)
    print(f"{found:,.0f} pods/s")
    profiler.dump_stats(options.profile)


if __name__ == "__main__":
    main()
