"""Why pods wait that belong together, and what gangs have to do with those that do not."""

from typing import Any

import pytest
from tests.support.gang_cluster import Bench, names
from tests.support.scheduler_world import World, world
from tests.unit.scheduler.test_explain import Scene, shown

from grange.api.explanation import GangRoom
from grange.api.kinds import PODGROUP, QUEUE
from grange.api.kinds.podgroup import GROUP_LABEL
from grange.api.kinds.queue import QUEUE_LABEL
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.scheduler.clusterevents import NODE_ADD
from grange.scheduler.explain.gang_explanation import GangExplanation, explain_gang
from grange.scheduler.service import Scheduler
from grange.sim import builders

SMALL = {"cpu": "2", "memory": "4Gi", "pods": "10"}


async def summary(made: World, scheduler: Scheduler, name: str) -> str:
    answer = scheduler.explain(await made.pod(name))
    assert answer is not None
    return answer.summary


async def test_a_gang_that_does_not_fit(clock: Clock, rng: Stream, log: Logger) -> None:
    """Every member shows it, also those that were not tried; and none boasts that it would fit alone."""
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=SMALL)
        group = {"metadata": {"name": "g"}, "spec": {"minMember": 3}}
        await made.client.create(PODGROUP, group, "default")
        scheduler = await made.start_scheduler()
        options: dict[str, Any] = {"labels": {GROUP_LABEL: "g"}, "requests": {"cpu": "1"}}
        await made.add_pods("one", "two", **options)
        await made.settle()
        assert "2 of 3 pods exist" in await summary(made, scheduler, "one")
        await made.add_pods("three", **options)
        await made.settle()
        for name in ("one", "two", "three"):
            answer = scheduler.explain(await made.pod(name))
            assert answer is not None
            assert answer.summary.startswith("waits for its gang default/g (")
            assert "gang wants 3 (cpu 1 each), room for 2" in answer.summary
            assert answer.choice is None
        await made.add_nodes("b", capacity=SMALL)
        await made.settle(15.0)
        assert (await summary(made, scheduler, "one")).startswith("is on ")


@pytest.mark.parametrize(("cpu", "hint"), [("1", False), ("2", True)])
async def test_hint_counts_nodes_that_may_open(
    clock: Clock, rng: Stream, log: Logger, cpu: str, *, hint: bool
) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=SMALL)
        await made.add_nodes("b", capacity=SMALL, unschedulable=True)
        group = {"metadata": {"name": "g"}, "spec": {"minMember": 3}}
        await made.client.create(PODGROUP, group, "default")
        scheduler = await made.start_scheduler()
        await made.add_pods(*names("p", 3), labels={GROUP_LABEL: "g"}, requests={"cpu": cpu})
        await made.settle()
        answer = scheduler.explain(await made.pod("p0"))
        assert answer is not None
        assert answer.gang is not None
        assert ("would not hold the gang even if empty" in answer.hint) == hint


async def test_a_queue_that_is_used_up(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=SMALL)
        await made.client.create(
            QUEUE, {"metadata": {"name": "q"}, "spec": {"capacity": {"cpu": "1"}}}
        )
        scheduler = await made.start_scheduler()
        options: dict[str, Any] = {"labels": {QUEUE_LABEL: "q"}, "requests": {"cpu": "1"}}
        await made.add_pods("one", **options)
        await made.settle()
        await made.add_pods("two", **options)
        await made.settle()
        stated = await summary(made, scheduler, "two")
        assert stated.startswith("waits for its queue (")
        assert "cpu" in stated


async def test_a_gang_whose_end_would_do(clock: Clock) -> None:
    """No single one of its pods would."""
    scene = Scene(clock)
    scene.nodes("a", capacity=SMALL)
    for number in range(2):
        scene.put(f"p{number}", "a", labels={GROUP_LABEL: "g"}, requests={"cpu": "1"})
    answer = scene.waits(builders.pod("new", requests={"cpu": "2"}))
    assert shown(answer) == ["1: when gang default/g ends"]


