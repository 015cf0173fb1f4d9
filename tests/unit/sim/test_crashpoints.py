"""Crashes at a request: it takes effect or not, its answer never arrives, and nothing follows it."""

from contextlib import suppress

import pytest

from grange.api.kinds import CONFIGMAP
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.reconcile.deps import Deps
from grange.sim.crashpoints import Asked, Crashed, CrashPoint, CrashPoints, CrashSide, every_point
from grange.sim.simulated_pool import SimulatedPool
from grange.sim.world import World, simulated

NAMES = ("a", "b", "c")


class Scribe:
    """Writes three objects one after another, and rests."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    async def run(self) -> None:
        for name in NAMES:
            await self._deps.client.create(CONFIGMAP, {"metadata": {"name": name}}, "default")
        await self._deps.clock.sleep(1e6)


async def written(world: World) -> list[str]:
    return [one.metadata.name for one in (await world.client.list(CONFIGMAP, "default")).items]


@pytest.mark.parametrize(
    ("point", "left"),
    [
        (CrashPoint(0, CrashSide.BEFORE), ""),
        (CrashPoint(0, CrashSide.AFTER), "a"),
        (CrashPoint(1, CrashSide.BEFORE), "a"),
        (CrashPoint(2, CrashSide.AFTER), "abc"),
        (None, "abc"),
    ],
)
async def test_the_request_takes_effect_or_not_and_none_follows(
    point: CrashPoint | None, left: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with simulated(clock=clock, rng=rng, log=log) as world:
        points = CrashPoints(world, actors={"scribe"}, point=point)
        points.begin()
        world.add("scribe", Scribe)
        await clock.sleep(10.0)
        assert await written(world) == [*left]
        path = "POST /api/v1/namespaces/default/configmaps"
        last = len(NAMES) if point is None else point.number + 1
        assert points.asked == [Asked("scribe", path)] * last
        assert points.struck == (None if point is None else Asked("scribe", path))


async def test_others_and_other_times_do_not_count(clock: Clock, rng: Stream, log: Logger) -> None:
    async with simulated(clock=clock, rng=rng, log=log) as world:
        points = CrashPoints(world, actors={"other"}, point=CrashPoint(0, CrashSide.BEFORE))
        world.add("other", Scribe)
        await clock.sleep(1.0)
        points.begin()
        world.add("scribe", Scribe)
        await clock.sleep(1.0)
        assert points.asked == []
        assert points.struck is None


async def test_a_claim_to_a_pool_counts_and_the_dead_ask_no_more(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    pool = SimulatedPool(["p0", "p1"])

    class Borrower(Scribe):
        async def run(self) -> None:
            demand = ReplicationController()
            mine = points.pool(pool, "borrower")
            try:
                await mine.claim("first", holder="web", demand=demand, count=1, epoch=1)
            finally:
                await mine.claim("second", holder="web", demand=demand, count=1, epoch=1)

    async with simulated(clock=clock, rng=rng, log=log) as world:
        points = CrashPoints(world, actors={"borrower"}, point=CrashPoint(0, CrashSide.AFTER))
        points.begin()
        world.add("borrower", Borrower)
        await clock.sleep(1.0)
        assert points.struck == Asked("borrower", "pool claim 1")
        assert await pool.holders() == {"p0": "web", "p1": ""}


async def test_who_is_started_again_asks_and_the_dead_does_not(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    class Stubborn(Scribe):
        """Writes on when it is asked to end."""

        async def run(self) -> None:
            try:
                await super().run()
            finally:
                with suppress(Crashed):
                    await self._deps.client.create(
                        CONFIGMAP, {"metadata": {"name": "last"}}, "default"
                    )

    async with simulated(clock=clock, rng=rng, log=log) as world:
        points = CrashPoints(world, actors={"scribe"}, point=CrashPoint(0, CrashSide.BEFORE))
        points.begin()
        world.add("scribe", Stubborn)
        await clock.sleep(1.0)
        assert await written(world) == []
        world.restart("scribe")
        await clock.sleep(1.0)
        assert await written(world) == [*NAMES]


@pytest.mark.parametrize(("side", "seen"), [(CrashSide.BEFORE, "a"), (CrashSide.AFTER, "ab")])
async def test_something_else_may_happen_instead(
    side: CrashSide, seen: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    """The request and its answer are not harmed by it."""
    found: list[str] = []

    async def look() -> None:
        found.extend(await written(world))

    async with simulated(clock=clock, rng=rng, log=log) as world:
        point = CrashPoint(1, side)
        points = CrashPoints(world, actors={"scribe"}, point=point, instead=look)
        points.begin()
        world.add("scribe", Scribe)
        await clock.sleep(1.0)
        assert found == [*seen]
        assert points.struck == points.asked[1]
        assert await written(world) == [*NAMES]


def test_every_request_has_two_sides() -> None:
    assert [str(point) for point in every_point(2)] == [
        "before request 0",
        "after request 0",
        "before request 1",
        "after request 1",
    ]
