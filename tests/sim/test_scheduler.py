"""The scheduler on a bad network, through crashes, partitions and an API server that goes away.

Whatever happens, the world's invariants hold at every revision: no pod is bound twice, no node is
overcommitted. When the faults stop, everything that fits is placed, nothing is left assumed, and
the world comes to rest.
"""

from tests.support import faults
from tests.support.faults import BAD

from grange.api.kinds import NODE, POD, PRIORITYCLASS
from grange.api.kinds.pod import Pod, condition
from grange.api.pod_requests import allocatable, pod_request
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.placement import resource_fit
from grange.placement.node_usage import IDLE, Usage, charged
from grange.sim import builders, simulated_nodes
from grange.sim.faults import NetworkFaults
from grange.sim.world import World, simulated

CAPACITY = {"cpu": "2", "memory": "4Gi", "pods": "6"}


class Users:
    """Create and delete pods, and add and remove nodes, over a good network."""

    def __init__(self, world: World, rng: Stream) -> None:
        self.world, self.rng = world, rng
        self.pods = 0
        self.nodes = 0

    async def add_classes(self) -> None:
        for value in range(3):
            # Nothing preempts here; tests/sim/test_preemption.py is about that.
            document = {
                "metadata": {"name": f"p{value}"},
                "value": value,
                "preemptionPolicy": "Never",
            }
            await self.world.client.create(PRIORITYCLASS, document)

    async def add_node(self) -> None:
        self.nodes += 1
        await builders.create_node(self.world.client, f"n{self.nodes}", capacity=CAPACITY)

    async def remove_node(self) -> None:
        nodes = (await self.world.client.list(NODE)).items
        if len(nodes) > 2:
            await self.world.client.delete(NODE, self.rng.choice(nodes).metadata.name)

    async def add_pod(self) -> None:
        self.pods += 1
        cpu = self.rng.choice(["100m", "500m", "1", "1500m"])
        document = builders.pod_document(
            f"p{self.pods}",
            requests={"cpu": cpu},
            priorityClassName=f"p{self.rng.integer(0, 2)}",
            schedulerName=self.scheduler_name(),
        )
        await self.world.client.create(POD, document, "default")

    def scheduler_name(self) -> str:
        """Whose the next pod is."""
        return "default-scheduler"

    async def delete_pod(self) -> None:
        pods = (await self.world.client.list(POD, "default")).items
        if pods:
            name = self.rng.choice(pods).metadata.name
            try:
                await self.world.client.delete(POD, name, "default", grace_period_s=0)
            except NotFound:
                return

    async def act(self) -> None:
        """Something that happens on an ordinary day."""
        match self.rng.integer(0, 9):
            case 0:
                await self.add_node()
            case 1:
                await self.remove_node()
            case 2 | 3 | 4:
                await self.delete_pod()
            case _:
                await self.add_pod()


async def unplaced_that_fit(world: World) -> list[str]:
    """Pods without a node that some node has room for, found naively."""
    nodes = {node.metadata.name: node for node in (await world.client.list(NODE)).items}
    pods = (await world.client.list(POD, "default")).items
    usage: dict[str, Usage] = dict.fromkeys(nodes, IDLE)
    waiting: list[Pod] = []
    for pod in pods:
        if not pod.spec.node_name:
            waiting.append(pod)
        elif pod.spec.node_name in usage:
            on = pod.spec.node_name
            usage[on] = charged(usage[on], pod_request(pod.spec), ())
    return [
        pod.metadata.name
        for pod in waiting
        if any(
            resource_fit.fits(
                pod_request(pod.spec), allocatable(node.status.allocatable), usage[name]
            )
            for name, node in nodes.items()
        )
    ]


async def test_faults_never_overcommit_and_everything_settles(
    clock: Clock, rng: Stream, log: Logger, seed: int
) -> None:
    """Lost requests and answers, broken watches, crashes, and an API server that goes away."""
    rng = Stream(seed, "test")
    async with simulated(clock=clock, rng=Stream(seed), log=log, faults=BAD) as world:
        users = Users(world, rng.fork("users"))
        await users.add_classes()
        for _ in range(4):
            await users.add_node()
        lives = simulated_nodes.add_scheduler(world)
        for _ in range(12):
            for _ in range(rng.integer(1, 6)):
                await users.act()
            await clock.sleep(rng.uniform(0.0, 3.0))
            await faults.perhaps(world, rng)
        world.network.faults = NetworkFaults()

        async def settled() -> bool:
            now = lives[-1]
            return now.cache.assumed_count == 0 and not await unplaced_that_fit(world)

        await world.until(settled, limit_s=700.0)
        await clock.sleep(60.0)  # the last conditions are written
        assert await world.fixed_point(40.0) == []
        pods = (await world.client.list(POD)).items
        assert lives[-1].cache.pod_count == sum(1 for pod in pods if pod.spec.node_name)
        for pod in pods:
            reported = condition(pod, "PodScheduled")
            assert reported is not None
            assert reported.status == ("True" if pod.spec.node_name else "False"), pod.metadata.name
