"""Which sessions are over: what the server shows decides, not the cache."""

from itertools import pairwise

from grange.api.http import Request, Response
from grange.api.kinds import LEASE
from grange.api.kinds.lease import Lease
from grange.api.meta import Document
from grange.api.status import InternalError
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.transport import Transport
from grange.reconcile.deps import Deps
from grange.reconcile.farm import leases
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.farm.leases import Token
from grange.reconcile.farm.members import Members
from grange.reconcile.informer import Informer
from grange.sim.world import World

CONFIG = FarmConfig(member="b")
PRESENT = Token("a", "x", 3)


def lease(token: Token, renewed: str = "2026-01-01T00:00:00.000000Z", **farms: str) -> Document:
    return {
        "metadata": {
            "name": CONFIG.lease_name(token.member),
            "namespace": CONFIG.namespace,
            **leases.marks(CONFIG, farms, {}),
        },
        "spec": leases.spec_of(token, CONFIG, renewed=renewed),
    }


def informer_of(world: World, rng: Stream, log: Logger) -> Informer[Lease]:
    selection = Members.lease_selection(CONFIG)
    return Informer(
        world.client,
        LEASE,
        namespace=selection["namespace"],
        labels=selection["labels"],
        clock=world.clock,
        rng=rng,
        log=log,
    )


def members_of(world: World, informer: Informer[Lease], log: Logger) -> Members:
    return Members(world.client, informer, CONFIG, clock=world.clock, log=log)


async def test_session_is_not_over_while_the_server_shows_it(
    world: World, clock: Clock, rng: Stream, log: Logger
) -> None:
    """A cache that has not seen the Lease yet proves nothing, however long that lasts."""
    await world.client.create(LEASE, lease(PRESENT))
    members = members_of(world, informer_of(world, rng, log), log)
    assert not members.is_live(PRESENT)
    assert not await members.is_over(PRESENT)
    assert members.is_live(PRESENT)
    await clock.sleep(3.0 * CONFIG.ttl_s)
    assert not await members.is_over(PRESENT)


async def test_session_is_over_when_a_later_epoch_holds_the_lease(
    world: World, rng: Stream, log: Logger
) -> None:
    await world.client.create(LEASE, lease(PRESENT))
    members = members_of(world, informer_of(world, rng, log), log)
    assert await members.is_over(Token("a", "w", 2))


async def test_session_is_over_when_its_epoch_was_released(
    world: World, rng: Stream, log: Logger
) -> None:
    made = lease(PRESENT)
    made["spec"]["holderIdentity"] = ""
    await world.client.create(LEASE, made)
    members = members_of(world, informer_of(world, rng, log), log)
    assert await members.is_over(PRESENT)


async def test_session_of_a_recreated_lease_is_over_after_a_term(
    world: World, clock: Clock, rng: Stream, log: Logger
) -> None:
    """The Lease was deleted: its epochs start again, so that they prove nothing of the old one."""
    await world.client.create(LEASE, lease(PRESENT))
    members = members_of(world, informer_of(world, rng, log), log)
    former = [Token("a", "same", 3), Token("a", "higher", 9)]
    for token in former:
        assert not await members.is_over(token)
    await clock.sleep(CONFIG.ttl_s - 1.0)
    for token in former:
        assert not await members.is_over(token)
    await clock.sleep(1.5)
    for token in former:
        assert await members.is_over(token)


async def test_listeners_are_called_for_changes_but_not_for_renewals(
    world: World, clock: Clock, rng: Stream, log: Logger
) -> None:
    informer = informer_of(world, rng, log)
    members = members_of(world, informer, log)
    seen: list[list[str]] = []
    members.add_listener(lambda: seen.append([peer.name for peer in members.peers("shop")]))

    async def write(document: Document) -> None:
        meta = document["metadata"]
        await world.client.patch(LEASE, meta["name"], meta["namespace"], patch=document)
        await clock.sleep(1)

    async with Nursery() as nursery:
        nursery.start(informer.run())
        await world.client.create(LEASE, lease(PRESENT))
        await clock.sleep(1)
        assert seen == [[]]
        await write(lease(PRESENT, "2026-01-01T00:00:01.000000Z"))
        assert seen == [[]], "a renewal"
        await write(lease(PRESENT, "2026-01-01T00:00:02.000000Z", shop="tier=web"))
        assert seen == [[], ["a"]]
        await write(lease(Token("a", "y", 4), "2026-01-01T00:00:03.000000Z", shop="tier=web"))
        assert seen == [[], ["a"], ["a"]]
        nursery.cancel()


async def test_session_that_cannot_be_ended_is_tried_after_a_pause(
    world: World, clock: Clock, rng: Stream, log: Logger
) -> None:
    """A server that refuses is not asked again and again."""
    tries: list[float] = []

    def refusing(inner: Transport, name: str) -> Transport:
        return Refusing(inner, clock, tries)

    await world.client.create(LEASE, lease(PRESENT))
    world.taps.append(refusing)
    world.add("b", Sweeper)
    await clock.sleep(CONFIG.ttl_s + 10 * CONFIG.retry_s)
    pauses = [after - before for before, after in pairwise(tries)]
    assert len(pauses) >= 5
    assert min(pauses) >= CONFIG.retry_s


class Refusing:
    """A transport whose server refuses every write; notes when."""

    def __init__(self, inner: Transport, clock: Clock, tries: list[float]) -> None:
        self._inner, self._clock, self._tries = inner, clock, tries

    async def send(self, request: Request) -> Response:
        if request.method == "GET":
            return await self._inner.send(request)
        self._tries.append(self._clock.monotonic())
        raise InternalError("no")

    async def close(self) -> None:
        await self._inner.close()


class Sweeper:
    """Members alone, of a separate process."""

    def __init__(self, deps: Deps) -> None:
        self._informer = deps.informers.informer(LEASE, **Members.lease_selection(CONFIG))
        self._members = Members(deps.client, self._informer, CONFIG, clock=deps.clock, log=deps.log)

    async def run(self) -> None:
        await self._members.run()
