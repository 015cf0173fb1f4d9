"""PackingNodeScaler: many pods a machine, on what is there, what boots and what is ordered."""

from typing import Any

import msgspec
import pytest
from tests.unit.machines.packing import (
    LARGE,
    SMALL,
    apart,
    booted,
    even,
    group,
    near,
    node,
    plan,
    pod,
    pool,
    reasons,
    together,
    types,
)
from tests.unit.machines.scaling import NOW

from grange.api.kinds.machine import CAPACITY_TYPE_LABEL, NODE_POOL_LABEL, PLANNED_PODS_ANNOTATION
from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.api.kinds.node import Taint
from grange.api.kinds.nodepool import NodeTemplate, PoolLimits, StandbyNodeSpec
from grange.api.kinds.pod import (
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    PreferredSchedulingTerm,
    SelectorRequirement,
    Toleration,
)
from grange.api.kinds.podgroup import PodGroupPart, Topology
from grange.api.kinds.queue import QUEUE_LABEL
from grange.api.meta import Condition
from grange.machines.scaling.capacity_memory import CapacityMemory
from grange.machines.scaling.instance_selector import INSTANCE_TYPE_LABEL, ZONE_LABEL
from grange.placement.spread import HOSTNAME


def test_nothing_is_ordered_for_nothing() -> None:
    assert plan().start == ()


def test_pods_share_the_cheapest_machine() -> None:
    found = plan([pod(f"p{at}") for at in range(6)])
    assert types(found) == ["middle"]
    assert len(found.bindings) == 6


def test_pod_that_waits_for_no_machine_is_left_alone() -> None:
    bound = pod("a", node="n1")
    gated = pod("b", scheduling_gates=({"name": "x"},))
    assert plan([bound, gated], nodes=[node("n1")]).start == ()


def test_pod_of_another_pool_is_left_alone() -> None:
    found = plan([pod("a", node_selector={NODE_POOL_LABEL: "dedicated"})])
    assert (found.start, found.skip) == ((), ())


def test_present_nodes_are_used_first() -> None:
    found = plan([pod("a"), pod("b")], nodes=[node("n1", cpu="1"), node("n2", ready=False)])
    assert together(found) == [["b"]]
    assert found.bindings["uid-a"] == "n1"


def test_bound_pods_count_on_their_node() -> None:
    found = plan([pod("a"), pod("x", node="n1", cpu="1500m")], nodes=[node("n1")])
    assert together(found) == [["a"]]


def test_machine_that_boots_is_not_ordered_twice() -> None:
    pods = [pod(f"p{at}", cpu=f"{1 + at % 3}", memory=f"{1 + at % 5}Gi") for at in range(40)]
    first = plan(pods)
    machines = [booted(start) for start in first.start]
    again = plan(pods, machines)
    assert again.start == ()
    assert again.bindings == first.bindings


def test_planned_pods_keep_their_machine_from_others() -> None:
    first = plan([pod("a", cpu="2")])
    machine = booted(first.start[0], phase="Created")
    found = plan([pod("a", cpu="2"), pod("b", cpu="2", created=-50)], [machine])
    assert found.bindings["uid-a"] == machine.metadata.name
    assert together(found) == [["b"]]


def test_stopped_machine_is_switched_on_last() -> None:
    stopped = booted(plan([pod("a", cpu="2")]).start[0], phase="Stopped")
    found = plan([pod("a", cpu="2"), pod("b", cpu="1")], [stopped], nodes=[node("n1", cpu="1")])
    assert found.resume == (stopped.metadata.name,)
    assert found.start == ()


def test_order_records_its_pods() -> None:
    (start,) = plan([pod("a"), pod("b")]).start
    assert start.annotations == {PLANNED_PODS_ANNOTATION: "uid-a,uid-b"}
    assert start.reason == "pods default/a, default/b wait"


def test_candidates_are_ranked_by_price_and_hold_all_pods() -> None:
    (start,) = plan([pod("a", cpu="3")], pools=[pool(spot="Preferred")]).start
    kinds = [(each.instance_type, each.spot) for each in start.spec.candidates]
    assert kinds == [
        *[("middle", True)] * 2,
        *[("large", True)] * 2,
        *[("middle", False)] * 2,
        *[("large", False)] * 2,
    ]


