"""One pod on a node: nodes with room first, a way out of full ones, and the reasons where there is none."""

from typing import Any

from tests.support.controller_world import World, world
from tests.unit.controllers import builders

from grange.api.kinds import NODE, POD, REPLICATIONCONTROLLER
from grange.api.kinds.transfer_status import DRAINED_NODES
from grange.api.meta import Document
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.replication import logic
from grange.controllers.replication.controller import ReplicationService
from grange.controllers.replication.plan import Inputs, Plan
from grange.controllers.shared import pod_identity

LARGE: Document = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {
        "containers": [
            {
                "name": "web",
                "image": "web",
                "command": ["web"],
                "resources": {"requests": {"cpu": "5"}},  # nodes have 8
            }
        ]
    },
}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def situation(**facts: Any) -> Inputs:
    owner = facts.pop("owner", None) or builders.controller(replicas=2)
    return builders.inputs(owner, facts.pop("owned", ()), ("a", "b", "c", "d"), **facts)


def nodes_of(plan: Plan) -> list[str]:
    return [item.node for item in plan.create]


def test_nodes_with_room_come_first() -> None:
    assert nodes_of(logic.plan(situation(full={"a", "c"}))) == ["b", "d"]
    assert nodes_of(logic.plan(situation(full={"a", "b", "c"}))) == ["d", "a"]


def test_no_more_nodes_are_added_up_than_are_needed() -> None:
    asked: list[object] = []

    class Full:
        def __contains__(self, name: object) -> bool:
            asked.append(name)
            return False

    logic.plan(situation(full=Full()))
    assert asked == ["a", "b"]


def test_unbound_pod_moves_to_a_node_with_room() -> None:
    owner = builders.controller(replicas=1)
    stuck = builders.pod(owner, node="a", bound=False, conditions=[UNSCHEDULABLE])
    plan = logic.plan(situation(owner=owner, owned=[stuck], full={"a", "b"}))
    assert [(item.pod.metadata.name, item.why) for item in plan.delete] == [("web-a", "NodeFull")]
    assert nodes_of(plan) == ["c"]


def test_unbound_pod_stays_where_no_node_has_room() -> None:
    owner = builders.controller(replicas=1)
    stuck = builders.pod(owner, node="a", bound=False, conditions=[UNSCHEDULABLE])
    plan = logic.plan(situation(owner=owner, owned=[stuck], full={"a", "b", "c", "d"}))
    assert (plan.delete, plan.create) == ((), ())
    assert plan.stuck, "it is looked at again"


def test_unbound_pod_stays_until_the_scheduler_has_refused_it() -> None:
    owner = builders.controller(replicas=1)
    fresh = builders.pod(owner, node="a", bound=False)
    plan = logic.plan(situation(owner=owner, owned=[fresh], full={"a"}))
    assert (plan.delete, plan.create) == ((), ())


def test_services_begin_on_different_nodes() -> None:
    nodes = [f"n{number}" for number in range(5)]
    first = {
        pod_identity.rotated_nodes(builders.controller(f"service-{number}"), nodes)[0]
        for number in range(30)
    }
    assert first == set(nodes)
    owner = builders.controller("service-1")
    ordered = pod_identity.rotated_nodes(owner, nodes)
    assert sorted(ordered) == nodes
    at = nodes.index(ordered[0])
    assert ordered == [*nodes[at:], *nodes[:at]]


async def fill(there: World, name: str, node: str) -> None:
    """A pod of others that leaves no room for a large one on a node."""
    document: Document = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**LARGE["spec"], "nodeName": node},
    }
    await there.client.create(POD, document, "default")


async def shortage(there: World) -> str:
    return (await there.condition("InsufficientNodes")).message


async def test_message_counts_nodes_for_each_reason(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        for name in ("a", "b", "c", "d", "e", "f"):
            await there.add_node(name, labels={"disk": "ssd"}, ready=name != "d")
        await there.client.patch(NODE, "e", patch={"spec": {"unschedulable": True}})
        await there.client.patch(NODE, "f", patch={"metadata": {"labels": {"disk": None}}})
        selector = {"matchLabels": {"disk": "ssd"}}
        await there.add_controller(replicas=5, nodeSelector=selector)
        left: Document = {"metadata": {"annotations": {DRAINED_NODES: "c"}}}
        await there.client.patch(REPLICATIONCONTROLLER, "web", "default", patch=left)
        there.start(ReplicationService(there.deps))
        await there.until(lambda: there.ready(2))
        await there.settle()
        assert await shortage(there) == (
            "3 of 5 replicas have no eligible node: 2 have a pod already (OnePerNode), "
            "1 does not match spec.nodeSelector, 1 is cordoned, "
            "1 is drained by rc drain-node web, 1 is not Ready"
        )


async def test_service_takes_the_nodes_that_have_room(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        for name in ("a", "b", "c"):
            await there.add_node(name)
        await fill(there, "big", "a")
        there.start(ReplicationService(there.deps))
        await there.add_controller(replicas=2, template=LARGE)
        await there.until(lambda: there.ready(2))
        assert sorted(await there.names()) == ["big", "web-b", "web-c"]


async def test_pod_without_room_is_looked_at_every_15_s(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """What makes room is the end of a pod of others, which causes no reconcile."""
    async with world(clock, rng, log) as there:
        there.silent |= {"a", "b"}
        for node in ("a", "b"):
            await there.add_node(node)
            await fill(there, f"big-{node}", node)
        there.start(ReplicationService(there.deps))
        await there.add_controller(replicas=1, template=LARGE)
        await there.settle(1.0)
        [first] = {*await there.names()} - {"big-a", "big-b"}
        refused: Document = {"status": {"conditions": [UNSCHEDULABLE]}}
        await there.client.patch(POD, first, "default", patch=refused, subresource="status")
        await there.settle(1.0)
        other = {"web-a": "b", "web-b": "a"}[first]
        await there.client.delete(POD, f"big-{other}", "default", grace_period_s=0)
        await there.settle(10.0)
        assert first in await there.names()
        await there.settle(6.0)
        assert f"web-{other}" in await there.names()
        assert first not in await there.names()
