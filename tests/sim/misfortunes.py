"""What schedulers meet with in simulations: a bad network, crashes, and servers that go away."""

from grange.base.clock import Clock
from grange.base.rng import Stream
from grange.sim.faults import NetworkFaults
from grange.sim.world import World

BAD = NetworkFaults(
    latency_s=0.2, lose_request=0.03, lose_answer=0.05, cut_stream=0.05, repeat_chunk=0.05
)


async def crash(world: World, luck: Stream, clock: Clock) -> None:
    """The scheduler dies, and its successor starts a little later."""
    world.crash("scheduler")
    await clock.sleep(luck.uniform(0.0, 2.0))
    world.restart("scheduler")


async def outage(world: World, luck: Stream, clock: Clock) -> None:
    """The server goes away for a while."""
    world.stop_server()
    await clock.sleep(luck.uniform(0.0, 8.0))
    await world.start_server()


async def partition(world: World, luck: Stream, clock: Clock) -> None:
    """The scheduler is cut off for a while."""
    world.network.partition("scheduler")
    await clock.sleep(luck.uniform(0.0, 8.0))
    world.network.heal("scheduler")


MISFORTUNES = (crash, outage, partition)


async def perhaps(world: World, luck: Stream, clock: Clock) -> None:
    """One of them, or (as often) none."""
    number = luck.integer(0, 2 * len(MISFORTUNES) - 1)
    if number < len(MISFORTUNES):
        await MISFORTUNES[number](world, luck, clock)