@pytest.mark.parametrize(("policy", "spots"), [("Never", {False}), ("Always", {True})])
def test_market_of_pool_and_pod(policy: str, spots: set[bool]) -> None:
    of_pool = plan([pod("a")], pools=[pool(spot=policy)])
    of_pod = plan(
        [pod("a", annotations={"grange.dev/spot": policy})], pools=[pool(spot="Preferred")]
    )
    selected = plan(
        [pod("a", node_selector={CAPACITY_TYPE_LABEL: "spot" if True in spots else "on-demand"})],
        pools=[pool(spot="Preferred")],
    )
    for found in (of_pool, of_pod, selected):
        assert {each.spot for each in found.start[0].spec.candidates} == spots


def test_refused_offering_is_left_alone() -> None:
    memory = CapacityMemory()
    for zone in ("z1", "z2"):
        memory.refuse("middle", zone, spot=False, now=NOW, reason="none left")
    found = plan([pod("a", cpu="4")], capacity=memory)
    assert types(found) == ["large"]


def test_heaviest_pool_that_suits_is_used() -> None:
    taint = Taint(key="gpu", effect="NoSchedule")
    pools = [
        pool("light"),
        pool("heavy", weight=10, template=NodeTemplate(taints=(taint,))),
    ]
    tolerant = pod("b", cpu="2", tolerations=(Toleration(key="gpu", operator="Exists"),))
    found = plan([pod("a"), tolerant], pools=pools)
    by_pool = {start.spec.pool: start.pods for start in found.start}
    assert by_pool == {"light": ("default/a",), "heavy": ("default/b",)}


def test_template_labels_and_globs_count() -> None:
    pools = [pool(template=NodeTemplate(labels={"team": "a"}), instance_types=("l*",))]
    found = plan([pod("a", node_selector={"team": "a"})], pools=pools)
    assert types(found) == ["large"]
    assert found.start[0].spec.labels == {"team": "a"}


def test_daemons_take_their_part() -> None:
    daemon = pod("agent", cpu="500m")
    assert types(plan([pod("a", cpu="1500m")], daemons=[daemon])) == ["small"]
    assert types(plan([pod("a", cpu="1600m")], daemons=[daemon])) == ["middle"]


def test_real_nodes_correct_the_catalogue() -> None:
    first = plan([pod("a", cpu="2")])
    machine = booted(first.start[0], phase="Available")
    found = plan(
        [pod("b", cpu="2"), pod("x", cpu="1900m", node=machine.metadata.name)],
        [machine],
        nodes=[node(machine.metadata.name, cpu="1900m")],
    )
    assert types(found) == ["middle"]


# --- limits --------------------------------------------------------------------------------------------


def test_limit_of_machines() -> None:
    pods = [pod(f"p{at}", affinity=apart(app="x"), labels={"app": "x"}) for at in range(3)]
    found = plan(pods, pools=[pool(limits=PoolLimits(machines=2))])
    assert len(found.start) == 2
    assert reasons(found) == {"p2": "pool shared: limits.machines: all are there"}


def test_limit_of_resources_lets_small_machines_be() -> None:
    """A planned machine counts no more than it must once nothing else fits."""
    pods = [pod(f"p{at}", affinity=apart(app="x"), labels={"app": "x"}) for at in range(5)]
    found = plan(pods, pools=[pool(limits=PoolLimits(resources={"cpu": "8"}))])
    assert types(found) == ["small"] * 4
    assert reasons(found)["p4"].startswith("pool shared: limits.resources[cpu]: 0 left")


def test_limit_counts_machines_that_are_there() -> None:
    machine = booted(plan([pod("a")]).start[0])
    limits = PoolLimits(resources={"cpu": "3"})
    found = plan([pod("b", cpu="2")], [machine], pools=[pool(limits=limits)])
    assert found.start == ()


def test_limit_of_price() -> None:
    pods = [pod(f"p{at}", cpu="2") for at in range(8)]
    found = plan(pods, pools=[pool(limits=PoolLimits(price_per_hour="0.25"))])
    assert types(found) == ["small", "small"]


def test_limits_serve_the_most_important_first() -> None:
    pods = [pod("large", cpu="2"), pod("vital", cpu="1", priority=5)]
    found = plan(pods, pools=[pool(limits=PoolLimits(resources={"cpu": "2"}))])
    assert together(found) == [["vital"]]


