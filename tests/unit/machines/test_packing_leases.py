"""Whole machines of packed pools for MachineLeases that wait."""

from typing import Any

import msgspec
import pytest
from tests.unit.machines import packing
from tests.unit.machines.packing import MIDDLE, SMALL, booted, node, plan, pod, pool
from tests.unit.machines.scaling import NOW

from grange.api import conditions
from grange.api.kinds.machine import DISRUPTED_TAINT_KEY, PLANNED_LEASE_ANNOTATION, Machine
from grange.api.kinds.machinelease import (
    GRANTED,
    MACHINE_LEASE,
    MACHINES_REQUESTED,
    QUEUED,
    LeaseHolder,
    MachineLease,
    MachineLeaseSpec,
    MachineLeaseStatus,
    PoolRequest,
)
from grange.api.kinds.node import Taint
from grange.api.kinds.nodepool import NodePool, NodeTemplate, PoolLimits, StandbyNodeSpec
from grange.api.meta import Condition, ObjectMeta
from grange.machines.scaling.capacity_memory import CapacityMemory
from grange.machines.scaling.lease_needs import LeaseNeed, lease_need, requests_machines
from grange.machines.scaling.packing_limits import machines_allowed
from grange.machines.scaling_plan import ScalingPlan

WORKERS = NodeTemplate(labels={"pool": "w"})


def workers(most: int | None = None, name: str = "shared", **spec: Any) -> NodePool:
    spec.setdefault("limits", PoolLimits(machines=most))
    return pool(name, template=WORKERS, **spec)


def need(uid: str = "l", count: int = 1, position: int = 0, **pools: int) -> LeaseNeed:
    machines = tuple(pools.items()) or (("w", count),)
    return LeaseNeed(uid, f"MachineLease default/{uid}", machines, (0, position, "", uid))


def available(name: str, pool_name: str = "shared") -> Machine:
    """A machine whose node is there; see ``worker``."""
    found = plan(pools=[workers(name=pool_name)], leases=[need()]).start[0]
    machine = booted(found, "Available")
    return msgspec.structs.replace(machine, metadata=ObjectMeta(name=name, uid=f"uid-{name}"))


def worker(name: str, **more: Any) -> Any:
    labels = {"pool": "w", **more.pop("labels", {})}
    return node(name, labels=labels, **more)


def kept(found: ScalingPlan) -> list[tuple[str, str]]:
    return sorted((each.machine, each.lease_uid) for each in found.reserve)


def test_machines_are_ordered_for_a_lease_that_waits() -> None:
    found = plan(pools=[workers(2)], leases=[need("l", 2)])
    assert [each.lease_uid for each in found.start] == ["l", "l"]
    assert {each.reason for each in found.start} == {"MachineLease default/l waits"}
    assert found.start[0].annotations == {PLANNED_LEASE_ANNOTATION: "l"}
    assert found.start[0].name != found.start[1].name
    assert found.skip == ()


def test_the_order_has_the_cheapest_types_first() -> None:
    found = plan(pools=[workers()], leases=[need()])
    assert found.start[0].spec.instance_type == SMALL.name


def test_a_lease_gets_all_machines_or_none() -> None:
    found = plan(pools=[workers(1)], leases=[need("l", 2)])
    assert found.start == ()
    (skip,) = found.skip
    assert skip.pod_uid == "l"
    assert skip.pools == ("shared",)
    assert skip.reason == "MachineLease default/l: pool shared: limits.machines: all are there"


def test_what_one_lease_gives_up_another_has() -> None:
    found = plan(pools=[workers(2)], leases=[need("a", 3, 1), need("b", 2, 2)])
    assert [each.lease_uid for each in found.start] == ["b", "b"]
    assert [each.pod_uid for each in found.skip] == ["a"]


def test_limits_of_resources_are_kept() -> None:
    limits = PoolLimits(resources={"cpu": "5"})  # two small ones have four
    found = plan(pools=[workers(limits=limits)], leases=[need("a", 2, 1), need("b", 1, 2)])
    assert [each.lease_uid for each in found.start] == ["a", "a"]
    assert "limits.resources[cpu]" in found.skip[0].reason


def test_what_cannot_be_had_is_not_ordered() -> None:
    capacity = CapacityMemory()
    for kind in (SMALL, MIDDLE):
        for zone in ("z1", "z2"):
            capacity.refuse(kind.name, zone, spot=False, reason="none left", now=NOW)
    found = plan(
        pools=[workers()], catalogue=[SMALL, MIDDLE], capacity=capacity, leases=[need("l", 1)]
    )
    assert found.start == ()
    assert "none left" in found.skip[0].reason


def test_machines_that_boot_are_not_ordered_again() -> None:
    pools = [workers(2)]
    first = plan(pools=pools, leases=[need("l", 2)])
    machines = [booted(each) for each in first.start]
    again = plan((), machines, pools=pools, leases=[need("l", 2)])
    assert again.start == ()
    assert kept(again) == sorted((each.name, "l") for each in first.start)
    lost = plan((), machines[:1], pools=pools, leases=[need("l", 2)])
    assert len(lost.start) == 1


def test_free_machines_count_for_a_lease() -> None:
    machines, nodes = [available("m0"), available("m1")], [worker("m0"), worker("m1")]
    found = plan((), machines, pools=[workers(3)], nodes=nodes, leases=[need("l", 3)])
    assert kept(found) == [("m0", "l"), ("m1", "l")]
    assert len(found.start) == 1


