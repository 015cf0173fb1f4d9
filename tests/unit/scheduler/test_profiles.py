"""Every profile that can be configured: the engine decides as the reference does."""

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.support.scheduler_cluster import HOST, ZONE
from tests.support.topology_reference import assert_agrees

from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.meta import Document
from grange.base.rng import Stream
from grange.placement import devices
from grange.scheduler import plugins
from grange.scheduler.cache import Cache
from grange.scheduler.component_config import configure
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.engine import Engine, reference
from grange.scheduler.engine.reference import Rotation, num_feasible_nodes_to_find
from grange.scheduler.framework import CycleState, Profile
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot
from grange.sim import builders

MUST = "requiredDuringSchedulingIgnoredDuringExecution"
SHOULD = "preferredDuringSchedulingIgnoredDuringExecution"
GPU = "grange.dev/gpu-milli"
RESOURCES = ["cpu", "memory", "ephemeral-storage", "example.com/gpu", "example.com/other", GPU]
POLICIES = ["BestFit", "DotProduct", "FGD", "GpuClustering", "GpuPacking", "Random"]


def profile_of(**spec: Any) -> Profile:
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [spec],
    }
    return configure(document).profiles.each()[0]


class World:
    """A cache with an engine over its snapshot; ``decide`` holds it to the reference."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.cache = Cache()
        self.snapshot = NodeInfoSnapshot()
        self.mine, self.theirs = Rotation(), Rotation()
        self.engine = Engine(profile, self.snapshot, rotation=self.mine)

    def decide(self, pod: Pod) -> str | Diagnosis:
        self.cache.update_node_info_snapshot(self.snapshot)
        info = PodInfo.of(pod)
        found = self.engine.decide(info)
        state = CycleState()
        assert found == reference.decide(self.profile, state, info, self.snapshot, self.theirs)
        assert self.mine.start == self.theirs.start
        assert_agrees(self.profile, info, self.snapshot)
        return found

    def place(self, pod: Pod) -> str | Diagnosis:
        found = self.decide(pod)
        if isinstance(found, str):
            self.cache.assume_pod(self.on(pod, found))
        return found

    def on(self, pod: Pod, node: str) -> PodInfo:
        """As the cycle places it, with its devices."""
        info, choose = PodInfo.of(pod).on(node), self.profile.device_allocator
        if choose is not None and devices.asked(info.request):
            info = info.holding(choose(info, self.snapshot.node_info_map[node]))
        return info


# --- drawn by the seed: profiles, nodes, pods, histories ---------------------------------------------


def some(random: Stream, items: list[Any], most: int = 3) -> list[Any]:
    return random.shuffled(items)[: random.integer(1, most)]


def fit_args(random: Stream) -> Document:
    kind = random.choice(["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"])
    strategy: Document = {
        "type": kind,
        "resources": [
            {"name": name, "weight": random.choice([1, 1, 3, 100])}
            for name in some(random, RESOURCES)
        ],
    }
    if kind == "RequestedToCapacityRatio":
        points = sorted({random.integer(0, 100) for _ in range(random.integer(1, 4))})
        shape = [{"utilization": point, "score": random.integer(0, 10)} for point in points]
        strategy["requestedToCapacityRatio"] = {"shape": shape}
    ignored = random.choice([{}, {"ignoredResources": ["example.com/gpu"]}])
    groups = random.choice([{}, {}, {"ignoredResourceGroups": ["example.com"]}])
    return {"scoringStrategy": strategy, **ignored, **groups}


def term(random: Stream) -> Document:
    values = some(random, ["ssd", "hdd", "tape"], 2)
    return {"matchExpressions": [{"key": "disk", "operator": "In", "values": values}]}


def added_affinity(random: Stream) -> Document:
    wishes = [{"weight": random.choice([1, 50]), "preference": term(random)}]
    demands = {"nodeSelectorTerms": [term(random)]}
    return random.choice([{SHOULD: wishes}, {MUST: demands}, {MUST: demands, SHOULD: wishes}])


def random_profile(random: Stream) -> Document:
    config: list[Document] = []
    if random.integer(0, 3):
        config.append({"name": "NodeResourcesFit", "args": fit_args(random)})
    if random.integer(0, 2) == 0:
        names = [{"name": name} for name in some(random, RESOURCES, 4)]
        config.append({"name": "NodeResourcesBalancedAllocation", "args": {"resources": names}})
    if random.integer(0, 2) == 0:
        config.append({"name": "NodeAffinity", "args": {"addedAffinity": added_affinity(random)}})
    if random.integer(0, 1):
        args = {
            "hardPodAffinityWeight": random.choice([0, 5, 100]),
            "ignorePreferredTermsOfExistingPods": random.choice([True, False]),
        }
        config.append({"name": "InterPodAffinity", "args": args})
    if random.integer(0, 1):
        kinds = [
            {"cpu": random.choice(["0", "500m", 2]), "gpuMilli": milli, "number": 1 + milli % 7}
            for milli in some(random, [0, 1, 300, 500, 700, 1000, 2000], 5)
        ]
        config.append({"name": "FGD", "args": {"workload": kinds}})
    filters = [item.name for item in plugins.DEFAULT if item.filter or item.topology]
    scores = [item.name for item in plugins.DEFAULT if item.score or item.topology]
    changes: Document = {}
    if random.integer(0, 1):
        changes["filter"] = {"disabled": [{"name": name} for name in some(random, filters)]}
    if random.integer(0, 2) == 0:
        changes["score"] = {"disabled": [{"name": "*"}]}
    if random.integer(0, 1):
        enabled = [
            {"name": name, "weight": random.choice([1, 7, 10_000])} for name in some(random, scores)
        ]
        if random.integer(0, 1):
            enabled.append({"name": random.choice(POLICIES), "weight": 2})
        changes.setdefault("score", {})["enabled"] = enabled
    spec: Document = {"pluginConfig": config, "plugins": changes}
    if random.integer(0, 1):
        spec["percentageOfNodesToScore"] = random.choice([0, 1, 30, 60, 99])
    return spec


def random_node(random: Stream, name: str) -> Node:
    capacity: Document = {
        "cpu": random.choice(["0", "1", "2500m", "4"]),
        "memory": random.choice(["0", "1Gi", "3Gi"]),
        "ephemeral-storage": random.choice(["0", "1Gi"]),
        "pods": random.integer(1, 6),
    }
    if random.integer(0, 2):
        capacity[GPU] = 1000 * random.integer(0, 3) + random.choice([0, 0, 500])
    if random.integer(0, 1):
        capacity["example.com/gpu"] = random.integer(0, 4)
    labels = {"disk": random.choice(["ssd", "hdd"])} if random.integer(0, 3) else {}
    taint = {"key": "old", "value": "x", "effect": "PreferNoSchedule"}
    return builders.node(
        name,
        zone=random.choice(["", "z0", "z1", "z2"]),
        labels=labels,
        capacity=capacity,
        taints=[taint] if random.integer(0, 3) == 0 else [],
    )


def random_shape(random: Stream) -> Document:
    colour = random.choice(["red", "blue"])
    gpu = random.choice(["0", "1", "300", "500", "500", "700", "999", "1000", "1500", "2000"])
    requests = {
        name: random.choice(["0", "1"]) if "/" in name else random.choice(["100m", "1", "1Gi"])
        for name in (some(random, RESOURCES, 4) if random.integer(0, 4) else [])
    }
    if "cpu" in requests:
        requests["cpu"] = random.choice(["0", "250m", "1"])
    if GPU in requests:
        requests[GPU] = gpu
    shape: Document = {"labels": {"colour": colour}, "requests": requests}
    selector = {"labelSelector": {"matchLabels": {"colour": colour}}}
    near: Document = {"topologyKey": random.choice([ZONE, HOST]), **selector}
    affinity: Document = {}
    match random.integer(0, 6):
        case 0:
            affinity["podAffinity"] = {MUST: [near]}
        case 1:
            affinity["podAntiAffinity"] = {MUST: [near]}
        case 2:
            affinity["podAffinity"] = {SHOULD: [{"weight": 10, "podAffinityTerm": near}]}
        case 3:
            shape["topologySpreadConstraints"] = [
                {
                    "maxSkew": random.integer(1, 2),
                    "topologyKey": random.choice([ZONE, HOST]),
                    "whenUnsatisfiable": random.choice(["DoNotSchedule", "ScheduleAnyway"]),
                    **selector,
                }
            ]
        case 4:
            affinity["nodeAffinity"] = added_affinity(random)
        case 5:
            fields = [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]
            more = [{"key": "metadata.name", "operator": "In", "values": ["n3"]}]
            terms = [{"matchFields": fields}, {"matchFields": more}]
            affinity["nodeAffinity"] = {MUST: {"nodeSelectorTerms": terms}}
        case _:
            pass
    if affinity:
        shape["affinity"] = affinity
    return shape


def play(seed: int, *, nodes: int, steps: int) -> None:
    random = Stream(seed)
    world = World(profile_of(**random_profile(random)))
    held: dict[str, Node] = {}
    for number in range(nodes):
        held[f"n{number}"] = random_node(random, f"n{number}")
        world.cache.add_node(held[f"n{number}"])
    shapes = [random_shape(random) for _ in range(4)]
    placed: list[Pod] = []
    for number in range(steps):
        match random.integer(0, 9):
            case 0:
                name = f"n{random.integer(0, nodes)}"
                held[name] = random_node(random, name)
                world.cache.update_node(None, held[name])
            case 1 if placed:
                world.cache.remove_pod(placed.pop(random.integer(0, len(placed) - 1)))
            case 2 if len(held) > 1 and random.integer(0, 3) == 0:
                world.cache.remove_node(held.pop(random.choice([*held])))
            case _:
                pod = builders.pod(f"p{number}", **random.choice(shapes))
                found = world.place(pod)
                if isinstance(found, str):
                    placed.append(pod)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**9))
def test_check_118_for_any_profile(seed: int) -> None:
    """All strategies, arguments, weights and subsets of plugins, over any history."""
    play(seed, nodes=7, steps=30)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**9))
def test_check_118_for_any_profile_with_many_nodes(seed: int) -> None:
    """Enough nodes for sampling to leave some out."""
    play(seed, nodes=230, steps=25)


# --- sampling ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (1, 1),
        (99, 99),
        (100, 100),
        (200, 100),
        (500, 230),
        (1000, 420),
        (2000, 680),
        (3000, 780),
        (4000, 720),
        (5000, 500),
        (6000, 300),
        (15000, 750),
    ],
)
def test_check_93_how_many_feasible_nodes_are_enough(nodes: int, expected: int) -> None:
    assert num_feasible_nodes_to_find(nodes, 0) == expected
    assert num_feasible_nodes_to_find(nodes, 100) == nodes


def test_check_93_a_percentage_has_a_floor() -> None:
    assert num_feasible_nodes_to_find(1000, 30) == 300
    assert num_feasible_nodes_to_find(1000, 5) == 100


def sampling(nodes: int, percentage: int, **options: Any) -> World:
    world = World(profile_of(percentageOfNodesToScore=percentage))
    for number in range(nodes):
        world.cache.add_node(builders.node(f"n{number:03}", **options))
    return world


def test_check_94_the_search_goes_on_where_the_last_one_ended() -> None:
    """500 nodes and 30 %: every cycle looks at 150."""
    world = sampling(500, 30)
    for cycle in range(1, 12):
        world.place(builders.pod(f"p{cycle}", requests={"cpu": "100m"}))
        assert world.mine.start == 150 * cycle % 500


def test_check_111_search_ends_one_past_the_feasible_limit() -> None:
    """Nodes that refuse are counted too; the one that ends the search is looked at again."""
    world = World(profile_of(percentageOfNodesToScore=1))
    for number in range(300):
        world.cache.add_node(builders.node(f"n{number:03}", unschedulable=number % 3 == 2))
    assert world.place(builders.pod("p")) == "n000"
    # A hundred feasible ones and the fifty among them that refuse; the next one is feasible.
    assert world.mine.start == 150
    assert world.place(builders.pod("q")) == "n150"


def test_check_111_named_subset_is_searched_from_the_same_place() -> None:
    world = sampling(200, 1)
    world.place(builders.pod("p"))
    assert world.mine.start == 100
    fields = [
        {"key": "metadata.name", "operator": "In", "values": [f"n00{number}"]}
        for number in range(3)
    ]
    terms = {"nodeSelectorTerms": [{"matchFields": [field]} for field in fields]}
    pod = builders.pod("q", affinity={"nodeAffinity": {MUST: terms}})
    assert world.place(pod) == "n001"  # 100 modulo the three that are named
    assert world.mine.start == 103


def test_check_111_without_scores_one_feasible_node_is_enough() -> None:
    everything = {"score": {"disabled": [{"name": "*"}]}}
    world = World(profile_of(percentageOfNodesToScore=50, plugins=everything))
    for number in range(5):
        world.cache.add_node(builders.node(f"n{number}"))
    placed = [world.place(builders.pod(f"p{number}")) for number in range(6)]
    assert placed == ["n0", "n1", "n2", "n3", "n4", "n0"]


def test_by_default_every_node_is_looked_at() -> None:
    world = World(Profile(plugins.DEFAULT))
    for number in range(300):
        cpu = 64 if number == 299 else 2
        world.cache.add_node(builders.node(f"n{number}", capacity={"cpu": cpu, "pods": 9}))
    assert world.place(builders.pod("p", requests={"cpu": "1"})) == "n299"
    assert world.mine.start == 0