# --- rules about other pods ----------------------------------------------------------------------------


def test_anti_affinity_by_host() -> None:
    pods = [pod(f"p{at}", affinity=apart(app="x"), labels={"app": "x"}) for at in range(3)]
    assert together(plan(pods)) == [["p0"], ["p1"], ["p2"]]


def test_anti_affinity_of_running_pods_counts() -> None:
    runs = pod("x", node="n1", affinity=apart(ZONE_LABEL, app="y"))
    found = plan([runs, pod("y", labels={"app": "y"})], nodes=[node("n1", zone="z1", cpu="8")])
    assert found.start[0].spec.placement.zone == "z2"


def test_affinity_follows_its_pod_to_its_zone() -> None:
    pods = [
        pod("big", cpu="4", labels={"app": "follower"}, affinity=near(app="leader")),
        pod("leader", labels={"app": "leader"}, node_selector={ZONE_LABEL: "z2"}),
    ]
    found = plan(pods)
    assert {start.spec.placement.zone for start in found.start} == {"z2"}
    assert not found.skip


def test_affinity_to_its_own_group_begins_anywhere() -> None:
    pods = [pod(f"p{at}", cpu="20", labels={"app": "x"}, affinity=near(app="x")) for at in range(3)]
    found = plan(pods)
    assert len({start.spec.placement.zone for start in found.start}) == 1
    assert len(found.start) == 3


def test_affinity_to_nothing_is_skipped_with_its_reason() -> None:
    found = plan([pod("a", affinity=near(app="none"))])
    assert "allow no domain (topology.kubernetes.io/zone)" in reasons(found)["a"]


def test_spread_over_zones_counts_running_pods() -> None:
    runs = pod("x", node="n1", labels={"app": "x"})
    pods = [
        pod(f"p{at}", labels={"app": "x"}, topology_spread_constraints=(even(app="x"),))
        for at in range(3)
    ]
    found = plan([runs, *pods], nodes=[node("n1", cpu="1", zone="z1")])
    by_zone = {start.spec.placement.zone: len(start.pods) for start in found.start}
    assert by_zone == {"z1": 1, "z2": 2}


def test_host_ports_keep_pods_apart() -> None:
    def with_port(name: str) -> Pod:
        made = pod(name)
        container = Container(name="main", ports=(ContainerPort(80, host_port=80),))
        return msgspec.structs.replace(made, spec=PodSpec(containers=(container,)))

    assert len(plan([with_port("a"), with_port("b")]).start) == 2


# --- preferences --------------------------------------------------------------------------------------------


def preferences(*zones: str) -> Affinity:
    return Affinity(
        node_affinity=NodeAffinity(
            preferred_during_scheduling_ignored_during_execution=tuple(
                PreferredSchedulingTerm(
                    weight=10 + at,
                    preference=NodeSelectorTerm(
                        (SelectorRequirement(key=ZONE_LABEL, operator="In", values=(zone,)),)
                    ),
                )
                for at, zone in enumerate(zones)
            )
        )
    )


def test_heaviest_wish_is_kept_where_it_can_be() -> None:
    assert plan([pod("a", affinity=preferences("z1", "z2"))]).start[0].spec.placement.zone == "z2"


def test_preferences_are_dropped_heaviest_first() -> None:
    found = plan([pod("a", affinity=preferences("z2", "nowhere"))])
    assert found.start[0].spec.placement.zone == "z2"


def test_soft_spread_is_dropped_when_it_cannot_hold() -> None:
    pods = [
        pod(f"p{at}", labels={"app": "x"}, topology_spread_constraints=(even(hard=False, app="x"),))
        for at in range(2)
    ]
    found = plan(pods, pools=[pool(limits=PoolLimits(machines=1))])
    assert together(found) == [["p0", "p1"]]


def test_avoided_taint_is_accepted_last() -> None:
    taint = Taint(key="slow", effect="PreferNoSchedule")
    avoided = pool("slow", weight=50, template=NodeTemplate(taints=(taint,)))
    both = plan([pod("a")], pools=[avoided, pool("quick")])
    alone = plan([pod("a")], pools=[avoided])
    assert [start.spec.pool for start in both.start] == ["quick"]
    assert [start.spec.pool for start in alone.start] == ["slow"]


