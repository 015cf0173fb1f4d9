"""What schedulers meet with in simulations: a bad network, crashes, and servers that go away."""

from grange.base.rng import Stream
from grange.sim.faults import NetworkFaults
from grange.sim.world import World

BAD = NetworkFaults(
    latency_s=0.2, lose_request=0.03, lose_answer=0.05, cut_stream=0.05, repeat_chunk=0.05
)


async def crash(world: World, rng: Stream, name: str = "scheduler") -> None:
    """A scheduler dies, and its successor starts a little later."""
    world.crash(name)
    await world.clock.sleep(rng.uniform(0.0, 2.0))
    world.restart(name)


async def outage(world: World, seconds: float) -> None:
    """The server goes away for a while."""
    world.stop_server()
    await world.clock.sleep(seconds)
    await world.start_server()


async def partition(world: World, seconds: float, name: str = "scheduler") -> None:
    """A scheduler is cut off for a while."""
    world.network.partition(name)
    await world.clock.sleep(seconds)
    world.network.heal(name)


async def perhaps(world: World, rng: Stream) -> None:
    """One of them, or (as often) none."""
    match rng.integer(0, 5):
        case 0:
            await crash(world, rng)
        case 1:
            await outage(world, rng.uniform(0.0, 8.0))
        case 2:
            await partition(world, rng.uniform(0.0, 8.0))
