"""Why pods wait that belong together, and what gangs have to do with those that do not."""

from typing import Any

from tests.support.scheduler_world import World, world
from tests.unit.scheduler.test_explain import Scene, shown

from grange.api.kinds import PODGROUP, QUEUE
from grange.api.kinds.podgroup import GROUP_LABEL
from grange.api.kinds.queue import QUEUE_LABEL
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.scheduler.service import Scheduler
from grange.sim import builders

SMALL = {"cpu": "2", "memory": "4Gi", "pods": "10"}


async def summary(made: World, scheduler: Scheduler, name: str) -> str:
    answer = scheduler.explain(await made.pod(name))
    assert answer is not None
    return answer.summary


async def test_a_gang_that_does_not_fit(clock: Clock, rng: Stream, log: Logger) -> None:
    """Every member shows it, also those that were not tried; and none boasts that it would fit alone."""
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=SMALL)
        group = {"metadata": {"name": "g"}, "spec": {"minMember": 3}}
        await made.client.create(PODGROUP, group, "default")
        scheduler = await made.start_scheduler()
        options: dict[str, Any] = {"labels": {GROUP_LABEL: "g"}, "requests": {"cpu": "1"}}
        await made.add_pods("one", "two", **options)
        await made.settle()
        assert "2 of 3 pods exist" in await summary(made, scheduler, "one")
        await made.add_pods("three", **options)
        await made.settle()
        for name in ("one", "two", "three"):
            answer = scheduler.explain(await made.pod(name))
            assert answer is not None
            assert answer.summary.startswith("waits for its gang default/g (")
            assert "gang wants 3, room for 2" in answer.summary
            assert answer.choice is None
        await made.add_nodes("b", capacity=SMALL)
        await made.settle(15.0)
        assert (await summary(made, scheduler, "one")).startswith("is on ")


async def test_a_queue_that_is_used_up(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=SMALL)
        await made.client.create(
            QUEUE, {"metadata": {"name": "q"}, "spec": {"capacity": {"cpu": "1"}}}
        )
        scheduler = await made.start_scheduler()
        options: dict[str, Any] = {"labels": {QUEUE_LABEL: "q"}, "requests": {"cpu": "1"}}
        await made.add_pods("one", **options)
        await made.settle()
        await made.add_pods("two", **options)
        await made.settle()
        stated = await summary(made, scheduler, "two")
        assert stated.startswith("waits for its queue (")
        assert "cpu" in stated


async def test_a_gang_whose_end_would_do(clock: Clock) -> None:
    """No single one of its pods would."""
    scene = Scene(clock)
    scene.nodes("a", capacity=SMALL)
    for number in range(2):
        scene.put(f"p{number}", "a", labels={GROUP_LABEL: "g"}, requests={"cpu": "1"})
    answer = scene.waits(builders.pod("new", requests={"cpu": "2"}))
    assert shown(answer) == ["1: when gang default/g ends"]
