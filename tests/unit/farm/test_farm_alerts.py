"""What the members of a farm report: each what its own deletion guard sees, under keys that all share."""

from tests.support.farm_fixtures import Hand, create, join, nothing

from grange.alerts.alerts import Alert
from grange.api.kinds import REPLICATIONCONTROLLER
from grange.base.clock import Clock
from grange.reconcile.farm.deletion_guard import Trigger
from grange.sim.world import World

NAMES = [f"s{number}" for number in range(8)]


def reported(hand: Hand) -> list[tuple[str, str]]:
    """What a member reported, and for which key; a view on its way to empty apart."""
    return [
        (what, alert.key) for what, alert in hand.alerts.history if alert.reason != Trigger.SHRANK
    ]


async def test_members_report_alerts_under_one_key(world: World, clock: Clock) -> None:
    """A member that crashes needs no successor: the others report the same alert."""
    await create(world, *NAMES)
    hands = [join(world, name, act=nothing) for name in ("a", "b", "c")]
    await clock.sleep(10)
    for name in NAMES:
        await world.client.delete(REPLICATIONCONTROLLER, name, "default")
    await clock.sleep(5)
    raised = ("raised", "farm/replication/no_objects_found")
    for hand in hands:
        assert Trigger.EMPTY in hand.farm.deletion_guard.triggers
        assert reported(hand) == [raised]
    world.crash("a")
    await create(world, *NAMES)
    await clock.sleep(90)
    for hand in hands[1:]:
        assert reported(hand) == [raised, ("resolved", raised[1])]
        assert hand.alerts.active == []


async def test_alerts_of_one_member_are_its_own(world: World, clock: Clock) -> None:
    a, b = (join(world, name, act=nothing) for name in ("a", "b"))
    await clock.sleep(10)
    b.member.alerts.fire(Alert("farm/replication", "store_went_back", "look"))
    assert (a.alerts.active, len(b.alerts.active)) == ([], 1)
