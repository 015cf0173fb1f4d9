"""GPUs that pods share, on a bad network: no device is promised twice, at no revision."""

from tests.support import faults
from tests.support.faults import BAD

from grange.api import gpus
from grange.api.gpus import GPU_MILLI
from grange.api.kinds import NODE, POD
from grange.api.kinds.pod import Scalar
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.placement import devices
from grange.sim import builders, simulated_nodes
from grange.sim.faults import NetworkFaults
from grange.sim.world import World, simulated

WANTS = (150, 300, 500, 700, 1000, 2000, 1500)


async def add_node(world: World, name: str) -> None:
    capacity: dict[str, Scalar] = {"cpu": "16", "memory": "16Gi", "pods": "20", GPU_MILLI: 2000}
    await builders.create_node(world.client, name, capacity=capacity)


async def add_pod(world: World, name: str, want: int) -> None:
    document = builders.pod_document(name, requests={GPU_MILLI: want})
    await world.client.create(POD, document, "default")


async def waiting_that_fit(world: World) -> list[str]:
    """Pods without a node for which some node has the devices, found naively."""
    left = {node.metadata.name: [1000, 1000] for node in (await world.client.list(NODE)).items}
    waiting = []
    for pod in (await world.client.list(POD, "default")).items:
        want = int(str(pod.spec.containers[0].resources.requests[GPU_MILLI]))
        if not pod.spec.node_name:
            waiting.append((pod.metadata.name, want))
            continue
        for device in gpus.parse(pod.metadata.annotations[gpus.ANNOTATION], want):
            left[pod.spec.node_name][device] -= min(want, 1000)
    return [
        name
        for name, want in waiting
        if any(devices.fits(tuple(free), want) for free in left.values())
    ]


async def test_faults_never_promise_a_device_twice(
    clock: Clock, rng: Stream, log: Logger, seed: int
) -> None:
    """Lost requests and answers, broken watches, crashes; the invariants judge every revision."""
    rng = Stream(seed, "test")
    async with simulated(clock=clock, rng=Stream(seed), log=log, faults=BAD) as world:
        for number in range(4):
            await add_node(world, f"n{number}")
        lives = simulated_nodes.add_scheduler(world)
        for number in range(40):
            await add_pod(world, f"p{number}", rng.choice(WANTS))
            if rng.integer(0, 2) == 0:
                pods = (await world.client.list(POD, "default")).items
                name = rng.choice(pods).metadata.name
                await world.client.delete(POD, name, "default", grace_period_s=0)
            await clock.sleep(rng.uniform(0.0, 1.5))
            if rng.integer(0, 12) == 0:
                await faults.crash(world, rng)
        world.network.faults = NetworkFaults()

        async def settled() -> bool:
            return lives[-1].cache.assumed_count == 0 and not await waiting_that_fit(world)

        await world.until(settled, limit_s=700.0)
