"""Rollouts, scaling and evictions together: a disruption budget is the one account of all of them.

Programs and machines do not fail, so every pod that stops being ready was taken on purpose: by the
controller, or by a user who evicts. Neither the controller's own minimum nor the budget's is broken.
Where there is no budget, evictions ask the controller's minimum.
"""

from contextlib import suppress

import pytest
from tests.sim.test_rollouts import MinimumIsKept, controller, patched, settled, template

from grange.api.kinds import POD, PODDISRUPTIONBUDGET, REPLICATIONCONTROLLER
from grange.api.kinds.transfer_status import DRAINED_NODES
from grange.api.meta import Document
from grange.api.status import ApiError, TooManyRequests
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.sim import simulated_nodes
from grange.sim.faults import NetworkFaults
from grange.sim.pytest_plugin import EPOCH
from grange.sim.world import World, simulated

NODES = 8
REPLICAS, MINIMUM = 6, 5
SLOW = NetworkFaults(latency_s=0.3)
ROLLOUT: Document = {"maxUnavailable": 1, "maxSurge": 0, "progressDeadlineSeconds": 3600}


async def started(world: World, placement: str, **budget: object) -> None:
    for number in range(NODES):
        capacity = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        simulated_nodes.add_node(world, f"n{number}", capacity=capacity)
    simulated_nodes.add_controllers(world)
    simulated_nodes.add_scheduler(world)
    await simulated_nodes.registered(world, NODES)
    document = controller("web", REPLICAS, placement=placement, rollout=ROLLOUT)
    await world.client.create(REPLICATIONCONTROLLER, document, "default")
    await world.until(lambda: settled(world, "web", 1), limit_s=300)
    if budget:
        spec = {"selector": {"matchLabels": {"app": "web"}}, **budget}
        document = {"metadata": {"name": "web"}, "spec": spec}
        await world.client.create(PODDISRUPTIONBUDGET, document, "default")
    await world.clock.sleep(5.0)


async def evict(world: World, draw: Stream, seconds: float, granted: list[str]) -> None:
    """A user evicts one pod after another, as far as it is allowed."""
    until = world.clock.monotonic() + seconds
    while world.clock.monotonic() < until:
        await world.clock.sleep(draw.uniform(0.0, 2.0))
        live = (await world.client.list(POD)).items
        if not live:
            continue
        name = draw.choice(live).metadata.name
        with suppress(TooManyRequests, ApiError):
            await world.client.post(POD, name, "default", "eviction", {"metadata": {"name": name}})
            granted.append(name)


@pytest.mark.seeds(2)
@pytest.mark.parametrize("budget", [{"minAvailable": MINIMUM}, {}], ids=["budget", "none"])
@pytest.mark.parametrize("placement", ["OnePerNode", "Packed"])
async def test_rollouts_and_evictions_keep_both_minimums(
    placement: str, budget: dict[str, int], seed: int, log: Logger
) -> None:
    clock, rng = LoopClock(EPOCH), Stream(seed)
    judge = MinimumIsKept(clock)
    async with simulated(clock=clock, rng=rng, log=log, faults=SLOW) as world:
        world.history.add(judge)
        await started(world, placement, **budget)
        judge.minimum = {"web": MINIMUM}
        granted: list[str] = []
        async with Nursery() as nursery:
            nursery.start(evict(world, rng.fork("evictions"), 60.0, granted))
            for version in (2, 3):
                await patched(world, "web", template=template("web", version))
                left: Document = {"metadata": {"annotations": {DRAINED_NODES: f"n{version}"}}}
                await world.client.patch(REPLICATIONCONTROLLER, "web", "default", patch=left)
                await clock.sleep(30.0)
        assert granted, "evictions are allowed, too"
        await world.until(lambda: settled(world, "web", 3), limit_s=300)


