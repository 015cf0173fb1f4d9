"""Whether and where a pod preempts: the evaluator against a naive one, and what it keeps.

Checks 109 and 110 of spec/scheduling.md §4; the parts have tests in ``test_preemption_victims``.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.support.preemption_cluster import World, leaving, pod
from tests.support.scheduler_cluster import HOST, PROFILE, REQUIRED, ZONE

from grange.api.kinds.pod import Pod
from grange.api.selectors import Labels
from grange.scheduler import plugins
from grange.scheduler.diagnosis import Diagnosis, Narrowed
from grange.scheduler.disruption_budgets import DisruptionBudget
from grange.scheduler.engine import reference
from grange.scheduler.framework import CycleState, Handle, Profile
from grange.scheduler.plugin_args import ConfigurationError
from grange.scheduler.plugins import defaultpreemption
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.preemption.evaluator import Evaluator
from grange.scheduler.preemption.victim_selection import CandidateSettings
from grange.sim import builders

# --- by the book ---------------------------------------------------------------------------------

TERM = st.builds(
    lambda key, app: {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}},
    st.sampled_from([HOST, ZONE]),
    st.sampled_from(["web", "db"]),
)
EXTRAS = st.one_of(
    st.just(dict[str, Any]()),
    st.just(dict[str, Any]()),
    st.just({"host_ports": [80]}),
    st.just({"nodeSelector": {"disk": "ssd"}}),
    st.builds(lambda term: {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}, TERM),
    st.builds(lambda term: {"affinity": {"podAffinity": {REQUIRED: [term]}}}, TERM),
    st.builds(
        lambda key: {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": key,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
            ]
        },
        st.sampled_from([HOST, ZONE]),
    ),
)
SHAPES = st.builds(
    lambda extra, app, cpu, priority, since: {
        **extra,
        "labels": {"app": app} if app else {},
        "cpu": cpu,
        "priority": priority,
        "since": since,
    },
    EXTRAS,
    st.sampled_from(["", "web", "db"]),
    st.sampled_from(["500m", "1", "2", "5"]),
    st.integers(0, 3),
    st.sampled_from(["", "2026-11-21T09:00:00Z", "2026-11-21T10:00:00Z"]),
)
STEPS = st.tuples(
    st.sampled_from(["put", "put", "put", "ask", "ask", "ask", "nominate", "delete", "budget"]),
    st.integers(0, 4),
    st.integers(0, 20),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(SHAPES, min_size=1, max_size=5),
    st.lists(STEPS, max_size=30),
    st.integers(0, 5),
    st.sampled_from([CandidateSettings(), CandidateSettings(50, 1), CandidateSettings(0, 1)]),
)
def test_check_109_the_evaluator_equals_a_naive_one(
    shapes: list[dict[str, Any]],
    steps: list[tuple[str, int, int]],
    offset: int,
    found_enough: CandidateSettings,
) -> None:
    """Node, victims and order, over any history: nothing that is kept outlives what it was about."""
    world = World(found_enough, offset)
    world.nodes("n0", "n1", "n2", cpu="3").nodes("n3", "n4", cpu="2", labels={"disk": "ssd"})
    there: list[Pod] = []
    for number, (verb, at, pick) in enumerate(steps):
        options = dict(shapes[at % len(shapes)])
        cpu, priority, since = options.pop("cpu"), options.pop("priority"), options.pop("since")
        info = pod(f"p{number}", priority, cpu, since=since, **options)
        match verb:
            case "put":
                placed = info.on(f"n{pick % 5}")
                world.cache.add_pod(placed)
                there.append(placed.pod)
            case "nominate":
                world.nominator.put(info, f"n{pick % 5}")
            case "delete" if there:
                world.cache.remove_pod(there.pop(pick % len(there)))
            case "budget":
                app = ("web", "db")[pick % 2]
                selector = Labels.parse(f"app={app}")
                world.budgets.put(DisruptionBudget("default", app, selector, pick % 3))
            case "ask":
                world.cache.update_node_info_snapshot(world.truth)
                nominated = world.nominator.nominations_for(info)
                narrowed = Narrowed()
                state = CycleState()
                if not isinstance(
                    reference.choose(PROFILE, state, info, world.truth, narrowed, None, nominated),
                    Diagnosis,
                ):
                    continue
                expected = world.expected(info)
                found = world.ask(info)
                names = [victim.pod.metadata.name for victim in found.victims]
                assert (None if expected is None else (found.nominated, names)) == expected
            case _:
                pass


# --- where not -----------------------------------------------------------------------------------


def test_check_110_nodes_refusing_anyway_are_never_preempted_on() -> None:
    world = World().nodes("cordoned", unschedulable=True)
    world.nodes("tainted", taints=[{"key": "k", "effect": "NoSchedule"}])
    world.nodes("small", cpu="1").nodes("full")
    for name in ("cordoned", "tainted", "small"):
        world.put(pod(f"on-{name}", 1), name)
    world.put(pod("equal", 9, "4"), "full")
    wanting = pod("p", 9, "2")
    assert world.victims(wanting) == (None, [])
    assert world.evaluator.tried == 0  # columns and node objects showed as much
    world.nodes("right").put(pod("low", 1, "3"), "right")
    assert world.victims(wanting) == ("right", ["low"])


def test_check_110_company_is_not_had_by_taking_pods_away() -> None:
    """A demand for company that is not met is final, though the node's pods are less important."""
    world = World().nodes("a", "b")
    world.put(pod("low", 1, "1"), "a").put(pod("db", 1, "1", labels={"app": "db"}), "b")
    near = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "db"}}}
    wanting = pod("p", 9, "4", affinity={"podAffinity": {REQUIRED: [near]}})
    assert world.victims(wanting) == (None, [])