# --- what would let all of a gang fit --------------------------------------------------------------


def explained(bench: Bench, name: str) -> GangExplanation:
    demand = bench.gangs.demand(bench.infos[name].pod)
    assert demand is not None
    return explain_gang(bench.profile, bench.cycle.snapshot, demand)


def texts(bench: Bench, name: str) -> list[str]:
    return [item.text for item in explained(bench, name).changes]


def test_changes_of_a_gang_let_all_its_pods_fit() -> None:
    """Each pod by itself would fit with cpu 2; all six only with 1, since a node must take three."""
    bench = Bench()
    bench.nodes("a", "b", capacity={"cpu": "3", "memory": "8Gi", "pods": "10"})
    bench.group("g", 6)
    bench.pods(*names("p", 6), gang="g", requests={"cpu": "2"})
    assert bench.run() == {}
    found = explained(bench, "p0")
    assert found.room == GangRoom(pods=6, room=2, when_empty=2)
    assert [(item.reason, item.nodes) for item in found.reasons] == [("Insufficient cpu", 2)]
    assert [item.text for item in found.changes] == [
        "if cpu ≤ 1 in each pod",
        "if 2 of its 6 pods are enough (minMember, or minAvailable of a job)",
        "when 4 more nodes like a are added",
    ]
    bench.gone(*names("p", 6))
    bench.pods(*names("q", 6), gang="g", requests={"cpu": "1"})
    assert len(bench.run(15.0)) == 6


def test_a_gang_fits_when_another_gang_ends() -> None:
    bench = Bench()
    bench.nodes("a", "b", capacity=SMALL)
    bench.group("first", 2)
    bench.pods("f0", "f1", gang="first", requests={"cpu": "1500m"})
    bench.run()
    bench.group("g", 2)
    bench.pods("p0", "p1", gang="g", requests={"cpu": "2"})
    bench.run()
    assert explained(bench, "p0").room == GangRoom(pods=2, room=0, when_empty=2)
    assert "when gang default/first ends" in texts(bench, "p0")
    bench.gone("f0", "f1")
    assert {"p0", "p1"} <= set(bench.run(15.0))


def test_a_gang_fits_when_a_single_pod_ends() -> None:
    """One place is missing, and it leaves one."""
    bench = Bench()
    bench.nodes("a", "b", capacity=SMALL)
    bench.pods("x", "y", requests={"cpu": "1"})
    bench.run()
    bench.group("g", 3)
    bench.pods(*names("p", 3), gang="g", requests={"cpu": "1"})
    bench.run()
    assert explained(bench, "p0").room == GangRoom(pods=3, room=2, when_empty=3)
    (text,) = [text for text in texts(bench, "p0") if text.startswith("when pod")]
    ending = text.split()[2].removeprefix("default/")
    bench.gone(ending)
    assert len(bench.run(15.0)) == 4


def test_a_gang_waits_for_its_own_pods_to_end() -> None:
    """A job that is restarted: its old pods have the nodes that the new ones need."""
    bench = Bench()
    bench.nodes("a", capacity=SMALL)
    bench.group("g", 2)
    bench.pods("o0", "o1", gang="g", requests={"cpu": "1"})
    bench.run()
    bench.terminate("o0", "o1")
    bench.pods("n0", "n1", gang="g", requests={"cpu": "1"})
    bench.run()
    assert "when its pods that are being deleted have ended" in texts(bench, "n0")


def test_few_devices_are_cut_down_to_one() -> None:
    bench = Bench()
    gpu = "example.com/gpu"
    bench.nodes("a", capacity={"cpu": "8", "pods": "10", gpu: "4"})
    bench.group("g", 4)
    bench.pods(*names("p", 4), gang="g", requests={gpu: "2"})
    bench.run()
    assert f"if {gpu} ≤ 1 in each pod" in texts(bench, "p0")


CLOSED: list[dict[str, Any]] = [
    {"unschedulable": True},
    {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]},
    {"taints": [{"key": "gpu", "value": "yes", "effect": "NoExecute"}]},
]


