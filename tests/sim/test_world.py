"""Whole worlds under faults."""

from grange.api.kinds import NODE, POD
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.sim import builders, population
from grange.sim.world import simulated


async def test_pod_that_is_bound_runs_and_ends(clock: Clock, rng: Stream, log: Logger) -> None:
    async with simulated(clock=clock, rng=rng, log=log) as world:
        machine = population.add_node(world, "n1")

        async def registered() -> bool:
            return bool((await world.client.list(NODE)).items)

        await world.until(registered, limit_s=30)
        document = builders.pod_document("web", nodeName="n1")
        document["spec"]["containers"][0]["command"] = ["serve"]
        await world.client.create(POD, document, "default")

        async def ready() -> bool:
            pod = await world.client.get(POD, "web", "default")
            return pod.status.phase == "Running"

        await world.until(ready, limit_s=30)
        assert len(population.running(machine)) == 1
        assert await world.fixed_point(120) == []
        await world.client.delete(POD, "web", "default")

        async def gone() -> bool:
            return not (await world.client.list(POD)).items

        await world.until(gone, limit_s=60)
        assert machine.pods == {}
