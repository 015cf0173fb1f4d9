"""Locks on objects, against a real API server in memory."""

import pytest
from tests.support.controller_world import World, world

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.transfer_status import TRANSFER_LOCK
from grange.api.meta import ObjectKey
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.client import locks


def lock(there: World, holder: str, ttl_s: float = 30.0, name: str = "web") -> locks.ObjectLock:
    return locks.ObjectLock(
        there.client,
        REPLICATIONCONTROLLER,
        ObjectKey("default", name),
        annotation=TRANSFER_LOCK,
        holder=holder,
        ttl_s=ttl_s,
        clock=there.clock,
    )


async def holder(there: World) -> str:
    found = locks.hold(await there.controller(), TRANSFER_LOCK, there.clock.now())
    return found.holder if found else ""


async def test_s14_a_lock_has_one_holder_who_may_take_it_again(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """T12: the holder's name is on it, and it excludes others until it is given back."""
    async with world(clock, rng, log) as there:
        await there.add_controller()
        ann, bob = lock(there, "ann"), lock(there, "bob")
        await ann.acquire()
        await ann.acquire()
        assert await holder(there) == "ann"
        with pytest.raises(locks.LockHeld, match="'web' is locked by ann, until 20"):
            await bob.acquire()
        with pytest.raises(locks.LockHeld):
            await bob.release()
        await ann.release()
        await ann.release()
        assert await holder(there) == ""
        await bob.acquire()
        assert await holder(there) == "bob"


async def test_a_lock_ends_when_its_holder_does_not_come_back(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await there.add_controller()
        ann, bob = lock(there, "ann", ttl_s=30.0), lock(there, "bob")
        await ann.acquire()
        await clock.sleep(20.0)
        await ann.acquire()
        await clock.sleep(20.0)
        assert await holder(there) == "ann"
        await clock.sleep(11.0)
        assert await holder(there) == ""
        await bob.acquire()
        with pytest.raises(locks.LockHeld, match="locked by bob"):
            await ann.release()


async def test_what_is_no_lock_holds_nothing_back(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await there.add_controller()
        for text in ("", "x", "[]", '{"holder":"ann"}', '{"holder":"ann","until":"soon"}'):
            change = {"metadata": {"annotations": {TRANSFER_LOCK: text}}}
            await there.client.patch(REPLICATIONCONTROLLER, "web", "default", patch=change)
            assert await holder(there) == ""
        await lock(there, "ann").acquire()
        with pytest.raises(NotFound):
            await lock(there, "ann", name="none").acquire()
