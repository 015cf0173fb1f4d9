"""Farms under faults: one writer for an object, an owner for every object, even shares, then rest."""

from contextlib import suppress

from tests.unit.farm.farmhands import Hand, OneWriter, create, join, loads, owners

from grange.api.kinds import LEASE, REPLICATIONCONTROLLER
from grange.api.status import ApiError
from grange.base.clock import LoopClock, SkewedClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.reconcile.farm.config import FarmConfig
from grange.sim.chaos import Chaos
from grange.sim.faults import NetworkFaults
from grange.sim.pytest_plugin import EPOCH
from grange.sim.world import World, simulated

BAD_NETWORK = NetworkFaults(
    latency_s=0.2, lose_request=0.03, lose_answer=0.03, cut_stream=0.03, repeat_chunk=0.03
)
TTL_S = 15
OBJECTS = 7
TROUBLE_S = 100


def skewed(world: World, rng: Stream) -> SkewedClock:
    """Wrong by half a minute, and up to five percent too fast or too slow."""
    return SkewedClock(world.clock, offset_s=rng.uniform(-30, 30), drift=rng.uniform(-0.05, 0.05))


def members(world: World, rng: Stream, names: str, config: dict[str, float]) -> list[Hand]:
    return [
        join(
            world,
            name,
            clock=skewed(world, rng.fork(name)),
            config=FarmConfig(member=name, **config),  # type: ignore[arg-type]  # by name
            busy_s=rng.uniform(0.0, 4.0),
            again_s=rng.uniform(1.0, 5.0),
        )
        for name in names
    ]


async def shared(world: World, names: str) -> bool:
    """Whether every object is owned by one of them, evenly."""
    try:
        owned = await owners(world)
    except ApiError:
        return False
    each = loads(owned)
    floor, larger = divmod(len(owned), len(names))
    wanted = [floor + 1] * larger + [floor] * (len(names) - larger)
    return sorted(each.values(), reverse=True) == [n for n in wanted if n] and set(each) <= set(
        names
    )


async def test_farm_survives_an_unlucky_week(seed: int, log: Logger) -> None:
    clock, rng = LoopClock(EPOCH), Stream(seed)
    one_writer = OneWriter()
    async with simulated(clock=clock, rng=rng, log=log, faults=BAD_NETWORK) as world:
        world.history.add(one_writer)
        hands = members(world, rng.fork("members"), "abc", {})
        await create(world, *(f"s{number}" for number in range(OBJECTS)))
        draw = rng.fork("wishes")
        made = iter(range(OBJECTS, 1000))

        async def come() -> None:
            with suppress(ApiError):
                await create(world, f"s{next(made)}")

        async def go() -> None:
            with suppress(ApiError):
                items = (await world.client.list(REPLICATIONCONTROLLER)).items
                name = draw.choice(items).metadata.name
                await world.client.delete(REPLICATIONCONTROLLER, name, "default")
                await create(world, name)  # a namesake

        async def strip() -> None:
            """Somebody's hand takes the lease away."""
            with suppress(ApiError):
                name = f"grange-{draw.choice('abc')}"
                await world.client.delete(LEASE, name, "kube-system")

        chaos = [Chaos(world, {}, rng=rng.fork(f"chaos.{n}")) for n in range(2)]
        async with Nursery() as nursery:
            for one in chaos:
                one.misfortunes = [
                    one.crash,
                    one.crash,
                    one.cut_off,
                    one.cut_off,
                    one.server_away,
                    one.lose_history,
                    come,
                    go,
                    strip,
                ]
                nursery.start(one.run(TROUBLE_S))
        await chaos[0].mend()
        await world.until(lambda: shared(world, "abc"), limit_s=120)
        await clock.sleep(20)
        assert await shared(world, "abc"), "once even, it stays even"
        revision = world.store.revision
        await clock.sleep(30)
        moved = [key for _, key, _ in world.history.since(revision) if "/grange.dev/" in key]
        assert moved == [], "nothing moves at a fixed point"
        owned = await owners(world)
        for hand in hands:
            assert hand.held == sorted(name for name, by in owned.items() if by == hand.name)
    assert one_writer.writes
