"""Rules about other pods: the engine decides as the reference does, whatever path it takes."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from tests.support.scheduler_cluster import HOST, PROFILE, ZONE
from tests.support.topology_reference import assert_agrees, ranked

from grange.api.kinds.node import ContainerImage, Node
from grange.api.kinds.pod import Pod
from grange.api.pod_fields import IMAGES_LABEL
from grange.base.rng import Stream
from grange.scheduler.cache import Cache
from grange.scheduler.clusterevents import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NAMESPACE_CHANGE,
    NODE_ADD,
    NODE_DELETE,
    Action,
    ClusterEvent,
    Subject,
)
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.engine import Engine, reference
from grange.scheduler.framework import CycleState
from grange.scheduler.plugins import imagelocality
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot
from grange.sim import builders

MUST = "requiredDuringSchedulingIgnoredDuringExecution"
SHOULD = "preferredDuringSchedulingIgnoredDuringExecution"


class World:
    """A cache with an engine over its snapshot; ``decide`` holds it to the reference."""

    def __init__(self, few_domains: int = 64) -> None:
        self.cache = Cache()
        self.snapshot = NodeInfoSnapshot()
        self.engine = Engine(PROFILE, self.snapshot, few_domains=few_domains)

    def nodes(self, *names: str, **options: Any) -> None:
        for name in names:
            self.cache.add_node(builders.node(name, **options))

    def put(self, name: str, node: str, **options: Any) -> None:
        self.cache.add_pod(builders.pod(name, nodeName=node, **options))

    def decide(self, pod: Pod) -> str | Diagnosis:
        self.cache.update_node_info_snapshot(self.snapshot)
        info = PodInfo.of(pod)
        found = self.engine.decide(info)
        assert found == reference.decide(PROFILE, CycleState(), info, self.snapshot)
        assert_agrees(PROFILE, info, self.snapshot)
        return found

    def place(self, pod: Pod) -> str | Diagnosis:
        found = self.decide(pod)
        if isinstance(found, str):
            self.cache.assume_pod(PodInfo.of(pod).on(found))
        return found

    def refusal(self, pod: Pod) -> str:
        found = self.decide(pod)
        assert isinstance(found, Diagnosis)
        return found.message


# --- the same decisions, over any history ------------------------------------------------------


def with_images(node: Node, sizes: dict[str, int]) -> Node:
    """The node with images of so many MiB."""
    images = tuple(
        ContainerImage(names=(name,), size_bytes=size * 2**20) for name, size in sizes.items()
    )
    status = msgspec.structs.replace(node.status, images=images)
    return msgspec.structs.replace(node, status=status)


def running(pod: Pod, image: str) -> Pod:
    """The pod with an image."""
    containers = tuple(msgspec.structs.replace(item, image=image) for item in pod.spec.containers)
    return msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, containers=containers)
    )


# Drawn by the seed rather than piece by piece: long histories with many pods that know each other are
# what finds faults, and those are rare among the smallest examples.

SELECTORS: list[Any] = [
    *[{"matchLabels": {"colour": colour}} for colour in ("red", "blue", "blue")],
    {},
    None,
    {"matchExpressions": [{"key": "colour", "operator": "Exists"}]},
]
NAMESPACES: list[dict[str, Any]] = [
    *[{}] * 4,
    {"namespaces": ["default", "other"]},
    {"namespaceSelector": {}},
    {"namespaceSelector": {"matchLabels": {"team": "a"}}},
]
POLICIES: list[dict[str, Any]] = [
    *[{}] * 3,
    {"minDomains": 3},
    {"nodeAffinityPolicy": "Ignore"},
    {"nodeTaintsPolicy": "Honor"},
    {"matchLabelKeys": ["version"]},
]
VERBS = [*["place"] * 10, "delete", "confirm", "label", "end", "node", "node", "drop", "team"]


class ClusterGenerator:
    """Draws clusters and pods."""

    def __init__(self, seed: int) -> None:
        self.rng = Stream(seed)

    def often(self, percent: int) -> bool:
        return self.rng.integer(1, 100) <= percent

    def key(self) -> str:
        return self.rng.choice([ZONE, ZONE, ZONE, HOST, "rack"])

    def term(self) -> dict[str, Any]:
        selector = self.rng.choice(SELECTORS)
        where = self.rng.choice(NAMESPACES)
        return {"topologyKey": self.key(), "labelSelector": selector, **where}

    def terms(self) -> list[dict[str, Any]]:
        return [self.term() for _ in range(self.rng.choice([1, 1, 2]))]

    def wishes(self) -> list[dict[str, Any]]:
        return [
            {"weight": self.rng.choice([1, 7, 100]), "podAffinityTerm": term}
            for term in self.terms()
        ]

    def spread(self, when: str) -> list[dict[str, Any]]:
        return [
            {
                "maxSkew": self.rng.integer(1, 3),
                "topologyKey": self.key(),
                "whenUnsatisfiable": when,
                "labelSelector": self.rng.choice(SELECTORS),
                **self.rng.choice(POLICIES),
            }
            for _ in range(self.rng.choice([1, 1, 2]))
        ]

    def shape(self) -> dict[str, Any]:
        """A pod with no, one or two kinds of rules."""
        labels = {}
        if self.often(85):
            labels["colour"] = self.rng.choice(["red", "blue", "blue"])
        if self.often(30):
            labels["version"] = self.rng.choice(["1", "2"])
        affinity: dict[str, Any] = {}
        spread: list[dict[str, Any]] = []
        for _ in range(self.rng.choice([0, 1, 1, 1, 2])):
            match self.rng.integer(0, 5):
                case 0:
                    spread += self.spread("DoNotSchedule")
                case 1:
                    spread += self.spread("ScheduleAnyway")
                case 2:
                    affinity.setdefault("podAffinity", {})[MUST] = self.terms()
                case 3:
                    affinity.setdefault("podAntiAffinity", {})[MUST] = self.terms()
                case 4:
                    affinity.setdefault("podAffinity", {})[SHOULD] = self.wishes()
                case _:
                    affinity.setdefault("podAntiAffinity", {})[SHOULD] = self.wishes()
        if self.often(30):
            fast = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
            affinity["nodeAffinity"] = {SHOULD: [{"weight": 5, "preference": fast}]}
        return {
            "labels": labels,
            "namespace": "other" if self.often(20) else "default",
            "requests": {"cpu": self.rng.choice(["100m", "500m"])},
            "affinity": affinity,
            "topologySpreadConstraints": spread,
            "nodeSelector": {"disk": "ssd"} if self.often(30) else {},
            "image": self.rng.choice(["", "", "web", "db:1"]),
            "volumes": [self.volume()] if self.often(20) else [],
        }

    def volume(self) -> dict[str, Any]:
        disk = {"pdName": self.rng.choice(["c", "d"]), "readOnly": self.often(50)}
        return {"name": "v", "gcePersistentDisk": disk}

    def node(self, number: int) -> Node:
        labels = {"disk": "ssd"} if self.often(50) else {}
        if self.often(80):
            labels["rack"] = self.rng.choice(["r0", "r1"])
        zone = self.rng.choice(["z0", "z1", "z2", "z2"]) if self.often(90) else ""
        if not zone and self.often(50):
            labels[ZONE] = ""
        taints = []
        if self.often(20):
            effect = self.rng.choice(["NoSchedule", "PreferNoSchedule"])
            taints = [{"key": "k", "value": "v", "effect": effect}]
        node = builders.node(
            f"n{number}",
            zone=zone,
            labels=labels,
            capacity={"cpu": 4, "pods": self.rng.integer(2, 8)},
            taints=taints,
        )
        has = {name: 900 for name in ("web:latest", "db:1") if self.often(40)}
        return with_images(node, has)


class History:
    """Runs steps on a world."""

    def __init__(self, world: World, shapes: Sequence[dict[str, Any]]) -> None:
        self.world, self.shapes = world, shapes
        self.placed: list[Pod] = []
        self.nodes: dict[str, Node] = {}
        self.count = 0

    def run(self, verb: str, what: Any) -> None:
        cache = self.world.cache
        if verb == "node":
            cache.update_node(None, what)
            self.nodes[what.metadata.name] = what
        elif verb == "place":
            self.place(self.shapes[what % len(self.shapes)])
        elif verb == "team":
            cache.set_namespace("other", {"team": "ab"[what % 2]})
        elif verb == "drop" and self.nodes:
            cache.remove_node(self.nodes.pop([*self.nodes][what % len(self.nodes)]))
        elif self.placed:
            at = what % len(self.placed)
            self.change(verb, at)

    def change(self, verb: str, at: int) -> None:
        cache, pod = self.world.cache, self.placed[at]
        if verb == "delete":
            cache.remove_pod(self.placed.pop(at))
            return
        meta = pod.metadata
        if verb == "label":
            meta = msgspec.structs.replace(meta, labels={"colour": "blue"})
        elif verb == "end":
            meta = msgspec.structs.replace(meta, deletion_timestamp="2020-01-01T00:00:00Z")
        changed = self.placed[at] = msgspec.structs.replace(pod, metadata=meta)
        if cache.is_assumed_pod(pod):  # seen as it was or changed, now or by the next update
            twice = self.count % 3
            cache.add_pod(pod if twice else changed)
            if not twice:
                return
        cache.update_pod(pod, changed)

    def place(self, options: dict[str, Any]) -> None:
        self.count += 1
        image = options.get("image", "")
        spec = {key: value for key, value in options.items() if key != "image"}
        pod = builders.pod(f"p{self.count}", **spec)
        if image:
            pod = running(pod, image)
        found = self.world.place(pod)
        if isinstance(found, str):
            self.placed.append(PodInfo.of(pod).on(found).pod)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_check_118_rules_about_other_pods_keep_the_parity(seed: int) -> None:
    """By cell, row by row, or all at once: the same node, and the same reasons."""
    generator = ClusterGenerator(seed)
    shapes = [generator.shape() for _ in range(generator.rng.integer(2, 5))]
    history = History(World(generator.rng.choice([0, 4, 64])), shapes)
    history.world.cache.set_namespace("other", {"team": "a"})
    for number in range(generator.rng.integer(3, 14)):
        history.run("node", generator.node(number))
    for _ in range(40):
        verb, number = generator.rng.choice(VERBS), generator.rng.integer(0, 99)
        history.run(verb, generator.node(number % 14) if verb == "node" else number)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**32))
def test_check_118_with_many_nodes_and_pod_affinity_rules(seed: int) -> None:
    """Several blocks a cell, small patches and large ones."""
    generator = ClusterGenerator(seed)
    shapes = [generator.shape() for _ in range(3)]
    history = History(World(), shapes)
    for number in range(400):
        history.run("node", generator.node(number))
    for burst in (1, 3, 40, 150, 2):
        for number in range(burst):
            history.world.put(
                f"b{burst}-{number}",
                f"n{generator.rng.integer(0, 399)}",
                labels={"colour": generator.rng.choice(["red", "blue"])},
            )
        for at in range(len(shapes)):
            history.run("place", at)
            history.run("place", at)


# --- topology spread ---------------------------------------------------------------------------

BLUE = {"colour": "blue"}
IS_BLUE = {"matchLabels": BLUE}


def three_zones(few_domains: int = 64) -> World:
    world = World(few_domains)
    for zone in "abc":
        world.nodes(f"{zone}1", f"{zone}2", zone=zone)
    return world


def even(max_skew: int = 1, **options: Any) -> dict[str, Any]:
    """A pod that wants to be spread evenly over zones."""
    constraint = {
        "maxSkew": max_skew,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": IS_BLUE,
    }
    return {"labels": BLUE, "topologySpreadConstraints": [{**constraint, **options}]}


def test_hard_spread_keeps_the_skew() -> None:
    world = three_zones()
    for number, node in enumerate(("a1", "a2", "b1")):
        world.put(f"old{number}", node, labels=BLUE)
    zones = [str(world.place(builders.pod(f"p{number}", **even())))[0] for number in range(5)]
    assert zones == ["c", "b", "c", "a", "b"]


def test_a_node_outside_all_domains_takes_no_such_pod() -> None:
    world = World()
    world.nodes("nowhere")
    assert world.refusal(builders.pod("p", **even())) == (
        "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints "
        "(missing required label)."
    )


def test_skewed_domains_are_a_reason() -> None:
    world = three_zones()
    world.put("old", "a1", labels=BLUE)
    for zone in "bc":
        world.nodes(f"{zone}1", f"{zone}2", zone=zone, capacity={"cpu": 0, "pods": 0})
    assert world.refusal(builders.pod("p", **even())) == (
        "0/6 nodes are available: 2 node(s) didn't match pod topology spread constraints, "
        "4 Too many pods."
    )


def test_check_107_too_few_domains_count_as_an_empty_one() -> None:
    """With minDomains 3 and two domains the least is 0, so that no domain gets a second pod."""
    world = World()
    world.nodes("a1", zone="a")
    world.nodes("b1", zone="b")
    for name, node in (("x", "a1"), ("y", "b1")):
        world.put(name, node, labels=BLUE)
    assert isinstance(world.decide(builders.pod("p", **even())), str)
    assert "topology spread" in world.refusal(builders.pod("q", **even(minDomains=3)))
    world.nodes("c1", zone="c")
    assert world.decide(builders.pod("q", **even(minDomains=3))) == "c1"


def test_pods_that_are_ending_do_not_count() -> None:
    world = three_zones()
    pod = builders.pod("old", nodeName="a1", labels=BLUE)
    world.cache.add_pod(pod)
    full = {"cpu": 0, "pods": 0}
    for zone in "bc":
        world.nodes(f"{zone}1", f"{zone}2", zone=zone, capacity=full)
    assert "topology spread" in world.refusal(builders.pod("p", **even()))
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2020-01-01T00:00:00Z")
    world.cache.update_pod(pod, msgspec.structs.replace(pod, metadata=meta))
    assert world.decide(builders.pod("p", **even())) == "a2"


def test_policies_decide_which_nodes_make_a_domain() -> None:
    """An empty zone that the pod cannot use keeps the others from filling, unless left out."""
    world = World()
    world.nodes("a1", zone="a", labels={"disk": "ssd"})
    world.nodes("b1", zone="b", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    world.put("old", "a1", labels=BLUE)
    selector: dict[str, Any] = {"nodeSelector": {"disk": "ssd"}}
    assert world.decide(builders.pod("p", **even(), **selector)) == "a1"
    ignoring = even(nodeAffinityPolicy="Ignore")
    assert "topology spread" in world.refusal(builders.pod("q", **ignoring, **selector))
    assert "topology spread" in world.refusal(builders.pod("r", **even()))
    assert world.decide(builders.pod("s", **even(nodeTaintsPolicy="Honor"))) == "a1"


def test_match_label_keys_count_one_version_only() -> None:
    world = three_zones()
    for number, node in enumerate(("a1", "a2", "b1")):
        world.put(f"old{number}", node, labels={**BLUE, "version": "1"})
    new = even(matchLabelKeys=["version"])
    new["labels"] = {**BLUE, "version": "2"}
    zones = [str(world.place(builders.pod(f"p{number}", **new)))[0] for number in range(3)]
    assert sorted(zones) == ["a", "b", "c"]


def rank(plugin: str, world: World, pod: Pod, names: Sequence[str]) -> list[int] | None:
    world.cache.update_node_info_snapshot(world.snapshot)
    for name, item, _ in PROFILE.topology:
        if name == plugin:
            feasible = [world.snapshot.node_info_map[node] for node in names]
            return ranked(item, PodInfo.of(pod), world.snapshot, feasible)
    raise AssertionError(plugin)


def test_check_106_golden_scores_of_soft_spread() -> None:
    """0, 3 and 6 pods in three zones, max skew 5: raw 4, 9 and 14."""
    world = World()
    for zone in "abc":
        world.nodes(f"{zone}1", zone=zone)
    for number in range(9):
        world.put(f"old{number}", "b1" if number < 3 else "c1", labels=BLUE)
    pod = builders.pod("p", **even(5, whenUnsatisfiable="ScheduleAnyway"))
    assert rank("PodTopologySpread", world, pod, ["a1", "b1", "c1"]) == [100, 64, 28]
    assert world.decide(pod) == "a1"


def test_check_106_nodes_outside_domains_rank_last_in_spread() -> None:
    world = World()
    world.nodes("nowhere")
    world.nodes("a1", zone="a")
    world.put("old", "a1", labels=BLUE)
    pod = builders.pod("p", **even(whenUnsatisfiable="ScheduleAnyway"))
    assert rank("PodTopologySpread", world, pod, ["nowhere", "a1"]) == [0, 100]


# --- pod affinity ------------------------------------------------------------------------------


def term(key: str = ZONE, **options: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": IS_BLUE, **options}


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {MUST: list(terms)}}}


def apart(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {MUST: list(terms)}}}


def wish(weight: int, *, away: bool = False) -> dict[str, Any]:
    wishes = {SHOULD: [{"weight": weight, "podAffinityTerm": term()}]}
    return {"affinity": {"podAntiAffinity" if away else "podAffinity": wishes}}


def test_required_affinity_goes_where_company_is() -> None:
    world = three_zones()
    world.put("old", "b1", labels=BLUE)
    assert world.place(builders.pod("p", **near(term()))) == "b2"


def test_check_108_the_first_of_its_kind_may_be_alone() -> None:
    """Only if it would be its own company, and only while there is none anywhere."""
    world = three_zones()
    assert world.refusal(builders.pod("p", **near(term()))) == (
        "0/6 nodes are available: 6 node(s) didn't match pod affinity rules."
    )
    assert world.place(builders.pod("q", labels=BLUE, **near(term()))) == "a1"
    assert world.place(builders.pod("r", labels=BLUE, **near(term()))) == "a2"
    world.nodes("a1", "a2", zone="a", capacity={"cpu": 0, "pods": 0})
    assert "affinity rules" in world.refusal(builders.pod("s", labels=BLUE, **near(term())))


def test_check_108_the_first_needs_all_the_labels() -> None:
    world = World()
    world.nodes("nowhere")
    assert "affinity rules" in world.refusal(builders.pod("p", labels=BLUE, **near(term())))


def test_company_counts_only_where_the_label_is() -> None:
    """A pod outside all domains is no pod's company, so the first is still to come."""
    world = World()
    world.nodes("nowhere")
    world.nodes("a1", zone="a")
    world.put("old", "nowhere", labels=BLUE)
    assert world.decide(builders.pod("p", labels=BLUE, **near(term()))) == "a1"