def test_a_pod_that_never_preempts_does_not() -> None:
    world = World().nodes("a").put(pod("low", 1, "4"), "a")
    assert world.ask(pod("p", 9, preemptionPolicy="Never")).nominated is None
    assert world.victims(pod("q", 9)) == ("a", ["low"])


def why_not(world: World, info: PodInfo) -> str:
    (reason,) = world.ask(info).status.reasons
    return reason


def test_refusal_counts_nodes_by_reason_as_kube_scheduler_does() -> None:
    world = World().nodes("cordoned", unschedulable=True).nodes("small", cpu="1")
    world.nodes("full", "even", "ported", "light")
    world.put(pod("equal", 9, "4"), "full")
    world.put(pod("low", 1, "1"), "even").put(pod("high", 9, "3"), "even")
    world.put(pod("port", 9, "1", host_ports=[80]), "ported").put(pod("x", 1, "1"), "ported")
    world.put(pod("memory", 9, "1", memory="31Gi"), "light").put(pod("y", 1, "1"), "light")
    assert why_not(world, pod("p", 9, "2", memory="2Gi", host_ports=[80])) == (
        "0/6 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, "
        "1 No preemption victims found for incoming pod, "
        "1 node(s) didn't have free ports for the requested pod ports, "
        "2 Preemption is not helpful for scheduling."
    )


def test_refusal_states_why_a_pod_may_not_preempt() -> None:
    world = World().nodes("a").put(pod("low", 1, "4"), "a")
    never = pod("p", 9, preemptionPolicy="Never")
    assert why_not(world, never) == "not eligible due to preemptionPolicy=Never."


def test_refusal_under_rules_about_other_pods_names_the_rule() -> None:
    world = World().nodes("a", "b")
    world.put(pod("low", 1, "1"), "a").put(pod("low2", 1, "1"), "b")
    for node in ("a", "b"):
        world.put(pod(f"db-{node}", 9, "1", labels={"app": "db"}), node)
    apart = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "db"}}}
    wanting = pod("p", 9, "1", affinity={"podAntiAffinity": {REQUIRED: [apart]}})
    assert why_not(world, wanting) == (
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
    )


def test_while_its_victims_go_a_pod_looks_for_no_others() -> None:
    world = World().nodes("a", "b")
    victim = pod("low", 1, "4")
    world.put(leaving(victim, preempted=True), "a").put(pod("other", 1, "4"), "b")
    wanting = pod("p", 9)
    world.nominator.put(wanting, "a")
    assert world.ask(wanting).nominated is None
    world.nominator.remove(wanting.uid)
    assert world.victims(pod("q", 9))[0] == "a"


def test_pod_that_leaves_for_another_reason_delays_no_other() -> None:
    world = World().nodes("a", "b")
    world.put(leaving(pod("low", 1, "4"), preempted=False), "a").put(pod("x", 1, "4"), "b")
    wanting = pod("p", 9)
    world.nominator.put(wanting, "a")
    assert world.victims(wanting) == ("a", [])  # it leaves anyway: no other has to


