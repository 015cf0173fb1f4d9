"""Nominated pods: who is remembered, and what that means for the others.

Checks 95, 96 and 116 of spec/scheduling.md §4.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from tests.support.scheduler_cluster import HOST, PREFERRED, REQUIRED, ZONE

from grange.api.kinds.pod import Pod
from grange.scheduler import plugins
from grange.scheduler.cache import Cache
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.engine import Engine, reference
from grange.scheduler.engine.reference import Rotation
from grange.scheduler.framework import CycleState, Profile
from grange.scheduler.nominator import Nominator
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot
from grange.sim import builders


def pod(name: str, priority: int = 0, cpu: str = "1", *, named: str = "", **more: Any) -> PodInfo:
    found = builders.pod(name, requests={"cpu": cpu}, priority=priority, **more)
    status = msgspec.structs.replace(found.status, nominated_node_name=named)
    return PodInfo.of(msgspec.structs.replace(found, status=status))


class World:
    """A cache, an engine, and nominations; every decision is compared with the reference."""

    def __init__(self, percentage: int = 100) -> None:
        self.profile = Profile(plugins.DEFAULT, percentage=percentage)
        self.cache = Cache()
        self.snapshot = NodeInfoSnapshot()
        self.nominator = Nominator()
        self.rotation, self.other = Rotation(), Rotation()
        self.engine = Engine(self.profile, self.snapshot, rotation=self.rotation)

    def nodes(self, *names: str, cpu: str = "4", zones: int = 2) -> "World":
        for at, name in enumerate(names):
            capacity = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
            zone = f"z{at % zones}"
            self.cache.add_node(builders.node(name, zone=zone, capacity=capacity))
        return self

    def put(self, info: PodInfo, node: str) -> None:
        self.cache.add_pod(info.on(node))

    def decide(self, info: PodInfo) -> str | Diagnosis:
        self.cache.update_node_info_snapshot(self.snapshot)
        nominated = self.nominator.nominations_for(info)
        expected = reference.decide(
            self.profile, CycleState(), info, self.snapshot, self.other, nominated
        )
        found = self.engine.decide(info, CycleState(), nominated)
        assert found == expected
        assert self.rotation.start == self.other.start
        return found


def message(found: str | Diagnosis) -> str:
    assert isinstance(found, Diagnosis)
    return found.message


# --- what is remembered --------------------------------------------------------------------------


def test_a_nomination_is_remembered_until_it_is_removed() -> None:
    nominator = Nominator()
    info = pod("a", 5)
    nominator.put(info, "n")
    nominator.put(info, "m")
    assert (nominator.node_of(info.uid), len(nominator)) == ("m", 1)
    assert nominator.remove(info.uid) == "m"
    assert nominator.remove(info.uid) == ""
    assert nominator.nominations_for(pod("b")) is None


def test_the_apis_nomination_counts_when_it_changes() -> None:
    """It lags behind: an old word about another matter does not undo what we know."""
    nominator = Nominator()
    assert not nominator.seen(pod("a", named="n"), None)  # from before our time
    assert nominator.node_of("uid-a") == "n"
    nominator.put(pod("a"), "m")
    assert not nominator.seen(pod("a", named="n"), "n")
    assert nominator.node_of("uid-a") == "m"
    assert not nominator.seen(pod("a"), "")
    assert nominator.node_of("uid-a") == "m"
    assert nominator.seen(pod("a"), "n")  # it was taken away
    assert nominator.node_of("uid-a") == ""
    assert not nominator.seen(pod("a", named="o"), "")
    assert nominator.seen(pod("a", named="n"), "o")  # moved: the old place is free
    assert nominator.node_of("uid-a") == "n"


def test_check_116_only_others_of_same_or_higher_priority_count() -> None:
    nominator = Nominator()
    for name, priority in (("low", 1), ("same", 5), ("high", 9)):
        nominator.put(pod(name, priority), "n")
    seen = nominator.nominations_for(pod("p", 5))
    assert seen is not None
    assert [info.uid for info in seen.on("n")] == ["uid-same", "uid-high"]
    itself = nominator.nominations_for(pod("same", 5))
    assert itself is not None
    assert itself.first == "n"
    assert [info.uid for info in itself.on("n")] == ["uid-high"]
    assert nominator.nominations_for(pod("top", 10)) is None
    assert [info.uid for info in nominator.less_important("n", 5)] == ["uid-low"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.integers(0, 3), st.sampled_from(["n", "m", ""])),
        max_size=30,
    )
)
def test_levels_follow_every_change(steps: list[tuple[str, int, str]]) -> None:
    nominator, model = Nominator(), dict[str, tuple[int, str]]()
    for name, drawn, node in steps:
        priority = drawn + ord(name) % 2
        if node:
            nominator.put(pod(name, priority), node)
            model[f"uid-{name}"] = (priority, node)
        else:
            nominator.remove(f"uid-{name}")
            model.pop(f"uid-{name}", None)
        for level in range(5):
            seen = nominator.nominations_for(pod("other", level))
            for on in ("n", "m"):
                wanted = {uid for uid, (p, at) in model.items() if p >= level and at == on}
                found = () if seen is None else seen.on(on)
                assert {info.uid for info in found} == wanted


# --- what it means -------------------------------------------------------------------------------


def test_check_95_nominated_node_is_tried_alone_first() -> None:
    world = World().nodes("a", "b", "c")
    mine = pod("p", 5, "3")
    world.nominator.put(mine, "c")
    world.put(pod("x", 0, "1"), "c")  # any other node would be better
    assert world.decide(mine) == "c"
    world.put(pod("y", 0, "1"), "c")
    assert world.decide(mine) == "a"
    world.nominator.put(mine, "nowhere")
    assert world.decide(mine) == "a"


def test_check_96_the_room_of_nominated_pods_is_kept() -> None:
    world = World().nodes("a", "b")
    world.nominator.put(pod("big", 5, "4"), "a")
    assert world.decide(pod("p", 5, "1")) == "b"
    assert world.decide(pod("lower", 0, "1")) == "b"
    assert world.decide(pod("higher", 6, "1")) == "a"
    world.put(pod("x", 0, "4"), "b")
    assert "2 Insufficient cpu" in message(world.decide(pod("p", 5, "1")))


def test_check_96_nominated_pod_does_not_satisfy_affinity() -> None:
    """Both passes: with it and without it."""
    world = World().nodes("a", "b")
    near = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "web"}}}
    wanting = pod("p", 0, affinity={"podAffinity": {REQUIRED: [near]}})
    world.nominator.put(pod("web", 5, labels={"app": "web"}), "a")
    assert "didn't match pod affinity rules" in message(world.decide(wanting))
    world.put(pod("web2", 5, labels={"app": "web"}), "a")
    assert world.decide(wanting) == "a"


def test_check_96_nominated_pods_refuse_company() -> None:
    world = World().nodes("a", "b")
    apart = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "p"}}}
    shy = pod("shy", 5, affinity={"podAntiAffinity": {REQUIRED: [apart]}})
    world.nominator.put(shy, "a")
    for _ in range(2):
        assert world.decide(pod("p", 0, labels={"app": "p"})) == "b"
        assert world.decide(pod("q", 0, labels={"app": "q"})) == "a"


def test_scores_do_not_count_nominated_pods() -> None:
    world = World().nodes("a", "b")
    world.nominator.put(pod("other", 5, "1"), "a")
    assert world.decide(pod("p", 0, "1")) == "a"


def test_check_111_a_failed_nominated_node_counts_as_looked_at() -> None:
    """Where the next search starts is the same by either way of deciding."""
    world = World(percentage=10).nodes(*(f"n{at}" for at in range(300)), zones=3)
    mine = pod("p", 5, "3")
    world.nominator.put(mine, "n299")
    world.put(pod("x", 0, "4"), "n299")
    start = world.rotation.start
    assert world.decide(mine) != "n299"
    assert world.rotation.start == (start + 101) % 300
    world.decide(pod("q", 0, "1"))


LABELS = st.sampled_from([{}, {"app": "web"}, {"app": "db"}])
TERM = st.builds(
    lambda key, app: {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}},
    st.sampled_from([HOST, ZONE]),
    st.sampled_from(["web", "db"]),
)
AFFINITY = st.one_of(
    st.just({}),
    st.just({}),
    st.builds(lambda term: {"podAntiAffinity": {REQUIRED: [term]}}, TERM),
    st.builds(lambda term: {"podAffinity": {REQUIRED: [term]}}, TERM),
    st.builds(
        lambda term: {"podAffinity": {PREFERRED: [{"weight": 5, "podAffinityTerm": term}]}}, TERM
    ),
)
SPREAD = st.one_of(
    st.just([]),
    st.builds(
        lambda key, when: [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": when,
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
        ],
        st.sampled_from([HOST, ZONE]),
        st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    ),
)
SHAPES = st.builds(
    lambda labels, affinity, spread, cpu, ports, priority: {
        "labels": labels,
        "affinity": affinity,
        "topologySpreadConstraints": spread,
        "cpu": cpu,
        "host_ports": ports,
        "priority": priority,
    },
    LABELS,
    AFFINITY,
    SPREAD,
    st.sampled_from(["500m", "1", "2"]),
    st.lists(st.integers(1, 2), max_size=1),
    st.integers(0, 2),
)
STEPS = st.tuples(
    st.sampled_from(["place", "place", "place", "nominate", "nominate", "drop", "delete"]),
    st.integers(0, 3),
    st.integers(0, 20),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(SHAPES, min_size=1, max_size=4),
    st.lists(STEPS, max_size=25),
    st.sampled_from([100, 100, 40]),
)
def test_check_118_with_nominations_too(
    shapes: list[dict[str, Any]], steps: list[tuple[str, int, int]], percentage: int
) -> None:
    """The same node, or the same reasons, whichever pod was promised room."""
    world = World(percentage).nodes(*(f"n{at}" for at in range(5)), cpu="3")
    placed: list[Pod] = []
    waiting: list[PodInfo] = []
    for number, (verb, at, pick) in enumerate(steps):
        options = dict(shapes[at % len(shapes)])
        cpu, priority = options.pop("cpu"), options.pop("priority")
        info = pod(f"p{number}", priority, cpu, **options)
        if waiting and pick % 3 == 0:
            info = waiting[pick % len(waiting)]
        match verb:
            case "place":
                found = world.decide(info)
                if isinstance(found, str) and not world.cache.tracks(info.uid):
                    world.nominator.remove(info.uid)
                    there = info.on(found)
                    world.cache.add_pod(there)
                    placed.append(there.pod)
                    waiting = [item for item in waiting if item.uid != info.uid]
            case "nominate" if not world.cache.tracks(info.uid):
                world.nominator.put(info, f"n{pick % 6}")
                waiting.append(info)
            case "drop" if waiting:
                world.nominator.remove(waiting.pop(pick % len(waiting)).uid)
            case "delete" if placed:
                world.cache.remove_pod(placed.pop(pick % len(placed)))
            case _:
                pass


@pytest.mark.parametrize("crowd", [1, 40])
def test_without_a_relevant_nomination_the_ordinary_way_is_taken(crowd: int) -> None:
    """No trial, no look at all rows: the fast path stays as it is."""
    world = World().nodes("a", "b")
    for number in range(crowd):
        world.nominator.put(pod(f"low{number}", 1), "a")
    important = pod("p", 5)
    world.decide(important)
    assert world.nominator.nominations_for(important) is None
    assert world.engine.statistics.built == 1
