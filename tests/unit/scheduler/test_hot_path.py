"""Whole cycles decide as the reference does, and a decision costs a fixed number of small steps."""

from typing import Any

from hypothesis import given, settings, strategies as st
from tests.support.scheduler_cluster import PROFILE

from grange.api.kinds.pod import Pod
from grange.base.rng import Stream
from grange.scheduler.cache import Cache
from grange.scheduler.cycle import Assumed, Cycle, Unschedulable
from grange.scheduler.engine import reference
from grange.scheduler.framework import CycleState
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.schedule_one import ScheduleOne
from grange.scheduler.snapshot import NodeInfoSnapshot
from grange.sim import builders

BLUE = {"colour": "blue"}
TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": BLUE}}
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}
EVEN = {
    "maxSkew": 1,
    "topologyKey": "topology.kubernetes.io/zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": BLUE},
}
SHAPES: list[dict[str, Any]] = [
    {"requests": {"cpu": "100m"}},
    {"requests": {"cpu": "300m", "memory": "1Gi"}},
    {"requests": {"cpu": "100m", "example.com/gpu": 1}},
    {"host_ports": [80]},
    {"labels": BLUE, "affinity": APART},
    {"labels": BLUE, "topologySpreadConstraints": [EVEN]},
]


class Cluster:
    """A scheduler's inside, and a second snapshot that the reference decides on."""

    def __init__(self) -> None:
        self.cache, self.queue = Cache(), SchedulingQueue(PROFILE)
        self.cycle = Cycle(PROFILE, self.cache)
        self.loop = ScheduleOne(self.cycle, self.queue)
        self.plain = NodeInfoSnapshot()
        self.waiting: dict[str, Pod] = {}
        self.placed: list[Pod] = []
        self.count = 0

    def nodes(self, first: int, end: int, **options: Any) -> None:
        for number in range(first, end):
            node = builders.node(f"n{number}", zone=f"z{number % 3}", **options)
            self.cache.update_node(None, node)

    def submit(self, **options: Any) -> None:
        self.count += 1
        pod = builders.pod(f"p{self.count}", **options)
        info = PodInfo.of(pod)
        PROFILE.sign(info)
        self.waiting[info.uid] = pod
        self.queue.add(info, 0.0)

    def run(self) -> int:
        """Cycles until no pod can be tried, each held to the reference; how many were placed."""
        placed = 0
        while True:
            self.cache.update_node_info_snapshot(self.plain)
            outcome = self.loop.schedule_one(0.0)
            if outcome is None:
                return placed
            assert isinstance(outcome, Assumed | Unschedulable)
            pod = self.waiting.pop(outcome.queued.uid)
            expected = reference.decide(PROFILE, CycleState(), PodInfo.of(pod), self.plain)
            if isinstance(outcome, Assumed):
                assert outcome.node_name == expected
                self.placed.append(outcome.info.pod)
                placed += 1
            else:
                assert outcome.diagnosis == expected
                self.queue.delete(outcome.queued.uid)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_check_118_whole_cycles_equal_the_reference(seed: int) -> None:
    """Runs of equal pods, mixtures, and what happens to nodes and pods between them."""
    rng, cluster = Stream(seed), Cluster()
    capacity = {"cpu": "2", "memory": "4Gi", "pods": 5, "example.com/gpu": 2}
    cluster.nodes(0, 12, capacity=capacity)
    nodes = 12
    for _ in range(12):
        run = rng.choice(SHAPES)
        for _ in range(rng.integer(0, 8)):
            cluster.submit(**(run if rng.integer(0, 3) else rng.choice(SHAPES)))
        cluster.run()
        for _ in range(rng.integer(0, 4)):
            if not cluster.placed:
                break
            pod = cluster.placed[rng.integer(0, len(cluster.placed) - 1)]
            if rng.integer(0, 1) and cluster.cache.is_assumed_pod(pod):
                cluster.cache.add_pod(pod)
            else:
                cluster.placed.remove(pod)
                cluster.cache.remove_pod(pod)
        match rng.integer(0, 3):
            case 0:
                cluster.nodes(nodes, nodes + 1, capacity=capacity)
                nodes += 1
            case 1 if cluster.cache.node_tree.num_nodes > 1:
                name = rng.choice(cluster.cache.node_tree.list())
                cluster.cache.remove_node(builders.node(name))
            case _:
                pass


def test_check_64_placement_copies_one_entry_looks_at_one_row() -> None:
    """However many nodes there are: nothing in these counters depends on that."""
    for nodes in (50, 800):
        cluster = Cluster()
        cluster.nodes(0, nodes)
        for _ in range(2):
            cluster.submit(**SHAPES[0])
        cluster.run()
        snapshot, statistics = cluster.cycle.snapshot, cluster.cycle.statistics
        copies, built, patched = snapshot.copies, statistics.built, statistics.patched
        for _ in range(40):
            cluster.submit(**SHAPES[0])
        assert cluster.run() == 40
        assert snapshot.copies == copies + 40
        assert statistics.patched == patched + 40
        assert statistics.built == built


def test_a_load_is_judged_once_for_all_nodes_of_it() -> None:
    """Three classes follow 90 placements on 100 equal nodes, and meet few different loads."""
    cluster = Cluster()
    cluster.nodes(0, 100)
    for _ in range(90):
        for shape in SHAPES[:3]:
            cluster.submit(**shape)
    cluster.run()
    statistics = cluster.cycle.statistics
    assert statistics.patched > 350
    assert statistics.judged < 100


def test_node_annotations_rebuild_no_class() -> None:
    """Domains follow from labels and taints, so a changed annotation renews one row."""
    cluster = Cluster()
    cluster.nodes(0, 100)
    cluster.submit(**SHAPES[5])
    assert cluster.run() == 1
    statistics = cluster.cycle.statistics
    built, patched = statistics.built, statistics.patched
    node = builders.node("n50", zone="z2")
    node.metadata.annotations["note"] = "x"
    cluster.cache.update_node(None, node)
    cluster.submit(**SHAPES[5])
    assert cluster.run() == 1
    assert (statistics.built, statistics.patched) == (built, patched + 2)


def test_a_cordon_counts_whatever_came_after_it() -> None:
    """A class that is used again finds the node changed, then charged by another class's update."""
    cluster = Cluster()
    cluster.nodes(0, 2)
    cluster.submit(**SHAPES[0])
    cluster.run()
    cluster.nodes(0, 1, unschedulable=True)
    cluster.submit(**SHAPES[1])
    cluster.run()
    cluster.cache.add_pod(builders.pod("late", nodeName="n0"))
    cluster.submit(**SHAPES[0])
    cluster.run()
    assert [pod.spec.node_name for pod in cluster.placed] == ["n0", "n1", "n1"]