# --- gangs ---------------------------------------------------------------------------------------------


def gang(number: int, cpu: str = "16", **more: Any) -> list[Pod]:
    return [pod(f"g{at}", cpu, group="g", **more) for at in range(number)]


def test_gang_is_placed_whole() -> None:
    found = plan(gang(4), groups=[group("g", 4)])
    assert sum(len(start.pods) for start in found.start) == 4


def test_gang_that_does_not_fit_orders_nothing() -> None:
    limited = pool(limits=PoolLimits(machines=1))
    found = plan([*gang(4), pod("a")], groups=[group("g", 4)], pools=[limited])
    assert together(found) == [["a"]]
    assert reasons(found)["g0"].startswith("4 members of its PodGroup do not fit together")


def test_gang_counts_members_that_run() -> None:
    limited = pool(limits=PoolLimits(machines=1))
    running = pod("r", "16", group="g", node="n1")
    found = plan([running, *gang(2)], groups=[group("g", 3)], pools=[limited])
    assert together(found) == [["g0", "g1"]]


def test_gang_without_its_members_waits() -> None:
    found = plan(gang(2), groups=[group("g", 3)])
    assert reasons(found)["g0"] == "PodGroup default/g: 2 of 3 members are there"


def test_gang_over_quota_gets_no_machine() -> None:
    waiting = group("g", 2)
    condition = Condition(
        type="Scheduled", status="False", reason="OverQuota", message="cpu 2 of 1"
    )
    status = msgspec.structs.replace(waiting.status, conditions=(condition,))
    found = plan(gang(2), groups=[msgspec.structs.replace(waiting, status=status)])
    assert reasons(found)["g0"] == "PodGroup default/g: it waits for quota: cpu 2 of 1"
    assert found.start == ()


def test_pod_over_quota_gets_no_machine() -> None:
    made = pod("a", labels={QUEUE_LABEL: "q"})
    condition = msgspec.structs.replace(
        made.status.conditions[0], message="over quota of queue q: cpu 5 of 4"
    )
    status = msgspec.structs.replace(made.status, conditions=(condition,))
    found = plan([msgspec.structs.replace(made, status=status)])
    assert reasons(found)["a"].startswith("it waits for quota: over quota of queue q")


def test_gang_stays_in_one_domain() -> None:
    topology = Topology(key=ZONE_LABEL)
    found = plan(gang(4, "32"), groups=[group("g", 4, topology=topology)])
    assert len({start.spec.placement.zone for start in found.start}) == 1


def test_gang_needs_its_parts() -> None:
    parts = (PodGroupPart(match_labels={"part": "b"}, min_member=1),)
    members = [pod("a", group="g", labels={"part": "a"})]
    too_large = pod("b", "99", group="g", labels={"part": "b"})
    found = plan([*members, too_large], groups=[group("g", 1, min_parts=parts)])
    assert found.start == ()


# --- reasons -------------------------------------------------------------------------------------------


def test_reason_names_what_no_type_holds() -> None:
    found = plan([pod("a", cpu="40")])
    assert reasons(found)["a"] == (
        "no type holds it: cpu 40 where 32 can be had (largest: pool shared, type large)"
    )


def test_reason_names_the_selector() -> None:
    found = plan([pod("a", node_selector={INSTANCE_TYPE_LABEL: "huge"})])
    assert reasons(found)["a"] == (
        "pool shared, type small would fit but for its node selector "
        "(node.kubernetes.io/instance-type=huge)"
    )


def test_reason_names_the_taint() -> None:
    taint = Taint(key="gpu", effect="NoSchedule")
    found = plan([pod("a")], pools=[pool(template=NodeTemplate(taints=(taint,)))])
    assert reasons(found)["a"].endswith("would fit if the pod tolerated gpu:NoSchedule")


def test_reason_names_the_shortage() -> None:
    memory = CapacityMemory()
    for zone in ("z1", "z2"):
        memory.refuse("small", zone, spot=False, now=NOW, reason="none left")
    found = plan([pod("a")], capacity=memory, catalogue=[SMALL])
    assert (
        reasons(found)["a"]
        == "pool shared, type small: none left; tried again at 2026-01-01T12:03:00Z"
    )


