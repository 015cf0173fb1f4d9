"""Owners of two controllers claim machines of a pool; they die at their writes, which may arrive later.

Pods take machines of the same pool. No machine has two holders; what was claimed under an id stays so until it
is released, also for the next owner; a former one is refused; in the end everything is given back and nothing is left.
A pool without standby grows for claims, and shrinks.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from tests.support.machine_world import MachineWorld, machine_world
from tests.unit.controllers import builders

from grange.api import codec
from grange.api.http import Request, Response
from grange.api.kinds import NODEPOOL
from grange.api.kinds.machine import DEDICATED_TAINT
from grange.api.machine_phases import MachinePhase
from grange.base.clock import Clock
from grange.base.errors import invariant
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.client import Client
from grange.machines.holders.node_pool_machines import NodePoolMachines
from grange.reconcile.deps import Deps
from grange.reconcile.informer import InformerFactory
from grange.reconcile.machine_pool import MachinePool, PoolExhausted, StaleRequest

P = MachinePhase
MACHINES = 3
OWNERS = 6
SETTLED_S = 900.0
TOLERANT = {"key": DEDICATED_TAINT, "operator": "Exists"}
TEMPLATE = {**builders.TEMPLATE, "spec": {**builders.TEMPLATE["spec"], "tolerations": [TOLERANT]}}


class Died(Exception):
    """The owner is no more."""


class Deadly:
    """A transport whose owner may die at each write: before it, after it, or while it is under way."""

    def __init__(self, world: MachineWorld, draw: Stream, *, share: float) -> None:
        self._world, self._draw, self._share = world, draw, share
        self._inner, self._dead = world.new_client(), False

    async def send(self, request: Request) -> Response:
        """Carry a request, or die of it."""
        if self._dead:
            raise Died
        if request.method == "GET" or self._draw.uniform(0.0, 1.0) >= self._share:
            return await self._inner.raw(request)
        self._dead = True
        side = self._draw.choice(["before", "after", "late"])
        if side == "after":
            await self._inner.raw(request)
        elif side == "late":
            self._world.nursery.start(self._later(request))
        raise Died

    async def _later(self, request: Request) -> None:
        await self._world.clock.sleep(self._draw.uniform(0.5, 40.0))
        await self._inner.raw(request)

    async def close(self) -> None:
        """Nothing is open."""


@dataclass
class Holder:
    """A controller, with what its owners have stored of its requests.

    Attributes:
        given: machines by request, as they were answered.
        asked: requests that were made and not released.
    """

    uid: str
    given: dict[str, tuple[str, ...]] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)


class Owners:
    """The owners of a controller, one after another, who try each claim so many times."""

    def __init__(self, world: MachineWorld, uid: str, draw: Stream, *, tries: int = 1) -> None:
        self._world, self._draw, self._tries = world, draw, tries
        self.holder = Holder(uid)
        self._demand = builders.controller(uid, uid=uid, template=TEMPLATE)
        self._epoch = self._requests = 0
        self._former: MachinePool | None = None

    def pool(self, share: float) -> MachinePool:
        world, rng = self._world, self._draw.fork("owner")
        client = Client(Deadly(world, self._draw, share=share), clock=world.clock)
        informers = InformerFactory(world.new_client(), clock=world.clock, rng=rng, log=world.log)
        deps = Deps(client, informers, world.clock, rng, world.log, world.registry)
        pool = self.new_pool(deps)
        world.nursery.start(informers.run())
        return pool

    def new_pool(self, deps: Deps) -> MachinePool:
        """The pool of one process."""
        return NodePoolMachines(deps)

    async def is_held(self, name: str) -> bool:
        """Whether a machine is the holder's."""
        machine = await self._world.machine(name)
        return machine.phase is P.CLAIMED and machine.status.holder_uid == self.holder.uid

    async def run(self, share: float = 0.15) -> None:
        for _ in range(OWNERS):
            self._epoch += 1
            pool = self.pool(share)
            with suppress(Died):
                for _ in range(self._draw.integer(1, 5)):
                    await self._draw.choice([self.claim, self.claim, self.repeat, self.release])(
                        pool
                    )
                    await self._world.clock.sleep(self._draw.uniform(0.0, 5.0))
            self._former = pool
            await self._world.clock.sleep(self._draw.uniform(0.0, 10.0))

    async def claim(self, pool: MachinePool) -> None:
        self._requests += 1
        request = f"{self.holder.uid}-r{self._requests}"
        self.holder.asked[request] = self._draw.integer(1, 2)
        await self._ask(pool, request)

    async def repeat(self, pool: MachinePool) -> None:
        if self.holder.asked:
            await self._ask(pool, self._draw.choice(sorted(self.holder.asked)))

    async def _ask(self, pool: MachinePool, request: str) -> None:
        uid, count = self.holder.uid, self.holder.asked[request]
        for _ in range(self._tries):
            try:
                given = await pool.claim(
                    request, holder=uid, demand=self._demand, count=count, epoch=self._epoch
                )
                break
            except PoolExhausted:
                lost = request in self.holder.given
                invariant(not lost, "what is held is answered", request=request)
                if self._tries > 1:
                    await self._world.clock.sleep(5.0)
        else:
            del self.holder.asked[request]
            return
        known = self.holder.given.setdefault(request, tuple(given))
        invariant(known == tuple(given), "a request has the same machines", request=request)
        for name in given:
            held = await self.is_held(name)
            invariant(held, "what was claimed is the holder's", machine=name, holder=uid)
        if self._former is not None:
            with pytest.raises((StaleRequest, Died)):
                await self._former.claim(
                    "late", holder=uid, demand=self._demand, count=1, epoch=self._epoch - 1
                )

    async def release(self, pool: MachinePool) -> None:
        if self.holder.given:
            request = self._draw.choice(sorted(self.holder.given))
            names = self.holder.given.pop(request)
            del self.holder.asked[request]  # its controller needs it no more, released or not
            await pool.release(names, holder=self.holder.uid, epoch=self._epoch)

    async def end(self) -> None:
        """The last owner gives everything back, what came late included."""
        self._epoch += 1
        pool = self.pool(0.0)
        for _ in range(20):
            held = [name for name, uid in (await pool.holders()).items() if uid == self.holder.uid]
            await pool.release(held, holder=self.holder.uid, epoch=self._epoch)
            await self._world.clock.sleep(5.0)


