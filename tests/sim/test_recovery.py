"""Services come back soon after what was broken is repaired: nothing waits for what never happened."""

from tests.sim.test_replication import kept, populate, service

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.sim.faults import NetworkFaults
from grange.sim.pytest_plugin import EPOCH
from grange.sim.world import simulated

LOSING = NetworkFaults(latency_s=0.05, lose_request=0.3, lose_answer=0.1, answer_timeout_s=1.0)


async def test_services_recover_from_a_losing_network(seed: int, log: Logger) -> None:
    clock, rng = LoopClock(EPOCH), Stream(seed)
    async with simulated(clock=clock, rng=rng, log=log) as world:
        await populate(world, rng)
        wanted = {f"web-{number}": 4 for number in range(4)}
        world.network.faults = LOSING
        for name in wanted:
            document = service(name, 4, placement="Packed")
            await world.client.create(REPLICATIONCONTROLLER, document, "default")
        await clock.sleep(rng.uniform(0.5, 3.0))
        world.network.calm()
        await world.until(lambda: kept(world, wanted), limit_s=900)