def test_anti_affinity_holds_in_both_directions() -> None:
    world = three_zones()
    alone = {"labels": BLUE, **apart(term())}
    assert [str(world.place(builders.pod(f"p{n}", **alone)))[0] for n in range(3)] == [*"abc"]
    assert world.refusal(builders.pod("p3", **alone)) == (
        "0/6 nodes are available: 6 node(s) didn't match pod anti-affinity rules."
    )
    assert world.refusal(builders.pod("plain", labels=BLUE)) == (
        "0/6 nodes are available: 6 node(s) didn't satisfy existing pods anti-affinity rules."
    )
    assert world.decide(builders.pod("red", labels={"colour": "red"})) == "a2"


@pytest.mark.parametrize("few_domains", [0, 64])
def test_anti_affinity_by_host_leaves_room_when_a_pod_goes(few_domains: int) -> None:
    world = three_zones(few_domains)
    alone = {"labels": BLUE, **apart(term(HOST))}
    placed = [world.place(builders.pod(f"p{number}", **alone)) for number in range(6)]
    assert len({*placed}) == 6
    assert "anti-affinity" in world.refusal(builders.pod("late", **alone))
    gone = placed.index("b2")
    world.cache.remove_pod(builders.pod(f"p{gone}"))
    assert world.place(builders.pod("late", **alone)) == "b2"


