"""Orders of transfers of replicas that meet on one giver: everybody learns the fate of his own."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial

import pytest
from tests.support.controller_world import World, world

from grange.api.http import Request, Response
from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.replication import (
    GIVEN_UP_ANNOTATION,
    TRANSFER_ANNOTATION,
    Transfer,
    given_up,
    transfer_of,
    written,
)
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.client.client import Client
from grange.client.replica_operations import OperationRefused, OtherCount
from grange.client.transfers import complete_transfer, transfer_replicas

Interlude = Callable[[], Awaitable[object]]


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> AsyncGenerator[World, None]:
    async with world(clock, rng, log) as made:
        await made.add_controller("giver", replicas=5, placement="Packed")
        await made.add_controller("receiver", replicas=1, placement="Packed")
        yield made


class Interrupted:
    """A connection on which others act just before the n-th request, or after the n-th write."""

    def __init__(
        self, inner: Client, interlude: Interlude, *, before: int = 0, write: int = 0
    ) -> None:
        self._inner, self._interlude = inner, interlude
        self._before, self._write = before, write

    async def send(self, request: Request) -> Response:
        self._before -= 1
        if self._before == 0:
            await self._interlude()
        response = await self._inner.raw(request)
        self._write -= request.method != "GET"
        if self._write == 0 and request.method != "GET":
            await self._interlude()
        return response

    async def close(self) -> None:
        """Nothing."""


async def move(
    client: Client, name: str, *, giver_start: int = 5, receiver_start: int = 1, count: int = 1
) -> None:
    await transfer_replicas(
        client,
        "default",
        "giver",
        "receiver",
        transfer_id=name,
        add=count,
        remove=count,
        giver_start=giver_start,
        receiver_start=receiver_start,
    )


async def note(there: World, name: str, order: Transfer) -> None:
    """Put an order down and do nothing more, as a user does who dies then."""
    patch = {"metadata": {"annotations": {TRANSFER_ANNOTATION: written(order)}}}
    await there.client.patch(REPLICATIONCONTROLLER, name, "default", patch=patch)


async def note_first(there: World) -> None:
    """Put down the order ``first``, of one replica."""
    uid = (await there.controller("receiver")).metadata.uid
    order = Transfer(id="first", to="receiver", to_uid=uid, to_start=1, add=1, remove=1)
    await note(there, "giver", order)


async def counts(there: World) -> tuple[int, int]:
    giver, receiver = [await there.controller(name) for name in ("giver", "receiver")]
    return giver.spec.replicas, receiver.spec.replicas


async def test_given_up_order_is_reported_before_a_later_completed_one(
    there: World, clock: Clock
) -> None:
    async def others() -> None:
        await there.change("receiver", replicas=3)
        assert not await complete_transfer(there.client, "default", "giver")
        await move(there.client, "later", receiver_start=3)

    crossed = Client(Interrupted(there.client, others, write=1), clock=clock)
    with pytest.raises(OtherCount, match="nothing was moved"):
        await move(crossed, "mine", count=2)
    assert await counts(there) == (4, 4)


async def test_completed_order_is_reported_before_a_later_given_up_one(
    there: World, clock: Clock
) -> None:
    async def others() -> None:
        assert await complete_transfer(there.client, "default", "giver")
        later = Client(Interrupted(there.client, changed, write=1), clock=clock)
        with pytest.raises(OtherCount):
            await move(later, "later", giver_start=3, receiver_start=3)

    async def changed() -> None:
        await there.change("receiver", replicas=9)

    crossed = Client(Interrupted(there.client, others, write=1), clock=clock)
    await move(crossed, "mine", count=2)
    assert await counts(there) == (3, 9)


async def test_an_order_under_way_is_not_overwritten(there: World, clock: Clock) -> None:
    """Its receiver would keep replicas that the giver never gave."""

    # Between the look whether there is one, and the reading of the counts.
    interlude = partial(note_first, there)
    crossed = Client(Interrupted(there.client, interlude, before=2), clock=clock)
    with pytest.raises(OperationRefused, match="giver: transfer first to receiver is in the way"):
        await move(crossed, "second", count=2)
    standing = transfer_of(await there.controller("giver"))
    assert standing is not None
    assert standing.id == "first"
    assert await complete_transfer(there.client, "default", "giver")
    assert await counts(there) == (4, 2)


async def test_a_completed_order_is_reported_by_who_found_it_first(
    there: World, clock: Clock
) -> None:
    async def others() -> None:
        await there.change("receiver", replicas=2)
        await complete_transfer(there.client, "default", "giver")
        await move(there.client, "later", receiver_start=2)

    await note_first(there)
    crossed = Client(Interrupted(there.client, others, before=2), clock=clock)
    assert not await complete_transfer(crossed, "default", "giver")
    assert await counts(there) == (4, 3)


async def test_the_giver_that_went_meanwhile_leaves_the_fate_unknown(
    there: World, clock: Clock
) -> None:
    async def others() -> None:
        await there.client.delete(REPLICATIONCONTROLLER, "giver", "default")
        await there.add_controller("giver", replicas=5, placement="Packed")

    crossed = Client(Interrupted(there.client, others, write=1), clock=clock)
    with pytest.raises(NotFound, match="giver is gone: what became of its transfer mine"):
        await move(crossed, "mine")
    assert await counts(there) == (5, 1)


async def test_what_was_given_up_is_remembered_but_not_for_ever(there: World) -> None:
    for at in range(20):
        gone = Transfer(
            id=f"t{at}", to="receiver", to_uid="gone", to_start=1, add=1, remove=1, refused=True
        )
        await note(there, "giver", gone)
        giver, receiver = await counts(there)
        await move(there.client, f"m{at}", giver_start=giver, receiver_start=receiver, count=0)
    kept = given_up(await there.controller("giver"))
    assert kept == [f"t{at}" for at in range(4, 20)]
    assert len((await there.controller("giver")).metadata.annotations[GIVEN_UP_ANNOTATION]) < 200
