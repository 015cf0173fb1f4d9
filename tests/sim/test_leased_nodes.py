"""The real scheduler and all controllers: nothing but its holder's pods lands on a leased machine."""

from functools import partial
from typing import Any

from tests.sim.test_rollouts import template

from grange.api.kinds import MACHINELEASE, NODE, POD, REPLICATIONCONTROLLER
from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.api.meta import Document
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.sim import builders, simulated_nodes
from grange.sim.pytest_plugin import EPOCH
from grange.sim.world import World, simulated

LEASED, FREE = "w0", "n0"


async def add_pod(world: World, name: str, **spec: Any) -> None:
    document = builders.pod_document(name, **spec)
    document["spec"]["containers"][0]["command"] = ["serve"]
    await world.client.create(POD, document, "default")


async def places(world: World) -> dict[str, str]:
    """Nodes of the pods that have one."""
    pods = (await world.client.list(POD)).items
    return {pod.metadata.name: pod.spec.node_name for pod in pods if pod.spec.node_name}


async def granted(world: World) -> bool:
    return (await world.client.get(MACHINELEASE, "a", "default")).status.phase == "Granted"


async def controller(world: World, name: str, replicas: int, placement: str) -> None:
    spec = {"replicas": replicas, "template": template(name, 1), "placement": placement}
    document: Document = {"metadata": {"name": name}, "spec": spec}
    await world.client.create(REPLICATIONCONTROLLER, document, "default")


async def test_only_the_holders_pods_land_on_a_leased_node(rng: Stream, log: Logger) -> None:
    async with simulated(clock=LoopClock(EPOCH), rng=rng, log=log) as world:
        simulated_nodes.add_node(world, LEASED, labels={"pool": "w"})
        simulated_nodes.add_node(world, FREE)
        await simulated_nodes.registered(world, 2)
        simulated_nodes.add_controllers(world)
        simulated_nodes.add_scheduler(world)
        spec = {"machines": [{"pool": "w", "count": 1}]}
        lease = await world.client.create(
            MACHINELEASE, {"metadata": {"name": "a"}, "spec": spec}, "default"
        )
        await world.until(partial(granted, world), limit_s=10.0)
        await add_pod(world, "pinned", nodeSelector={"pool": "w"})
        await add_pod(world, "free")
        await controller(world, "packed", 2, "Packed")
        await controller(world, "spread", 2, "OnePerNode")
        uid = lease.metadata.uid
        await add_pod(
            world,
            "holder",
            labels={MACHINE_LEASE: uid},
            nodeSelector={MACHINE_LEASE: uid},
            tolerations=[{"key": MACHINE_LEASE, "value": uid, "effect": "NoSchedule"}],
        )
        await world.clock.sleep(30.0)
        found = await places(world)
        assert {name for name, node in found.items() if node == LEASED} == {"holder"}
        assert found["free"] == FREE
        assert len([name for name in found if name.startswith("packed")]) == 2
        assert len([name for name in found if name.startswith("spread")]) == 1
        await world.client.delete(MACHINELEASE, "a", "default")
        await world.client.delete(POD, "holder", "default")

        async def used() -> bool:
            found = await places(world)
            spread = {node for name, node in found.items() if name.startswith("spread")}
            return found.get("pinned") == LEASED and spread == {LEASED, FREE}

        await world.until(used, limit_s=60.0)
        node = await world.client.get(NODE, LEASED)
        assert MACHINE_LEASE not in node.metadata.labels


async def test_a_service_has_leased_machines_for_itself(rng: Stream, log: Logger) -> None:
    """Its template names the lease; others keep away until the lease and its pods are gone."""
    async with simulated(clock=LoopClock(EPOCH), rng=rng, log=log) as world:
        for name in ("w0", "w1"):
            simulated_nodes.add_node(world, name, labels={"pool": "w"})
        simulated_nodes.add_node(world, FREE)
        await simulated_nodes.registered(world, 3)
        simulated_nodes.add_controllers(world)
        simulated_nodes.add_scheduler(world)
        lease = await world.client.create(
            MACHINELEASE,
            {"metadata": {"name": "a"}, "spec": {"machines": [{"pool": "w", "count": 2}]}},
            "default",
        )
        await world.until(partial(granted, world), limit_s=10.0)
        uid = lease.metadata.uid
        pods = template("mine", 1)
        pods["metadata"]["labels"][MACHINE_LEASE] = uid
        pods["spec"] |= {
            "nodeSelector": {MACHINE_LEASE: uid},
            "tolerations": [{"key": MACHINE_LEASE, "value": uid, "effect": "NoSchedule"}],
        }
        spec: Document = {"replicas": 2, "placement": "OnePerNode", "template": pods}
        document: Document = {"metadata": {"name": "mine"}, "spec": spec}
        await world.client.create(REPLICATIONCONTROLLER, document, "default")
        await controller(world, "spread", 3, "OnePerNode")
        await world.clock.sleep(30.0)
        found = await places(world)
        assert sorted(node for name, node in found.items() if name.startswith("mine")) == [
            "w0",
            "w1",
        ]
        assert [node for name, node in found.items() if name.startswith("spread")] == [FREE]
        await world.client.delete(MACHINELEASE, "a", "default")
        await world.clock.sleep(30.0)  # its pods hold the machines, whatever became of the lease
        assert len([name for name in await places(world) if name.startswith("spread")]) == 1
        await world.client.delete(REPLICATIONCONTROLLER, "mine", "default")

        async def used() -> bool:
            found = await places(world)
            spread = {node for name, node in found.items() if name.startswith("spread")}
            return spread == {"w0", "w1", FREE}

        await world.until(used, limit_s=60.0)
