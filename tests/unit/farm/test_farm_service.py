"""The farm as a whole: recovery, selectors, crashes, several farms, figures, and a real controller."""

import pytest
from tests.support.farm_fixtures import (
    FARM,
    NAMESPACE,
    Hand,
    create,
    join,
    loads,
    nothing,
    owners,
    service,
)

from grange.api.farm_protocol import OWNER_ANNOTATION
from grange.api.kinds import LEASE, NAMESPACE as NAMESPACE_KIND, POD, REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import ObjectKey
from grange.api.selectors import Labels
from grange.base.clock import Clock
from grange.base.tasks import Nursery
from grange.controllers.replication.controller import ReplicationService
from grange.reconcile.controller import Done, Result
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.farm.deletion_guard import Trigger
from grange.reconcile.farm.farm import Reconcile
from grange.reconcile.farm.member import DuplicateFarm, Member
from grange.sim.builders import create_node
from grange.sim.world import World

NAMES = [f"s{number}" for number in range(6)]
TTL_S = 15


async def owned(world: World, *members: str) -> bool:
    """Whether every object is owned by one of these."""
    return set((await owners(world)).values()) <= set(members)


async def test_weakness_w4_objects_of_a_dead_member_get_owners_soon(
    world: World, clock: Clock
) -> None:
    for name in "abc":
        join(world, name)
    await create(world, *NAMES)
    await clock.sleep(20)
    world.crash("c")
    took_s = await world.until(lambda: owned(world, "a", "b"), limit_s=60, every_s=0.1)
    assert took_s <= TTL_S + 5
    assert loads(await owners(world)) == {"a": 3, "b": 3}


async def test_member_that_stops_in_good_order_is_not_waited_for(
    world: World, clock: Clock
) -> None:
    a = join(world, "a")
    join(world, "b")
    await create(world, *NAMES)
    await clock.sleep(5)
    child = world._running["a"]
    child.cancel()  # a signal, not a crash: its last words arrive
    took_s = await world.until(lambda: owned(world, "b"), limit_s=60, every_s=0.1)
    assert took_s <= 3
    assert a.member.session.current is None


async def test_restarted_member_takes_part_again(world: World, clock: Clock) -> None:
    for name in "abc":
        join(world, name)
    await create(world, *NAMES)
    await clock.sleep(5)
    world.crash("b")
    await clock.sleep(1)
    world.restart("b")
    await clock.sleep(TTL_S + 10)
    assert loads(await owners(world)) == {"a": 2, "b": 2, "c": 2}


async def test_only_bearer_of_a_name_has_its_work_back_at_once(world: World, clock: Clock) -> None:
    for name in "abc":
        join(world, name, config=FarmConfig(member=name, sole_bearer=True))
    await create(world, *NAMES)
    await clock.sleep(5)
    before = await owners(world)
    world.crash("b")
    await clock.sleep(1)
    world.restart("b")
    await clock.sleep(5)
    assert await owners(world) == before


async def test_lease_writes_are_per_member_and_few(world: World, clock: Clock) -> None:
    for name in "ab":
        join(world, name, act=nothing)
    await create(world, *NAMES)
    await clock.sleep(10)
    before = world.store.revision
    await clock.sleep(300)
    writes = world.history.since(before)
    assert {key.split("/")[2] for _, key, _ in writes} == {"leases"}, "nothing else at rest"
    assert len(writes) / 300 / 2 <= 1, "at most one a second for a member"
    assert len(writes) / 300 / 2 <= 0.14, "in fact one in half a term"


async def test_weakness_w7_crash_of_one_pass_costs_that_object_alone(
    world: World, clock: Clock
) -> None:
    a = join(world, "a")
    a.bad.add("s1")
    await create(world, *NAMES)
    await clock.sleep(20)
    counts = {name: sum(name == other for _, other in a.passes) for name in NAMES}
    assert min(counts.values()) >= 2, "all others go on"
    a.bad.clear()
    await clock.sleep(60)
    assert a.held == NAMES


async def test_weakness_w16_selector_is_judged_again_on_label_change(
    world: World, clock: Clock
) -> None:
    front = join(world, "front", selector="tier=front")
    back = join(world, "back", selector="tier!=front")
    await create(world, "f", tier="front")
    await create(world, "g", "h", tier="back")
    await clock.sleep(3)
    assert (front.held, back.held) == (["f"], ["g", "h"])
    label = {"metadata": {"labels": {"tier": "front"}}}
    await world.client.patch(REPLICATIONCONTROLLER, "g", NAMESPACE, patch=label)
    await clock.sleep(2)
    assert (front.held, back.held) == (["f", "g"], ["h"])
    world.crash("front")
    await clock.sleep(30)
    assert back.held == ["h"], "no member takes what it does not want"


