"""What every pool of machines must do, with any implementation."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress

import pytest
from tests.support.machine_world import MachineWorld, machine_world
from tests.unit.controllers import builders

from grange.api.kinds import LEASEPOLICY
from grange.api.kinds.machine import DEDICATED_TAINT
from grange.api.machine_phases import MachinePhase
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.machinelease.controller import MachineLeaseController
from grange.controllers.replication.node_eligibility import AllocationRefused, NodeScheduler
from grange.machines.holders.lease_machines import LeaseMachines
from grange.machines.holders.node_pool_machines import NodePoolMachines
from grange.reconcile.machine_pool import MachinePool, PoolExhausted, StaleRequest, epoch_of
from grange.sim import builders as sim_builders
from grange.sim.simulated_pool import SimulatedPool

MakePool = Callable[[list[str]], Awaitable[MachinePool]]
TOLERANT = {"key": DEDICATED_TAINT, "operator": "Exists"}
TEMPLATE = {**builders.TEMPLATE, "spec": {**builders.TEMPLATE["spec"], "tolerations": [TOLERANT]}}
WEB = builders.controller("web", uid="u-web", template=TEMPLATE)
API = builders.controller("api", uid="u-api", template=TEMPLATE)


async def simulated(names: list[str], world: MachineWorld) -> MachinePool:
    return SimulatedPool(names)


async def of_node_pools(names: list[str], world: MachineWorld) -> MachinePool:
    """Available machines of a dedicated pool."""
    await world.add_pool(cleaning="Wipe", timeouts={"idleSeconds": 86_400})
    for name in names:
        await world.add_machine(name)
    await world.count(MachinePhase.AVAILABLE, len(names))
    deps = world.new_deps()
    pool = NodePoolMachines(deps)
    world.nursery.start(deps.informers.run())
    return pool


async def of_leases(names: list[str], world: MachineWorld) -> MachinePool:
    """Nodes of a pool whose machines the lease controller grants."""
    spec = {"replicationPools": ["spare"]}
    await world.client.create(LEASEPOLICY, {"metadata": {"name": "default"}, "spec": spec})
    for name in names:
        await sim_builders.create_node(world.client, name, labels={"pool": "spare"})
        await world.set_ready(name, ready=True)
    deps, controllers = world.new_deps(), world.new_deps()
    world.start(MachineLeaseController(controllers))
    pool = LeaseMachines(deps)
    for one in (deps, controllers):
        world.nursery.start(one.informers.run())
    return pool


@pytest.fixture(
    params=[simulated, of_node_pools, of_leases], ids=["simulated", "node pools", "leases"]
)
async def make(
    request: pytest.FixtureRequest, clock: Clock, rng: Stream, log: Logger
) -> AsyncIterator[MakePool]:
    """Makes a pool of machines with these names."""
    async with machine_world(clock, rng, log) as world:
        yield lambda names: request.param(names, world)


async def test_what_is_allocated_belongs_to_its_holder(make: MakePool) -> None:
    pool = await make(["b", "a", "c"])
    assert await pool.claim("r1", holder="u-web", demand=WEB, count=2, epoch=1) == ("a", "b")
    assert await pool.holders() == {"a": "u-web", "b": "u-web", "c": ""}


async def test_the_same_request_gets_the_same_machines(make: MakePool) -> None:
    pool = await make(["a", "b"])
    first = await pool.claim("r1", holder="u-web", demand=WEB, count=1, epoch=1)
    assert await pool.claim("r1", holder="u-web", demand=WEB, count=1, epoch=1) == first
    other = await pool.claim("r2", holder="u-web", demand=WEB, count=1, epoch=1)
    assert set(other).isdisjoint(first)


async def test_all_machines_or_none_are_allocated(make: MakePool) -> None:
    pool = await make(["a", "b"])
    with pytest.raises(PoolExhausted, match="wanted"):
        await pool.claim("r1", holder="u-web", demand=WEB, count=3, epoch=1)
    assert await pool.holders() == {"a": "", "b": ""}
    assert await pool.claim("r1", holder="u-web", demand=WEB, count=2, epoch=1) == ("a", "b")


async def in_time(claim: Callable[[], Awaitable[Sequence[str]]], clock: Clock) -> Sequence[str]:
    """What is claimed once a machine that was released can be had again: it may be wiped before."""
    for _ in range(60):
        with suppress(PoolExhausted):
            return await claim()
        await clock.sleep(1.0)
    return await claim()


async def test_only_the_holder_releases_and_it_may_do_so_twice(
    make: MakePool, clock: Clock
) -> None:
    pool = await make(["a"])
    await pool.claim("r1", holder="u-web", demand=WEB, count=1, epoch=1)
    await pool.release(["a", "unknown"], holder="u-api", epoch=1)
    assert await pool.holders() == {"a": "u-web"}
    for _ in range(2):
        await pool.release(["a"], holder="u-web", epoch=1)
        assert await pool.holders() == {"a": ""}
    given = await in_time(
        lambda: pool.claim("r1", holder="u-api", demand=API, count=1, epoch=1), clock
    )
    assert given == ("a",)


async def test_a_machine_is_eligible_for_its_holder_alone(make: MakePool, clock: Clock) -> None:
    pool = await make(["m1", "m2"])
    there = [builders.node(name) for name in ("m1", "m2", "own")]
    scheduler = NodeScheduler(there, pool, clock=clock)
    assert (await scheduler.eligible_nodes())(WEB) == ["own"]
    assert await scheduler.allocate_nodes(WEB, 1, request_id="t1") == ("m1",)
    assert (await scheduler.eligible_nodes())(WEB) == ["m1", "own"]
    assert (await scheduler.eligible_nodes())(API) == ["own"]
    with pytest.raises(AllocationRefused, match="wanted"):
        await scheduler.allocate_nodes(API, 2, request_id="t2")
    await scheduler.deallocate_nodes(WEB, ["m1", "own"])
    assert (await scheduler.eligible_nodes())(WEB) == ["own"]


async def test_a_request_of_an_earlier_owner_changes_nothing(make: MakePool) -> None:
    """The pool cannot know who owns a holder; it knows who has spoken for it last."""
    pool = await make(["a", "b"])
    await pool.claim("r1", holder="u-web", demand=WEB, count=1, epoch=7)
    for request in ("r1", "r2"):
        with pytest.raises(StaleRequest, match="6"):
            await pool.claim(request, holder="u-web", demand=WEB, count=1, epoch=6)
    with pytest.raises(StaleRequest):
        await pool.release(["a"], holder="u-web", epoch=6)
    assert await pool.holders() == {"a": "u-web", "b": ""}
    assert await pool.claim("r1", holder="u-web", demand=WEB, count=1, epoch=7) == ("a",)
    await pool.release(["a"], holder="u-web", epoch=9)
    with pytest.raises(StaleRequest):
        await pool.claim("r3", holder="u-web", demand=WEB, count=1, epoch=8)
    assert await pool.holders() == {"a": "", "b": ""}


async def test_epochs_of_one_holder_do_not_bind_another(make: MakePool) -> None:
    pool = await make(["a", "b"])
    await pool.claim("r1", holder="u-web", demand=WEB, count=1, epoch=7)
    assert await pool.claim("r2", holder="u-api", demand=API, count=1, epoch=3) == ("b",)


async def test_a_request_that_cannot_be_met_counts_as_received(make: MakePool) -> None:
    pool = await make(["a"])
    with pytest.raises(PoolExhausted):
        await pool.claim("r1", holder="u-web", demand=WEB, count=2, epoch=7)
    with pytest.raises(StaleRequest):
        await pool.claim("r0", holder="u-web", demand=WEB, count=1, epoch=6)


def test_the_epoch_is_the_version_that_was_decided_on() -> None:
    assert epoch_of("41") < epoch_of("42")
    assert epoch_of("") == epoch_of("opaque") == 0