def test_impossible_nominated_node_makes_it_look_elsewhere() -> None:
    world = World().nodes("a", "b")
    world.put(leaving(pod("low", 1, "4"), preempted=True), "a").put(pod("other", 1, "4"), "b")
    wanting = pod("p", 9)
    world.nominator.put(wanting, "a")
    world.cache.update_node(None, builders.node("a", unschedulable=True))
    assert world.victims(wanting) == ("b", ["other"])


def test_deletions_that_are_on_their_way_are_waited_for() -> None:
    world = World().nodes("a", "b").put(pod("low", 1, "4"), "a").put(pod("x", 1, "4"), "b")
    wanting = pod("p", 9)
    world.nominator.put(wanting, "a")
    world.nominator.evicting[wanting.uid] = False
    assert world.ask(wanting).nominated is None
    assert world.nominator.evicting[wanting.uid]  # and it is to be tried again afterwards


def test_a_promise_that_cannot_be_kept_is_taken_back() -> None:
    world = World().nodes("a").put(pod("equal", 9, "4"), "a")
    wanting = pod("p", 9)
    assert world.ask(wanting).nominated is None
    world.nominator.put(wanting, "a")
    assert world.ask(wanting).nominated == ""


def test_less_important_pods_lose_their_nominations_on_the_node() -> None:
    world = World().nodes("a").put(pod("low", 1, "4"), "a")
    for name, priority in (("less", 5), ("same", 9)):
        world.nominator.put(pod(name, priority), "a")
    found = world.ask(pod("p", 9, "1"))
    assert found.nominated == "a"
    assert [info.uid for info in found.cleared] == ["uid-less"]


# --- how much work it is -------------------------------------------------------------------------


def test_pods_of_a_kind_try_each_node_once() -> None:
    """The work of the second preemption is the one node that the first one changed."""
    world = World().nodes(*(f"n{at}" for at in range(60)))
    for at in range(60):
        world.put(pod(f"low{at}", 1, "4"), f"n{at}")
    chosen = []
    for number in range(10):
        wanting = pod(f"p{number}", 9, "3")
        found = world.ask(wanting)
        assert found.nominated
        chosen.append(found.nominated)
        world.nominator.put(wanting, found.nominated)
    assert len(set(chosen)) == 10
    assert world.evaluator.tried == 60 + 9


def test_pods_exchanged_for_others_of_same_size_are_seen() -> None:
    """The sums by row must not rest on what pods need together alone."""
    world = World().nodes("a")
    world.put(pod("important", 9, "4"), "a")
    assert world.victims(pod("p", 5)) == (None, [])
    world.cache.remove_pod(pod("important", 9, "4").on("a").pod)
    world.put(pod("low", 1, "4"), "a")
    assert world.victims(pod("p", 5)) == ("a", ["low"])


# --- arguments -----------------------------------------------------------------------------------


def test_arguments_are_those_of_kubernetes() -> None:
    configure = defaultpreemption.PLUGIN.configure
    assert configure is not None
    document = {"minCandidateNodesPercentage": 50, "minCandidateNodesAbsolute": 0}
    plugin = configure(document, "pluginConfig[0].args")
    assert plugin.post_filter is not None
    world = World()
    handle = Handle(PROFILE, world.snapshot, world.nominator, world.budgets, lambda _: 0)
    found = plugin.post_filter(handle)
    assert isinstance(found, Evaluator)
    assert found._settings == CandidateSettings(50, 0)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"minCandidateNodesPercentage": 101}, "minCandidateNodesPercentage"),
        ({"minCandidateNodesAbsolute": -1}, "minCandidateNodesAbsolute"),
        (
            {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
            "minCandidateNodesAbsolute",
        ),
        ({"minCandidates": 1}, "minCandidates"),
    ],
)
def test_wrong_arguments_are_refused_by_name(document: dict[str, int], field: str) -> None:
    configure = defaultpreemption.PLUGIN.configure
    assert configure is not None
    with pytest.raises(ConfigurationError, match=field):
        configure(document, "args")


def test_a_profile_without_the_plugin_preempts_no_pod() -> None:
    without = [item for item in plugins.DEFAULT if item.post_filter is None]
    assert Profile(without).post_filter == []
    assert [name for name, _ in PROFILE.post_filter] == ["DefaultPreemption"]
    assert replace(defaultpreemption.PLUGIN, post_filter=None).post_filter is None
