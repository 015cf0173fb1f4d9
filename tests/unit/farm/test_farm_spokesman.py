"""What alarms every member is told by one of them, and its end once, whoever comes and goes."""

from collections.abc import Iterable

import pytest
from tests.unit.farm.farmhands import Hand, create, join, nothing

from grange.api.kinds import LEASE, REPLICATIONCONTROLLER
from grange.base.clock import Clock
from grange.reconcile.farm.failsafe import Danger, FailsafeConfig
from grange.sim.world import World

NAMES = [f"s{number}" for number in range(8)]


def said(hands: Iterable[Hand]) -> list[tuple[str, str]]:
    """What people hear, from whomever."""
    return [
        (hand.name, what)
        for hand in hands
        for what, alert in hand.alerts.history
        if what in {"raised", "resolved"} and alert.reason != Danger.SHRANK  # on its way to empty
    ]


async def together(world: World, clock: Clock, *names: str) -> list[Hand]:
    await create(world, *NAMES)
    hands = [join(world, name, act=nothing) for name in names]
    await clock.sleep(10)
    return hands


async def vanish(world: World, clock: Clock) -> None:
    for name in NAMES:
        await world.client.delete(REPLICATIONCONTROLLER, name, "default")
    await clock.sleep(5)


async def test_what_all_see_is_told_once_and_its_end_once(world: World, clock: Clock) -> None:
    hands = await together(world, clock, "a", "b", "c")
    await vanish(world, clock)
    for hand in hands:
        assert Danger.EMPTY in hand.farm.dangers, "each holds deletions for itself"
    assert said(hands) == [("a", "raised")]
    assert hands[0].alerts.active[-1].key == "farm/replication/no_objects_found"
    await create(world, *NAMES)
    await clock.sleep(90)
    assert said(hands) == [("a", "raised"), ("a", "resolved")]


async def test_what_one_member_alone_sees_is_told_for_it(world: World, clock: Clock) -> None:
    hands = await together(world, clock, "a", "b")
    small = FailsafeConfig(deletions=0, deletion_share=0.0)
    hands.append(join(world, "c", act=nothing, failsafe=small))
    await clock.sleep(10)
    with pytest.raises(Exception, match="deletion_budget_exceeded"):
        hands[2].farm.failsafe.permit_deletion(clock.monotonic())
    await clock.sleep(5)
    assert said(hands) == [("a", "raised")]
    await clock.sleep(90)
    hands[2].farm.failsafe.tick(clock.monotonic())
    await clock.sleep(5)
    assert said(hands) == [("a", "raised"), ("a", "resolved")]


async def test_one_that_joins_in_the_middle_goes_on_without_a_word(
    world: World, clock: Clock
) -> None:
    hands = await together(world, clock, "b", "c")
    await vanish(world, clock)
    hands.append(join(world, "a", act=nothing))
    await clock.sleep(20)
    assert said(hands) == [("b", "raised")]
    assert hands[2].alerts.active, "the first by name speaks from now on"
    assert hands[0].alerts.active == []
    await create(world, *NAMES)
    await clock.sleep(90)
    assert said(hands) == [("b", "raised"), ("a", "resolved")]


@pytest.mark.parametrize("ends", [True, False])
async def test_successor_repeats_or_clears_alerts_of_the_dead_leader(
    world: World, clock: Clock, *, ends: bool
) -> None:
    """It may have died before people heard; and what they heard must not stand for ever."""
    hands = await together(world, clock, "a", "b", "c")
    await vanish(world, clock)
    await create(world, *NAMES)
    await clock.sleep(50 if ends else 0)
    world.crash("a")
    await clock.sleep(30)
    heard = said(hands[1:])
    assert heard == [("b", "resolved")] if ends else heard == [("b", "raised")]
    await clock.sleep(90)
    assert [what for _, what in said(hands[1:])][-1] == "resolved"
    assert all(hand.alerts.active == [] for hand in hands[1:])


async def test_vanished_leases_make_nobody_else_the_leader(world: World, clock: Clock) -> None:
    """An API that was emptied: the members come back under their names within a term."""
    hands = await together(world, clock, "a", "b")
    for name in ("a", "b"):
        await world.client.delete(LEASE, f"grange-{name}", "kube-system")
    await vanish(world, clock)
    await clock.sleep(30)
    assert [what for what in said(hands) if what[1] == "raised"] == [("a", "raised")]
