"""Where services go that ask for no place: spread over nodes and zones, and all on one if need be."""

from collections import Counter
from typing import Any

import pytest
from tests.sim.test_replication import kept, service

from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.sim import simulated_nodes
from grange.sim.pytest_plugin import EPOCH
from grange.sim.world import World, simulated

ZONE = "topology.kubernetes.io/zone"


def unplaced(name: str, replicas: int) -> dict[str, Any]:
    document = service(name, replicas)
    del document["spec"]["placement"]
    return document


async def populated(world: World, zones: dict[str, str]) -> None:
    for name, zone in zones.items():
        labels = {ZONE: zone} if zone else {}
        capacity = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        simulated_nodes.add_node(world, name, labels=labels, capacity=capacity)
    simulated_nodes.add_controllers(world)
    simulated_nodes.add_scheduler(world)
    await simulated_nodes.registered(world, len(zones))


async def nodes_of_pods(world: World) -> Counter[str]:
    return Counter(pod.spec.node_name for pod in (await world.client.list(POD)).items)


async def test_three_replicas_run_on_a_single_node(rng: Stream, log: Logger) -> None:
    async with simulated(clock=LoopClock(EPOCH), rng=rng, log=log) as world:
        await populated(world, {"n0": ""})
        await world.client.create(REPLICATIONCONTROLLER, unplaced("web", 3), "default")
        await world.until(lambda: kept(world, {"web": 3}), limit_s=10)
        assert await nodes_of_pods(world) == {"n0": 3}


@pytest.mark.parametrize("zoned", [False, True])
async def test_replicas_are_spread_over_nodes_and_zones(
    zoned: bool, rng: Stream, log: Logger
) -> None:
    zones = {"a0": "a", "a1": "a", "a2": "a", "b0": "b"}
    async with simulated(clock=LoopClock(EPOCH), rng=rng, log=log) as world:
        await populated(world, zones if zoned else dict.fromkeys(zones, ""))
        await world.client.create(REPLICATIONCONTROLLER, unplaced("web", 4), "default")
        await world.until(lambda: kept(world, {"web": 4}), limit_s=10)
        found = await nodes_of_pods(world)
        if zoned:
            by_zone = Counter({"a": 0, "b": 0})
            for name, count in found.items():
                by_zone[zones[name]] += count
            assert by_zone["b"] >= 1
        else:
            assert found == dict.fromkeys(zones, 1)
