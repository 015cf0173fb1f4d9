"""The fence: nothing is written without the right to, not even by a pass in flight."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.support.farm_fixtures import FARM, Hand, OneWriter, create, join, owners

from grange.api.http import ADMIN, Request, Response
from grange.api.kinds import CONFIGMAP, LEASE, POD, REPLICATIONCONTROLLER
from grange.api.meta import ObjectKey
from grange.api.status import ApiError, Conflict, NotFound, Timeout, TooManyRequests
from grange.base.clock import Clock
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.reconcile.controller import Done, Requeue, Result
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.farm.deletion_guard import DeletionGuardConfig
from grange.reconcile.farm.errors import ClaimNotHeld, DeletionsHeld, Fenced
from grange.reconcile.farm.fenced_client import FencedClient, PassFence
from grange.sim.faults import NetworkFaults
from grange.sim.world import World

KEY = ObjectKey("default", "s")


class Door:
    """A fence that is opened and closed by hand."""

    def __init__(self) -> None:
        self.left_s = 10.0
        self.open = True
        self.cuts = 0

    def check(self) -> float:
        if not self.open:
            raise ClaimNotHeld("closed")
        return self.left_s

    def cut_off(self) -> None:
        self.cuts += 1


def configmap(name: str) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "default"}}


async def test_every_verb_that_writes_is_refused_and_none_that_reads(
    world: World, clock: Clock
) -> None:
    door = Door()
    client = FencedClient(world.client, door, clock=clock)
    made = await client.create(CONFIGMAP, configmap("x"))
    door.open = False
    revision = world.store.revision
    with pytest.raises(Fenced):
        await client.create(CONFIGMAP, configmap("y"))
    with pytest.raises(Fenced):
        await client.update(CONFIGMAP, made)
    with pytest.raises(Fenced):
        await client.patch(CONFIGMAP, "x", "default", patch={"data": {"a": "b"}})
    with pytest.raises(Fenced):
        await client.delete(CONFIGMAP, "x", "default")
    with pytest.raises(Fenced):
        await client.post(POD, "p", "default", "eviction", {})
    assert world.store.revision == revision
    assert (await client.get(CONFIGMAP, "x", "default")).metadata.uid == made.metadata.uid
    assert "x" in [item.metadata.name for item in (await client.list(CONFIGMAP)).items]
    stream = client.watch(CONFIGMAP, resource_version="1", timeout_s=1)
    async for _ in stream:
        break
    await stream.aclose()


async def test_write_is_bounded_by_what_is_left_of_the_session(world: World, clock: Clock) -> None:
    door = Door()
    door.left_s = 2.0
    transport = world.network.transport(InProcess(world._handle, ADMIN), "x")
    client = FencedClient(Client(transport, clock=clock), door, clock=clock)
    world.network.faults = NetworkFaults(lose_answer=1.0, answer_timeout_s=30)
    with pytest.raises(Timeout, match="outcome unknown"):
        await client.create(CONFIGMAP, configmap("late"))
    assert clock.monotonic() == pytest.approx(2.0)
    assert door.cuts == 1, "it may still arrive"


async def test_deletion_needs_a_permit_and_a_dry_run_does_not(world: World, clock: Clock) -> None:
    asked: list[str] = []

    class Never:
        def permit_deletion(self, resource: str) -> Callable[[], object]:
            asked.append(resource)
            raise DeletionsHeld("held", retry_after_s=7)

        def created(self, resource: str) -> None:
            asked.append(f"+{resource}")

    client = FencedClient(world.client, Door(), clock=clock, deletion_guard=Never())
    await client.create(CONFIGMAP, configmap("x"))
    with pytest.raises(TooManyRequests) as caught:
        await client.delete(CONFIGMAP, "x", "default")
    assert caught.value.details.retry_after_seconds == 7
    with pytest.raises(DeletionsHeld):
        await client.post(POD, "p", "default", "eviction", {})
    assert asked == ["+configmaps", "configmaps", "pods"], "of each resource by itself"
    assert (await client.get(CONFIGMAP, "x", "default")).metadata.name == "x"


async def test_refused_deletion_is_refunded_and_unanswered_one_is_not(
    world: World, clock: Clock
) -> None:
    class Budget:
        left = 5

        def permit_deletion(self, resource: str) -> Callable[[], object]:
            self.left -= 1
            return self.give_back

        def give_back(self) -> None:
            self.left += 1

        def created(self, resource: str) -> None:
            return

    budget = Budget()
    transport = world.network.transport(InProcess(world._handle, ADMIN), "x")
    client = FencedClient(
        Client(transport, clock=clock), Door(), clock=clock, deletion_guard=budget
    )
    made = await client.create(CONFIGMAP, configmap("x"))
    with pytest.raises(NotFound):
        await client.delete(CONFIGMAP, "y", "default")
    with pytest.raises(Conflict):
        await client.delete(CONFIGMAP, "x", "default", uid="another")
    assert budget.left == 5
    world.network.faults = NetworkFaults(lose_answer=1.0, answer_timeout_s=1)
    with pytest.raises(ApiError):
        await client.delete(CONFIGMAP, "x", "default", uid=made.metadata.uid)
    assert budget.left == 4, "it may be gone"
    world.network.faults = NetworkFaults()
    await client.create(CONFIGMAP, configmap("z"))
    await client.delete(CONFIGMAP, "z", "default")
    assert budget.left == 3


async def test_weakness_w1_pass_in_flight_writes_nothing_after_session(
    world: World, clock: Clock, one_writer: OneWriter
) -> None:
    reported: list[tuple[float, str]] = []

    async def act(hand: Hand, key: ObjectKey) -> Result:
        """A pass that does not take no for an answer."""
        await hand.sign(key)
        while True:
            try:
                await clock.sleep(1)
                await hand.sign(key)
            except Fenced as error:
                reported.append((clock.monotonic(), type(error).__name__))
                raise
            except asyncio.CancelledError:
                reported.append((clock.monotonic(), "cancelled"))
                for _ in range(40):  # as if it had not heard
                    with suppress(ApiError):
                        await hand.sign(key)
                    await clock.sleep(1)
                raise
            except Exception:  # noqa: BLE001, S112  stubborn on purpose
                continue

    a = join(world, "a", act=act)
    await create(world, "s")
    await clock.sleep(10)
    assert a.held == ["s"]
    b = join(world, "b", act=act)
    await clock.sleep(3)
    world.network.partition("a")
    cut = clock.monotonic()
    await clock.sleep(18)
    world.network.heal("a")
    assert b.held == ["s"], "while the other pass is still at it"
    assert reported[0][0] - cut <= 15 - 3
    await clock.sleep(60)
    assert (await owners(world))["s"] == "b"
    signers = [signed for _, _, signed in one_writer.writes]
    assert signers == sorted(signers, key=lambda signed: signed.startswith("b_"))


async def test_weakness_w1_release_waits_for_the_pass_in_flight(world: World, clock: Clock) -> None:
    a = join(world, "a", busy_s=3.0, again_s=0.5)
    await create(world, "s", "t")
    await clock.sleep(5)
    b = join(world, "b", busy_s=3.0, again_s=0.5)
    await clock.sleep(15)
    assert len(a.held) == len(b.held) == 1, "OneWriter has seen every write of the handover"


async def test_deleted_lease_frees_nothing_until_its_session_is_over(
    world: World, clock: Clock
) -> None:
    a = join(world, "a", busy_s=1, again_s=0.3)
    await create(world, "s")
    await clock.sleep(5)
    join(world, "b", busy_s=1, again_s=0.3)
    await clock.sleep(5)
    assert a.held == ["s"]
    world.network.partition("a")
    await world.client.delete(LEASE, "grange-a", "kube-system")
    started = clock.monotonic()
    await world.until(lambda: owned_by(world, "b"), limit_s=60, every_s=0.1)
    assert 15 <= clock.monotonic() - started <= 20


async def owned_by(world: World, member: str) -> bool:
    return (await owners(world))["s"] == member


async def test_deletion_guard_is_behind_the_client_of_the_farm(world: World, clock: Clock) -> None:
    refused: list[str] = []

    async def act(hand: Hand, key: ObjectKey) -> Result:
        try:
            await hand.farm.client.delete(CONFIGMAP, "victim", "default")
        except DeletionsHeld as error:
            refused.append(error.message)
            raise
        except NotFound:
            return Done()
        return Done()

    async def wait(hand: Hand, key: ObjectKey) -> Result:
        return Requeue(0.25)

    a = join(world, "a", act=wait, deletion_guard=DeletionGuardConfig(small=1))
    await world.client.create(CONFIGMAP, configmap("victim"))
    await create(world, "s", "t", "u", "v")
    await clock.sleep(3)
    for name in ("t", "u", "v"):
        await world.client.delete(REPLICATIONCONTROLLER, name, "default")
    await clock.sleep(0.5)
    a.act = act
    await clock.sleep(0.5)
    assert "objects_vanished" in refused[0]
    assert [alert.about for alert in a.alerts.active] == [f"farm/{FARM}"]
    assert (await world.client.get(CONFIGMAP, "victim", "default")).metadata.name == "victim"
    word = {
        "metadata": {
            "name": "grange-farm",
            "namespace": "kube-system",
            "annotations": {"grange.dev/farm-resume": "1"},
        }
    }
    await world.client.create(CONFIGMAP, word)
    await clock.sleep(0.5)
    assert a.alerts.active == []
    await clock.sleep(1)
    with pytest.raises(NotFound):
        await world.client.get(CONFIGMAP, "victim", "default")


class Hanging:
    """A transport that sends and never hears."""

    async def send(self, request: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None:
        return


async def test_object_is_not_released_while_a_cut_off_write_may_arrive(
    world: World, clock: Clock
) -> None:
    async def act(hand: Hand, key: ObjectKey) -> Result:
        client = FencedClient(Client(Hanging(), clock=clock), PassFence(Door()), clock=clock)
        await client.create(CONFIGMAP, configmap("x"))
        return Done()

    config = FarmConfig(member="a", handover_s=1.0, margin_s=3.0)
    a = join(world, "a", selector="mine=yes", config=config, act=act)
    await create(world, "s", mine="yes")
    await clock.sleep(3)
    assert a.held == ["s"]
    change = {"metadata": {"labels": {"mine": "no"}}}
    await world.client.patch(REPLICATIONCONTROLLER, "s", "default", patch=change)
    await clock.sleep(3.9)
    assert a.held == []
    assert await owned_by(world, "a"), "the pass was cancelled in the middle of its write"
    await clock.sleep(0.5)
    assert await owned_by(world, "")


async def test_lease_is_not_released_while_a_cut_off_write_may_arrive(
    world: World, clock: Clock
) -> None:
    async def act(hand: Hand, key: ObjectKey) -> Result:
        client = FencedClient(Client(Hanging(), clock=clock), PassFence(Door()), clock=clock)
        await client.create(CONFIGMAP, configmap("x"))
        return Done()

    join(world, "a", act=act)
    await create(world, "s")
    await clock.sleep(3)
    world._running["a"].cancel()
    await clock.sleep(1)
    lease = await world.client.get(LEASE, "grange-a", "kube-system")
    assert lease.spec.holder_identity != "", "the others wait for it to expire"