async def test_selectors_that_overlap_share_what_both_want(world: World, clock: Clock) -> None:
    join(world, "all")
    join(world, "front", selector="tier=front")
    await create(world, "f1", "f2", "f3", "f4", tier="front")
    await create(world, "b1", "b2", tier="back")
    await clock.sleep(5)
    found = await owners(world)
    assert {found["b1"], found["b2"]} == {"all"}
    assert loads({name: by for name, by in found.items() if name[0] == "f"}) == {
        "all": 2,
        "front": 2,
    }


@pytest.mark.parametrize(
    "text", ["", "tier=front", "tier!=front", "tier in (front,back),!old", "tier", "a=b"]
)
async def test_check_f4_selector_means_the_same_to_farm_and_api(world: World, text: str) -> None:
    for number, labels in enumerate(
        ({}, {"tier": "front"}, {"tier": "back", "old": "yes"}, {"a": "b", "tier": "x"})
    ):
        await create(world, f"s{number}", **labels)  # type: ignore[arg-type]  # labels by name
    everything = (await world.client.list(REPLICATIONCONTROLLER)).items
    listed = (await world.client.list(REPLICATIONCONTROLLER, labels=text)).items
    matched = [obj for obj in everything if Labels.parse(text).matches(obj.metadata.labels)]
    assert [obj.key for obj in listed] == [obj.key for obj in matched]


async def test_claim_held_elsewhere_is_taken_when_it_is_freed(world: World, clock: Clock) -> None:
    """Non-blocking: one object that cannot be had does not hold up the others."""
    a = join(world, "a", selector="tier=x")
    await create(world, "s", tier="x")
    await clock.sleep(3)
    b = join(world, "b")
    await create(world, "t", "u", tier="y")
    await clock.sleep(0.5)
    world.network.partition("a")  # it cannot let go, and is not known to be dead yet
    label = {"metadata": {"labels": {"tier": "y"}}}
    await world.client.patch(REPLICATIONCONTROLLER, "s", NAMESPACE, patch=label)
    await clock.sleep(3)
    assert b.held == ["t", "u"]
    assert (await owners(world))["s"] == "a"
    world.network.heal("a")
    await clock.sleep(5)
    assert b.held == ["s", "t", "u"]
    assert a.held == []


async def test_removed_owner_annotation_is_restored_by_the_owner(
    world: World, clock: Clock
) -> None:
    hands = [join(world, name, busy_s=1, again_s=0.2) for name in "ab"]
    await create(world, *NAMES)
    await clock.sleep(5)
    before = await owners(world)
    for name in NAMES:
        strip = {"metadata": {"annotations": {OWNER_ANNOTATION: None}}}
        await world.client.patch(REPLICATIONCONTROLLER, name, NAMESPACE, patch=strip)
    await clock.sleep(10)
    assert await owners(world) == before
    assert sorted(hands[0].held + hands[1].held) == NAMES


async def test_removed_annotation_does_not_end_a_live_claim(world: World, clock: Clock) -> None:
    """Its owner may still write: another member waits for the end of that session."""
    hands = {name: join(world, name) for name in "ab"}
    await create(world, *NAMES)
    await clock.sleep(5)
    before = await owners(world)
    world.network.partition("a")  # it cannot put its name back
    for name in NAMES:
        if before[name] == "b":
            await world.client.delete(REPLICATIONCONTROLLER, name, NAMESPACE)
        else:
            strip = {"metadata": {"annotations": {OWNER_ANNOTATION: None}}}
            await world.client.patch(REPLICATIONCONTROLLER, name, NAMESPACE, patch=strip)
    await clock.sleep(TTL_S / 2 - 1)
    assert hands["b"].held == []
    await clock.sleep(2 * TTL_S)
    assert hands["b"].held == [name for name in NAMES if before[name] == "a"]


async def test_nonsense_in_the_annotation_is_nones_name(world: World, clock: Clock) -> None:
    await create(world, "s")
    mark = {"metadata": {"annotations": {OWNER_ANNOTATION: "me!"}}}
    await world.client.patch(REPLICATIONCONTROLLER, "s", NAMESPACE, patch=mark)
    a = join(world, "a")
    await clock.sleep(3)
    assert a.held == ["s"]


