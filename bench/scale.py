"""The engine in clusters of different sizes, under churn, and what a large cluster takes in memory.

Nodes and pods are those of ``bench.scheduler``. Rates are taken after the classes were built, as a
scheduler at work has them. Memory is the resident size of this process with all nodes and pods, each
read from its JSON and put through what informers put theirs through.
"""

import json
import os
import time
from pathlib import Path

import msgspec

from bench.scheduler import shape
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.app import gc_tuning
from grange.reconcile.interning import Sharing
from grange.scheduler import plugins
from grange.scheduler.cache import Cache
from grange.scheduler.cycle import Assumed, Cycle
from grange.scheduler.framework import Profile
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.schedule_one import ScheduleOne
from grange.sim import builders

LARGE = 100_000


class Cluster:
    """Nodes, a scheduler's inside, and pods that come and go."""

    def __init__(self, nodes: int) -> None:
        self.profile = Profile(plugins.DEFAULT)
        self.cache, self.queue = Cache(), SchedulingQueue(self.profile)
        self.nodes: list[Node] = []
        self.placed: list[Pod] = []
        self.count = 0
        self._sharing = Sharing()
        for number in range(nodes):
            self.add_node(number)
        self.cycle = Cycle(self.profile, self.cache)
        self.loop = ScheduleOne(self.cycle, self.queue)
        self.cache.update_node_info_snapshot(self.cycle.snapshot)

    def add_node(self, number: int) -> None:
        document = builders.node_document(f"node-{number}", zone=f"zone-{number % 3}")
        node = msgspec.json.decode(msgspec.json.encode(document), type=Node)
        node = self._sharing.slim(node)
        self.cache.add_node(node)
        self.nodes.append(node)

    def add_pods(self, number: int, shapes: int) -> None:
        for _ in range(number):
            self.count += 1
            document = builders.pod_document(
                f"pod-{self.count}", requests=shape(self.count, shapes)
            )
            document["metadata"]["uid"] = f"uid-{self.count}"
            pod = msgspec.json.decode(msgspec.json.encode(document), type=Pod)
            info = PodInfo.of(self._sharing.slim(pod))
            self.profile.sign(info)
            self.queue.add(info, 0.0)

    def decide(self, *, settled: bool = True) -> float:
        """Decide what waits; the seconds that took.

        Args:
            settled: earlier events are taken in before the clock starts.
        """
        found = []
        if settled:
            self.cache.update_node_info_snapshot(self.cycle.snapshot)
        started = time.perf_counter()
        while (outcome := self.loop.schedule_one(0.0)) is not None:
            assert isinstance(outcome, Assumed)
            found.append(outcome.info.pod)
        elapsed = time.perf_counter() - started
        for pod in found:
            self.cache.add_pod(pod)  # the informer shows it bound
        self.placed += found
        return elapsed


def rate(nodes: int, shapes: int, pods: int = 20_000) -> float:
    """Decisions a second."""
    cluster = Cluster(nodes)
    cluster.add_pods(20 * shapes, shapes)
    cluster.decide()
    cluster.add_pods(pods, shapes)
    return pods / cluster.decide()


def churn(nodes: int = 5_000, rounds: int = 100) -> float:
    """Events and decisions a second: in each round 100 pods come, 80 go, a node comes and one goes."""
    cluster = Cluster(nodes)
    cluster.add_pods(nodes, 10)
    cluster.decide()
    elapsed, done = 0.0, 0
    for number in range(rounds):
        cluster.add_pods(100, 10)
        started = time.perf_counter()
        for at in range(80):
            cluster.cache.remove_pod(cluster.placed.pop((at * 37) % len(cluster.placed)))
        cluster.add_node(nodes + number)
        cluster.cache.remove_node(cluster.nodes.pop(number))
        elapsed += time.perf_counter() - started + cluster.decide(settled=False)
        done += 182
    return done / elapsed


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def memory(nodes: int = LARGE, pods: int = 500_000) -> float:
    """Resident MB with so many nodes and pods, ten shapes."""
    cluster = Cluster(nodes)
    for _ in range(pods // 20_000):
        cluster.add_pods(20_000, 10)
        cluster.decide()
    assert cluster.cache.pod_count == pods
    return resident_mb()


def measure() -> dict[str, float]:
    gc_tuning.tune()  # as a server does
    resident = memory()  # first, while the process holds nothing else
    small, large = rate(1_000, 1), rate(LARGE, 1)
    return {
        "resident_mb": resident,
        "basic_1k_per_s": small,
        "basic_100k_per_s": large,
        "flat_ratio": small / large,
        "mixed_1k_per_s": rate(1_000, 10),
        "mixed_100k_per_s": rate(LARGE, 10),
        "churn_per_s": churn(),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
