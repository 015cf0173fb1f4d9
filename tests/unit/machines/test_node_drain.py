"""Draining a node: tiers, force near the deadline, and what does not hold it up; notices of providers."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.unit.machines.disruption import World, owned, pool
from tests.unit.machines.packing import pod
from tests.unit.machines.scaling import NOW, at

from grange.api.kinds.nodepool import DO_NOT_DISRUPT_ANNOTATION
from grange.api.kinds.pod import Pod, Toleration
from grange.machines.disruption.interruption_response import InterruptionResponse, respond
from grange.machines.disruption.node_drain import (
    CRITICAL_PRIORITY,
    DrainStep,
    drain_deadline,
    drain_step,
)
from grange.machines.providers.provider import Interruption
from grange.machines.scaling.capacity_memory import CapacityMemory


def on_node(name: str, *, daemon: bool = False, **spec: Any) -> Pod:
    made = owned(pod(name, node="n", **spec))
    if not daemon:
        return made
    owner = msgspec.structs.replace(made.metadata.owner_references[0], kind="DaemonSet")
    meta = msgspec.structs.replace(made.metadata, owner_references=(owner,))
    return msgspec.structs.replace(made, metadata=meta)


def deleted(given: Pod, seconds: float) -> Pod:
    meta = msgspec.structs.replace(given.metadata, deletion_timestamp=at(seconds))
    return msgspec.structs.replace(given, metadata=meta)


def step(*pods: Pod, after: float = 10.0, grace: int | None = None) -> DrainStep:
    deadline = drain_deadline(NOW, grace)
    now = NOW + timedelta(seconds=after)
    return drain_step(pods, started=NOW, deadline=deadline, now=now)


def evicted(found: DrainStep) -> list[str]:
    return [each.metadata.name for each in found.evict]


def test_tiers_go_one_after_another() -> None:
    pods = [
        on_node("plain"),
        on_node("daemon", daemon=True),
        on_node("critical", priority=CRITICAL_PRIORITY),
        on_node("critical-daemon", daemon=True, priority=CRITICAL_PRIORITY),
    ]
    order = []
    while pods:
        found = step(*pods)
        order.append(evicted(found))
        pods = [each for each in pods if each not in found.evict]
    assert order == [["plain"], ["daemon"], ["critical"], ["critical-daemon"]]


def test_tier_waits_for_pods_that_end() -> None:
    found = step(deleted(on_node("plain"), 30), on_node("daemon", daemon=True))
    assert (found.evict, found.waits_for) == ((), "pod default/plain")


def test_stuck_pod_holds_nothing_up() -> None:
    assert step(deleted(on_node("plain"), -51)).done
    assert not step(deleted(on_node("plain"), -49)).done


def test_drain_lasts_a_while() -> None:
    assert step(after=4).after_s == 1.0
    assert step(after=5).done


def test_pod_that_tolerates_the_taint_stays() -> None:
    lasting = on_node("p", tolerations=(Toleration(key="grange.dev/disrupted", operator="Exists"),))
    assert step(lasting).done


def test_protected_pod_holds_a_drain_up_without_end() -> None:
    found = step(on_node("p", annotations={DO_NOT_DISRUPT_ANNOTATION: "true"}))
    assert (found.evict, found.done, found.after_s) == ((), False, None)


def test_force_leaves_each_pod_its_own_grace() -> None:
    quick = on_node("quick", termination_grace_period_seconds=5)
    slow = on_node(
        "slow",
        termination_grace_period_seconds=50,
        annotations={DO_NOT_DISRUPT_ANNOTATION: "true"},
    )
    before = step(quick, slow, after=9, grace=60)
    assert (evicted(before), before.remove, before.after_s) == (["quick"], (), 1.0)
    found = step(quick, slow, after=10, grace=60)
    assert [(each.pod.metadata.name, each.grace_s) for each in found.remove] == [("slow", 50)]
    late = step(quick, slow, after=57, grace=60)
    assert {each.pod.metadata.name: each.grace_s for each in late.remove} == {"quick": 3, "slow": 3}
    assert step(quick, slow, after=60, grace=60).done


# --- notices -------------------------------------------------------------------------------------------


def response(memory: CapacityMemory, **notice: Any) -> InterruptionResponse:
    world = World(pool(spot="Always"))
    world.machine("a", spot=True)
    given = Interruption("i-1", "spot machine is taken back", **notice)
    return respond(given, world.machines["a"], memory, NOW)


def test_notice_marks_its_offering() -> None:
    memory = CapacityMemory()
    found = response(memory, within_s=120)
    assert found.deadline == NOW + timedelta(seconds=120)
    assert memory.refusal("small", "z1", spot=True, now=NOW)
    assert not memory.refusal("small", "z1", spot=False, now=NOW)


def test_warning_marks_nothing() -> None:
    memory = CapacityMemory()
    assert response(memory, rebalance=True).deadline is None
    assert not memory.refusal("small", "z1", spot=True, now=NOW)


@pytest.mark.parametrize(
    ("after", "replaced", "drains"),
    [(0, False, False), (0, True, True), (74, False, False), (75, False, True)],
)
def test_drain_begins_with_the_replacement_or_in_time(
    after: float, *, replaced: bool, drains: bool
) -> None:
    found = response(CapacityMemory(), within_s=120)
    now: datetime = NOW + timedelta(seconds=after)
    assert found.drains([on_node("p")], replaced=replaced, now=now) == drains


def test_warning_waits_for_the_replacement() -> None:
    found = response(CapacityMemory(), rebalance=True)
    assert not found.drains([on_node("p")], replaced=False, now=NOW + timedelta(days=1))
    assert found.drains([], replaced=False, now=NOW)