def test_a_namespace_is_chosen_by_its_labels_as_they_are_now() -> None:
    world = three_zones()
    world.cache.set_namespace("other", {"team": "a"})
    world.put("old", "b1", labels=BLUE, namespace="other")
    pod = builders.pod("p", **near(term(namespaceSelector={"matchLabels": {"team": "a"}})))
    assert world.decide(pod) == "b2"
    world.cache.set_namespace("other", {"team": "b"})
    assert "affinity rules" in world.refusal(pod)


def test_check_106_golden_scores_of_pod_affinity() -> None:
    """Sums of -2, 0 and 3 become 0, 40 and 100."""
    world = World()
    for zone in "abc":
        world.nodes(f"{zone}1", zone=zone)
    world.put("bad", "a1", labels={"wanted": "no"}, **wish(2, away=True))
    world.put("good", "c1", labels={"wanted": "no"}, **wish(3))
    pod = builders.pod("p", labels=BLUE)
    assert rank("InterPodAffinity", world, pod, ["a1", "b1", "c1"]) == [0, 40, 100]
    assert world.decide(pod) == "c1"


def test_demands_of_placed_pods_are_wishes_for_newcomers() -> None:
    """hardPodAffinityWeight: a pod there wants this pod's company."""
    world = three_zones()
    world.put("old", "b1", **near(term()))
    pod = builders.pod("p", labels=BLUE)
    assert rank("InterPodAffinity", world, pod, ["a1", "b2", "c1"]) == [0, 100, 0]
    assert world.decide(pod) == "b2"


