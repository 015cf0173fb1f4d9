"""Terms that look at the pod's own labels: matchLabelKeys and mismatchLabelKeys of pod affinity."""

from typing import Any

import msgspec
from hypothesis import given, settings, strategies as st
from tests.support.scheduler_cluster import HOST, ZONE
from tests.unit.scheduler.test_topology_plugins import MUST, VERBS, ClusterGenerator, History, World

from grange.scheduler.podinfo import PodInfo
from grange.sim import builders


def term(key: str = HOST, **fields: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}, **fields}


def test_only_pods_of_the_same_version_are_refused() -> None:
    """So that a rolling update can put the new version next to the old one."""
    world = World()
    world.nodes("a")
    world.put("old", "a", labels={"app": "web", "version": "1"})
    anti = {"podAntiAffinity": {MUST: [term(matchLabelKeys=["version"])]}}
    new = builders.pod("new", labels={"app": "web", "version": "2"}, affinity=anti)
    assert world.place(new) == "a"
    twin = builders.pod("twin", labels={"app": "web", "version": "2"}, affinity=anti)
    assert "anti-affinity" in world.refusal(twin)
    unlabelled = builders.pod("none", labels={"app": "web"}, affinity=anti)
    assert "anti-affinity" in world.refusal(unlabelled), "a key that it lacks narrows nothing"


def test_only_pods_of_other_teams_are_refused() -> None:
    """A zone for each team: near its own, away from all others."""
    world = World()
    world.nodes("a", zone="x")
    world.nodes("b", zone="y")
    labels = {"app": "web", "team": "red"}
    world.put("one", "a", labels=labels)
    rules = {
        "podAffinity": {MUST: [term(ZONE, matchLabelKeys=["team"])]},
        "podAntiAffinity": {MUST: [term(ZONE, mismatchLabelKeys=["team"])]},
    }
    assert world.place(builders.pod("red", labels=labels, affinity=rules)) == "a"
    blue = {"app": "web", "team": "blue"}
    assert world.place(builders.pod("blue", labels=blue, affinity=rules)) == "b"
    green = builders.pod("green", labels={**blue, "team": "green"}, affinity=rules)
    assert "anti-affinity" in world.refusal(green)


def test_terms_follow_the_labels_of_their_pod() -> None:
    anti = {"podAntiAffinity": {MUST: [term(matchLabelKeys=["version"])]}}
    pod = builders.pod("p", labels={"app": "web", "version": "1"}, affinity=anti)
    info = PodInfo.of(pod)
    labels = {"app": "web", "version": "2"}
    meta = msgspec.structs.replace(pod.metadata, labels=labels)
    after = info.seen_as(msgspec.structs.replace(pod, metadata=meta))
    assert after.terms == PodInfo.of(msgspec.structs.replace(pod, metadata=meta)).terms
    assert after.terms != info.terms


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_check_118_terms_with_label_keys_keep_the_parity(seed: int) -> None:
    generator = ClusterGenerator(seed)
    shapes = [generator.shape() for _ in range(generator.rng.integer(2, 5))]
    for shape in shapes:
        for name, group in shape["affinity"].items():
            if name == "nodeAffinity":
                continue
            for kind, items in group.items():
                for item in items:
                    one = item if kind == MUST else item["podAffinityTerm"]
                    if one.get("labelSelector") is not None and generator.often(60):
                        field = generator.rng.choice(["matchLabelKeys", "mismatchLabelKeys"])
                        one[field] = [generator.rng.choice(["colour", "version"])]
    history = History(World(generator.rng.choice([0, 4, 64])), shapes)
    for number in range(generator.rng.integer(3, 14)):
        history.run("node", generator.node(number))
    for _ in range(40):
        verb, number = generator.rng.choice(VERBS), generator.rng.integer(0, 99)
        history.run(verb, generator.node(number % 14) if verb == "node" else number)
