"""Node transfers at the same time: what one gives up, no other counts on, and each has its own pod.

Names of packed pods are ordinals, so a pod that does not count any more could lose its own to a new one.
"""

import msgspec
import pytest
from msgspec.structs import replace
from tests.support.controller_world import World, world
from tests.unit.controllers import builders
from tests.unit.controllers.test_replication_transfer import (
    DYNAMIC,
    label,
    moved,
    nodes,
    on,
    phase,
    started,
    transfers,
)

from grange.api import timestamps
from grange.api.kinds import AUDITRECORD, POD, REPLICATIONCONTROLLER
from grange.api.kinds.transfer_status import NodeTransfer
from grange.api.replication import REMOVE_ANNOTATION
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.controllers.replication import (
    logic,
    node_transfer,
    podtemplate,
)
from grange.controllers.replication.controller import ReplicationService
from grange.sim.simulated_pool import SimulatedPool


async def begun(there: World, at: int, phase: str, old: str, new: str) -> NodeTransfer:
    """A transfer in a phase, with its new pod."""
    owner = await there.controller()
    pod = await there.client.get(POD, f"web-{old}", "default")
    document = podtemplate.pod_document(owner, name=f"web-{new}", node=new)
    await there.client.create(POD, document, "default")
    later = timestamps.rfc3339(there.clock.now().replace(year=2030))
    return NodeTransfer(
        id=f"t{at}",
        phase=phase,
        old=old,
        old_pod=pod.metadata.name,
        old_uid=pod.metadata.uid,
        new=new,
        new_pod=f"web-{new}",
        started_at=later,
        deadline=later,
    )


async def test_a_pod_that_is_given_up_does_not_count_for_the_minimum(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """It got well when its transfer was rolled back already, and goes; another old pod must not."""
    async with world(clock, rng, log) as there:
        await nodes(there, "c", "d")
        async with Nursery("first owner") as first:
            await started_by(there, first)
            first.cancel()
        await there.hold_ready("d")
        rows = [
            await begun(there, 1, "Finishing", "a", "d"),
            await begun(there, 2, "RollingBack", "b", "c"),
        ]
        change = {"status": {"nodeTransfers": msgspec.to_builtins(rows)}}
        await there.client.patch(
            REPLICATIONCONTROLLER, "web", "default", patch=change, subresource="status"
        )
        await there.settle(1.0)
        there.start(ReplicationService(there.deps))
        await there.settle(5.0)
        assert await there.names() == ["web-a", "web-b", "web-d"]
        await there.let_ready("d")
        await there.until(lambda: there.ready(2))
        assert await there.names() == ["web-b", "web-d"]


async def started_by(there: World, owner: Nursery) -> None:
    for name in ("a", "b"):
        await there.add_node(name, labels={"web": "y"})
    await there.add_controller(
        replicas=2, strategy="Dynamic", rollout={"maxUnavailable": 0, "maxSurge": 2}
    )
    owner.start(ReplicationService(there.deps).run())
    await there.until(lambda: there.ready(2))
    await there.settle(1.0)


async def test_packed_pods_that_move_at_once_have_a_successor_each(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Two that find their nodes in one pass were promised one name: one pod came for both."""
    async with world(clock, rng, log) as there:
        await started(there, "a", replicas=4, placement="Packed", rollout={"maxSurge": 2})
        await nodes(there, "b")
        most = 0

        async def watch() -> bool:
            nonlocal most
            promised = [item.new_pod for item in await transfers(there) if item.new_pod]
            assert len({*promised}) == len(promised)
            most = max(most, len(promised))
            return await moved(there, *"bbbb")

        await label(there, "a", fits=False)
        await there.until(watch, limit_s=120)
        assert most == 2
        audit = (await there.client.list(AUDITRECORD)).items
        assert sum(len(record.spec.added) for record in audit) == 8


def test_an_old_pod_that_is_there_yet_keeps_its_name() -> None:
    """It waits for the budget, for example, while more replicas are asked for."""
    owner = builders.controller(replicas=3, placement="Packed")
    old, other, new = (builders.pod(owner, name=f"web-{at}", node="a") for at in range(3))
    row = NodeTransfer(
        id="t",
        phase="Finishing",
        old="a",
        old_pod="web-0",
        old_uid=old.metadata.uid,
        new_pod="web-2",
        deadline="2030-01-01T00:00:00Z",
    )
    situation = builders.inputs(owner, [old, other, new], ["a", "b"])
    plan = logic.plan(node_transfer.hidden(situation, [row]))
    assert [addition.name for addition in plan.create] == ["web-3"]


@pytest.mark.parametrize(("placement", "names"), [("Packed", ["web-2"]), ("OnePerNode", [])])
def test_pod_ordered_to_go_keeps_name_and_node_until_gone(placement: str, names: list[str]) -> None:
    owner = builders.controller(replicas=2, placement=placement)
    pods = [
        builders.pod(owner, name=f"web-{at}" if placement == "Packed" else "", node=node)
        for at, node in enumerate("ab")
    ]
    order = {REMOVE_ANNOTATION: pods[0].metadata.uid}
    owner = replace(owner, metadata=replace(owner.metadata, annotations=order))
    situation = builders.inputs(owner, pods, ["a", "b"])
    assert [addition.name for addition in logic.plan(situation).create] == names


@pytest.mark.parametrize("other", ["b", ""], ids=["another node fits", "no node fits"])
async def test_packed_pods_ask_the_pool_only_when_no_node_is_eligible(
    clock: Clock, rng: Stream, log: Logger, other: str
) -> None:
    """Whether nodes are full is the scheduler's to know."""
    pool = SimulatedPool(["p"])
    async with world(clock, rng, log) as there:
        await started(there, "a", replicas=1, pool=pool, placement="Packed")
        await nodes(there, *([other] if other else ["p"]))
        await label(there, "a", fits=False)
        await there.until(lambda: moved(there, other or "p"), limit_s=60)
        assert bool(pool.requests) == (not other)


async def test_ordered_removal_and_transfer_share_the_minimum(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """What a pass removes by order is not there any more for a transfer that is about to finish."""
    async with world(clock, rng, log) as there:
        await there.hold_ready("b")
        await nodes(there, "a", "b", "c")
        await there.add_controller(replicas=3, **DYNAMIC, rollout={"maxUnavailable": 0})
        there.start(ReplicationService(there.deps))
        await there.settle(5.0)
        assert (await there.controller()).status.ready_replicas == 2
        await nodes(there, "d")
        await label(there, "a", fits=False)
        await there.until(lambda: phase(there, node_transfer.TransferPhase.FINISHING))
        await there.settle(5.0)
        assert await on(there) == ["a", "b", "c", "d"], "no pod may go while one is not ready"
        (order,) = [pod.metadata.uid for pod in await there.pods() if pod.spec.node_name == "c"]
        patch = {"metadata": {"annotations": {REMOVE_ANNOTATION: order}}, "spec": {"replicas": 2}}
        await there.client.patch(REPLICATIONCONTROLLER, "web", "default", patch=patch)
        await there.settle(5.0)
        assert await on(there) == ["a", "b", "d"]
        await there.let_ready("b")
        await there.until(lambda: moved(there, "b", "d"))