async def test_scaling_down_below_a_budget_is_done(rng: Stream, log: Logger) -> None:
    """A budget that wants more pods than are asked for cannot be kept, and holds nothing up."""
    clock = LoopClock(EPOCH)
    async with simulated(clock=clock, rng=rng, log=log) as world:
        await started(world, "Packed", minAvailable=MINIMUM)
        await patched(world, "web", replicas=2)
        await world.until(lambda: settled(world, "web", 1), limit_s=60)
        assert len((await world.client.list(POD)).items) == 2


async def test_rollout_waits_for_a_budget_that_allows_nothing(rng: Stream, log: Logger) -> None:
    """And reports it; it goes on as soon as the budget does."""
    clock = LoopClock(EPOCH)
    async with simulated(clock=clock, rng=rng, log=log) as world:
        await started(world, "OnePerNode", minAvailable=REPLICAS)
        before = {pod.metadata.uid for pod in (await world.client.list(POD)).items}
        await patched(world, "web", template=template("web", 2))
        await clock.sleep(60.0)
        assert before == {pod.metadata.uid for pod in (await world.client.list(POD)).items}
        found = await world.client.get(REPLICATIONCONTROLLER, "web", "default")
        stated = {item.type: item for item in found.status.conditions}["Reconciled"]
        assert stated.reason == "DisruptionBudget"
        assert "PodDisruptionBudget web" in stated.message
        less: Document = {"spec": {"minAvailable": MINIMUM}}
        await world.client.patch(PODDISRUPTIONBUDGET, "web", "default", patch=less)
        await world.until(lambda: settled(world, "web", 2), limit_s=60)


async def test_rollout_keeps_both_of_two_budgets(seed: int, log: Logger) -> None:
    """No server evicts a pod that two budgets cover; others are evicted under one of them meanwhile."""
    clock, rng = LoopClock(EPOCH), Stream(seed)
    judge = MinimumIsKept(clock)
    async with simulated(clock=clock, rng=rng, log=log, faults=SLOW) as world:
        world.history.add(judge)
        await started(world, "Packed", minAvailable=MINIMUM)
        for pod in (await world.client.list(POD)).items[:3]:
            change = {"metadata": {"labels": {"half": "yes"}}}
            await world.client.patch(POD, pod.metadata.name, "default", patch=change)
        spec: Document = {"minAvailable": 0, "selector": {"matchLabels": {"half": "yes"}}}
        await world.client.create(
            PODDISRUPTIONBUDGET, {"metadata": {"name": "half"}, "spec": spec}, "default"
        )
        await clock.sleep(5.0)
        judge.minimum = {"web": MINIMUM}
        granted: list[str] = []
        async with Nursery() as nursery:
            nursery.start(evict(world, rng.fork("evictions"), 30.0, granted))
            await patched(world, "web", template=template("web", 2))
        await world.until(lambda: settled(world, "web", 2), limit_s=300)
        assert granted


async def test_rollout_waits_for_the_stricter_of_two_budgets(rng: Stream, log: Logger) -> None:
    clock = LoopClock(EPOCH)
    async with simulated(clock=clock, rng=rng, log=log) as world:
        await started(world, "Packed", minAvailable=REPLICAS)
        spec: Document = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        await world.client.create(
            PODDISRUPTIONBUDGET, {"metadata": {"name": "other"}, "spec": spec}, "default"
        )
        before = {pod.metadata.uid for pod in (await world.client.list(POD)).items}
        await patched(world, "web", template=template("web", 2))
        await clock.sleep(60.0)
        assert before == {pod.metadata.uid for pod in (await world.client.list(POD)).items}
        less: Document = {"spec": {"minAvailable": MINIMUM}}
        await world.client.patch(PODDISRUPTIONBUDGET, "web", "default", patch=less)
        await world.until(lambda: settled(world, "web", 2), limit_s=120)
        for name in ("web", "other"):
            found = await world.client.get(PODDISRUPTIONBUDGET, name, "default")
            assert not found.status.disrupted_pods
