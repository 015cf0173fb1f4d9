"""Writes that arrive when their senders have long given them up, while everybody changes their mind.

Nothing else goes wrong here but slow requests and owners that come and go: templates are changed and
changed back, counts raised and lowered, and pods made cheap to take, so that a deletion that was
decided some time ago is one that would not be taken now. A process that takes a pod then must have counted
with every deletion that can still arrive.
"""

from contextlib import suppress

from tests.sim.lateness import late_writes
from tests.sim.test_replication import crashes
from tests.sim.test_replication_farm import MEMBERS, ROLLOUT, OneWriter, populate, settled
from tests.sim.test_rollouts import MinimumIsKept, controller, patched, template

from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.status import ApiError
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.controllers.shared.pod_identity import DELETION_COST
from grange.sim.faults import NetworkFaults
from grange.sim.pytest_plugin import EPOCH, Records
from grange.sim.simulated_pool import SimulatedPool
from grange.sim.world import World, simulated

REPLICAS, LAST = 3, 9
TROUBLE_S = 300


async def waver(world: World, draw: Stream, seconds: float) -> None:
    """Ask for one thing, and for another before it is there."""
    until = world.clock.monotonic() + seconds
    while world.clock.monotonic() < until:
        await world.clock.sleep(draw.uniform(2.0, 20.0))
        wish = draw.choice(["template"] * 6 + ["cost", "replicas"])
        if wish == "template":
            await patched(world, "web", template=template("web", draw.integer(1, 2)))
        elif wish == "replicas":
            await patched(world, "web", replicas=draw.integer(REPLICAS, REPLICAS + 1))
        else:
            with suppress(ApiError):
                pod = draw.choice((await world.client.list(POD, "default")).items)
                cheap = {"annotations": {DELETION_COST: str(draw.integer(-9, 9))}}
                await world.client.patch(
                    POD, pod.metadata.name, "default", patch={"metadata": cheap}
                )


async def test_no_late_write_takes_a_pod_that_is_needed(
    seed: int, log: Logger, records: Records
) -> None:
    clock, rng = LoopClock(EPOCH), Stream(seed)
    minimum, writer = MinimumIsKept(clock), OneWriter()
    slow = NetworkFaults(latency_s=0.2)
    async with simulated(clock=clock, rng=rng, log=log, faults=slow) as world:
        for judge in (minimum, writer):
            world.history.add(judge)
        world.witnesses.append(writer.witness)
        machines = await populate(world, SimulatedPool(()), rng.fork("clocks"))
        assert machines
        document = controller("web", REPLICAS, placement="Packed", rollout=ROLLOUT)
        await world.client.create(REPLICATIONCONTROLLER, document, "default")
        await world.until(lambda: settled(world, 1), limit_s=300)
        minimum.minimum = {"web": REPLICAS}
        late = late_writes(world, rng.fork("late"), MEMBERS, always=True)
        async with Nursery() as nursery:
            nursery.start(late.run(TROUBLE_S))
            nursery.start(waver(world, rng.fork("wishes"), TROUBLE_S))
        await late.restore()
        await clock.sleep(late.late_s)
        await patched(world, "web", template=template("web", LAST), replicas=REPLICAS)
        await world.until(lambda: settled(world, LAST), limit_s=600)
        assert world.network.held == 0
        found = await world.client.get(REPLICATIONCONTROLLER, "web", "default")
        assert not found.status.pending_deletions
        writer.judge()
    assert crashes(records) == []