# --- how much work it is -----------------------------------------------------------------------


@pytest.mark.parametrize("spec", [even(5), apart(term(HOST)), near(term())])
def test_the_usual_rules_cost_a_row_or_two(spec: dict[str, Any]) -> None:
    """No decision looks at every row again."""
    world = World(few_domains=8)
    for number in range(60):
        world.nodes(f"n{number}", zone=f"z{number % 3}")
    spec = {"requests": {"cpu": "10m"}, "labels": BLUE, **spec}
    world.place(builders.pod("first", **spec))
    world.place(builders.pod("second", **spec))
    statistics = world.engine.statistics
    built, patched = statistics.built, statistics.patched
    for number in range(20):
        assert isinstance(world.place(builders.pod(f"p{number}", **spec)), str)
    assert statistics.built == built
    assert statistics.patched <= patched + 40
    assert statistics.by_row == 0


def test_a_failing_class_with_rules_is_diagnosed_once() -> None:
    world = three_zones()
    pod = builders.pod("p", **near(term()))
    for _ in range(5):
        world.refusal(pod)
    assert world.engine.statistics.diagnosed == 1
    world.put("old", "b1", labels=BLUE)
    assert world.decide(pod) == "b2"


def test_preferences_are_scaled_over_the_domains_that_are_open() -> None:
    """The node with the strongest preference is in a closed zone and must not set the scale."""
    world = World()
    world.nodes("a1", zone="a", labels={"disk": "nvme"})
    world.nodes("b1", zone="b", labels={"disk": "ssd"})
    world.nodes("b2", zone="b")
    world.put("old", "a1", labels=BLUE)
    world.put("big", "b1", requests={"cpu": "3900m", "memory": "31Gi"})
    fast = [
        {
            "weight": weight,
            "preference": {
                "matchExpressions": [{"key": "disk", "operator": "In", "values": [disk]}]
            },
        }
        for disk, weight in (("nvme", 100), ("ssd", 33))
    ]
    pod = builders.pod("p", **even(), affinity={"nodeAffinity": {SHOULD: fast}})
    assert world.decide(pod) == "b1"
    assert world.engine.statistics.by_row == 1