class Judge:
    """Sees every write to a machine."""

    def __init__(self) -> None:
        self._holders: dict[str, str] = {}

    async def intercept(
        self, request: Request, handle: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        response = await handle(request)
        if request.method == "PATCH" and "/machines/" in request.path and response.status < 300:
            document = codec.decode_document(response.body)
            status, name = document.get("status") or {}, document["metadata"]["name"]
            uids = [status[key] for key in ("holderUID", "boundPodUID") if status.get(key)]
            before = self._holders.pop(name, "")
            if status.get("phase") == "Claimed":
                invariant(len(uids) == 1, "a claimed machine has one holder", machine=name)
                invariant(before in {"", uids[0]}, "a holder keeps its machine", machine=name)
                self._holders[name] = uids[0]
        return response


async def pods_come_and_go(world: MachineWorld, draw: Stream) -> None:
    for number in range(12):
        await world.add_pod(f"p{number}")
        await world.clock.sleep(draw.uniform(2.0, 20.0))
        await world.delete_pod(f"p{number}")
        await world.clock.sleep(draw.uniform(0.0, 5.0))
        if draw.integer(0, 5) == 0:
            await world.restart()


async def stays_within(world: MachineWorld, most: int) -> None:
    while True:
        invariant(len(world.running()) <= most, "a pool stays within its limit")
        await world.clock.sleep(1.0)


@pytest.mark.seeds(4)
async def test_machines_have_one_holder_at_a_time(seed: int, clock: Clock, log: Logger) -> None:
    async with machine_world(clock, Stream(seed), log) as world:
        draw = Stream(seed).fork("claims")
        standby = [{"instanceType": "small", "count": MACHINES}]
        await world.add_pool(cleaning="Wipe", standby=standby, timeouts={"idleSeconds": 60})
        await world.count(P.AVAILABLE, MACHINES)
        world.intercept = Judge().intercept
        owners = [Owners(world, uid, draw.fork(uid)) for uid in ("u-1", "u-2")]
        async with Nursery("holders") as nursery:
            for one in owners:
                nursery.start(one.run())
            nursery.start(pods_come_and_go(world, draw.fork("pods")))
        await world.clock.sleep(60.0)  # until the last late write
        for one in owners:
            await one.end()
        await world.count(P.CLAIMED, 0, limit_s=SETTLED_S)
        await world.count(P.AVAILABLE, MACHINES, limit_s=SETTLED_S)
        await world.client.delete(NODEPOOL, "p")
        await world.empty(limit_s=SETTLED_S)


@pytest.mark.seeds(4)
async def test_pool_without_standby_grows_within_its_limit(
    seed: int, clock: Clock, log: Logger
) -> None:
    async with machine_world(clock, Stream(seed), log) as world:
        draw = Stream(seed).fork("growth")
        limits = {"machines": MACHINES}
        await world.add_pool(cleaning="Wipe", limits=limits, timeouts={"idleSeconds": 20})
        await world.settle(1.0)
        world.intercept = Judge().intercept
        owners = [Owners(world, uid, draw.fork(uid), tries=12) for uid in ("u-1", "u-2")]
        within = world.nursery.start(stays_within(world, MACHINES))
        async with Nursery("holders") as nursery:
            for one in owners:
                nursery.start(one.run(share=0.05))
            nursery.start(pods_come_and_go(world, draw.fork("pods")))
        await world.clock.sleep(60.0)  # until the last late write
        for one in owners:
            await one.end()
        await owners[0].claim(owners[0].pool(0.0))
        invariant(bool(owners[0].holder.given), "a claim makes the pool grow")
        await owners[0].end()
        await world.empty(limit_s=SETTLED_S)
        invariant(not (await world.pool()).metadata.annotations, "no request is left")
        within.cancel()
