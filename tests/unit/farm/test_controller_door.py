"""A controller of any kind is one package and one line: an example is shared by two members."""

from collections import Counter
from dataclasses import dataclass
from functools import partial

from grange.api.kinds import CONFIGMAP
from grange.api.kinds.configmap import ConfigMap
from grange.api.meta import ObjectKey
from grange.app.manager import Manager
from grange.base.backoff import Exponential, FailureLimiter, TokenBucket
from grange.base.clock import Clock
from grange.base.tasks import Nursery
from grange.controllers.sharded import SHARDED, ShardedController
from grange.machines.holders.combined_pool import CombinedMachinePool
from grange.reconcile.controller import Controller, Done, Result
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.machine_pool import MachinePool
from grange.reconcile.workqueue import WorkQueue
from grange.sim.world import World

NAMES = [f"greeting-{number}" for number in range(8)]


class Greeter:
    """Adds a greeting to each ConfigMap."""

    def __init__(self, deps: Deps) -> None:
        self._client = deps.client
        self._informer = deps.informers.informer(CONFIGMAP)
        self.greeted: Counter[str] = Counter()
        limiter = FailureLimiter(
            exponential=Exponential(0.05, 5.0), bucket=TokenBucket(rate_per_s=100.0, burst=100)
        )
        self.loop = Controller(
            "greeter",
            self.reconcile,
            queue=WorkQueue(deps.clock, limiter),
            workers=2,
            clock=deps.clock,
            rng=deps.rng,
            log=deps.log,
            metrics=deps.metrics,
        )

    async def reconcile(self, key: ObjectKey) -> Result:
        found = self._informer.store.get(key)
        if found is not None and key.namespace == "default" and "greeting" not in found.data:
            self.greeted[key.name] += 1
            patch = {"data": {"greeting": "hello"}}
            await self._client.patch(CONFIGMAP, key.name, key.namespace, patch=patch)
        return Done()

    async def run(self) -> None:
        await self.loop.run()


@dataclass
class Process:
    """One member of the farm that runs the example."""

    deps: Deps
    name: str
    greeters: list[Greeter]

    async def run(self) -> None:
        def create(deps: Deps) -> Greeter:
            self.greeters.append(Greeter(deps))
            return self.greeters[-1]

        example: ShardedController[ConfigMap] = ShardedController(CONFIGMAP, create)
        manager = Manager(
            FarmConfig(member=self.name),
            lambda _: self.deps,
            frozenset({"greeter"}),
            sharded={**SHARDED, "greeter": example},
        )
        async with Nursery(self.name) as nursery:
            for runnable in manager.runnables():
                nursery.start(runnable.run(), name=runnable.name)


async def test_controller_of_any_kind_is_shared(world: World, clock: Clock) -> None:
    """What docs/explanation/architecture.md promises for a controller."""
    for name in NAMES:
        await world.client.create(CONFIGMAP, {"metadata": {"name": name}}, "default")
    greeters: list[Greeter] = []
    for member in ("a", "b"):
        world.add(member, partial(Process, name=member, greeters=greeters))
    await clock.sleep(30.0)
    found = {
        item.metadata.name: item.data.get("greeting")
        for item in (await world.client.list(CONFIGMAP, "default")).items
    }
    assert {name: found[name] for name in NAMES} == dict.fromkeys(NAMES, "hello")
    assert sum((one.greeted for one in greeters), Counter()) == Counter(NAMES)
    assert all(one.greeted for one in greeters), "both members have a share"


class Borrower(Greeter):
    """The same with nodes from a pool of machines."""

    def __init__(self, deps: Deps, pool: MachinePool) -> None:
        super().__init__(deps)
        self.pool = pool


@dataclass
class BorrowingProcess:
    """One member of the farm that runs it."""

    deps: Deps
    borrowers: list[Borrower]

    async def run(self) -> None:
        def create_with_pool(deps: Deps, pool: MachinePool) -> Borrower:
            self.borrowers.append(Borrower(deps, pool))
            return self.borrowers[-1]

        example: ShardedController[ConfigMap] = ShardedController(
            CONFIGMAP, Greeter, create_with_pool
        )
        Manager(
            FarmConfig(member="a"),
            lambda _: self.deps,
            frozenset({"borrower"}),
            sharded={"borrower": example},
        )


async def test_controller_with_a_pool_gets_all_machines(world: World, clock: Clock) -> None:
    borrowers: list[Borrower] = []
    world.add("a", partial(BorrowingProcess, borrowers=borrowers))
    await clock.sleep(1.0)
    assert [type(one.pool) for one in borrowers] == [CombinedMachinePool]
    assert SHARDED["replication"].create_with_pool is not None