async def test_leases_that_no_client_held_for_long_are_deleted(world: World, clock: Clock) -> None:
    config = FarmConfig(member="a", forget_s=100)
    join(world, "a", config=config, act=nothing)
    join(world, "b", act=nothing)
    await clock.sleep(5)
    world.crash("b")
    await clock.sleep(60)
    assert len((await world.client.list(LEASE)).items) == 2
    await clock.sleep(100)
    assert [one.metadata.name for one in (await world.client.list(LEASE)).items] == ["grange-a"]


async def test_weakness_w6_emptied_view_alerts_new_cluster_does_not(
    world: World, clock: Clock
) -> None:
    a = join(world, "a", act=nothing)
    await clock.sleep(5)
    assert a.alerts.history == [], "nothing was ever there"
    await create(world, *NAMES)
    await clock.sleep(5)
    for name in NAMES:
        await world.client.delete(REPLICATIONCONTROLLER, name, NAMESPACE)
    await clock.sleep(1)
    assert [alert.reason for alert in a.alerts.active] == ["no_objects_found"]
    await create(world, *NAMES)
    await clock.sleep(1)
    assert a.held == NAMES, "the farm has not stopped"
    await clock.sleep(120)
    assert a.alerts.active == [], "and is calm again by itself"


async def test_several_farms_share_one_session(world: World, clock: Clock) -> None:
    seen: dict[str, set[str]] = {}

    def factory(name: str) -> object:
        def make(deps: Deps) -> Member:
            member = Member(deps, FarmConfig(member=name))

            def noting(farm: str) -> Reconcile:
                async def note(key: ObjectKey) -> Result:
                    seen.setdefault(farm, set()).add(key.name)
                    return Done()

                return note

            member.farm("services", REPLICATIONCONTROLLER, reconcile=noting("services"))
            member.farm("spaces", NAMESPACE_KIND, reconcile=noting("spaces"))
            with pytest.raises(DuplicateFarm):
                member.farm("services", REPLICATIONCONTROLLER)
            return member

        return make

    for name in "ab":
        world.add(name, factory(name))  # type: ignore[arg-type]  # a factory of services
    await create(world, *NAMES)
    await clock.sleep(5)
    assert seen["services"] == set(NAMES)
    assert {"default", "kube-system"} <= seen["spaces"]
    assert len((await world.client.list(LEASE)).items) == 2
    spaces = (await world.client.list(NAMESPACE_KIND)).items
    assert all(OWNER_ANNOTATION in space.metadata.annotations for space in spaces)


def wanted(obj: ReplicationController) -> int:
    return obj.spec.replicas


class Farmed:
    """The replication controller, unchanged, with its passes under a farm."""

    def __init__(self, deps: Deps, config: FarmConfig) -> None:
        self.member = Member(deps, config)
        self.farm = self.member.farm(FARM, REPLICATIONCONTROLLER, weight=wanted)
        self.service = ReplicationService(self.farm.deps)
        self.farm.attach(self.service.loop)

    async def run(self) -> None:
        async with Nursery("farmed") as nursery:
            nursery.start(self.member.run())
            nursery.start(self.service.run())


async def test_replication_controller_runs_under_a_farm(world: World, clock: Clock) -> None:
    lives: dict[str, Farmed] = {}

    def factory(name: str) -> object:
        def make(deps: Deps) -> Farmed:
            lives[name] = Farmed(deps, FarmConfig(member=name))
            return lives[name]

        return make

    for number in range(3):
        await create_node(world.client, f"n{number}")
    for name in "ab":
        world.add(name, factory(name))  # type: ignore[arg-type]  # a factory of services
    for name in NAMES:
        await world.client.create(REPLICATIONCONTROLLER, service(name, 2))
    await clock.sleep(5)
    assert loads(await owners(world)) == {"a": 3, "b": 3}
    pods = (await world.client.list(POD)).items
    assert len(pods) == 12
    before = await owners(world)
    world.crash("a")
    await clock.sleep(TTL_S + 5)
    assert loads(await owners(world)) == {"b": 6}
    for name in NAMES:
        scale = {"spec": {"replicas": 3}}
        await world.client.patch(REPLICATIONCONTROLLER, name, NAMESPACE, patch=scale)
    await clock.sleep(2)
    assert len((await world.client.list(POD)).items) == 18
    orphan = next(name for name in NAMES if before[name] == "a")
    assert lives["b"].farm.holds(ObjectKey(NAMESPACE, orphan))


