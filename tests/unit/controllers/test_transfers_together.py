"""Node transfers at the same time: what one gives up, no other counts on."""

import msgspec
from tests.unit.controllers.test_replication_transfer import nodes
from tests.unit.controllers.world import World, world

from grange.api import timestamps
from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.kinds.membership import NodeTransfer
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.controllers.replication import podtemplate
from grange.controllers.replication.controller import ReplicationService


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
