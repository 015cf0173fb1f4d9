"""A kube-apiserver that is killed in the middle of a rollout: our controllers add nothing to the outage.

The cluster is another user's: its kubelets report in their Leases that they live and no more, and its own
controllers take silent nodes for lost. When the server is back, and with it the nodes, the service has
its minimum again, and the rollout goes on.
"""

from dataclasses import replace

import pytest
from tests.sim.test_install_rbac import Cluster
from tests.sim.test_rollouts import MinimumIsKept, nodes_are_back, template

from grange.api.kinds import POD, REPLICATIONCONTROLLER, pod as pods
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.nodelifecycle.controller import NodeLifecycle
from grange.sim.faults import NetworkFaults
from grange.sim.pytest_plugin import EPOCH
from grange.sim.world import World, simulated

NODES, REPLICAS, MINIMUM = 5, 8, 7
OUTAGE_S = 60.0
ROLLOUT = {"maxUnavailable": 1, "maxSurge": 1, "minReadySeconds": 2}
# What is under way when the server is killed has no answer, whether it happened or not.
KILLED = NetworkFaults(latency_s=0.1, lose_request=0.3, lose_answer=0.3, answer_timeout_s=5.0)
SOON_S = 10.0


async def ready(world: World) -> int:
    live = (await world.client.list(POD)).items
    return sum(pods.is_ready(pod) and not pod.metadata.deletion_timestamp for pod in live)


async def updated(world: World, version: int) -> int:
    live = (await world.client.list(POD)).items
    return sum(pod.metadata.labels["version"] == str(version) for pod in live)


@pytest.mark.seeds(3)
async def test_outage_in_a_rollout_ends_with_the_server(seed: int, log: Logger) -> None:
    clock, rng = LoopClock(EPOCH), Stream(seed)
    judge = MinimumIsKept(clock)
    judge.breakable = True  # nodes are taken for lost; judged is what is taken on purpose
    async with simulated(clock=clock, rng=rng, log=log) as world:
        world.history.add(judge)
        cluster = Cluster(world, frozenset({"replication", "rollingupdate", "scheduler"}))
        world.add("kube-node-controller", NodeLifecycle)
        await cluster.populate(NODES)
        await cluster.create("web", REPLICAS, placement="Packed", rollout=ROLLOUT)
        await cluster.settled("web", REPLICAS)
        judge.minimum = {"web": MINIMUM}

        await cluster.change("web", template=template("web", 2))

        async def half_way() -> bool:
            return await updated(world, 2) >= REPLICAS // 2

        await cluster.until(half_way)
        world.network.faults = KILLED
        await clock.sleep(rng.uniform(0.2, 1.5))
        world.stop_server()
        world.network.faults = replace(NetworkFaults(), answer_timeout_s=KILLED.answer_timeout_s)
        await clock.sleep(OUTAGE_S)
        await world.start_server()

        await world.until(lambda: nodes_are_back(world), limit_s=60.0)

        async def has_minimum() -> bool:
            return await ready(world) >= MINIMUM

        assert await world.until(has_minimum, limit_s=60.0) <= SOON_S
        found = await world.client.get(REPLICATIONCONTROLLER, "web", "default")
        before = found.status.updated_replicas

        async def goes_on() -> bool:
            one = await world.client.get(REPLICATIONCONTROLLER, "web", "default")
            state = one.status.rollout
            over = state is not None and state.phase == "Complete"
            return over or one.status.updated_replicas > before

        assert await world.until(goes_on, limit_s=120.0) <= SOON_S + ROLLOUT["minReadySeconds"]
        await cluster.settled("web", REPLICAS, 2)