async def test_hand_without_its_session_holds_nothing(world: World, clock: Clock) -> None:
    a: Hand = join(world, "a")
    await create(world, *NAMES)
    await clock.sleep(3)
    assert a.held == NAMES
    world.network.partition("a")
    await clock.sleep(TTL_S)
    assert a.held == []
    assert a.member.session.current is None
    world.network.heal("a")
    await clock.sleep(TTL_S + 5)
    assert a.held == NAMES


async def test_weakness_w5_nothing_is_claimed_for_a_term_after_restore(
    world: World, clock: Clock
) -> None:
    """A restored store may not know sessions that go on: they have time to notice."""
    a = join(world, "a", act=nothing)
    await create(world, "s")
    await clock.sleep(3)
    a.farm._versions[0] += 1_000_000  # as if we had seen a later state
    a.farm.deletion_guard.see(clock.monotonic(), objects=1, version="1000000")
    await create(world, "t")
    await clock.sleep(TTL_S - 1)
    assert a.held == ["s"]
    assert [alert.reason for alert in a.alerts.active] == ["store_went_back"]
    await clock.sleep(2)
    assert a.held == ["s", "t"]
    await clock.sleep(60)
    assert a.alerts.active == []


async def test_restore_is_noticed_before_there_is_anything_to_claim(
    world: World, clock: Clock
) -> None:
    """The term counts from the first sight of the earlier state, not from the next claim."""
    a = join(world, "a", act=nothing)
    await create(world, "s")
    await clock.sleep(3)
    a.farm._versions[0] += 1_000_000  # as if we had seen a later state
    change = {"spec": {"replicas": 2}}  # concerns the deletion guard alone
    await world.client.patch(REPLICATIONCONTROLLER, "s", NAMESPACE, patch=change)
    await clock.sleep(TTL_S - 2)
    await create(world, "t")
    await clock.sleep(1)
    assert a.held == ["s"]
    await clock.sleep(3)
    assert a.held == ["s", "t"]


async def test_name_on_an_object_that_is_not_wanted_is_taken_off(
    world: World, clock: Clock
) -> None:
    """A claim whose answer was lost, for an object that is another's business by now."""
    a = join(world, "a", selector="tier=x")
    await create(world, "s", tier="y")
    await clock.sleep(3)
    session = a.member.session.current
    assert session is not None
    for token in (str(session.token), "another_life/1"):
        mark = {"metadata": {"annotations": {OWNER_ANNOTATION: token}}}
        await world.client.patch(REPLICATIONCONTROLLER, "s", NAMESPACE, patch=mark)
        await clock.sleep(3)
        found = await world.client.get(REPLICATIONCONTROLLER, "s", NAMESPACE)
        left = found.metadata.annotations.get(OWNER_ANNOTATION)
        assert left == ("" if token == str(session.token) else token)


async def test_weakness_w15_what_is_owned_can_be_read_while_it_changes(
    world: World, clock: Clock
) -> None:
    """P2 read the map of its children without the lock that writers held."""
    a = join(world, "a")
    await create(world, *NAMES)
    await clock.sleep(5)
    seen = []
    for key in a.farm.held():
        seen.append(key.name)
        await world.client.delete(REPLICATIONCONTROLLER, key.name, key.namespace)
        await clock.sleep(0.1)
        assert not a.farm.holds(key)
    assert sorted(seen) == NAMES
    assert a.held == []


async def test_a_new_object_is_claimed_at_once_also_among_many_members(
    world: World, clock: Clock
) -> None:
    """Whose it should be need not wait for a plan over everything."""
    hands = [join(world, name) for name in "abc"]
    await create(world, *NAMES)
    await clock.sleep(10)
    before = await owners(world)
    for number in range(9):
        await create(world, f"new-{number}")
        await clock.sleep(0.001)
    found = await owners(world)
    assert "" not in found.values()
    assert {name: found[name] for name in NAMES} == before, "nothing moved for it"
    assert sorted(loads(found).values()) == [5, 5, 5]
    assert sorted(name for hand in hands for name in hand.held) == sorted(found)


async def test_weight_concerns_the_deletion_guard_alone(world: World, clock: Clock) -> None:
    a = join(world, "a")
    await create(world, *NAMES)
    await clock.sleep(5)
    before = world.history.changes[-1][0]
    for name in NAMES:
        patch = {"spec": {"replicas": 0}}
        await world.client.patch(REPLICATIONCONTROLLER, name, NAMESPACE, patch=patch)
    await clock.sleep(0.5)
    assert a.farm.deletion_guard.triggers == (Trigger.ALL_ZERO,)
    claims = [key for _, key, _ in world.history.since(before) if "replicationcontrollers" in key]
    assert len(claims) <= len(NAMES), "our own writes, and no claim"
