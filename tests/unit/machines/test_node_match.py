"""Nodes that a cluster names after instances, as EKS does: each is matched with its machine by its provider id."""

from dataclasses import replace as with_fields
from typing import Any

from msgspec.structs import replace
from tests.support.machine_world import machine_world
from tests.unit.machines.packing import SMALL, booted, node, plan, pod

from grange.api.kinds import NODE
from grange.api.kinds.machine import DEDICATED_TAINT, NODE_POOL_LABEL, Machine
from grange.api.kinds.node import Node
from grange.api.machine_phases import MachinePhase
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.scaling.node_match import instance_of, is_of, nodes_of

P = MachinePhase


def machine(
    name: str = "m", instance: str = "i-1", phase: str = "Created", **status: Any
) -> Machine:
    (start,) = plan([pod("first", "2")], catalogue=(SMALL,)).start
    made = booted(with_fields(start, name=name), phase)
    return replace(made, status=replace(made.status, instance_id=instance, **status))


def provided(name: str, instance: str, **more: Any) -> Node:
    return node(name, provider_id=f"aws:///us-west-1a/{instance}", **more)


def test_instance_is_the_end_of_the_provider_id() -> None:
    assert instance_of(provided("ip-1", "i-1")) == "i-1"
    assert instance_of(node("m")) == ""


def test_node_is_of_the_machine_whose_instance_it_names() -> None:
    assert is_of(provided("ip-1", "i-1"), machine())
    assert not is_of(provided("ip-1", "i-2"), machine())
    assert not is_of(provided("m", "i-2"), machine())
    assert not is_of(node("ip-1"), machine())
    assert is_of(node("m"), machine())


def test_node_of_another_pool_is_not_the_machines() -> None:
    assert not is_of(provided("ip-1", "i-1", labels={NODE_POOL_LABEL: "other"}), machine())


def test_node_named_as_a_machine_is_no_others() -> None:
    """An agent that may register one node cannot take the place of another machine's."""
    machines = [machine("m", "i-1"), machine("n", "i-2")]
    assert {*nodes_of(machines, [provided("n", "i-1")])} == {"n"}
    found = nodes_of(machines, [provided("ip-1", "i-1"), provided("n", "i-2")])
    assert {name: one.metadata.name for name, one in found.items()} == {"m": "ip-1", "n": "n"}


def test_booting_machine_and_its_node_are_one_host() -> None:
    """Else pods would be planned on the node and on the machine that becomes it."""
    pods = [pod("a", "2"), pod("b", "2")]
    found = plan(pods, [machine()], nodes=[provided("ip-1", "i-1")])
    assert len(found.start) == 1
    assert {"m", found.start[0].name} == {binding.machine for binding in found.bind}


def test_pods_count_on_the_machine_of_their_node() -> None:
    there = machine(phase="Available", node_name="ip-1")
    pods = [pod("a", "1"), pod("r", "2", node="ip-1")]
    assert len(plan(pods, [there], nodes=[provided("ip-1", "i-1")]).start) == 1


async def test_dedicated_machine_serves_by_its_own_node(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        world.cloud_names = True
        await world.add_pool()
        await world.add_pod("a")
        await world.bound("a")
        (found,) = await world.live()
        named = (await world.pod("a")).spec.node_name
        assert named == found.status.node_name == world.node_name(found.metadata.name)
        joined = await world.node(named)
        assert joined.metadata.labels[NODE_POOL_LABEL] == "p"
        assert [taint.key for taint in joined.spec.taints] == [DEDICATED_TAINT]
        await world.end_pod("a")
        await world.empty()
        assert (await world.client.list(NODE)).items == []


async def test_packed_machine_lives_by_its_own_node(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        world.cloud_names = True
        await world.add_pool("shared", mode="Packed", instanceTypes=["medium"])
        await world.add_unschedulable("a", cpu="1500m")
        await world.count(P.AVAILABLE, 1)
        await world.settle(60.0)
        assert world.cloud.launches == 1
        await world.delete_pod("a")
        await world.empty()  # disrupted: its node was tainted, drained and deleted
        assert (await world.client.list(NODE)).items == []


async def test_silent_node_of_another_name_ends_its_machine(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        world.cloud_names = True
        await world.add_pool(standby=[{"instanceType": "small", "count": 1}])
        await world.count(P.AVAILABLE, 1)
        (found,) = await world.live()
        await world.set_ready(found.status.node_name, ready=False)

        async def ended() -> bool:
            return await world.is_gone(found.metadata.name)

        await world.until(ended, limit_s=300.0)
