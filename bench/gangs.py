"""Pods of gangs decided a second: queue, snapshot, engine, transaction and cache, nothing to wait for.

Gangs of one size after another on 5,000 nodes of 4 CPUs, 32Gi and 110 pods in three zones; pods of
100m and 500Mi. A failed attempt is a gang of 512 that nodes full of other pods have no room for:
what one costs that columns alone turn down, and one that has to be placed in part first.

Alone: ``python -m bench.gangs``.
"""

import json
import time
from typing import Any

import msgspec

from grange.api.kinds.podgroup import GROUP_LABEL, PodGroup
from grange.app import gc_tuning
from grange.scheduler import plugins
from grange.scheduler.cache import Cache
from grange.scheduler.cycle import Assumed, Batch, Cycle
from grange.scheduler.framework import Profile
from grange.scheduler.gangs.coscheduling import Coscheduling
from grange.scheduler.gangs.queue_policies.best_effort_fifo import BestEffortFIFO
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.queued_pods import QueueSettings
from grange.scheduler.schedule_one import ScheduleOne
from grange.sim import builders

NODES = 5_000
PODS = 5_120
RACKS = 100


class Loop:
    """A scheduling loop without a service."""

    def __init__(self) -> None:
        self.profile = Profile(plugins.DEFAULT)
        self.cache = Cache()
        self.queue = SchedulingQueue(self.profile, QueueSettings(backoff_max_s=0.0))
        self.cycle = Cycle(self.profile, self.cache)
        policy = BestEffortFIFO(overtakes=64)
        self.gangs = Coscheduling(self.profile, self.cycle, self.cache, self.queue, policy)
        self.loop = ScheduleOne(self.cycle, self.queue, self.gangs)
        for number in range(NODES):
            labels = {"rack": f"rack-{number % RACKS}"}
            node = builders.node(f"node-{number}", zone=f"zone-{number % 3}", labels=labels)
            self.cache.add_node(node)

    def add(self, name: str, size: int, cpu: str = "100m", **spec: object) -> None:
        document = {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"minMember": size, **spec},
        }
        self.gangs.handlers.update_group(msgspec.convert(document, PodGroup), 0.0)
        for number in range(size):
            pod = builders.pod(
                f"{name}-{number}",
                labels={GROUP_LABEL: name},
                requests={"cpu": cpu, "memory": "500Mi"},
            )
            self.gangs.handlers.update_pod(pod, 0.0)
            info = PodInfo.of(pod)
            self.profile.sign(info)
            self.queue.add(info, 0.0)

    def run(self) -> int:
        """How many pods were placed."""
        placed = 0
        while (outcome := self.loop.schedule_one(0.0)) is not None:
            if isinstance(outcome, Batch):
                placed += sum(isinstance(one, Assumed) for one in outcome.outcomes)
        return placed


def rate(size: int, **spec: Any) -> float:
    loop = Loop()
    for number in range(PODS // size):
        loop.add(f"gang-{number}", size, **spec)
    loop.cycle.refresh()
    started = time.perf_counter()
    placed = loop.run()
    elapsed = time.perf_counter() - started
    assert placed == PODS // size * size == loop.cache.assumed_count
    return placed / elapsed


def failed(cpu: str, tries: int = 50) -> float:
    """Milliseconds for an attempt to place 512 pods where there is no room for all."""
    loop = Loop()
    for number in range(NODES):
        pod = builders.pod(
            f"old-{number}", requests={"cpu": "3500m"}, nodeName=f"node-{number}", uid=f"o{number}"
        )
        if number >= 300:
            loop.cache.add_pod(pod)
    loop.add("gang", 512, cpu)
    loop.run()
    started = time.perf_counter()
    for _ in range(tries):
        loop.queue.activate(["uid-gang-0"], 0.0)
        assert loop.run() == 0
    elapsed = time.perf_counter() - started
    assert loop.cache.assumed_count == 0
    return elapsed / tries * 1e3


def measure() -> dict[str, float]:
    gc_tuning.tune()  # as a server does
    rack = {"key": "rack", "mode": "Required"}
    return {
        "gangs_8_per_s": rate(8),
        "gangs_64_per_s": rate(64),
        "gangs_512_per_s": rate(512),
        "gangs_64_rack_per_s": rate(64, topology=rack),
        "gang_refused_ms": failed("3"),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
