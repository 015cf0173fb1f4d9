"""Rollouts to templates that ask for other nodes: each side goes by its own template."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs
from tests.support.controller_world import World, world
from tests.unit.controllers import builders
from tests.unit.controllers.test_rollout_service import Tools, tools

from grange.api.kinds import AUDITRECORD, NODE, POD
from grange.api.kinds.auditevents import TRANSFER_COMPLETED, TRANSFER_STARTED
from grange.api.kinds.transfer_status import NodeTransfer
from grange.api.meta import Document
from grange.client.replica_operations import ReplicationControllers
from grange.controllers.replication import node_transfer, rollout
from grange.controllers.replication.controller import ReplicationService
from grange.controllers.replication.plan import Inputs
from grange.controllers.shared import pod_identity

__all__ = ["tools"]


def wanting(disk: str) -> Document:
    """A template for nodes with such a disk."""
    spec = {**builders.TEMPLATE["spec"], "nodeSelector": {"disk": disk}}
    return {**builders.TEMPLATE, "spec": spec}


async def started(there: World, disks: dict[str, str], **more: Any) -> None:
    """Two replicas that want a hard disk, on nodes with disks."""
    for name, disk in disks.items():
        await there.add_node(name, labels={"disk": disk})
    rules = {"maxUnavailable": 0, "progressDeadlineSeconds": 10, **more.pop("rollout", {})}
    await there.add_controller(replicas=2, template=wanting("hard"), rollout=rules, **more)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: there.ready(2))
    await there.until(lambda: phase(there, "Complete"))


async def phase(there: World, wanted: str) -> bool:
    state = (await there.controller()).status.rollout
    return state is not None and state.phase == wanted


async def events(there: World) -> list[str]:
    return [item.spec.event for item in (await there.client.list(AUDITRECORD)).items]


async def places(there: World) -> list[tuple[str, str]]:
    """Node, and the disk that its pod asks for."""
    pods = [pod for pod in await there.pods() if not pod.metadata.deletion_timestamp]
    return sorted((pod.spec.node_name, pod.spec.node_selector["disk"]) for pod in pods)


@pytest.mark.parametrize("strategy", ["Static", "Dynamic"])
@pytest.mark.parametrize("back", [True, False], ids=["rolled back", "failed"])
async def test_template_no_node_fits_keeps_no_pod_from_replacement(
    tools: Tools, strategy: str, *, back: bool
) -> None:
    """They are made again from the last good template, which has nodes: the minimum holds."""
    async with world(*tools) as there:
        disks = dict.fromkeys("abc", "hard")
        await started(there, disks, strategy=strategy, rollout={"autoRollback": back})
        await there.change(template=wanting("gold"))
        await there.until(lambda: phase(there, "RolledBack" if back else "Failed"))
        await there.client.delete(POD, "web-a", "default")
        await there.until(lambda: there.ready(2))
        await there.settle(30.0)
        assert [disk for _, disk in await places(there)] == ["hard", "hard"]
        assert TRANSFER_STARTED not in await events(there), "their nodes are good for them"
        assert (await there.condition("Misplaced")).status == "False"


async def test_rollback_makes_no_pod_where_good_template_has_no_node(
    tools: Tools,
) -> None:
    """Not even in the pass in which it turns."""
    async with world(*tools) as there:
        disks = {"a": "soft", "b": "soft", "c": "hard", "d": "hard", "e": "hard"}
        for name in "ab":
            await there.hold_ready(name)
        rules = {"maxUnavailable": 1, "maxSurge": 0, "autoRollback": True}
        await started(there, disks, rollout=rules)
        await there.change(template=wanting("soft"))
        await there.until(lambda: phase(there, "RolledBack"))
        records = (await there.client.list(AUDITRECORD)).items
        added = {item.pod for record in records for item in record.spec.added}
        assert added == {"web-a", "web-c", "web-d"}
        assert [disk for _, disk in await places(there)] == ["hard", "hard"]


async def test_each_side_of_a_rollout_is_placed_by_its_own_template(tools: Tools) -> None:
    async with world(*tools) as there:
        disks = {"a": "soft", "b": "soft", "c": "hard", "d": "hard", "e": "hard"}
        await started(there, disks)
        await there.change(template=wanting("soft"), rollout={"canary": 1})
        await there.until(lambda: phase(there, "Waiting"))
        await there.settle(2.0)
        assert await places(there) == [("a", "soft"), ("c", "hard")]
        await there.client.delete(POD, "web-c", "default")
        await there.settle(5.0)
        assert await places(there) == [("a", "soft"), ("d", "hard")], "c was not free yet"
        await there.change(rollout={"canary": None})
        await there.until(lambda: phase(there, "Complete"))
        await there.settle(2.0)
        assert await places(there) == [("a", "soft"), ("b", "soft")]


async def test_pod_of_the_old_side_moves_to_a_node_of_its_template(tools: Tools) -> None:
    async with world(*tools) as there:
        disks = {"a": "soft", "b": "soft", "c": "hard", "d": "hard", "e": "hard"}
        await started(there, disks, strategy="Dynamic")
        await there.change(template=wanting("soft"), rollout={"canary": 1})
        await there.until(lambda: phase(there, "Waiting"))
        await there.settle(2.0)
        assert await places(there) == [("a", "soft"), ("c", "hard")]
        await ReplicationControllers(there.client, "default").drain_node("web", "c")
        await there.until(lambda: moved(there, "d"))
        patch = {"metadata": {"labels": {"disk": "soft"}}}
        await there.client.patch(NODE, "d", patch=patch)  # good for the others, not for it
        await there.until(lambda: moved(there, "e"))
        assert (await events(there)).count(TRANSFER_COMPLETED) == 2


async def moved(there: World, node: str) -> bool:
    busy = (await there.controller()).status.node_transfers
    return not busy and await places(there) == [("a", "soft"), (node, "hard")]


def test_who_is_judged_by_which_nodes() -> None:
    owner = builders.controller(replicas=2, template=wanting("soft"))
    before = builders.controller(replicas=2, template=wanting("hard"))
    new, old = builders.pod(owner, node="a"), builders.pod(before, node="c")
    assert pod_identity.sources(owner) == (owner, None), "nothing is written down"
    situation = builders.inputs(
        owner, [new, old], ["a"], template=pod_identity.template_hash(owner), earlier=["c", "d"]
    )
    assert node_transfer.misplaced(situation) == []
    assert situation.nodes_for(None) == ["a"]
    assert node_transfer.spare_node(situation, [], [], old) == "d"
    assert node_transfer.spare_node(situation, [], [], new) is None
    to_d = [NodeTransfer(id="t", phase="Starting", old="c", old_pod="p", old_uid="u", new="d")]
    assert node_transfer.spare_node(situation, to_d, [], old) is None
    fewer = situation.without({"c"})
    assert node_transfer.misplaced(fewer) == [old]


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_canary_whose_old_pods_are_lost_is_not_complete() -> None:
    """Old pods are wanted as long as the canary stands, also where no node is left for them."""
    before = builders.controller(replicas=3, placement="OnePerNode", template=wanting("soft"))
    after = builders.controller(
        replicas=3, placement="OnePerNode", template=wanting("hard"), rollout={"canary": 1}
    )
    old = [builders.pod(before, node=node) for node in "abc"]
    new = builders.pod(after, node="a")
    status, sides = before.status, None
    for owner, active in ((before, old), (after, old), (after, [*old[1:], new]), (after, [new])):
        available = frozenset(pod.metadata.uid for pod in active)
        seen = structs.replace(owner, status=status)
        decision = rollout.decide(Inputs(seen, active, ["a"], available=available), NOW)
        status, sides = decision.controller.status, decision.sides
    assert status.rollout is not None
    assert (status.rollout.new_replicas, status.rollout.old_replicas) == (1, 2)
    assert status.rollout.phase == "Waiting"
    assert sides is not None