# --- images ------------------------------------------------------------------------------------


def test_check_106_golden_score_of_image_locality() -> None:
    """300 MiB on half of the nodes, one container: 12. The untagged name means ``latest``."""
    world = World()
    world.cache.add_node(with_images(builders.node("without"), {}))
    world.cache.add_node(with_images(builders.node("with"), {"web:latest": 300}))
    pod = running(builders.pod("p"), "web")
    assert world.decide(pod) == "with"
    state = CycleState()
    info = PodInfo.of(pod)
    for _, plugin in PROFILE.pre_filter:
        plugin.pre_filter(state, info, world.snapshot)
    found = {
        node.name: plugin.score(state, info, node)
        for name, plugin, _ in PROFILE.scores
        for node in world.snapshot.node_info_list
        if plugin is imagelocality.PLUGIN.score
    }
    assert found == {"without": 0, "with": 12}


def test_image_volumes_count_as_images_of_containers_do() -> None:
    world = World()
    world.cache.add_node(with_images(builders.node("without"), {}))
    world.cache.add_node(with_images(builders.node("with"), {"model:latest": 600}))
    volumes = [{"name": "v", "image": {"reference": "model"}}]
    pod = builders.pod("p", volumes=volumes)
    assert world.decide(pod) == "with"
    assert PodInfo.of(pod).images == ("model:latest",)


