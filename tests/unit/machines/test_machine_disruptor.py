"""Disruption: which machines go, what keeps them, and that it comes to rest."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.unit.machines.disruption import World, pool
from tests.unit.machines.packing import LARGE, MIDDLE, SMALL
from tests.unit.machines.scaling import kind

from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.api.kinds.nodepool import (
    DO_NOT_DISRUPT_ANNOTATION,
    PoolDisruptionBudget,
    StandbyNodeSpec,
)
from grange.api.kinds.poddisruptionbudget import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from grange.api.meta import LabelSelector, ObjectMeta
from grange.machines.disruption.disruption_plan import DisruptionDecision
from grange.machines.scaling.instance_selector import INSTANCE_TYPE_LABEL


def names(decision: DisruptionDecision | None) -> set[str]:
    return set() if decision is None else {*decision.names}


def replaced_by(decision: DisruptionDecision | None) -> list[str]:
    assert decision is not None
    return [start.spec.instance_type for start in decision.replacements]


# --- empty ---------------------------------------------------------------------------------------------


def test_empty_machines_end_together() -> None:
    world = World()
    for name in ("a", "b"):
        world.machine(name)
    world.machine("c")
    world.pod("p", "c", cpu="2")
    decision = world.decide()
    assert decision is not None
    assert (decision.reason, names(decision)) == ("Empty", {"a", "b"})
    assert {stop.version for stop in decision.stop} == {"7"}


def test_machine_with_daemons_alone_is_empty() -> None:
    world = World()
    world.machine("a")
    world.pod("p", "a")
    pod = world.pods["p"]
    owner = msgspec.structs.replace(pod.metadata.owner_references[0], kind="DaemonSet")
    meta = msgspec.structs.replace(pod.metadata, owner_references=(owner,))
    world.pods["p"] = msgspec.structs.replace(pod, metadata=meta)
    assert names(world.decide()) == {"a"}


def test_leased_machine_is_kept_until_its_lease_ends() -> None:
    world = World()
    world.machine("a")
    free = world.nodes["a"]
    labels = {**free.metadata.labels, MACHINE_LEASE: "uid-lease"}
    meta = msgspec.structs.replace(free.metadata, labels=labels)
    world.nodes["a"] = msgspec.structs.replace(free, metadata=meta)
    look = world.look()
    assert look.decision is None
    assert look.kept["a"] == "a MachineLease has it"
    world.nodes["a"] = free
    assert names(world.decide()) == {"a"}


def test_empty_machine_is_kept_for_a_while() -> None:
    world = World(pool(consolidate_after_seconds=60))
    world.machine("a", since=-59)
    look = world.look()
    assert look.decision is None
    assert look.kept["a"] == "it changed lately; looked at again in 1 s"
    world.later(1)
    assert names(world.decide()) == {"a"}


def test_standby_is_no_empty_machine() -> None:
    world = World(pool(standby=(StandbyNodeSpec("small", 1),)))
    world.machine("a")
    world.machine("b")
    look = world.look()
    assert names(look.decision) == {"b"}
    assert look.kept["a"] == "standby"


def test_standby_ends_with_its_window() -> None:
    entry = StandbyNodeSpec("small", 1, schedule="0 12 * * *", duration_seconds=60)
    world = World(pool(standby=(entry,)))
    world.machine("a")
    assert world.decide() is None
    world.later(60)
    assert names(world.decide()) == {"a"}


def test_machine_that_pods_are_meant_for_stays() -> None:
    world = World()
    world.machine("a")
    world.pod("p")
    assert world.look().kept["a"] == "pods that wait are meant for it"


# --- budgets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budgets", "number"),
    [
        ((), 1),  # 10 % of 5, rounded up
        ((PoolDisruptionBudget(nodes="50%"),), 3),
        ((PoolDisruptionBudget(nodes="50%"), PoolDisruptionBudget(nodes="2")), 2),
        ((PoolDisruptionBudget(nodes="0"),), 0),
        ((PoolDisruptionBudget(nodes="0", reasons=("Drifted",)),), 5),
        ((PoolDisruptionBudget(nodes="0", schedule="0 12 * * *", duration_seconds=60),), 0),
        ((PoolDisruptionBudget(nodes="0", schedule="0 11 * * *", duration_seconds=60),), 5),
        ((PoolDisruptionBudget(nodes="many"),), 0),
    ],
)
def test_strictest_active_budget_counts(
    budgets: tuple[PoolDisruptionBudget, ...], number: int
) -> None:
    world = World(pool(budgets=budgets))
    for at in range(5):
        world.machine(f"m{at}")
    assert len(names(world.decide())) == number


def test_not_ready_and_ending_machines_use_budgets_up() -> None:
    world = World(pool(budgets=(PoolDisruptionBudget(nodes="3"),)))
    for at in range(4):
        world.machine(f"m{at}")
    world.machine("sick", ready=False)
    world.machine("ends", terminate=True)
    assert len(names(world.decide())) == 1


# --- under-utilised ------------------------------------------------------------------------------------


def test_machine_whose_pods_fit_elsewhere_goes() -> None:
    world = World()
    world.machine("a", MIDDLE)
    world.machine("b")
    world.pod("p", "a", cpu="6")
    world.pod("q", "b")
    decision = world.decide()
    assert (names(decision), replaced_by(decision)) == ({"b"}, [])


def test_several_machines_go_for_one_cheaper() -> None:
    world = World(catalogue=[SMALL, kind("both", "3", "12Gi", "0.12")])
    for name in ("a", "b"):
        world.machine(name)
        world.pod(f"p-{name}", name, cpu="1200m")
    decision = world.decide()
    assert (names(decision), replaced_by(decision)) == ({"a", "b"}, ["both"])


def test_machine_is_replaced_by_a_cheaper_one() -> None:
    world = World()
    world.machine("a", LARGE)
    world.pod("p", "a", cpu="4")
    decision = world.decide()
    assert (names(decision), replaced_by(decision)) == ({"a"}, ["middle"])
    assert decision is not None
    assert {each.instance_type for each in decision.replacements[0].spec.candidates} == {"middle"}


@pytest.mark.parametrize(("percent", "goes"), [(15, False), (5, True)])
def test_replacement_saves_the_share_that_is_asked_for(percent: int, *, goes: bool) -> None:
    world = World(
        pool(min_savings_percent=percent), catalogue=[SMALL, kind("other", "2", "8Gi", "0.09")]
    )
    world.machine("a")
    world.pod("p", "a", cpu="2")
    look = world.look()
    assert (look.decision is not None) == goes
    if not goes:
        assert look.kept["a"] == "no single machine for its pods is cheaper by 15 %"


def test_machine_is_not_replaced_by_its_like() -> None:
    """Of two small machines for one pod each, neither goes for a third small one."""
    world = World(pool(min_savings_percent=0))
    for name in ("a", "b"):
        world.machine(name)
        world.pod(f"p-{name}", name, cpu="2")
    assert world.decide() is None


def test_pods_do_not_move_to_machines_without_pods() -> None:
    world = World(pool(standby=(StandbyNodeSpec("small", 1),)))
    world.machine("a")
    world.machine("b")
    world.pod("p", "a", cpu="2")
    look = world.look()
    assert look.decision is None
    assert look.kept["b"] == "standby"


def test_spot_machine_is_not_replaced_by_spot() -> None:
    world = World(pool(spot="Always"))
    world.machine("a", LARGE, spot=True)
    world.pod("p", "a", cpu="4")
    assert world.decide() is None


def test_policy_when_empty_keeps_machines_with_pods() -> None:
    world = World(pool(policy="WhenEmpty"))
    world.machine("a", LARGE)
    world.pod("p", "a")
    look = world.look()
    assert look.decision is None
    assert look.kept["a"] == "policy WhenEmpty"


def test_nothing_is_consolidated_while_machines_are_ordered() -> None:
    world = World()
    world.machine("a", LARGE)
    world.pod("p", "a", cpu="4")
    world.pod("waits", cpu="30")
    look = world.look()
    assert look.decision is None
    assert look.kept["a"] == "machines are on their way"


def test_pod_that_fits_nothing_holds_nothing_up() -> None:
    world = World()
    world.machine("a", LARGE)
    world.pod("p", "a", cpu="4")
    world.pod("huge", cpu="500")
    assert names(world.decide()) == {"a"}


def test_look_goes_on_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grange.machines.disruption.disruption_methods.SINGLE_MAX", 2)
    monkeypatch.setattr("grange.machines.disruption.disruption_methods.TOGETHER_MAX", 0)
    world = World(catalogue=[SMALL, LARGE])
    for at in range(3):
        world.machine(f"m{at}")
        world.pod(f"p{at}", f"m{at}", cpu="2", node_selector={INSTANCE_TYPE_LABEL: "small"})
    world.machine("z", LARGE)
    for at in range(3):
        world.pod(f"pz{at}", "z", cpu="500m")
    first = world.look()
    assert (first.decision, first.resume_after) == (None, "m1")
    assert names(world.look(first.resume_after).decision) == {"z"}


# --- what keeps machines -------------------------------------------------------------------------------


def budget(allowed: int) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name="pdb", namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "x"})),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (
            {"annotations": {DO_NOT_DISRUPT_ANNOTATION: "true"}},
            f"pod default/p: {DO_NOT_DISRUPT_ANNOTATION}",
        ),
        (
            {"labels": {"app": "x"}},
            "pod default/p: PodDisruptionBudget pdb allows no disruption now",
        ),
        ({"bare": True}, "pod default/p has no controller that would replace it"),
    ],
)
def test_pod_keeps_its_machine(pod: dict[str, Any], reason: str) -> None:
    world = World(budgets=[budget(0)])
    world.machine("a", LARGE)
    world.pod("p", "a", **pod)
    look = world.look()
    assert look.decision is None
    assert look.kept["a"] == reason


def test_annotation_keeps_a_machine() -> None:
    world = World()
    world.machine("a", annotations={DO_NOT_DISRUPT_ANNOTATION: "true"})
    assert world.look().kept["a"] == f"{DO_NOT_DISRUPT_ANNOTATION} on the machine"


# --- drifted and expired -------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["template_hash", "boot_image"])
def test_drifted_machine_is_replaced(field: str) -> None:
    world = World()
    old: dict[str, Any] = {field: "old"}
    world.machine("a", **old)
    world.pod("p", "a", cpu="2")
    decision = world.decide()
    assert decision is not None
    assert (decision.reason, names(decision)) == ("Drifted", {"a"})
    assert replaced_by(decision) == ["small"]


def test_drift_waits_for_pods_unless_the_drain_has_an_end() -> None:
    for grace, goes in ((None, False), (600, True)):
        world = World(pool(termination_grace_period_seconds=grace), budgets=[budget(0)])
        world.machine("a", boot_image="old")
        world.pod("p", "a", labels={"app": "x"})
        assert (world.decide() is not None) == goes


def test_expired_machine_is_replaced_the_oldest_first() -> None:
    world = World(pool(expire_after_seconds=100, policy="WhenEmpty"))
    for name, since in (("a", -150.0), ("b", -200.0), ("c", -50.0)):
        world.machine(name, since=since)
        world.pod(f"p-{name}", name, cpu="2")
    decision = world.decide()
    assert decision is not None
    assert (decision.reason, names(decision), decision.forced) == ("Expired", {"b"}, False)


def test_expiry_is_forced_at_its_deadline_only() -> None:
    none = PoolDisruptionBudget(nodes="0")
    settings: dict[str, Any] = {"expire_after_seconds": 100, "termination_grace_period_seconds": 60}
    world = World(pool(budgets=(none,), **settings))
    world.machine("a", since=-159)
    world.pod("p", "a", annotations={DO_NOT_DISRUPT_ANNOTATION: "true"})
    assert world.decide() is None
    world.later(1)
    decision = world.decide()
    assert decision is not None
    assert decision.forced


# --- validation ----------------------------------------------------------------------------------------


def test_decision_is_made_again_after_a_wait() -> None:
    world = World()
    world.machine("a", LARGE)
    world.pod("p", "a", cpu="4")
    decision = world.decide()
    assert decision is not None
    world.later(15)
    again = world.validate(decision)
    assert again is not None
    assert replaced_by(again) == replaced_by(decision)


def test_decision_falls_when_a_pod_has_come() -> None:
    world = World()
    world.machine("a")
    decision = world.decide()
    assert decision is not None
    world.pod("p", "a", cpu="2", created=0.0)
    assert world.validate(decision) is None


def test_decision_falls_when_the_machine_is_gone() -> None:
    world = World()
    world.machine("a")
    decision = world.decide()
    assert decision is not None
    world.machines.clear()
    assert world.validate(decision) is None


# --- it comes to rest ----------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from([SMALL, MIDDLE, LARGE]), min_size=1, max_size=8),
    st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from(["100m", "500m", "1", "2"])), max_size=16
    ),
    st.integers(0, 2),
    st.sampled_from([0, 15]),
    st.sampled_from(["10%", "100%"]),
)
def test_decisions_come_to_rest(
    kinds: list[Any],
    pods: list[tuple[int, str]],
    standby: int,
    percent: int,
    nodes: str,
) -> None:
    """On a cluster whose pods stay the same, machines go until none does, and each one saves money."""
    entry = (StandbyNodeSpec("small", standby),)
    wanted = pool(
        standby=entry,
        min_savings_percent=percent,
        budgets=(PoolDisruptionBudget(nodes=nodes),),
    )
    world = World(wanted)
    left: dict[str, float] = {}
    for at, each in enumerate(kinds):
        world.machine(f"m{at}", each)
        left[f"m{at}"] = float(each.capacity["cpu"])
    for at, (number, cpu) in enumerate(pods):
        name, need = (
            f"m{number % len(kinds)}",
            0.1 if cpu == "100m" else float(cpu.replace("500m", "0.5")),
        )
        if left[name] >= need:
            left[name] -= need
            world.pod(f"p{at}", name, cpu)
    for _ in range(40):
        world.later(3600)
        decision = world.decide()
        if decision is None:
            break
        before = world.price
        assert world.validate(decision) is not None
        world.carry_out(decision)
        assert world.price < before
    else:
        pytest.fail("machines are still replaced after 40 decisions")
