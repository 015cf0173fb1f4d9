"""Where held pods, gangs, queues and preemption meet: none is lost, counted twice or half placed."""

from tests.support.scheduler_world import World, world
from tests.unit.scheduler.test_gang_service import Gatekeeper, add_group, members
from tests.unit.scheduler.test_preemption_service import agent, nomination

from grange.api.kinds import EVENT, NODE, POD, QUEUE
from grange.api.kinds.podgroup import GROUP_LABEL
from grange.api.kinds.queue import QUEUE_LABEL
from grange.api.meta import Document
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.scheduler import plugins
from grange.scheduler.framework import Plugin, Profile
from grange.scheduler.service import Scheduler

SMALL = {"cpu": "1", "memory": "1Gi", "pods": "10"}
CPU = {"cpu": "1"}


async def start(made: World, gate: Gatekeeper) -> Scheduler:
    profile = Profile((*plugins.DEFAULT, Plugin("Gatekeeper", permit=gate)))
    return await made.start_scheduler(profile=profile)


async def add_queue(made: World, name: str, cohort: str = "", **capacity: str) -> None:
    spec = {"capacity": capacity, "cohort": cohort}
    document: Document = {"metadata": {"name": name}, "spec": spec}
    await made.client.create(QUEUE, document)


async def test_held_pod_bound_by_another_still_counts_for_its_queue(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", "b", capacity=SMALL)
        await add_queue(made, "q", cpu="1")
        scheduler = await start(made, Gatekeeper("p0"))
        await made.add_pods("p0", labels={QUEUE_LABEL: "q"}, requests=CPU)
        await made.settle()
        assert len(scheduler.cycle.waiting_pods) == 1
        await made.client.post(POD, "p0", "default", "binding", {"target": {"name": "b"}})
        await made.settle()
        assert scheduler.gangs.quotas.used("q") == {"cpu": 1_000, "pods": 1}
        await made.add_pods("p1", labels={QUEUE_LABEL: "q"}, requests=CPU)
        await made.settle()
        assert (await made.pods())["p1"] == ""


async def test_a_held_pod_that_is_being_deleted_is_held_no_longer(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A finalizer keeps the object; what it was promised is free at once."""
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=SMALL)
        scheduler = await start(made, Gatekeeper("p0"))
        await made.add_pods("p0", requests=CPU)
        patch: Document = {"metadata": {"finalizers": ["example.com/slow"]}}
        await made.client.patch(POD, "p0", "default", patch=patch)
        await made.settle()
        assert len(scheduler.cycle.waiting_pods) == 1
        await made.delete("p0")
        await made.add_pods("p1", requests=CPU)
        await made.settle()
        assert await made.pods() == {"p0": "", "p1": "a"}
        assert len(scheduler.cycle.waiting_pods) == 0


async def test_held_victim_loses_its_place_and_is_not_deleted(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=SMALL)
        scheduler = await start(made, Gatekeeper("low"))
        await made.add_pods("low", requests=CPU)
        await made.settle()
        assert len(scheduler.cycle.waiting_pods) == 1
        uid = (await made.pod("low")).metadata.uid
        await made.add_pods("high", priority=10, requests=CPU)
        await made.settle()
        assert await made.pods() == {"low": "", "high": "a"}
        assert (await made.pod("low")).metadata.uid == uid
        assert "Insufficient cpu" in await made.message("low")
        assert scheduler.cache.assumed_count == 0


async def test_a_held_gang_gives_way_as_a_whole(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", "b", capacity=SMALL)
        scheduler = await start(made, Gatekeeper("p1"))
        await add_group(made, "g", 2)
        await members(made, "g", "p0", "p1")
        await made.settle()
        assert scheduler.cache.assumed_count == 2
        await made.add_pods("high", priority=10, requests=CPU)
        await made.settle()
        where = await made.pods()
        assert where["high"]
        assert (where["p0"], where["p1"]) == ("", "")
        assert scheduler.cache.assumed_count == 0


async def test_gang_whose_node_goes_while_held_is_decided_again(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Permitted later it would be bound to a node that everybody knows to be gone."""
    async with world(clock, rng, log) as made:
        gate = Gatekeeper("p1")
        await made.add_nodes("a", "b", capacity=SMALL)
        scheduler = await start(made, gate)
        await add_group(made, "g", 2)
        await members(made, "g", "p0", "p1")
        await made.settle()
        assert scheduler.cache.assumed_count == 2
        await made.client.delete(NODE, "b")
        await made.settle()
        assert (scheduler.cache.assumed_count, len(scheduler.cycle.waiting_pods)) == (0, 0)
        assert "gang wants 2 (cpu 1 each), room for 1" in await made.message("p0")
        gate.name = ""
        await made.add_nodes("c", capacity=SMALL)
        await made.settle(15.0)
        assert sorted((await made.pods()).values()) == ["a", "c"]


async def test_no_pod_joins_a_gang_that_is_held_back(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """If the quorum is rejected in the end, one more member would be there by itself."""
    async with world(clock, rng, log) as made:
        gate = Gatekeeper("p1")
        await made.add_nodes("a", "b", "c", capacity=SMALL)
        scheduler = await start(made, gate)
        await add_group(made, "g", 2)
        await members(made, "g", "p0", "p1")
        await made.settle()
        assert scheduler.cache.assumed_count == 2
        await members(made, "g", "p2")
        await made.settle()
        assert set((await made.pods()).values()) == {""}
        reported = scheduler.explain(await made.pod("p2"))
        assert reported is not None
        assert reported.summary == "waits for its gang to be permitted to be bound"
        assert gate.permits is not None
        gate.permits.allow(gate.uid, "Gatekeeper")
        await made.settle()
        assert sorted((await made.pods()).values()) == ["a", "b", "c"]


async def reported(made: World) -> dict[str, str]:
    """What was reported to victims, by name."""
    events = (await made.client.list(EVENT, "default")).items
    return {
        event.involved_object.name: event.message for event in events if event.reason == "Preempted"
    }


async def test_victims_get_the_reason_of_the_choice(clock: Clock, rng: Stream, log: Logger) -> None:
    """One is in the way; the other, elsewhere, is of no use without it."""
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", "b", capacity=SMALL)
        await made.start_scheduler()
        await add_group(made, "g", 2)
        await members(made, "g", "p0", "p1")
        await made.settle()
        await made.add_pods("high", priority=10, requests=CPU)
        await made.settle()
        promised = (await made.pod("high")).status.nominated_node_name
        where = await made.pods()
        (there,) = [name for name in ("p0", "p1") if where[name] == promised]
        (along,) = {"p0", "p1"} - {there}
        by = f"Preempted by pod default/high on node {promised}"
        assert await reported(made) == {
            there: by,
            along: f"{by}: too few of its gang would be left",
        }
        assert await made.message("high") == (
            f"0/2 nodes are available: 2 Insufficient cpu. Nominated to {promised}."
        )


async def test_borrowers_are_deleted_with_the_quota_as_reason(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Whatever their priority, and wherever they are."""
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", "b", "c", capacity=SMALL)
        await add_queue(made, "lender", "all", cpu="1")
        await add_queue(made, "borrower", "all", cpu="1")
        await made.start_scheduler()
        labels = {QUEUE_LABEL: "borrower"}
        await made.add_pods("p0", "p1", priority=10, labels=labels, requests=CPU)
        await made.settle()
        await made.add_pods("x", labels={QUEUE_LABEL: "lender"}, requests=CPU)
        await made.settle()
        [message] = (await reported(made)).values()
        assert message == (
            "Preempted by pod default/x, whose queue wants back the quota that it lent"
        )


async def set_capacity(made: World, name: str, **capacity: str) -> None:
    await made.client.patch(QUEUE, name, patch={"spec": {"capacity": capacity}})


async def test_a_pod_that_its_queue_stops_is_promised_nothing(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Its victims are gone, its quota too: the next pod may have the room."""
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=SMALL)
        await add_queue(made, "q", cpu="1")
        scheduler = await made.start_scheduler()
        await made.add_pods("low", requests=CPU)
        await made.settle()
        await made.add_pods("high", priority=10, labels={QUEUE_LABEL: "q"}, requests=CPU)
        await made.settle()
        assert await nomination(made, "high") == "a"
        await set_capacity(made, "q", cpu="0")
        await agent(made)
        await made.settle()
        await made.add_pods("next", requests=CPU)
        await made.settle()
        assert await made.pods() == {"high": "", "next": "a"}
        assert len(scheduler.cycle.nominator) == 0


async def test_a_gang_that_its_queue_stops_is_promised_nothing(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Its victims are on their way out, but others may have their room."""
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", "b", capacity=SMALL)
        await add_queue(made, "q", cpu="2")
        scheduler = await made.start_scheduler()
        await made.add_pods("low0", "low1", requests=CPU)
        await made.settle()
        await add_group(made, "g", 2, queue="q")
        labels = {GROUP_LABEL: "g"}
        await made.add_pods("p0", "p1", priority=10, labels=labels, requests=CPU)
        await made.settle()
        assert len(scheduler.cycle.nominator) == 2
        await set_capacity(made, "q", cpu="1")
        await made.add_pods("p2", priority=10, labels=labels, requests=CPU)  # wakes it
        await made.settle()
        assert len(scheduler.cycle.nominator) == 0
        await agent(made)
        await made.add_pods("next0", "next1", requests=CPU)
        await made.settle(15.0)
        where = await made.pods()
        assert (where["next0"] != "", where["next1"] != "") == (True, True)
        assert len(scheduler.cycle.nominator) == 0


async def test_explanation_names_the_plugins_that_hold_a_pod(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=SMALL)
        scheduler = await start(made, Gatekeeper("p0"))
        await made.add_pods("p0", requests=CPU)
        await made.settle()
        answer = scheduler.explain(await made.client.get(POD, "p0", "default"))
        assert answer is not None
        assert answer.summary.endswith("waits for a permission to be bound (Gatekeeper)")
