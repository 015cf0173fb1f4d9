"""Requests to the pool of machines by an owner that is no longer the owner, or that come late.

A server refuses a stale owner's writes; the pool has no objects to compare. It refuses what is older than
what it has heard, and what slips through before that is found and given back by the next pass.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers.test_replication_transfer import (
    DYNAMIC,
    label,
    moved,
    nodes,
    phase,
    transfers,
)

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.controllers.replication.controller import ReplicationConfig, ReplicationService
from grange.controllers.replication.node_transfer import TransferPhase
from grange.reconcile.machine_pool import StaleRequest
from grange.sim.simulated_pool import SimulatedPool


class Slow:
    """A way to a pool on which some requests are delivered when their sender has long given up."""

    def __init__(self, pool: SimulatedPool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self.holds: set[str] = set()
        self.late: list[Callable[[], Awaitable[object]]] = []

    async def claim(
        self,
        request_id: str,
        *,
        holder: str,
        demand: ReplicationController,
        count: int,
        epoch: int,
    ) -> Sequence[str]:
        async def send() -> Sequence[str]:
            return await self._pool.claim(
                request_id, holder=holder, demand=demand, count=count, epoch=epoch
            )

        await self._on_its_way("claim", send)
        return await send()

    async def release(self, names: Collection[str], *, holder: str, epoch: int) -> None:
        async def send() -> None:
            await self._pool.release(names, holder=holder, epoch=epoch)

        await self._on_its_way("release", send)
        await send()

    async def holders(self) -> Mapping[str, str]:
        return await self._pool.holders()

    async def _on_its_way(self, what: str, send: Callable[[], Awaitable[object]]) -> None:
        if what in self.holds:
            self.late.append(send)
            await self._clock.sleep(1e9)  # its sender is gone before


async def owned(there: World, by: str) -> None:
    """A user takes the controller over, which is a write to it."""
    change = {"metadata": {"annotations": {"grange.dev/owner": by}}}
    await there.client.patch(REPLICATIONCONTROLLER, "web", "default", patch=change)


async def test_machine_allocated_by_stale_owner_is_released(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The claim arrives when the transfer that it was for is over: it is neither asked for nor leaked."""
    pool = SimulatedPool(["p"])
    slow = Slow(pool, clock)
    slow.holds.add("claim")
    async with world(clock, rng, log) as there:
        await nodes(there, "a", "p")
        await there.add_controller(replicas=1, **DYNAMIC)
        async with Nursery("first owner") as first:
            first.start(ReplicationService(there.deps, pool=slow).run())
            await there.until(lambda: there.ready(1))
            await label(there, "a", fits=False)
            await there.until(lambda: asked(slow))
            first.cancel()
        await label(there, "a", fits=True)
        await owned(there, "second")
        config = ReplicationConfig(resync_s=60.0)
        there.start(ReplicationService(there.deps, config, pool=pool))
        await there.until(lambda: moved(there, "a"))
        uid = (await there.controller()).metadata.uid
        await slow.late[0]()
        assert await pool.holders() == {"p": uid}, "the pool cannot know yet"
        await there.settle(70.0)
        assert await pool.holders() == {"p": ""}
        with pytest.raises(StaleRequest):
            await slow.late[0]()
        assert await pool.holders() == {"p": ""}, "once its successor has spoken, it can"


async def asked(slow: Slow) -> bool:
    return bool(slow.late)


async def test_stale_owner_does_not_release_its_successors_machine(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Same controller, same machine, another transfer: the name of the holder does not distinguish them."""
    pool = SimulatedPool(["p"])
    slow = Slow(pool, clock)
    async with world(clock, rng, log) as there:
        await nodes(there, "a", "p")
        await there.add_controller(replicas=1, **DYNAMIC, rollout={"progressDeadlineSeconds": 10})
        async with Nursery("first owner") as first:
            first.start(ReplicationService(there.deps, pool=slow).run())
            await there.until(lambda: there.ready(1))
            await there.hold_ready("p")
            await label(there, "a", fits=False)
            await there.until(lambda: phase(there, TransferPhase.STARTING))
            slow.holds.add("release")
            await there.until(lambda: asked(slow))
            first.cancel()
        await owned(there, "second")
        there.start(ReplicationService(there.deps, pool=pool))
        await there.until(lambda: over(there))
        await there.let_ready("p")
        await there.until(lambda: moved(there, "p"), limit_s=120)
        uid = (await there.controller()).metadata.uid
        with pytest.raises(StaleRequest):
            await slow.late[0]()
        assert await pool.holders() == {"p": uid}


async def over(there: World) -> bool:
    return not await transfers(there)
