"""Whose pods make room, and where: check 109 of spec/scheduling.md §4, level by level."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.support.scheduler_cluster import HOST, PROFILE, REQUIRED, ZONE, Cluster

from grange.api.kinds.pod import Pod
from grange.api.selectors import Labels
from grange.scheduler.disruption_budgets import DisruptionBudget, DisruptionBudgets
from grange.scheduler.dry_run import DryRun
from grange.scheduler.errors import CacheError
from grange.scheduler.framework import Code, CycleState, Status
from grange.scheduler.plugins.defaultpreemption import DefaultPreemptionArgs as PreemptionArgs
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.preemption.victim_selection import (
    NO_VICTIMS,
    CandidateSettings,
    Victims,
    dry_run,
    importance,
    pick_one,
    select_victims,
)
from grange.sim import builders


def pod(name: str, priority: int = 0, cpu: str = "1", *, since: str = "", **more: Any) -> Pod:
    found = builders.pod(name, requests={"cpu": cpu}, priority=priority, **more)
    if not since:
        return found
    return msgspec.structs.replace(
        found, status=msgspec.structs.replace(found.status, start_time=since)
    )


class Budgeted(Cluster):
    """Nodes of four CPUs, in separate zones, and budgets."""

    def __init__(self, *nodes: str) -> None:
        super().__init__()
        self.budgets = DisruptionBudgets()
        for name in nodes or ("n",):
            self.cache.add_node(builders.node(name, zone=f"zone-{name}"))

    def bind(self, *pods: Pod, on: str = "n") -> "Budgeted":
        for item in pods:
            self.put(PodInfo.of(item), on)
        return self

    def budget(self, name: str, allowed: int, disrupted: tuple[str, ...] = ()) -> "Budgeted":
        selector = Labels.parse(f"app={name}")
        self.budgets.put(DisruptionBudget("default", name, selector, allowed, frozenset(disrupted)))
        return self

    def trial(self, wanting: Pod) -> DryRun:
        return DryRun(PROFILE, CycleState(), PodInfo.of(wanting), self.refresh())

    def select(self, wanting: Pod, on: str = "n", *nominated: Pod) -> Victims | Status:
        trial = self.trial(wanting)
        node = self.snapshot.node_info_map[on]
        others = [PodInfo.of(item) for item in nominated]
        return select_victims(trial, node, self.budgets, nominated=others)

    def victims(self, wanting: Pod, on: str = "n") -> list[str]:
        return names(self.select(wanting, on))


def names(found: Victims | Status) -> list[str]:
    assert isinstance(found, Victims), found
    return [info.pod.metadata.name for info in found.pods]


def labelled(app: str) -> dict[str, Any]:
    return {"labels": {"app": app}}


# --- victims -----------------------------------------------------------------------------------


def test_check_109_equal_priority_is_never_a_victim() -> None:
    cluster = Budgeted().bind(pod("equal", 5, "3"), pod("lower", 4, "1"))
    found = cluster.select(pod("p", 5, "2"))
    assert isinstance(found, Status)
    assert found.code is Code.UNSCHEDULABLE
    assert found.plugin == "NodeResourcesFit"
    assert cluster.victims(pod("q", 5, "1")) == ["lower"]


def test_check_109_no_pod_less_important_cannot_be_helped() -> None:
    found = Budgeted().bind(pod("equal", 5, "4")).select(pod("p", 5, "1"))
    assert found == Status(Code.UNRESOLVABLE, (NO_VICTIMS,))


def test_check_109_small_low_pod_stays_while_a_middling_one_goes() -> None:
    """The most important are tried first, but only what fits stays."""
    cluster = Budgeted().bind(pod("small", 1, "500m"), pod("mid", 5, "2"), pod("mine", 9, "1"))
    assert cluster.victims(pod("p", 9, "2500m")) == ["mid"]


def test_check_109_most_important_stay_first_then_the_oldest() -> None:
    cluster = Budgeted().bind(
        pod("young", 1, since="2026-11-21T10:00:00Z"),
        pod("old", 1, since="2026-11-21T09:00:00Z"),
        pod("unstarted", 1),
        pod("higher", 2),
    )
    assert cluster.victims(pod("p", 9, "1")) == ["unstarted"]
    assert cluster.victims(pod("p", 9, "2")) == ["young", "unstarted"]
    assert cluster.victims(pod("p", 9, "3")) == ["old", "young", "unstarted"]


def test_check_109_those_under_a_budget_are_kept_first() -> None:
    cluster = Budgeted().budget("web", 0)
    cluster.bind(pod("kept", 1, "2", **labelled("web")), pod("more-important", 5, "2"))
    found = cluster.select(pod("p", 9, "2"))
    assert names(found) == ["more-important"]
    assert isinstance(found, Victims)
    assert found.violations == 0


def test_check_109_two_victims_of_one_budget_are_charged_twice() -> None:
    """A budget that allows one is broken by the second."""
    cluster = Budgeted().budget("web", 1)
    cluster.bind(pod("a", 1, "2", **labelled("web")), pod("b", 1, "2", **labelled("web")))
    found = cluster.select(pod("p", 9, "4"))
    assert isinstance(found, Victims)
    assert found.violations == 1
    found = cluster.select(pod("p", 9, "2"))
    assert isinstance(found, Victims)
    assert (names(found), found.violations) == (["a"], 0)


def test_check_109_pods_that_were_counted_as_disrupted_are_free() -> None:
    cluster = Budgeted().budget("web", 0, ("a",))
    cluster.bind(pod("a", 1, "4", **labelled("web")))
    found = cluster.select(pod("p", 9, "4"))
    assert isinstance(found, Victims)
    assert found.violations == 0


def test_check_109_a_pod_of_two_budgets_is_charged_to_both() -> None:
    cluster = Budgeted().budget("web", 1)
    cluster.budgets.put(DisruptionBudget("default", "tier", Labels.parse("tier=1"), 0))
    cluster.bind(pod("a", 1, "4", labels={"app": "web", "tier": "1"}))
    found = cluster.select(pod("p", 9, "4"))
    assert isinstance(found, Victims)
    assert found.violations == 1


def test_budget_selectors_are_asked_once_about_equal_pods() -> None:
    """A budget's allowance changes with every disruption; whom it is about does not."""
    asked: list[str] = []

    class Asked(Labels):
        def matches(self, labels: Mapping[str, str]) -> bool:
            asked.append(labels["app"])
            return super().matches(labels)

    selector = Asked(Labels.parse("app=web").requirements)
    budgets = DisruptionBudgets([DisruptionBudget("default", "web", selector, 1)])
    pods = [
        PodInfo.of(pod(f"{app}{at}", 1, labels={"app": app}))
        for at in range(3)
        for app in ("web", "db")
    ]
    webs = pods[::2]
    assert budgets.split(pods)[0] == webs[1:]
    budgets.put(DisruptionBudget("default", "web", selector, 0, frozenset({"web2"})))
    assert budgets.split(pods)[0] == webs[:2]
    assert list(budgets.covering(pods)) == [("default", "web")]
    assert asked == ["web", "db"]
    budgets.put(DisruptionBudget("default", "web", Asked(Labels.parse("app=db").requirements), 0))
    assert budgets.split(pods)[0] == pods[1::2]
    assert asked == ["web", "db"] * 2


