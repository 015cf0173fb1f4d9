"""Who has what: claims, sharing, handover, release."""

from tests.support.farm_fixtures import OneWriter, create, join, loads, owners

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.base.clock import Clock
from grange.sim.world import World

NAMES = [f"s{number}" for number in range(9)]


async def test_one_member_claims_everything_and_works_on_it(
    world: World, clock: Clock, one_writer: OneWriter
) -> None:
    a = join(world, "a")
    await create(world, *NAMES)
    await clock.sleep(3)
    assert loads(await owners(world)) == {"a": 9}
    assert a.held == NAMES
    assert {name for _, name in a.passes} == set(NAMES)
    assert {about for _, about, _ in one_writer.writes} == set(NAMES)


async def test_members_share_evenly_as_they_come_and_go(world: World, clock: Clock) -> None:
    await create(world, *NAMES)
    hands = {name: join(world, name) for name in "abc"}
    await clock.sleep(3)
    assert loads(await owners(world)) == {"a": 3, "b": 3, "c": 3}
    before = await owners(world)
    join(world, "d")
    await clock.sleep(10)
    after = await owners(world)
    assert loads(after) == {"a": 3, "b": 2, "c": 2, "d": 2}
    assert all(after[name] in {before[name], "d"} for name in NAMES), "only the newcomer gains"
    world.crash("b")
    await clock.sleep(20)
    final = await owners(world)
    assert loads(final) == {"a": 3, "c": 3, "d": 3}
    assert all(final[name] == after[name] for name in NAMES if after[name] != "b")
    assert hands["a"].held == sorted(name for name in NAMES if final[name] == "a")


async def test_new_object_is_claimed_and_looked_at_at_once(world: World, clock: Clock) -> None:
    a = join(world, "a")
    await clock.sleep(3)
    await create(world, "new")
    await clock.sleep(0.1)
    assert a.held == ["new"]
    assert [name for _, name in a.passes] == ["new"]


async def test_deleted_object_is_let_go(world: World, clock: Clock) -> None:
    a = join(world, "a", busy_s=60)
    await create(world, "s")
    await clock.sleep(3)
    await world.client.delete(REPLICATIONCONTROLLER, "s", "default")
    await clock.sleep(0.1)
    assert a.held == []
    await create(world, "s")
    await clock.sleep(1)
    assert a.held == ["s"], "an object of the same name is another object, claimed again"
    assert len(a.passes) == 2, "the pass over the first one was cancelled"
