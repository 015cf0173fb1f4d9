"""Preemption end to end: victims marked and deleted, promises kept, faults of the API survived."""

from typing import Any

from tests.support.scheduler_world import World, refusal, world

from grange.api.http import Request, Response
from grange.api.kinds import EVENT, NODE, POD, PODDISRUPTIONBUDGET, PODGROUP, PRIORITYCLASS
from grange.api.kinds.pod import condition
from grange.api.kinds.podgroup import GROUP_LABEL
from grange.api.meta import Document
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.scheduler.service import Scheduler
from grange.sim.api_fixture import Handler

SMALL = {"cpu": "2", "memory": "8Gi", "pods": "10"}
CPU = {"cpu": "1"}


async def full(made: World, **options: Any) -> Scheduler:
    """One node with room for two, and two unimportant pods that run there."""
    await made.add_nodes("a", capacity=SMALL)
    await made.add_pods("low1", "low2", requests=CPU, **options)
    scheduler = await made.start_scheduler()
    await made.settle()
    for name in ("low1", "low2"):
        status = {"status": {"phase": "Running"}}
        await made.client.patch(POD, name, "default", patch=status, subresource="status")
    return scheduler


async def leaving(made: World) -> list[str]:
    pods = (await made.client.list(POD, "default")).items
    return [pod.metadata.name for pod in pods if pod.metadata.deletion_timestamp]


async def agent(made: World) -> None:
    """The agent's part: what is to go has ended."""
    for name in await leaving(made):
        await made.delete(name)


async def nomination(made: World, name: str) -> str:
    return (await made.pod(name)).status.nominated_node_name