def test_check_109_unselective_and_foreign_budgets_cover_no_pod() -> None:
    cluster = Budgeted()
    cluster.budgets.put(DisruptionBudget("default", "all", Labels(), 0))
    cluster.budgets.put(DisruptionBudget("other", "web", Labels.parse("app=web"), 0))
    cluster.bind(pod("a", 1, "4", **labelled("web")))
    found = cluster.select(pod("p", 9, "4"))
    assert isinstance(found, Victims)
    assert found.violations == 0


def test_victims_have_to_make_room_beside_nominated_pods() -> None:
    cluster = Budgeted().bind(pod("a", 1, "2"), pod("b", 1, "1"), pod("c", 1, "1"))
    assert names(cluster.select(pod("p", 9, "1"), "n", pod("other", 9, "1"))) == ["b", "c"]
    refused = cluster.select(pod("p", 9, "1"), "n", pod("other", 9, "4"))
    assert isinstance(refused, Status)


def test_without_any_need_there_are_no_victims() -> None:
    found = Budgeted().bind(pod("a", 1, "1")).select(pod("p", 9, "1"))
    assert isinstance(found, Status)
    assert found.code is Code.ERROR


# --- rules about other pods --------------------------------------------------------------------


def apart(app: str, key: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}


def test_pods_that_the_pod_refuses_go() -> None:
    cluster = Budgeted().bind(pod("rival", 1, **labelled("rival")), pod("other", 2))
    assert cluster.victims(pod("p", 9, **apart("rival", HOST))) == ["rival"]


