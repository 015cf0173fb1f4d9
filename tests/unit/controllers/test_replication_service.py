"""The replication controller against a real API server in memory, under virtual time."""

from tests.unit.controllers.world import world

from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.replication.controller import ReplicationService


async def test_pods_are_created_on_nodes_in_order_and_become_ready(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """R3, R14, R16 through the API."""
    async with world(clock, rng, log) as there:
        for name in ("d", "b", "a", "c"):
            await there.add_node(name)
        await there.add_controller(replicas=3)
        there.start(ReplicationService(there.deps))
        await there.until(lambda: there.ready(3))
        assert await there.names() == ["web-a", "web-b", "web-c"]
        assert {p.spec.node_name for p in await there.pods()} == {"a", "b", "c"}
        await there.settle()
        assert (await there.said("Available")).status == "True"
        assert (await there.said("Reconciled")).status == "True"
        assert (await there.said("InsufficientNodes")).status == "False"
        status = (await there.controller()).status
        assert (status.replicas, status.ready_replicas, status.updated_replicas) == (3, 3, 3)
        assert status.observed_generation == 1
