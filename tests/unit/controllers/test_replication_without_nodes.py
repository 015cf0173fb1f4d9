"""A process that finds no Node at all when it begins: pods may run all the same, so none is taken."""

import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers.test_rollout_service import Tools, tools, version

from grange.api.kinds import NODE, REPLICATIONCONTROLLER
from grange.base.tasks import Nursery
from grange.controllers.replication.controller import ReplicationService

__all__ = ["tools"]


async def pods(there: World) -> dict[str, str]:
    return {pod.metadata.name: pod.metadata.uid for pod in await there.pods()}


@pytest.mark.parametrize("placement", ["OnePerNode", "Packed"])
@pytest.mark.parametrize("strategy", ["Static", "Dynamic"])
@pytest.mark.parametrize("template", [1, 2])
async def test_no_pod_that_runs_is_taken_where_no_node_is_there(
    placement: str, strategy: str, template: int, tools: Tools
) -> None:
    async with world(*tools) as there:
        nodes = ["a", "b", "c"]
        for name in nodes:
            await there.add_node(name)
        await there.add_controller(
            replicas=3, placement=placement, strategy=strategy, template=version(1)
        )
        async with Nursery("before") as before:
            before.start(ReplicationService(there.deps).run())
            await there.until(lambda: there.ready(3))
            await there.settle()
            before.cancel()
        known = await pods(there)
        there.silent.update(nodes)
        for name in nodes:
            await there.client.delete(NODE, name)
        change = {"spec": {"template": version(template)}}
        await there.client.patch(REPLICATIONCONTROLLER, "web", "default", patch=change)
        there.start(ReplicationService(there.deps))
        await there.settle(60.0)
        assert known.items() <= (await pods(there)).items()
