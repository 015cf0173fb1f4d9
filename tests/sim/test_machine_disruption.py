"""The node controller dies before, after or in the middle of its requests while it replaces a shared machine.

The machine is drifted, or its provider takes it away. Its pods have a PodDisruptionBudget, a controller that
makes them again, and a scheduler. One of them runs at any time; each is bound once; in the end they run on a
machine of the new template, or another one, and no instance, record or node is left behind.
"""

from functools import cache
from itertools import count
from math import gcd

import pytest
from tests.sim.machine_trouble import SIDES, TroubledWorld, troubled_world
from tests.sim.test_machines import everything_ends

from grange.api.bindings import Binding
from grange.api.kinds import NODE, NODEPOOL, POD, PODDISRUPTIONBUDGET
from grange.api.kinds.node import is_ready
from grange.api.kinds.pod import Pod
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Document
from grange.base.clock import LoopClock
from grange.base.errors import invariant
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.disruption.controller import DisruptionController
from grange.machines.disruption.disruption_progress import is_tainted
from grange.reconcile.deps import Deps
from grange.reconcile.informer import InformerFactory
from grange.sim import builders, runner
from grange.sim.pytest_plugin import EPOCH

REPLICAS = 2
SETTLED_S = 1200.0
NOTICE_S = 120.0
CAUSES = ("drifted", "interrupted")
_UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


class Workload:
    """The controller, the scheduler and the agents of a few pods.

    Attributes:
        replicas: how many there are to be.
    """

    def __init__(self, world: TroubledWorld) -> None:
        self._world, self._numbers, self._complete = world, count(), False
        self.replicas = REPLICAS

    async def run(self) -> None:
        while True:
            await self._step()
            await self._world.clock.sleep(1.0)

    async def _step(self) -> None:
        client = self._world.client
        pods = (await client.list(POD)).items
        for pod in pods:
            if pod.metadata.deletion_timestamp is not None or self.replicas == 0:
                await self._world.delete_pod(pod.metadata.name)
        left = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
        runs = sum(bool(pod.spec.node_name) for pod in left)
        self._complete = self.replicas > 0 and (self._complete or runs == self.replicas)
        invariant(runs > 0 or not self._complete, "a pod of the workload runs at any time")
        for _ in range(self.replicas - len(left)):
            await self._create(f"w{next(self._numbers)}")
        nodes = {node.metadata.name: node for node in (await client.list(NODE)).items}
        open_nodes = [
            name
            for name, node in sorted(nodes.items())
            if is_ready(node) and not node.spec.taints and not is_tainted(node)
        ]
        for pod in left:
            if not pod.spec.node_name:
                await self._place(pod, open_nodes)

    async def _create(self, name: str) -> None:
        document = builders.pod_document(
            name, labels={"app": "w"}, requests={"cpu": "1500m"}, terminationGracePeriodSeconds=5
        )
        owner = {"apiVersion": "v1", "kind": "ReplicationController", "name": "rc", "uid": "u-rc"}
        document["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        await self._world.client.create(POD, document, "default")

    async def _place(self, pod: Pod, nodes: list[str]) -> None:
        client, meta = self._world.client, pod.metadata
        status: Document = {"phase": "Pending", "conditions": [_UNSCHEDULABLE]}
        if nodes:
            await client.bind([Binding(meta.namespace, meta.name, meta.uid, nodes[0])])
            ready = {"type": "Ready", "status": "True"}
            status = {"phase": "Running", "conditions": [ready]}
        await client.patch(
            POD, meta.name, "default", patch={"status": status}, subresource="status"
        )


async def replacement(world: TroubledWorld, cause: str) -> None:
    """Pods get a shared machine, which is replaced; then nothing is left."""
    client, clock, log = (
        world.client,
        world.clock,
        world.log,
    )  # none that the machines' controller dies of
    informers = InformerFactory(client, clock=clock, rng=world.rng, log=log)
    deps = Deps(client, informers, clock, world.rng, log, world.registry)
    world.nursery.start(informers.run())
    world.nursery.start(DisruptionController(deps).run())
    workload = Workload(world)
    world.poll_s = 1.0
    await world.add_pool(
        mode="Packed",
        instanceTypes=["medium"],
        disruption={"budgets": [{"nodes": "100%"}]},
        template={"labels": {"version": "1"}},
    )
    budget: Document = {
        "metadata": {"name": "pdb", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "w"}}},
    }
    await world.client.create(PODDISRUPTIONBUDGET, budget, "default")
    world.nursery.start(workload.run())

    async def run_elsewhere(than: str) -> bool:
        pods = (await world.client.list(POD)).items
        live = {one.metadata.name for one in await world.live()} - {than}
        on = {pod.spec.node_name for pod in pods}
        return len(pods) == REPLICAS and on <= live

    await world.until(lambda: run_elsewhere(""), limit_s=SETTLED_S)
    await world.count(MachinePhase.AVAILABLE, 1, limit_s=SETTLED_S)
    (machine,) = await world.machines(MachinePhase.AVAILABLE)
    name = machine.metadata.name
    if cause == "drifted":
        patch = {"spec": {"template": {"labels": {"version": "2"}}}}
        await world.client.patch(NODEPOOL, "p", patch=patch)
    else:
        world.cloud.interrupt(world.cloud.instances[name].instance.id, NOTICE_S)
    await world.until(lambda: run_elsewhere(name), limit_s=SETTLED_S)
    await world.until(lambda: world.is_gone(name), limit_s=SETTLED_S)
    workload.replicas = 0
    await everything_ends(world)


@cache
def requests(cause: str) -> int:
    """How many requests and calls the replacement takes, without any death."""

    async def run() -> int:
        async with troubled_world(LoopClock(EPOCH), Stream(0), Logger("scenario")) as world:
            await replacement(world, cause)
            assert world.cloud.launches == 2
            return len(world.asked)

    return runner.run(run())


@pytest.mark.seeds(8)
@pytest.mark.parametrize("cause", CAUSES)
def test_controller_may_die_while_it_replaces(cause: str, seed: int, log: Logger) -> None:
    """Each seed is another request and another side of it; those that follow each other are far apart."""
    size = requests(cause) * len(SIDES)
    stride = next(n for n in range(int(size * 0.618), 2 * size) if gcd(n, size) == 1)
    at, side = divmod(seed * stride % size, len(SIDES))

    async def run() -> None:
        async with troubled_world(LoopClock(EPOCH), Stream(seed), log) as world:
            world.doom.left, world.doom.side = at, SIDES[side]
            await replacement(world, cause)
            assert world.cloud.launches <= 4

    runner.run(run())