def test_pods_that_refuse_the_pod_go() -> None:
    cluster = Budgeted().bind(pod("shy", 1, **apart("p", HOST)), pod("other", 1))
    assert cluster.victims(pod("p", 9, **labelled("p"))) == ["shy"]


def test_a_refusal_from_another_node_of_the_domain_stays() -> None:
    cluster = Budgeted("n", "m")
    cluster.bind(pod("far", 1, **labelled("rival")), on="m").bind(pod("near", 1, "4"))
    everywhere = {"app": "rival"}
    cluster.cache.update_node(None, builders.node("m", zone="zone-n", labels=everywhere))
    found = cluster.select(pod("p", 9, **apart("rival", ZONE)))
    assert isinstance(found, Status)
    assert found.plugin == "InterPodAffinity"


def test_skew_counts_without_the_victims() -> None:
    cluster = Budgeted("n", "m")
    cluster.bind(pod("a", 1, **labelled("w")), pod("b", 2, **labelled("w")))
    constraint = {
        "maxSkew": 1,
        "topologyKey": HOST,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "w"}},
    }
    wanting = pod("p", 9, **labelled("w"), topologySpreadConstraints=[constraint])
    assert cluster.victims(wanting) == ["b", "a"]


def test_a_nominated_pod_that_refuses_company_keeps_the_pod_away() -> None:
    cluster = Budgeted().bind(pod("a", 1, "4"))
    found = cluster.select(
        pod("p", 9, "1", **labelled("p")), "n", pod("shy", 9, "1", **apart("p", HOST))
    )
    assert isinstance(found, Status)
    assert found.plugin == "InterPodAffinity"


def test_trials_leave_everything_as_it_was() -> None:
    """Neither counts nor columns nor entries: a second look gives the same answer."""
    cluster = Budgeted().bind(
        pod("rival", 1, **labelled("rival")), pod("shy", 1, **apart("p", HOST))
    )
    wanting = pod("p", 9, **labelled("p"), **apart("rival", HOST))
    first = cluster.select(wanting)
    log, entry = cluster.snapshot.changes.position, cluster.snapshot.node_info_map["n"]
    before = entry.pods, entry.usage, entry.generation
    assert cluster.select(wanting) == first
    assert cluster.snapshot.changes.position == log
    assert (entry.pods, entry.usage, entry.generation) == before
    for name in ("rival", "shy"):
        cluster.cache.remove_pod(pod(name))
    assert isinstance(cluster.select(wanting), Status)


# --- candidates --------------------------------------------------------------------------------


def test_check_109_how_many_candidates_are_enough() -> None:
    settings = CandidateSettings()
    assert [settings.wanted(nodes) for nodes in (0, 5, 100, 500, 1000, 5000)] == [
        *(0, 5, 100, 100, 100, 500)
    ]
    assert CandidateSettings(50, 1).wanted(9) == 4
    for wrong in ((-1, 0), (101, 0), (10, -1), (0, 0)):
        with pytest.raises(ValueError, match="minCandidateNodes"):
            PreemptionArgs(
                min_candidate_nodes_percentage=wrong[0], min_candidate_nodes_absolute=wrong[1]
            )


def on(node: str, violations: int = 0, *pods: Pod) -> Victims:
    victims = sorted((PodInfo.of(item) for item in pods or (pod("v"),)), key=importance)
    return Victims(node, tuple(victims), violations)