def test_nodes_of_no_node_pool_count_for_a_lease() -> None:
    found = plan(pools=[workers(3)], nodes=[worker("n0")], leases=[need("l", 2)])
    assert kept(found) == [("n0", "l")]
    assert len(found.start) == 1


def test_a_claim_that_has_begun_counts_for_its_lease() -> None:
    marked = {
        "labels": {MACHINE_LEASE: "l"},
        "taints": (Taint(MACHINE_LEASE, "NoSchedule", "l"),),
    }
    machines, nodes = [available("m0")], [worker("m0", **marked)]
    own = plan((), machines, pools=[workers()], nodes=nodes, leases=[need("l", 1)])
    assert own.start == ()
    assert kept(own) == [("m0", "l")]
    other = plan((), machines, pools=[workers()], nodes=nodes, leases=[need("x", 1)])
    assert len(other.start) == 1


@pytest.mark.parametrize(
    "node_fields",
    [
        {"taints": (Taint(DISRUPTED_TAINT_KEY, "NoSchedule"),)},
        {"unschedulable": True},
        {"ready": False},
    ],
)
def test_machines_that_are_not_usable_do_not_count(node_fields: dict[str, Any]) -> None:
    nodes = [worker("m0", **node_fields)]
    found = plan((), [available("m0")], pools=[workers()], nodes=nodes, leases=[need("l", 1)])
    assert len(found.start) == 1


def test_machines_with_pods_do_not_count() -> None:
    machines, nodes = [available("m0")], [worker("m0")]
    pods = [pod("p", node="m0")]
    found = plan(pods, machines, pools=[workers()], nodes=nodes, leases=[need("l", 1)])
    assert len(found.start) == 1


def test_pods_go_before_leases() -> None:
    found = plan([pod("p")], pools=[workers(1)], leases=[need("l", 1)])
    assert [each.pods for each in found.start] == [("default/p",)]
    assert [each.pod_uid for each in found.skip] == ["l"]


def test_standby_is_kept_beside_leased_machines() -> None:
    """A lease takes what is there; the standby that it takes is ordered again, and no more than that."""
    standby = (StandbyNodeSpec(SMALL.name, count=1),)
    pools = [workers(standby=standby)]
    machines, nodes = [available("m0")], [worker("m0")]
    found = plan((), machines, pools=pools, nodes=nodes, leases=[need("l", 1)])
    assert kept(found) == [("m0", "l")]
    assert [(each.lease_uid, each.reason) for each in found.start] == [("", "standby")]
    assert plan((), machines, pools=pools, nodes=nodes).start == ()


def test_machines_that_are_off_are_switched_on() -> None:
    standby = (StandbyNodeSpec(SMALL.name, count=1, state="Stopped"),)
    machine = msgspec.structs.replace(
        available("m0"), status=msgspec.structs.replace(Machine().status, phase="Stopped")
    )
    found = plan((), [machine], pools=[workers(1, standby=standby)], leases=[need("l", 1)])
    assert found.resume == ("m0",)
    assert found.stop == ()


def test_a_lease_of_two_pools_grows_both() -> None:
    pools = [workers(name="a"), pool("b", template=NodeTemplate(labels={"pool": "d"}))]
    found = plan(pools=pools, leases=[need("l", w=2, d=1)])
    assert sorted(each.spec.pool for each in found.start) == ["a", "a", "b"]
    alone = plan(pools=pools[:1], leases=[need("l", w=2, d=1)])
    assert alone.start == ()
    assert "no NodePool makes machines of pool d" in alone.skip[0].reason


def test_a_second_node_pool_has_what_the_first_refuses() -> None:
    pools = [workers(1, "a", weight=9), workers(1, "b")]
    found = plan(pools=pools, leases=[need("l", 2)])
    assert sorted(each.spec.pool for each in found.start) == ["a", "b"]


# --- which leases --------------------------------------------------------------------------------


def lease(phase: str = QUEUED, requested: str = "True", **meta: Any) -> MachineLease:
    return MachineLease(
        metadata=ObjectMeta(name="s-0", namespace="default", uid="u", **meta),
        spec=MachineLeaseSpec(
            machines=(PoolRequest("w", 2),), holder=LeaseHolder("TestSession", "s", "su")
        ),
        status=MachineLeaseStatus(
            phase=phase,
            position=3,
            conditions=conditions.set_condition((), Condition(MACHINES_REQUESTED, requested), ""),
        ),
    )


def test_only_leases_whose_turn_it_is_request_machines() -> None:
    assert requests_machines(lease())
    assert not requests_machines(lease(requested="False"))
    assert not requests_machines(lease(GRANTED))
    assert not requests_machines(lease(deletion_timestamp="2026-01-01T00:00:00Z"))
    found = lease_need(lease())
    assert found.name == "MachineLease default/s-0 of TestSession s"
    assert found.machines == (("w", 2),)


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        (PoolLimits(), None),
        (PoolLimits(machines=4), 4),
        (PoolLimits(resources={"cpu": "5"}), 2),
        (PoolLimits(machines=1, resources={"cpu": "5"}), 1),
        (PoolLimits(price_per_hour="0.35"), 3),
        (PoolLimits(resources={"example.com/gpu": "1"}), None),
        (PoolLimits(resources={"cpu": "1"}), 0),
    ],
)
def test_limits_allow_as_many_of_the_smallest_type(limits: PoolLimits, most: int | None) -> None:
    catalogue = (packing.SMALL, packing.LARGE)
    assert machines_allowed(workers(limits=limits), catalogue) == most
