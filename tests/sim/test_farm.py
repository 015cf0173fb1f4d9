"""Farms under faults: one writer for an object, an owner for every object, even shares, then rest."""

from contextlib import suppress

from tests.support.farm_fixtures import NAMESPACE, Hand, OneWriter, create, join

from grange.api.kinds import LEASE, REPLICATIONCONTROLLER
from grange.api.meta import Document
from grange.api.status import ApiError
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.reconcile.farm.ownership import ownership
from grange.sim.chaos import Chaos, Disturbance
from grange.sim.faults import NetworkFaults
from grange.sim.pytest_plugin import EPOCH
from grange.sim.skewed_clock import SkewedClock
from grange.sim.world import World, simulated

BAD_NETWORK = NetworkFaults(
    latency_s=0.2, lose_request=0.03, lose_answer=0.03, cut_stream=0.03, repeat_chunk=0.03
)
OBJECTS = 7
TROUBLE_S = 100


def skewed(world: World, name: str, rng: Stream) -> SkewedClock:
    """A component's clock: wrong by half a minute, up to five percent too fast or too slow."""
    inner = world.clock_of(name)
    return SkewedClock(inner, offset_s=rng.uniform(-30, 30), drift=rng.uniform(-0.05, 0.05))


def members(world: World, rng: Stream, names: str, selectors: dict[str, str]) -> list[Hand]:
    return [
        join(
            world,
            name,
            selector=selectors.get(name, ""),
            clock=skewed(world, name, rng.fork(name)),
            busy_s=rng.uniform(0.0, 4.0),
            again_s=rng.uniform(1.0, 5.0),
        )
        for name in names
    ]


async def test_farm_survives_a_week_of_faults(seed: int, log: Logger) -> None:
    await survive(seed, log, "abc")


async def test_farm_of_stubborn_and_picky_members_survives_it(seed: int, log: Logger) -> None:
    """Passes that write when they are cancelled; two kinds of objects, and who wants which."""
    await survive(seed, log, "abcd", stubborn=True, selectors={"b": "tier=x", "c": "tier=x"})


async def survive(
    seed: int,
    log: Logger,
    names: str,
    *,
    stubborn: bool = False,
    selectors: dict[str, str] | None = None,
) -> None:
    """Faults for a while; then every object has one owner, shares are even, and all rests."""
    clock, rng = LoopClock(EPOCH), Stream(seed)
    one_writer = OneWriter()
    async with simulated(clock=clock, rng=rng, log=log, faults=BAD_NETWORK) as world:
        world.history.add(one_writer)
        hands = members(world, rng.fork("members"), names, selectors or {})
        for hand in hands:
            hand.stubborn = stubborn
        draw = rng.fork("wishes")
        tiers = ["x", "y"] if selectors else ["x"]
        for number in range(OBJECTS):
            await create(world, f"s{number}", tier=draw.choice(tiers))
        wishes = Wishes(world, draw, names, tiers)
        chaos = [Chaos(world, {}, rng=rng.fork(f"chaos.{n}")) for n in range(2)]
        async with Nursery() as nursery:
            for one in chaos:
                troubles = [one.crash, one.cut_off, one.server_away, one.lose_history]
                one.disturbances = [one.crash, one.cut_off, *troubles, *wishes.all()]
                one.add_some([one.hang_watches, one.suspend, one.suspend], rng.fork("rare"))
                nursery.start(one.run(TROUBLE_S))
        await chaos[0].restore()
        await world.until(lambda: settled(hands, world), limit_s=120 + chaos[0].deaf_s)
        await clock.sleep(40 + chaos[0].deaf_s)  # news that is on its way may unsettle it once more
        await world.until(lambda: settled(hands, world), limit_s=30)
        revision = world.store.revision
        await clock.sleep(30)
        moved = [key for _, key, _ in world.history.since(revision) if "/grange.dev/" in key]
        assert moved == [], "nothing moves at a fixed point"
    assert one_writer.writes


class Wishes:
    """What users and operators do meanwhile."""

    def __init__(self, world: World, draw: Stream, names: str, tiers: list[str]) -> None:
        self._world = world
        self._client = world.client
        self._draw = draw
        self._names = names
        self._tiers = tiers
        self._made = OBJECTS

    def all(self) -> list[Disturbance]:
        return [self.come, self.go, self.relabel, self.delete_lease]

    async def come(self) -> None:
        self._made += 1
        with suppress(ApiError):
            await create(self._world, f"s{self._made}", tier=self._draw.choice(self._tiers))

    async def go(self) -> None:
        """An object goes, and sometimes an object of the same name comes."""
        with suppress(ApiError):
            name = await self._any()
            await self._client.delete(REPLICATIONCONTROLLER, name, NAMESPACE)
            if self._draw.integer(0, 1):
                await create(self._world, name, tier=self._draw.choice(self._tiers))

    async def relabel(self) -> None:
        await self._write({"labels": {"tier": self._draw.choice(self._tiers)}})

    async def delete_lease(self) -> None:
        with suppress(ApiError):
            name = f"grange-{self._draw.choice(self._names)}"
            await self._client.delete(LEASE, name, "kube-system")
            self._world.network.note("user", f"deletes the lease {name}")

    async def _any(self) -> str:
        items = (await self._client.list(REPLICATIONCONTROLLER)).items
        return self._draw.choice(items).metadata.name if items else "nothing"

    async def _write(self, metadata: Document) -> None:
        with suppress(ApiError):
            patch = {"metadata": metadata}
            await self._client.patch(
                REPLICATIONCONTROLLER, await self._any(), NAMESPACE, patch=patch
            )


async def settled(hands: list[Hand], world: World) -> bool:
    """Every object has an owner that wants it, knows it, and has no more than its share."""
    try:
        objects = (await world.client.list(REPLICATIONCONTROLLER)).items
    except ApiError:
        return False
    owned: dict[str, list[str]] = {hand.name: [] for hand in hands}
    classes: dict[tuple[str, ...], dict[str, int]] = {}
    for obj in objects:
        owner = ownership(obj)
        want = tuple(h.name for h in hands if h.farm.wants(obj))
        each = classes.setdefault(want, dict.fromkeys(want, 0))
        if owner is None or owner.member not in want:
            return False
        each[owner.member] += 1
        owned[owner.member].append(obj.metadata.name)
    if any(max(each.values()) - min(each.values()) > 1 for each in classes.values()):
        return False
    return all(hand.held == sorted(owned[hand.name]) for hand in hands)