@pytest.mark.parametrize("closed", CLOSED)
def test_gang_that_fits_once_nodes_open_may_fit(closed: dict[str, Any]) -> None:
    """Another gang that is too large for both nodes can never fit, whether the second one opens or not."""
    bench = Bench()
    bench.nodes("a", capacity=SMALL)
    bench.nodes("b", capacity=SMALL, **closed)
    for gang, count in (("g", 4), ("h", 5)):
        bench.group(gang, count)
        bench.pods(*names(gang, count), gang=gang, requests={"cpu": "1"})
    assert bench.run() == {}
    assert "room for 2, " in bench.why["g0"]
    assert explained(bench, "g0").room == GangRoom(pods=4, room=2, when_empty=4)
    assert "room for 2 (can never fit on these nodes: 4 when empty)" in bench.why["h0"]
    bench.nodes("b", capacity=SMALL)
    bench.queue.move(NODE_ADD, bench.now, None, builders.node("b", capacity=SMALL))
    assert sorted(bench.run(15.0)) == names("g", 4)


def test_a_toleration_helps_only_if_all_of_a_gang_fit_then() -> None:
    bench = Bench()
    taint = {"key": "gpu", "effect": "NoSchedule"}
    bench.nodes("a", capacity=SMALL)
    bench.nodes("tainted", capacity=SMALL, taints=[taint])
    for gang, count in (("g", 4), ("h", 5)):
        bench.group(gang, count)
        bench.pods(*names(gang, count), gang=gang, requests={"cpu": "1"})
    bench.run()
    assert "if it tolerates taint gpu:NoSchedule" in texts(bench, "g0")
    assert "if it tolerates taint gpu:NoSchedule" not in texts(bench, "h0")


def test_nothing_is_stated_of_gangs_with_rules_between_pods() -> None:
    """What lets each pod fit alone may not let all fit together."""
    bench = Bench()
    bench.nodes("a", capacity=SMALL)
    bench.group("g", 3)
    bench.pods("p0", gang="g", requests={"cpu": "1"})
    bench.pods("p1", "p2", gang="g", requests={"cpu": "1500m"})
    bench.run()
    assert explained(bench, "p0") == GangExplanation()


def test_nothing_is_stated_of_a_gang_that_lost_a_member() -> None:
    bench = Bench()
    bench.nodes("a", capacity=SMALL)
    bench.group("g", 3)
    bench.pods(*names("p", 3), gang="g", requests={"cpu": "1"})
    bench.run()
    assert explained(bench, "p0") != GangExplanation()
    bench.terminate("p2")
    assert explained(bench, "p0") == GangExplanation()
    bench.gone("p2")
    assert bench.gangs.demand(bench.infos["p0"].pod) is None


def test_a_gang_in_one_domain_is_judged_by_domain() -> None:
    """With cpu 1 each, all six fit on both racks together, and three in each of them."""
    bench = Bench()
    for rack in ("r0", "r1"):
        bench.nodes(f"{rack}-node", labels={"rack": rack}, capacity={"cpu": "3", "pods": "10"})
    bench.group("g", 6, topology={"key": "rack"})
    bench.pods(*names("p", 6), gang="g", requests={"cpu": "1"})
    bench.run()
    assert explained(bench, "p0").room == GangRoom(pods=6, room=3, when_empty=3)
    assert "if cpu ≤ 0.5 in each pod" in texts(bench, "p0")
    assert "can never fit on these nodes: 3 when empty" in bench.why["p0"]


def test_a_gang_that_its_queue_never_admits_shows_it() -> None:
    bench = Bench()
    bench.nodes("a", capacity=SMALL)
    bench.quota("q", cpu="1")
    bench.group("g", 2, queue="q")
    bench.pods("p0", "p1", gang="g", requests={"cpu": "1"})
    bench.run()
    assert bench.why["p0"] == (
        "over quota of queue q: cpu 2 of 1, borrowing none;"
        " it can never fit: ask for less, or raise spec.capacity of queue q"
    )
