"""Disruption budgets against a real API server in memory: status, evictions, and their end."""

from typing import Any

from tests.support.controller_world import World, world

from grange.api import conditions
from grange.api.kinds import POD, PODDISRUPTIONBUDGET
from grange.api.kinds.poddisruptionbudget import (
    DISRUPTION_ALLOWED,
    PodDisruptionBudgetStatus,
)
from grange.api.meta import Document
from grange.api.status import TooManyRequests
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.disruption.controller import DisruptionController
from grange.controllers.replication.controller import ReplicationService


async def started(there: World, replicas: int = 3, nodes: str = "abcd") -> None:
    there.start(ReplicationService(there.deps), DisruptionController(there.deps))
    for name in nodes:
        await there.add_node(name)
    await there.add_controller(replicas=replicas)
    await there.until(lambda: there.ready(replicas))


async def budget(there: World, name: str = "web", **spec: Any) -> None:
    document: Document = {
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
    }
    await there.client.create(PODDISRUPTIONBUDGET, document, "default")


async def status(there: World, name: str = "web") -> PodDisruptionBudgetStatus:
    return (await there.client.get(PODDISRUPTIONBUDGET, name, "default")).status


async def evict(there: World, name: str) -> bool:
    try:
        await there.client.evict(name, "default")
    except TooManyRequests:
        return False
    return True


async def test_the_status_follows_pods_and_the_scale_of_their_owner(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there)
        await budget(there, maxUnavailable="50%")
        await there.settle()
        found = await status(there)
        assert (found.expected_pods, found.current_healthy) == (3, 3)
        assert (found.desired_healthy, found.disruptions_allowed) == (1, 2)
        assert found.observed_generation == 1
        await there.change(replicas=4)
        await there.until(lambda: there.ready(4))
        await there.settle()
        assert (await status(there)).desired_healthy == 2


async def test_evictions_stop_at_the_budget_until_pods_are_replaced(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there)
        await budget(there, minAvailable=2)
        await there.settle()
        first, second, _ = await there.names()
        assert await evict(there, first)
        assert not await evict(there, second)
        await there.until(lambda: there.ready(3))
        await there.settle()
        found = await status(there)
        assert (found.disruptions_allowed, found.disrupted_pods) == (1, {})
        assert await evict(there, second)


async def test_allowance_of_an_eviction_that_never_happens_returns(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there)
        await budget(there, minAvailable=2)
        await there.settle()
        name = (await there.names())[0]
        granted = {"disruptionsAllowed": 0, "disruptedPods": {name: there._now()}}
        await there.client.patch(
            PODDISRUPTIONBUDGET, "web", "default", patch={"status": granted}, subresource="status"
        )
        await there.settle(60.0)
        assert (await status(there)).disruptions_allowed == 0
        await there.settle(70.0)
        assert (await status(there)).disruptions_allowed == 1


async def test_owners_without_scale_allow_nothing_and_budget_reports(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        there.start(DisruptionController(there.deps))
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": True}
        document = {
            "metadata": {"name": "p", "labels": {"app": "web"}, "ownerReferences": [owner]},
            "spec": {"containers": [{"name": "c", "command": ["x"]}]},
        }
        await there.client.create(POD, document, "default")
        await budget(there, maxUnavailable=1)
        await there.settle()
        stated = conditions.find((await status(there)).conditions, DISRUPTION_ALLOWED)
        assert stated is not None
        assert stated.reason == "SyncFailed"
        assert "Node n has no number of replicas" in stated.message


async def test_at_rest_nothing_is_written(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await started(there)
        await budget(there, minAvailable=1)
        await there.settle(5.0)
        there.requests.clear()
        await there.settle(300.0)
        assert [path for _, path in there.requests if "poddisruption" in path] == []
