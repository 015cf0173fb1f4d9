"""Draining a node: tiers, force near the deadline, and what does not hold it up; notices of providers."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.unit.machines.disruption import World, owned, pool
from tests.unit.machines.packing import pod
from tests.unit.machines.scaling import NOW, at

from grange.api import timestamps
from grange.api.kinds.machine import MachineStatus
from grange.api.kinds.nodepool import DO_NOT_DISRUPT_ANNOTATION
from grange.api.kinds.pod import Pod, Toleration
from grange.api.kinds.priorityclass import SYSTEM_CRITICAL_PRIORITY
from grange.machines.disruption.disruption_progress import DISRUPTION_ANNOTATION, DisruptionRecord
from grange.machines.disruption.interruption_response import is_overdue, respond
from grange.machines.disruption.node_drain import (
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
        on_node("critical", priority=SYSTEM_CRITICAL_PRIORITY),
        on_node("critical-daemon", daemon=True, priority=SYSTEM_CRITICAL_PRIORITY),
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


def response(memory: CapacityMemory, **notice: Any) -> DisruptionRecord:
    world = World(pool(spot="Always"))
    world.machine("a", spot=True)
    given = Interruption("i-1", "spot machine is taken back", **notice)
    found = respond(given, world.machines["a"], memory, NOW)
    assert found is not None
    return found


def test_notice_marks_its_offering() -> None:
    memory = CapacityMemory()
    found = response(memory, within_s=120)
    assert timestamps.parse(found.deadline) == NOW + timedelta(seconds=120)
    assert memory.refusal("small", "z1", spot=True, now=NOW)
    assert not memory.refusal("small", "z1", spot=False, now=NOW)


def test_warning_marks_nothing() -> None:
    memory = CapacityMemory()
    assert response(memory, rebalance=True).deadline == ""
    assert not memory.refusal("small", "z1", spot=True, now=NOW)


@pytest.mark.parametrize(("after", "overdue"), [(0, False), (74, False), (75, True)])
def test_drain_begins_in_time(after: float, *, overdue: bool) -> None:
    found = response(CapacityMemory(), within_s=120)
    now: datetime = NOW + timedelta(seconds=after)
    assert is_overdue(found, [on_node("p")], now) == overdue
    assert not is_overdue(response(CapacityMemory(), rebalance=True), [on_node("p")], now)


def test_notice_that_comes_again_moves_no_time() -> None:
    world = World(pool())
    first = response(CapacityMemory(), within_s=120)
    world.machine("a", annotations={DISRUPTION_ANNOTATION: first.text()})
    for again in (Interruption("i-1", "again", 60), Interruption("i-1", "risk", rebalance=True)):
        assert respond(again, world.machines["a"], CapacityMemory(), NOW) is None
    warned = response(CapacityMemory(), rebalance=True)
    world.machine("b", annotations={DISRUPTION_ANNOTATION: warned.text()})
    found = respond(Interruption("i-1", "now", 60), world.machines["b"], CapacityMemory(), NOW)
    assert found is not None
    assert timestamps.parse(found.deadline) == NOW + timedelta(seconds=60)


def test_notice_keeps_what_was_ordered_before() -> None:
    world = World(pool())
    noted = DisruptionRecord("Underutilized", "cheaper", timestamps.rfc3339(NOW), ("a", "b"))
    noted = msgspec.structs.replace(noted, replacements=("r",), validated=noted.decided)
    world.machine("a", annotations={DISRUPTION_ANNOTATION: noted.text()})
    found = respond(Interruption("i-1", "now", 60), world.machines["a"], CapacityMemory(), NOW)
    assert found is not None
    assert (found.reason, found.together, found.replacements) == ("Interrupted", ("a",), ("r",))


def test_warning_moves_no_holder() -> None:
    world = World(pool())
    world.machine("a")
    claimed = MachineStatus(phase="Claimed")
    machine = msgspec.structs.replace(world.machines["a"], status=claimed)
    warning = Interruption("i-1", "risk", rebalance=True)
    assert respond(warning, machine, CapacityMemory(), NOW) is None
    assert respond(Interruption("i-1", "now", 60), machine, CapacityMemory(), NOW) is not None
