"""Sessions: acquired, renewed, lost, never two at a time; bodies run one for each."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import pytest

from grange.api.http import ADMIN
from grange.api.kinds import CONFIGMAP, LEASE
from grange.api.kinds.lease import Lease
from grange.api.meta import Document
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.reconcile.farm.config import BadFarmConfig, FarmConfig
from grange.reconcile.farm.errors import Fenced, SessionLost
from grange.reconcile.farm.fenced_client import FencedClient, PassFence
from grange.reconcile.farm.leases import Observations, Token, farms_of, token_of
from grange.reconcile.farm.member_session import Session, SessionKeeper, each_session
from grange.sim.faults import NetworkFaults
from grange.sim.pytest_plugin import Records
from grange.sim.skewed_clock import SkewedClock
from grange.sim.world import World

TTL_S = FarmConfig(member="a").ttl_s


class Suspendable(SkewedClock):
    """The clock of a machine that slept: timers, and the time they go by, know nothing of it."""

    slept_s = 0.0

    def elapsed(self) -> float:
        return super().elapsed() + self.slept_s


def keeper_of(
    world: World,
    rng: Stream,
    log: Logger,
    *,
    name: str = "a",
    life: str = "1",
    clock: Clock | None = None,
    **changes: object,
) -> SessionKeeper:
    transport = world.network.transport(InProcess(world._handle, ADMIN), name, f"{name}.{life}")
    client = Client(transport, clock=world.clock)
    config = FarmConfig(member=name, **changes)  # type: ignore[arg-type]  # by name
    stream = rng.fork(f"{name}.{life}")
    return SessionKeeper(client, config, clock=clock or world.clock, rng=stream, log=log)


@asynccontextmanager
async def running(*keepers: SessionKeeper) -> AsyncGenerator[Nursery, None]:
    async with Nursery("keepers") as nursery:
        for keeper in keepers:
            nursery.start(keeper.run())
        yield nursery
        nursery.cancel()


async def lease(world: World, name: str = "a") -> Lease:
    return await world.client.get(LEASE, f"grange-{name}", "kube-system")


async def test_check_t8_keeper_yields_a_session_and_returns_it(
    world: World, clock: Clock, rng: Stream, log: Logger
) -> None:
    keeper = keeper_of(world, rng, log)
    async with running(keeper):
        session = await keeper.following(None)
        assert token_of(await lease(world)) == session.token
        assert session.token.epoch == 1
    assert session.ended.is_set()
    assert keeper.current is None
    assert token_of(await lease(world)) is None
    assert (await lease(world)).spec.lease_transitions == 1, "the epoch stays"


async def test_check_t9_body_runs_once_for_each_session(
    world: World, clock: Clock, rng: Stream, log: Logger
) -> None:
    keeper = keeper_of(world, rng, log)
    ran: list[int] = []

    async def body(session: Session) -> None:
        ran.append(session.token.epoch)  # and returns early: not run again for this session

    async with running(keeper) as nursery:
        nursery.start(each_session(keeper, body))
        await clock.sleep(30)
        assert ran == [1]
        await world.client.delete(LEASE, "grange-a", "kube-system")
        await clock.sleep(30)
        assert ran == [1, 2]


async def test_check_t10_session_that_came_and_went_is_skipped(
    world: World, clock: Clock, rng: Stream, log: Logger
) -> None:
    keeper = keeper_of(world, rng, log)
    ran: list[int] = []

    async def body(session: Session) -> None:
        ran.append(session.token.epoch)
        try:
            await asyncio.Event().wait()
        finally:
            await clock.sleep(20)  # slow to stop

    async with running(keeper) as nursery:
        nursery.start(each_session(keeper, body))
        await clock.sleep(1)
        await world.client.delete(LEASE, "grange-a", "kube-system")
        await clock.sleep(10)  # the second begins
        await world.client.delete(LEASE, "grange-a", "kube-system")
        await clock.sleep(30)
        assert ran == [1, 3]


async def test_check_t11_crash_of_the_body_is_not_swallowed(
    world: World, clock: Clock, rng: Stream, log: Logger
) -> None:
    keeper = keeper_of(world, rng, log)

    async def body(session: Session) -> None:
        raise ZeroDivisionError

    with pytest.raises(BaseExceptionGroup) as caught:
        async with running(keeper) as nursery:
            nursery.start(each_session(keeper, body))
            await clock.sleep(10)
    assert caught.group_contains(ZeroDivisionError, depth=None)


async def test_check_t12_lease_names_the_session_and_has_one_holder(
    world: World, clock: Clock, rng: Stream, log: Logger
) -> None:
    first, second = (keeper_of(world, rng, log, life=life) for life in "12")
    async with running(first, second):
        await clock.sleep(1)
        session = first.current
        assert session is not None
        before = await lease(world)
        assert before.spec.holder_identity == session.token.holder
        await clock.sleep(100)
        after = await lease(world)
        assert first.current is session, "renewed"
        assert second.current is None, "exclusive"
        assert after.spec.renew_time != before.spec.renew_time
        writes = int(after.metadata.resource_version) - int(before.metadata.resource_version)
        assert writes <= 100 / (TTL_S / 2) + 1, "a write at half of the term"


async def test_who_waits_for_another_of_its_name_logs_it_once(
    world: World, clock: Clock, rng: Stream, log: Logger, records: Records
) -> None:
    """And not who waits for one that has died: that is over in 15 s."""

    def messages() -> list[str]:
        return [event for event, _ in records if "this name" in event]

    first, second = (keeper_of(world, rng, log, life=life) for life in "12")
    async with running(first, second):
        await clock.sleep(5 * TTL_S)
        assert messages() == ["another process has this name: waiting for its end"]
    records.clear()
    async with running(keeper_of(world, rng, log, name="b")):
        await clock.sleep(1)
        world.network.cut("b.1")
    heir = keeper_of(world, rng, log, name="b", life="2")
    async with running(heir):
        await heir.following(None)
    assert messages() == []


async def test_check_t12_renewing_a_session_that_was_ended_fails(
    world: World, clock: Clock, rng: Stream, log: Logger
) -> None:
    keeper = keeper_of(world, rng, log)
    async with running(keeper):
        session = await keeper.following(None)
        ended = {"spec": {"holderIdentity": ""}}
        await world.client.patch(LEASE, "grange-a", "kube-system", patch=ended)
        await clock.sleep(TTL_S / 2 + 0.1)
        assert session.ended.is_set()
        following = await keeper.following(session)
        assert following.token.epoch == 2
        assert following.token.nonce != session.token.nonce


async def test_check_t13_session_is_good_while_held_and_never_again(
    world: World, clock: Clock, rng: Stream, log: Logger
) -> None:
    keeper = keeper_of(world, rng, log)
    assert keeper.current is None
    async with running(keeper):
        session = await keeper.following(None)
        assert 0 < session.check() <= TTL_S - 3
    with pytest.raises(SessionLost, match=str(session.token)):
        session.check()
    session.extend(clock.monotonic() + 1000)
    with pytest.raises(SessionLost):
        session.check()


async def test_isolated_member_stops_before_its_lease_can_be_taken(
    world: World, clock: Clock, rng: Stream, log: Logger
) -> None:
    keeper = keeper_of(world, rng, log)
    async with running(keeper):
        session = await keeper.following(None)
        await clock.sleep(20)
        renewed = token_of(await lease(world))
        assert renewed == session.token
        world.network.partition("a")
        started = clock.monotonic()
        await session.ended.wait()
        assert clock.monotonic() - started <= TTL_S - 3
        world.network.heal("a")
        following = await keeper.following(session)
        assert clock.monotonic() - started >= TTL_S - 3
        assert following.token.epoch == 2


async def test_answers_that_are_lost_do_not_cost_the_session(
    world: World, clock: Clock, rng: Stream, log: Logger
) -> None:
    keeper = keeper_of(world, rng, log)
    async with running(keeper):
        session = await keeper.following(None)
        world.network.faults = NetworkFaults(lose_answer=0.5, answer_timeout_s=1.0)
        await clock.sleep(300)
        world.network.calm()
        await clock.sleep(TTL_S)
        current = keeper.current
        assert current is not None
        assert token_of(await lease(world)) == current.token
        assert current.token.epoch >= session.token.epoch


async def test_crashed_session_is_awaited_unless_its_name_is_unique(
    world: World, clock: Clock, rng: Stream, log: Logger
) -> None:
    for sole, wait_s in ((False, TTL_S), (True, 0)):
        name = f"m{wait_s}"
        first = keeper_of(world, rng, log, name=name)
        async with running(first):
            await first.following(None)
            world.network.cut(f"{name}.1")  # a crash: nothing is given back
        second = keeper_of(world, rng, log, name=name, life="2", sole_bearer=sole)
        started = clock.monotonic()
        async with running(second):
            session = await second.following(None)
            assert wait_s <= clock.monotonic() - started <= wait_s + 2
            assert session.token.epoch == 2


async def test_foreign_write_on_the_lease_does_not_end_the_session(
    world: World, clock: Clock, rng: Stream, log: Logger
) -> None:
    keeper = keeper_of(world, rng, log)
    async with running(keeper):
        session = await keeper.following(None)
        for _ in range(5):
            label = {"metadata": {"labels": {"seen": f"{clock.monotonic():.0f}"}}}
            await world.client.patch(LEASE, "grange-a", "kube-system", patch=label)
            await clock.sleep(10)
        assert keeper.current is session


async def test_skewed_clock_counts_its_own_seconds(clock: Clock) -> None:
    fast = SkewedClock(clock, offset_s=-3600, drift=0.5)
    session = Session(Token("a", "x", 1), fast, fast.elapsed() + 12)
    await clock.sleep(7.9)
    session.check()
    await clock.sleep(0.2)
    with pytest.raises(SessionLost):
        session.check()


async def test_session_is_over_after_suspension_without_a_timer(
    world: World, clock: Clock, rng: Stream, log: Logger
) -> None:
    """Others have waited while the machine slept; its own timers stood still."""
    suspended = Suspendable(clock)
    keeper = keeper_of(world, rng, log, clock=suspended)
    async with running(keeper):
        session = await keeper.following(None)
        client = FencedClient(world.client, PassFence(session), clock=suspended)
        document: Document = {"metadata": {"name": "x", "namespace": "default"}}
        await client.create(CONFIGMAP, document)
        before = clock.monotonic()
        suspended.slept_s = 3600.0
        assert keeper.current is None
        revision = world.store.revision
        with pytest.raises(Fenced):
            await client.patch(CONFIGMAP, "x", "default", patch={"data": {"a": "b"}})
        assert world.store.revision == revision
        assert clock.monotonic() == before, "no timer has fired since"
        again = await keeper.following(session)
        assert again.token.epoch > session.token.epoch


def test_token_reads_what_it_writes_and_nothing_else() -> None:
    token = Token("host-1.example", "abc", 7)
    assert Token.parse(str(token)) == token
    for text in ("", "/", "a", "a/1", "_x/1", "a_/1", "a_x/", "a_x/-1", "a_x/1.0"):
        assert Token.parse(text) is None, text


def test_lease_with_a_strange_annotation_takes_part_in_nothing() -> None:
    document = {"metadata": {"annotations": {"grange.dev/farms": "{nonsense"}}}
    assert farms_of(msgspec.convert(document, Lease)) == {}


def test_observation_lasts_as_long_as_the_lease_is_the_same() -> None:
    def lease_at(renewed: str, version: str) -> Lease:
        return msgspec.convert(
            {
                "metadata": {"name": "grange-a", "resourceVersion": version},
                "spec": {
                    "holderIdentity": "a_x",
                    "leaseTransitions": 1,
                    "leaseDurationSeconds": 15,
                    "renewTime": renewed,
                },
            },
            Lease,
        )

    seen = Observations()
    assert seen.see(lease_at("t1", "1"), 100)
    assert not seen.see(lease_at("t1", "2"), 105), "only its version has changed"
    (observation,) = seen
    assert observation.due(15) == 115
    assert not seen.see(lease_at("t0", "3"), 110), (
        "any other time is a sign of life, also an earlier one"
    )
    (observation,) = seen
    assert observation.due(15) == 125


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"member": "Not A Name"}, "member"),
        ({"member": "a", "group": "_"}, "group"),
        ({"member": "a", "margin_s": 0.0}, "margin_s"),
        ({"member": "a", "margin_s": 7.5}, "margin_s"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, object], word: str) -> None:
    with pytest.raises(BadFarmConfig, match=word):
        FarmConfig(**changes)  # type: ignore[arg-type]  # by name