def test_images_count_as_they_are_on_nodes_now() -> None:
    """An image that came to another node changes this node's score, too."""
    world = World()
    for number in range(4):
        world.cache.add_node(with_images(builders.node(f"n{number}"), {}))
    world.cache.add_node(with_images(builders.node("big"), {"web:latest": 900}))
    pod = running(builders.pod("p"), "web")
    assert world.decide(pod) == "big"
    for number in range(4):
        node = with_images(builders.node(f"n{number}"), {"web:latest": 900})
        world.cache.update_node(None, node)
        world.decide(pod)
    assert world.decide(pod) == "n0"


def test_pods_that_need_an_image_prefer_nodes_that_run_images() -> None:
    """Though these are fuller; pods without images, or of the class process, do not care."""
    world = World()
    world.cache.add_node(builders.node("full", labels={IMAGES_LABEL: "true"}))
    world.cache.add_pod(builders.pod("other", nodeName="full", requests={"cpu": "2"}))
    world.cache.add_node(builders.node("empty", labels={IMAGES_LABEL: "false"}))
    assert world.decide(builders.pod("q", requests={"cpu": "1"})) == "empty"
    named = running(builders.pod("p", requests={"cpu": "1"}), "web")
    assert world.decide(named) == "full"
    spec = msgspec.structs.replace(named.spec, runtime_class_name="process")
    assert world.decide(msgspec.structs.replace(named, spec=spec)) == "empty"