def test_plan_is_the_same_whatever_the_order_of_pods() -> None:
    pods = [pod(f"p{at}", cpu=f"{1 + at % 7}", labels={"app": f"{at % 3}"}) for at in range(60)]
    first, second = plan(pods), plan(pods[::-1])
    assert first == second
    assert LARGE.name in types(first)


def test_followers_get_room_on_the_host_of_the_first() -> None:
    """Pods that must be on one host are placed next to each other, where all of them fit."""
    members = [
        pod(f"m{at}", cpu="6", labels={"app": "x"}, affinity=near(HOSTNAME, app="x"))
        for at in range(5)
    ]
    others = [pod(f"p{at}", cpu="7") for at in range(4)]
    found = plan([*members, *others])
    assert not found.skip
    assert len({found.bindings[each.metadata.uid] for each in members}) == 1


# --- standby -------------------------------------------------------------------------------------------


def test_standby_is_ordered_and_refilled_in_the_same_pass() -> None:
    pools = [pool(standby=(StandbyNodeSpec("middle", 1), StandbyNodeSpec("middle", 1)))]
    first = plan(pools=pools)
    assert (types(first), first.start[0].reason) == (["middle"] * 2, "standby")
    machines = [booted(start) for start in first.start]
    found = plan([pod("a")], machines, pools=pools)
    assert types(found) == ["middle"]
    assert found.bindings["uid-a"] in {machine.metadata.name for machine in machines}


def test_plans_of_one_instant_share_no_name() -> None:
    pools = [pool(standby=(StandbyNodeSpec("middle", 1),))]
    first = plan(pools=pools)
    again = plan(machines=[booted(first.start[0], "Terminated")], pools=pools)
    assert len(again.start) == 1
    assert again.start[0].name != first.start[0].name


def test_standby_keeps_within_limits_and_shortages() -> None:
    limited = pool(standby=(StandbyNodeSpec("small", 3),), limits=PoolLimits(machines=2))
    found = plan(pools=[limited])
    assert len(found.start) == 2
    assert found.skip[0].reason == "pool shared: standby small: limits.machines: all are there"
    memory = CapacityMemory()
    for zone in ("z1", "z2"):
        memory.refuse("small", zone, spot=False, now=NOW, reason="none left")
    refused = plan(pools=[limited], capacity=memory)
    assert (refused.start, len(refused.skip)) == ((), 1)


def test_stopped_standby_is_parked_and_kept() -> None:
    pools = [pool(standby=(StandbyNodeSpec("small", 1, state="Stopped"),))]
    start = plan(pools=pools).start[0]
    there = booted(start, phase="Available")
    found = plan([], [there], pools=pools, nodes=[node(start.name)])
    assert [(stop.name, stop.park) for stop in found.stop] == [(start.name, True)]
    off = booted(start, phase="Stopped")
    rests = plan([], [off], pools=pools)
    assert (rests.start, rests.stop) == ((), ())


def test_outdated_standby_that_is_off_is_replaced_first() -> None:
    pools = [pool(standby=(StandbyNodeSpec("small", 1, state="Stopped"),))]
    start = plan(pools=pools, template_hash="old").start[0]
    old = booted(start, phase="Stopped")
    found = plan([], [old], pools=pools, template_hash="new")
    assert (types(found), found.stop) == (["small"], ())
    for phase in ("Creating", "Available", "Stopping"):
        new = booted(found.start[0], phase=phase)
        again = plan(
            [], [old, new], pools=pools, template_hash="new", nodes=[node(new.metadata.name)]
        )
        assert (again.start, [stop.name for stop in again.stop if not stop.park]) == ((), [])
    off = booted(found.start[0], phase="Stopped")
    last = plan([], [old, off], pools=pools, template_hash="new")
    assert (last.start, [stop.name for stop in last.stop]) == ((), [old.metadata.name])


@pytest.mark.parametrize("state", ["Booted", "Stopped"])
def test_leased_machine_is_no_standby(state: str) -> None:
    """It is not switched off under its holder, and another one stands by in its place."""
    pools = [pool(standby=(StandbyNodeSpec("small", 1, state=state),))]
    start = plan(pools=pools).start[0]
    leased = node(start.name, labels={MACHINE_LEASE: "uid-lease"})
    found = plan([], [booted(start, phase="Available")], pools=pools, nodes=[leased])
    assert (found.stop, types(found)) == ((), ["small"])