def search(found: dict[str, Victims], offset: int, wanted: int) -> tuple[list[str], list[str]]:
    asked: list[str] = []

    def judge(name: str) -> Victims | Status:
        asked.append(name)
        return found.get(name, Status(Code.UNSCHEDULABLE))

    names = [*"abcdef"]
    candidates = dry_run(names[offset:] + names[:offset], wanted, judge)
    return asked, [item.node_name for item in candidates]


def test_check_109_the_search_starts_at_the_offset_and_wraps() -> None:
    found = {name: on(name) for name in "abcdef"}
    assert search(found, 4, 3) == ([*"efa"], [*"efa"])
    assert search({"b": on("b")}, 4, 1) == ([*"efab"], ["b"])
    assert search({}, 2, 2) == ([*"cdefab"], [])


def test_check_109_search_looks_past_the_cap_for_no_violations() -> None:
    found = {name: on(name, 1) for name in "abc"} | {"e": on("e")}
    assert search(found, 0, 2) == ([*"abcde"], ["e", *"abc"])
    breaking = {name: on(name, 1) for name in "abc"}
    assert search(breaking, 0, 2) == ([*"abcdef"], [*"abc"])


# --- the choice of the node --------------------------------------------------------------------

EARLY, LATE = "2026-11-21T09:00:00Z", "2026-11-21T10:00:00Z"


@pytest.mark.parametrize(
    ("level", "better", "worse"),
    [
        ("fewest broken budgets", on("x", 0, pod("v", 9)), on("y", 1, pod("v", 1))),
        (
            "lowest most important victim",
            on("x", 0, pod("v", 5), pod("w", 5), pod("u", 5)),
            on("y", 0, pod("v", 6)),
        ),
        (
            "smallest sum of priorities",
            on("x", 0, pod("v", 5), pod("w", 1)),
            on("y", 0, pod("v", 5), pod("w", 2)),
        ),
        (
            "more victims never sum to less",
            on("x", 0, pod("v", -5)),
            on("y", 0, pod("v", -5), pod("w", -9)),
        ),
        (
            "fewest victims",
            on("x", 0, pod("v", 0)),
            on("y", 0, pod("v", 0), pod("w", -(2**31))),
        ),
        (
            "latest start of the most important",
            on("x", 0, pod("v", 5, since=LATE), pod("w", 1, since=EARLY)),
            on("y", 0, pod("v", 5, since=EARLY), pod("w", 1, since=LATE)),
        ),
        (
            "of several most important, the earliest start counts",
            on("x", 0, pod("v", 5, since=LATE), pod("w", 5, since=LATE)),
            on("y", 0, pod("v", 5, since=LATE), pod("w", 5, since=EARLY)),
        ),
        ("unstarted is latest", on("x", 0, pod("v", 5)), on("y", 0, pod("v", 5, since=LATE))),
    ],
)
def test_check_109_each_tie_break_level_decides(
    level: str, better: Victims, worse: Victims
) -> None:
    assert pick_one([better, worse]) is better, level
    assert pick_one([worse, better]) is better, level


def test_check_109_among_equals_the_first_wins() -> None:
    one, other = on("x", 1, pod("v", 5)), on("y", 1, pod("w", 5))
    assert pick_one([one, other]) is one
    assert pick_one([other, one]) is other


# --- trials of the whole snapshot ----------------------------------------------------------------


def test_pods_taken_out_of_a_snapshot_come_back() -> None:
    cluster = Budgeted().bind(pod("a", 1, "4"))
    cluster.trial(pod("p"))
    entry = cluster.snapshot.node_info_map["n"]
    usage, (info,) = entry.usage, entry.pods
    cluster.snapshot.take_out(info)
    assert not entry.pods
    with pytest.raises(CacheError):
        cluster.snapshot.take_out(PodInfo.of(pod("a", nodeName="n")))
    cluster.snapshot.put_back("uid-a")
    assert entry.usage == usage
    with pytest.raises(CacheError):
        cluster.snapshot.put_back("uid-a")
    cluster.snapshot.take_out(info)
    cluster.cache.update_node_info_snapshot(cluster.snapshot)
    assert entry.usage == usage