# --- what brings a pod back ----------------------------------------------------------------------


def hint(plugin: str, event: ClusterEvent, pod: Pod, before: Any, after: Any) -> bool:
    return any(
        item.event.matches(event)
        and (item.hint is None or item.hint(PodInfo.of(pod), before, after))
        for item in PROFILE.events[plugin]
    )


BLUE_POD = builders.pod("x", nodeName="n", labels=BLUE)
RED_POD = builders.pod("x", nodeName="n", labels={"colour": "red"})
RELABELLED = ClusterEvent(Subject.ASSIGNED_POD, Action.POD_LABEL)
NEAR, APART, EVEN = (builders.pod("p", **spec) for spec in (near(term()), apart(term()), even()))


@pytest.mark.parametrize(
    ("plugin", "event", "pod", "before", "after", "wanted"),
    [
        ("InterPodAffinity", ASSIGNED_POD_ADD, NEAR, None, BLUE_POD, True),
        ("InterPodAffinity", ASSIGNED_POD_ADD, NEAR, None, RED_POD, False),
        ("InterPodAffinity", ASSIGNED_POD_ADD, APART, None, BLUE_POD, False),
        ("InterPodAffinity", ASSIGNED_POD_DELETE, APART, BLUE_POD, None, True),
        ("InterPodAffinity", ASSIGNED_POD_DELETE, APART, RED_POD, None, False),
        ("InterPodAffinity", ASSIGNED_POD_DELETE, BLUE_POD, APART, None, True),
        ("InterPodAffinity", ASSIGNED_POD_DELETE, RED_POD, APART, None, False),
        ("InterPodAffinity", ASSIGNED_POD_DELETE, NEAR, BLUE_POD, None, True),
        ("InterPodAffinity", RELABELLED, NEAR, RED_POD, BLUE_POD, True),
        ("InterPodAffinity", RELABELLED, APART, BLUE_POD, RED_POD, True),
        ("InterPodAffinity", NODE_ADD, APART, None, builders.node("n"), True),
        ("InterPodAffinity", NAMESPACE_CHANGE, NEAR, None, None, True),
        ("PodTopologySpread", ASSIGNED_POD_ADD, EVEN, None, BLUE_POD, True),
        ("PodTopologySpread", ASSIGNED_POD_ADD, EVEN, None, RED_POD, False),
        ("PodTopologySpread", ASSIGNED_POD_DELETE, EVEN, BLUE_POD, None, True),
        ("PodTopologySpread", RELABELLED, EVEN, BLUE_POD, RED_POD, True),
        ("PodTopologySpread", NODE_ADD, EVEN, None, builders.node("n"), True),
        ("PodTopologySpread", NODE_DELETE, EVEN, builders.node("n"), None, True),
    ],
)
def test_check_100_hints_about_other_pods(
    plugin: str, event: ClusterEvent, pod: Pod, before: Any, after: Any, *, wanted: bool
) -> None:
    assert hint(plugin, event, pod, before, after) is wanted
