"""Whole processes of controllers and scheduler, several on one API: they share, die and take over."""

from contextlib import suppress

import pytest
from tests.sim.test_replication import BAD_NETWORK, MOST, NODES, crashes, kept, service

from grange.api.farm_protocol import OWNER_ANNOTATION
from grange.api.kinds import LEASE, REPLICATIONCONTROLLER
from grange.api.status import ApiError
from grange.app.manager import Manager
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery, supervise
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.farm.leases import Token
from grange.sim import simulated_nodes
from grange.sim.chaos import Chaos
from grange.sim.pytest_plugin import EPOCH, Records
from grange.sim.skewed_clock import SkewedClock
from grange.sim.world import World, simulated

MANAGERS = ("one", "two", "three")


class Process:
    """What ``grange controllers`` runs."""

    def __init__(self, deps: Deps, name: str) -> None:
        self._deps = deps
        self._manager = Manager(FarmConfig(member=name), lambda _: deps)

    async def run(self) -> None:
        async with Nursery("process") as nursery:
            for role in self._manager.runnables():
                clock, log = self._deps.clock, self._deps.log
                nursery.start(supervise(role.name, role.run, clock=clock, log=log))


def start(world: World, name: str, rng: Stream) -> None:
    clock = SkewedClock(
        world.clock, offset_s=rng.uniform(-600, 600), drift=rng.uniform(-0.02, 0.02)
    )
    world.add(name, lambda deps: Process(deps, name), clock=clock)


async def bearers(world: World) -> dict[str, str]:
    """Each service with the member that its object names."""
    listed = await world.client.list(LEASE, "kube-system", labels="grange.dev/service")
    found = {}
    for lease in listed.items:
        token = Token.parse(lease.metadata.annotations.get(OWNER_ANNOTATION, ""))
        found[lease.metadata.labels["grange.dev/service"]] = token.member if token else ""
    return found


@pytest.mark.seeds(2)
async def test_managers_share_work_and_survive_faults(
    seed: int, log: Logger, records: Records
) -> None:
    clock, rng = LoopClock(EPOCH), Stream(seed)
    async with simulated(clock=clock, rng=rng, log=log, faults=BAD_NETWORK) as world:
        machines = {
            name: simulated_nodes.add_node(
                world, name, capacity={"cpu": "8", "memory": "64Gi", "pods": "110"}
            )
            for name in (f"n{number}" for number in range(NODES))
        }
        for name in MANAGERS:
            start(world, name, rng.fork(name))
        await simulated_nodes.registered(world, NODES)
        draw = rng.fork("wishes")
        for number in range(3):
            document = service(f"s{number}", draw.integer(0, MOST), placement="Packed")
            await world.client.create(REPLICATIONCONTROLLER, document, "default")

        async def scale() -> None:
            spec = {"replicas": draw.integer(0, MOST)}
            name = f"s{draw.integer(0, 2)}"
            with suppress(ApiError):
                await world.client.patch(
                    REPLICATIONCONTROLLER, name, "default", patch={"spec": spec}
                )

        chaos = Chaos(world, machines, rng=rng.fork("chaos"))
        chaos.disturbances += [scale, scale, chaos.delete_pod]
        await chaos.run(200)
        await chaos.restore()
        listing = await world.client.list(REPLICATIONCONTROLLER)
        wanted = {one.metadata.name: one.spec.replicas for one in listing.items}
        await world.until(lambda: kept(world, wanted), limit_s=900)
        await clock.sleep(120)
        await world.until(lambda: kept(world, wanted), limit_s=300)
        restless = [line for line in await world.fixed_point(200) if "/core/nodes/" not in line]
        assert restless == []
        held = await bearers(world)
        assert len(held) >= 4
        assert set(held.values()) == set(MANAGERS), (
            "all have something to do, and nothing is left over"
        )
    assert crashes(records) == []
