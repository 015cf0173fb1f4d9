"""Replicated services under faults: the controller, the scheduler and the agents together."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.sim.users import Users

from grange.agent.runtimes.fake import FakeMachine
from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.meta import Document, controller_of
from grange.api.status import ApiError
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.sim import simulated_nodes
from grange.sim.chaos import Chaos
from grange.sim.faults import NetworkFaults
from grange.sim.pytest_plugin import EPOCH, Records
from grange.sim.skewed_clock import SkewedClock
from grange.sim.world import World, simulated
from grange.store.interface import Store
from grange.store.sqlite import SQLiteStore
from grange.store.store_settings import Lanes

BAD_NETWORK = NetworkFaults(
    latency_s=0.05, lose_request=0.02, lose_answer=0.02, cut_stream=0.03, repeat_chunk=0.02
)
NODES = 4
ROOMY, TIGHT = "8", "3"  # CPUs of a node; every pod asks for one
MOST = 6  # replicas of a packed service: two of them fill tight nodes to the last CPU


def service(name: str, replicas: int, **spec: Any) -> Document:
    container = {
        "name": "main",
        "command": ["serve"],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "template": template, "placement": "OnePerNode", **spec},
    }


async def populate(world: World, rng: Stream, cpus: str = ROOMY) -> dict[str, FakeMachine]:
    machines = {}
    for number in range(NODES):
        name = f"n{number}"
        inner = world.clock_of(f"agent-{name}")
        offset_s, drift = rng.uniform(-30, 30), rng.uniform(-1e-3, 1e-3)
        clock = SkewedClock(inner, offset_s=offset_s, drift=drift)
        capacity = {"cpu": cpus, "memory": "64Gi", "pods": "110"}
        machines[name] = simulated_nodes.add_node(world, name, capacity=capacity, clock=clock)
    simulated_nodes.add_controllers(world)
    simulated_nodes.add_scheduler(world)
    await simulated_nodes.registered(world, NODES)
    return machines


async def kept(world: World, wanted: dict[str, int]) -> bool:
    """Whether every controller has exactly its pods, all Ready, and nothing else exists."""
    try:
        controllers = (await world.client.list(REPLICATIONCONTROLLER)).items
        pods = (await world.client.list(POD)).items
    except ApiError:
        return False
    for controller in controllers:
        status, replicas = controller.status, wanted[controller.metadata.name]
        if status.ready_replicas != replicas or status.replicas != replicas:
            return False
        if status.observed_generation != controller.metadata.generation:
            return False
    owners = [owner.name for pod in pods if (owner := controller_of(pod.metadata)) is not None]
    return {name: owners.count(name) for name in wanted} == wanted and len(pods) == len(owners)


async def test_service_comes_up_on_a_good_network(log: Logger) -> None:
    clock, rng = LoopClock(EPOCH), Stream(0)
    async with simulated(clock=clock, rng=rng, log=log) as world:
        machines = await populate(world, rng)
        await world.client.create(REPLICATIONCONTROLLER, service("web", 3), "default")
        took_s = await world.until(lambda: kept(world, {"web": 3}), limit_s=30)
        assert took_s < 5
        nodes = [name for name, machine in machines.items() if simulated_nodes.running(machine)]
        assert len(nodes) == 3


async def test_spread_and_packed_services_survive_faults(
    seed: int, log: Logger, records: Records
) -> None:
    await survive(seed, log, {"web": "OnePerNode", "heap": "Packed"}, ROOMY)
    assert crashes(records) == []


async def test_services_that_fill_every_node_survive_faults(
    seed: int, log: Logger, records: Records
) -> None:
    await survive(seed, log, {"heap": "Packed", "pile": "Packed"}, TIGHT)
    assert crashes(records) == []


def crashes(records: Records) -> list[dict[str, object]]:
    """Faults are no excuse for a service to fail in a way that it did not foresee."""
    return [facts for event, facts in records if event == "service crashed"]


async def test_services_survive_on_the_store_with_a_disk(
    log: Logger, records: Records, tmp_path: Path
) -> None:
    """Most worlds keep things in memory; the store that ships must do as well."""
    store = await SQLiteStore.open(tmp_path / "store", log=log, lanes=Lanes.inline())
    await survive(0, log, {"web": "OnePerNode", "heap": "Packed"}, ROOMY, store)
    assert crashes(records) == []


async def survive(
    seed: int, log: Logger, placements: dict[str, str], cpus: str, store: Store | None = None
) -> None:
    """Two services among all faults; afterwards exactly their pods run, and nothing moves."""
    clock, rng = LoopClock(EPOCH), Stream(seed)
    most = {"OnePerNode": NODES, "Packed": MOST}
    async with simulated(clock=clock, rng=rng, log=log, faults=BAD_NETWORK, store=store) as world:
        machines = await populate(world, rng.fork("nodes"), cpus)
        draw = rng.fork("wishes")
        for name, placement in placements.items():
            replicas = draw.integer(1, most[placement])
            document = service(name, replicas, placement=placement)
            await world.client.create(REPLICATIONCONTROLLER, document, "default")

        async def scale() -> None:
            name = draw.choice(list(placements))
            spec = {"replicas": draw.integer(0, most[placements[name]])}
            with suppress(ApiError):  # the server is away: the wish stays what it was
                await world.client.patch(
                    REPLICATIONCONTROLLER, name, "default", patch={"spec": spec}
                )

        users = Users(world, rng.fork("users"), tuple(placements))
        troubles = [Chaos(world, machines, rng=rng.fork(f"chaos.{n}")) for n in range(2)]
        async with Nursery() as nursery:
            for chaos in troubles:
                chaos.disturbances += [scale, scale, chaos.delete_pod]
                chaos.add_some([*chaos.rare, users.create_again], rng.fork("rare"))
                nursery.start(chaos.run(240))
        await troubles[0].restore()
        listing = await world.client.list(REPLICATIONCONTROLLER)
        wanted = {one.metadata.name: one.spec.replicas for one in listing.items}
        await world.until(lambda: kept(world, wanted), limit_s=900)
        await clock.sleep(
            120 + troubles[0].deaf_s
        )  # news that is on its way may unsettle it once more
        await world.until(lambda: kept(world, wanted), limit_s=300)
        restless = [line for line in await world.fixed_point(200) if "/core/nodes/" not in line]
        assert restless == []
        pods = {pod.metadata.uid for pod in (await world.client.list(POD)).items}
        assert {uid for machine in machines.values() for uid in machine.pods} == pods