async def test_an_important_pod_takes_the_place_of_another(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        scheduler = await full(made)
        await made.add_pods("high", requests=CPU, priority=10)
        await made.settle()
        (victim,) = await leaving(made)
        assert await nomination(made, "high") == "a"
        reported = condition(await made.pod(victim), "DisruptionTarget")
        assert reported is not None
        assert (reported.status, reported.reason) == ("True", "PreemptionByScheduler")
        events = [e for e in (await made.client.list(EVENT)).items if e.reason == "Preempted"]
        assert [event.message for event in events] == ["Preempted by pod default/high on node a"]
        await agent(made)
        await made.settle()
        assert (await made.pods())["high"] == "a"
        assert await nomination(made, "high") == ""
        assert len(scheduler.cycle.nominator) == 0


async def test_while_victims_take_their_time_no_other_has_to_go(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await full(made)
        await made.add_pods("high", requests=CPU, priority=10)
        await made.settle(60.0)
        assert len(await leaving(made)) == 1


async def test_the_promised_room_is_kept_from_the_less_important(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await full(made)
        await made.add_pods("high", requests={"cpu": "2"}, priority=10)
        await made.settle()
        assert len(await leaving(made)) == 2
        await made.add_pods("late", requests=CPU, priority=5)
        await made.delete((await leaving(made))[0])
        await made.settle()
        assert await made.pods() == {
            **dict.fromkeys(await leaving(made), "a"),
            "high": "",
            "late": "",
        }
        await agent(made)
        await made.settle(15.0)
        assert await made.pods() == {"high": "a", "late": ""}


async def test_when_the_pod_goes_its_promise_goes_too(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        scheduler = await full(made)
        await made.add_pods("high", requests={"cpu": "2"}, priority=10)
        await made.settle()
        await made.add_pods("late", requests=CPU)
        await agent(made)
        await made.delete("high")
        await made.settle(15.0)
        assert await made.pods() == {"late": "a"}
        assert len(scheduler.cycle.nominator) == 0


async def test_nominations_of_a_gang_are_cleared_in_the_cluster_too(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A node is lost while its victims go: no pod may take the rest for promised, or wait for it."""
    async with world(clock, rng, log) as made:
        scheduler = await full(made)
        await made.add_nodes("b", capacity=SMALL)
        document: Document = {"metadata": {"name": "gang"}, "spec": {"minMember": 4}}
        await made.client.create(PODGROUP, document, "default")
        members = [f"member{number}" for number in range(4)]
        labels = {GROUP_LABEL: "gang"}
        await made.add_pods(*members, labels=labels, requests=CPU, priority=10)
        await made.settle()
        assert {await nomination(made, name) for name in members} == {"a", "b"}
        await made.client.delete(NODE, "b")
        await agent(made)
        await made.settle(15.0)
        assert len(scheduler.cycle.nominator) == 0
        assert [await nomination(made, name) for name in members] == [""] * 4
        for name in members:
            reported = condition(await made.pod(name), "PodScheduled")
            assert reported is not None
            assert reported.message.startswith(
                "0/1 nodes are available: gang wants 4 (cpu 1 each), room for 2"
            )


async def test_pods_that_never_preempt_wait(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as made:
        await full(made)
        document: Document = {"metadata": {"name": "patient"}, "value": 10}
        await made.client.create(PRIORITYCLASS, {**document, "preemptionPolicy": "Never"})
        await made.add_pods("patient", requests=CPU, priorityClassName="patient")
        await made.settle()
        assert await leaving(made) == []
        assert await nomination(made, "patient") == ""


async def test_a_node_whose_victims_break_no_budget_is_preferred(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        one = {"cpu": "1", "memory": "8Gi", "pods": "10"}
        await made.add_nodes("a", "b", capacity=one)
        await made.add_pods("guarded", requests=CPU, labels={"app": "web"})
        await made.add_pods("free", requests=CPU)
        document: Document = {
            "metadata": {"name": "web"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }
        await made.client.create(PODDISRUPTIONBUDGET, document, "default")
        await made.start_scheduler()
        await made.settle()
        await made.add_pods("high", requests=CPU, priority=10)
        await made.settle()
        assert await leaving(made) == ["free"]
        await made.add_pods("higher", requests=CPU, priority=20)
        await made.settle()
        assert sorted(await leaving(made)) == ["free"]  # it takes the room of the less important
        await agent(made)
        await made.settle(15.0)
        placed = await made.pods()
        assert placed["higher"]
        # A budget is a wish, not a wall: in the end the more important pod runs.
        await agent(made)
        await made.settle(15.0)
        assert "guarded" not in await made.pods()
        assert (await made.pods())["high"]


async def test_a_less_important_pod_loses_its_nomination(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await full(made)
        await made.add_pods("mid", requests={"cpu": "2"}, priority=5)
        await made.settle()
        assert await nomination(made, "mid") == "a"
        await made.add_pods("high", requests={"cpu": "2"}, priority=10)
        await made.settle()
        assert await nomination(made, "mid") == ""
        assert await nomination(made, "high") == "a"
        await agent(made)
        await made.settle()
        assert await made.pods() == {"mid": "", "high": "a"}


async def test_a_server_that_refuses_for_a_while_only_delays_it(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        broken = False

        async def gate(request: Request, handle: Handler) -> Response:
            if broken and request.method == "DELETE":
                return refusal(503, "ServiceUnavailable")
            return await handle(request)

        made.intercept = gate
        scheduler = await full(made)
        broken = True
        await made.add_pods("high", requests=CPU, priority=10)
        await made.settle(120.0)
        assert await leaving(made) == []
        broken = False
        await made.settle(30.0)
        assert len(await leaving(made)) == 1
        assert scheduler.cycle.nominator.evicting == {}


async def test_late_deletion_of_a_victim_that_changed_since_is_refused(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        held: list[tuple[Request, Handler]] = []

        async def gate(request: Request, handle: Handler) -> Response:
            if request.method != "DELETE":
                return await handle(request)
            held.append((request, handle))
            return refusal(504, "Timeout")

        await full(made)
        made.intercept = gate
        await made.add_pods("high", requests=CPU, priority=10)
        await made.settle()
        assert held
        await made.delete("high")
        for name in ("low1", "low2"):
            note = {"metadata": {"annotations": {"written": "since"}}}
            await made.client.patch(POD, name, "default", patch=note)
        await made.settle(60.0)
        codes = {(await handle(request)).status for request, handle in held}
        assert codes == {409}
        assert await leaving(made) == []


async def test_nominations_survive_the_scheduler(clock: Clock, rng: Stream, log: Logger) -> None:
    """Its successor reads them from the pods, and waits for the same victims."""
    async with world(clock, rng, log) as made:
        await full(made)
        await made.add_pods("high", requests=CPU, priority=10)
        await made.settle()
        before = await leaving(made)
        successor = await made.start_scheduler()
        high = await made.pod("high")
        assert [*successor.cycle.nominator] == [(high.metadata.uid, "a")]
        await made.settle(20.0)
        assert await leaving(made) == before


async def test_the_nominated_node_goes_away(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as made:
        await full(made)
        await made.add_pods("high", requests=CPU, priority=10)
        await made.settle()
        await made.client.delete(NODE, "a")
        await made.add_nodes("b", capacity=SMALL)
        await made.settle(15.0)
        assert (await made.pods())["high"] == "b"
        assert await nomination(made, "high") == ""
