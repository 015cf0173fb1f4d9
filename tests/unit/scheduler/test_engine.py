"""The engine decides as the reference does, and does little work for it."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings, strategies as st
from tests.support.scheduler_cluster import PREFERRED, PROFILE, REQUIRED, Cluster

from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.base.rng import Stream
from grange.scheduler.diagnosis import NO_NODES, Diagnosis
from grange.scheduler.engine import Engine, reference
from grange.scheduler.framework import CycleState, Profile
from grange.scheduler.podinfo import PodInfo
from grange.sim import builders


class World(Cluster):
    """A cache with an engine over its snapshot; ``place`` is a scheduling cycle."""

    def __init__(self, profile: Profile = PROFILE) -> None:
        super().__init__(profile)
        self.engine = Engine(profile, self.snapshot)

    def decide(self, pod: Pod) -> str | Diagnosis:
        self.refresh()
        return self.engine.decide(PodInfo.of(pod))

    def place(self, pod: Pod) -> str | Diagnosis:
        found = self.decide(pod)
        if isinstance(found, str):
            self.cache.assume_pod(PodInfo.of(pod).on(found))
        return found

    def reference(self, pod: Pod) -> str | Diagnosis:
        return reference.decide(self.profile, CycleState(), PodInfo.of(pod), self.snapshot)


AMOUNT = st.integers(0, 3)
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": AMOUNT.map(lambda n: f"{n * 500}m"),
        "memory": AMOUNT.map(lambda n: f"{n}Gi"),
        "example.com/gpu": AMOUNT,
    },
)
EXPRESSION = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from(["disk", "size"]),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(["ssd", "hdd", "1", "2"]), min_size=1, max_size=2),
    ),
    st.builds(
        lambda operator: {"key": "size", "operator": operator, "values": ["1"]},
        st.sampled_from(["Gt", "Lt"]),
    ),
    st.builds(
        lambda operator: {"key": "disk", "operator": operator},
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
TERM = st.builds(lambda found: {"matchExpressions": found}, st.lists(EXPRESSION, max_size=2))
NAMED = st.builds(
    lambda names: {"matchFields": [{"key": "metadata.name", "operator": "In", "values": names}]},
    st.lists(st.sampled_from(["n0", "n1", "n7"]), min_size=1, max_size=2),
)
AFFINITY = st.fixed_dictionaries(
    {},
    optional={
        REQUIRED: st.lists(TERM | NAMED, min_size=1, max_size=2).map(
            lambda terms: {"nodeSelectorTerms": terms}
        ),
        PREFERRED: st.lists(
            st.builds(
                lambda weight, term: {"weight": weight, "preference": term},
                st.sampled_from([1, 30, 100]),
                TERM,
            ),
            max_size=3,
        ),
    },
)
TOLERATION = st.builds(
    lambda key, effect: {"key": key, "operator": "Exists", "effect": effect},
    st.sampled_from(["dedicated", "node.kubernetes.io/unschedulable"]),
    st.sampled_from(["", "NoSchedule", "PreferNoSchedule"]),
)


def shape(**options: Any) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value}


SHAPES = st.builds(
    lambda requests, ports, selector, affinity, tolerations: {
        "requests": requests,
        **shape(
            host_ports=ports,
            nodeSelector=selector,
            affinity={"nodeAffinity": affinity} if affinity else None,
            tolerations=tolerations,
        ),
    },
    REQUESTS,
    st.lists(st.integers(1, 2), max_size=1),
    st.dictionaries(st.just("disk"), st.sampled_from(["ssd", "hdd"]), max_size=1),
    st.one_of(st.none(), AFFINITY),
    st.lists(TOLERATION, max_size=2),
)
TAINT = st.builds(
    lambda key, effect: {"key": key, "value": "x", "effect": effect},
    st.sampled_from(["dedicated", "old"]),
    st.sampled_from(["NoSchedule", "PreferNoSchedule", "PreferNoSchedule"]),
)
NODES = st.builds(
    lambda name, zone, labels, capacity, taints, cordoned: builders.node(
        name,
        zone=zone,
        labels=labels,
        capacity=capacity,
        taints=taints,
        unschedulable=cordoned,
    ),
    st.sampled_from([f"n{number}" for number in range(8)]),
    st.sampled_from(["", "z0", "z1"]),
    st.fixed_dictionaries(
        {},
        optional={
            "disk": st.sampled_from(["ssd", "hdd"]),
            "size": st.sampled_from(["0", "1", "2"]),
        },
    ),
    st.fixed_dictionaries(
        {"pods": st.integers(1, 5)},
        optional={
            "cpu": st.integers(0, 4),
            "memory": st.integers(0, 4).map(lambda n: f"{n}Gi"),
            "example.com/gpu": st.integers(0, 3),
        },
    ),
    st.lists(TAINT, max_size=2),
    st.sampled_from([False, False, False, True]),
)


@dataclass
class Step:
    """One event between two decisions."""

    verb: str
    node: Node | None = None
    shape: int = 0
    pick: int = 0


STEPS = st.one_of(
    st.builds(lambda at: Step("place", shape=at), st.integers(0, 3)),
    st.builds(lambda at: Step("place", shape=at), st.integers(0, 3)),
    st.builds(lambda at: Step("place", shape=at), st.integers(0, 3)),
    st.builds(lambda node: Step("put", node=node), NODES),
    st.builds(lambda pick: Step("drop", pick=pick), st.integers(0, 20)),
    st.builds(lambda pick: Step("delete", pick=pick), st.integers(0, 20)),
    st.builds(lambda pick: Step("confirm", pick=pick), st.integers(0, 20)),
)


@dataclass
class Driver:
    """Runs steps on a world and compares every decision with the reference."""

    world: World = field(default_factory=World)
    placed: list[Pod] = field(default_factory=list)
    confirmed: list[Pod] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    count: int = 0

    def put(self, node: Node) -> None:
        self.world.cache.update_node(None, node)
        self.nodes[node.metadata.name] = node

    def run(self, step: Step, shapes: list[dict[str, Any]]) -> None:
        match step.verb:
            case "place":
                self.place(shapes[step.shape % len(shapes)])
            case "put" if step.node is not None:
                self.put(step.node)
            case "drop" if self.nodes:
                name = [*self.nodes][step.pick % len(self.nodes)]
                self.world.cache.remove_node(self.nodes.pop(name))
            case "delete" if self.placed:
                self.world.cache.remove_pod(self.placed.pop(step.pick % len(self.placed)))
            case "confirm" if self.placed:
                pod = self.placed.pop(step.pick % len(self.placed))
                self.world.cache.add_pod(pod)
                self.confirmed.append(pod)
            case _:
                pass

    def place(self, options: dict[str, Any]) -> None:
        self.count += 1
        pod = builders.pod(f"p{self.count}", **options)
        found = self.world.decide(pod)
        expected = self.world.reference(pod)
        assert found == expected
        if isinstance(found, str):
            info = PodInfo.of(pod).on(found)
            self.world.cache.assume_pod(info)
            self.placed.append(info.pod)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(NODES, max_size=8),
    st.lists(SHAPES, min_size=1, max_size=4),
    st.lists(STEPS, max_size=25),
)
def test_check_118_the_engine_equals_the_reference(
    nodes: list[Node], shapes: list[dict[str, Any]], steps: list[Step]
) -> None:
    """The same node for every pod, and the same reasons, over any history of events."""
    driver = Driver()
    for node in nodes:
        driver.put(node)
    for step in steps:
        driver.run(step, shapes)


@settings(max_examples=15, deadline=None)
@given(st.lists(SHAPES, min_size=1, max_size=3), st.integers(0, 10**6))
def test_check_118_also_with_many_nodes_and_late_classes(
    shapes: list[dict[str, Any]], seed: int
) -> None:
    """Blocks, small patches and large ones all come into play."""
    random = Stream(seed)
    driver = Driver()
    for number in range(600):
        labels = {"disk": random.choice(["ssd", "hdd"]), "size": random.choice(["0", "1", "2"])}
        soft = [{"key": "old", "value": "x", "effect": "PreferNoSchedule"}]
        driver.put(
            builders.node(
                f"m{number}",
                zone=random.choice(["z0", "z1"]),
                labels=labels,
                capacity={"cpu": random.choice([1, 2]), "memory": "3Gi", "pods": 3},
                taints=soft if random.integer(0, 2) == 0 else [],
            )
        )
    for burst in (1, 3, 40, 300, 2):
        for number in range(burst):
            node = f"m{random.integer(0, 599)}"
            pod = builders.pod(f"b{burst}-{number}", requests={"cpu": "500m"}, nodeName=node)
            driver.world.cache.add_pod(pod)
        for options in shapes:
            driver.place(options)


# --- what a decision is ----------------------------------------------------------------------


def test_emptiest_node_wins_and_ties_follow_tree_order() -> None:
    """Equal nodes are taken zone by zone, so that replicas spread from the first pod on."""
    world = World()
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        world.cache.add_node(builders.node(name, zone=zone))
    pods = [builders.pod(f"p{number}", requests={"cpu": "1"}) for number in range(4)]
    assert [world.place(pod) for pod in pods] == ["a1", "b1", "a2", "a1"]


def test_without_nodes_the_message_names_them() -> None:
    found = World().decide(builders.pod("p"))
    assert isinstance(found, Diagnosis)
    assert found.message == NO_NODES
    assert "NodeResourcesFit" in found.plugins


def test_reasons_are_counted_per_node_and_sorted() -> None:
    world = World()
    world.cache.add_node(builders.node("full", capacity={"cpu": 1, "memory": 1, "pods": 1}))
    world.cache.add_node(builders.node("few", capacity={"cpu": 1, "memory": "1Gi", "pods": 0}))
    world.cache.add_node(builders.node("closed", unschedulable=True))
    taint = [{"key": "k", "value": "v", "effect": "NoExecute"}]
    world.cache.add_node(builders.node("tainted", taints=taint))
    world.cache.add_node(builders.node("other", labels={"disk": "hdd"}))
    pod = builders.pod(
        "p",
        requests={"cpu": 2, "memory": "2Mi"},
        affinity={
            "nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}
                    ]
                }
            }
        },
    )
    found = world.decide(pod)
    assert isinstance(found, Diagnosis)
    assert found.message == (
        "0/5 nodes are available: 1 Insufficient memory, 1 Too many pods, "
        "1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, "
        "2 Insufficient cpu."
    )
    assert found.plugins == {
        "NodeAffinity",
        "NodeResourcesFit",
        "NodeUnschedulable",
        "TaintToleration",
    }


def test_terms_that_name_nodes_look_at_those_only() -> None:
    world = World()
    for number in range(9):
        world.cache.add_node(builders.node(f"n{number}"))
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n7", "nowhere"]}]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    named: dict[str, Any] = {"affinity": {"nodeAffinity": {REQUIRED: terms}}}
    assert world.place(builders.pod("p", **named)) == "n7"
    found = world.decide(builders.pod("q", requests={"cpu": 9}, **named))
    assert isinstance(found, Diagnosis)
    assert found.message == (
        "0/9 nodes are available: 1 Insufficient cpu, "
        "8 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )
    assert world.engine.statistics.built == 0


def test_terms_that_name_different_nodes_conflict() -> None:
    world = World()
    world.cache.add_node(builders.node("n"))
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in ("a", "b")]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    found = world.decide(builders.pod("p", affinity={"nodeAffinity": {REQUIRED: terms}}))
    assert isinstance(found, Diagnosis)
    assert "conflict" in found.message


# --- how much work it is ---------------------------------------------------------------------


def big(count: int) -> World:
    world = World()
    for number in range(count):
        world.cache.add_node(builders.node(f"n{number}", zone=f"z{number % 3}"))
    return world


def test_a_pod_of_a_known_class_costs_one_row() -> None:
    """The work of a decision must not grow with the cluster: one row copied, one row patched."""
    world = big(500)
    world.place(builders.pod("first", requests={"cpu": "100m"}))
    copies, patched = world.snapshot.copies, world.engine.statistics.patched
    for number in range(100):
        world.place(builders.pod(f"p{number}", requests={"cpu": "100m"}))
    assert world.snapshot.copies == copies + 100
    assert world.engine.statistics.patched == patched + 100
    assert world.engine.statistics.built == 1


def test_ten_classes_share_the_rows_and_each_catches_up_once() -> None:
    world = big(100)
    for turn in range(20):
        for kind in range(10):
            pod = builders.pod(f"p{turn}-{kind}", requests={"cpu": f"{10 + kind}m"})
            world.place(pod)
    assert world.engine.statistics.built == 10
    # Each class sees, on each of its 19 later turns, the ten placements since its last.
    assert world.engine.statistics.patched <= 19 * 10 * 10


def test_failing_class_is_diagnosed_once_until_a_change() -> None:
    world = big(50)
    pods = [builders.pod(f"p{number}", requests={"cpu": 64}) for number in range(20)]
    messages = {str(world.decide(pod)) for pod in pods}
    assert len(messages) == 1
    assert world.engine.statistics.diagnosed == 1
    world.cache.add_pod(builders.pod("x", requests={"cpu": 1}, nodeName="n1"))
    world.decide(pods[0])
    assert world.engine.statistics.diagnosed == 2


def test_preference_maximum_is_recomputed_after_last_holders() -> None:
    """Placements that keep every node feasible never rescale a normalised score."""
    world = World()
    soft = [{"key": "old", "effect": "PreferNoSchedule"}]
    for number in range(40):
        world.cache.add_node(builders.node(f"n{number}", taints=soft if number % 2 else []))
    for number in range(60):
        world.place(builders.pod(f"p{number}", requests={"cpu": "10m"}))
    assert world.engine.statistics.rescaled == 0


def test_kept_results_are_bounded() -> None:
    """Every pod with its own signature must not fill the memory."""
    world = big(100)
    engine = Engine(PROFILE, world.snapshot, kept_rows=1000)
    for turn in range(2):
        for number in range(30):
            world.cache.update_node_info_snapshot(world.snapshot)
            engine.decide(PodInfo.of(builders.pod("p", requests={"cpu": f"{number}m"})))
            assert engine.kept_classes <= 10
        assert engine.statistics.built == 30 * (turn + 1)
