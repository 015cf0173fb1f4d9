"""Gangs and queues through a real API server: status, events, bindings that fail, restarts."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.support.gang_cluster import names
from tests.support.scheduler_world import World, refusal, world

from grange.api.http import Request, Response
from grange.api.kinds import EVENT, POD, PODGROUP, QUEUE
from grange.api.kinds.podgroup import GROUP_LABEL, PodGroup
from grange.api.kinds.queue import Queue
from grange.api.meta import Condition, Document
from grange.api.scheme import KindInfo
from grange.api.status import Timeout
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.scheduler import plugins
from grange.scheduler.framework import Code, CycleState, Plugin, Profile, Status
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.waiting_pods import WaitingPods
from grange.sim.api_fixture import Handler

SMALL = {"cpu": "1", "memory": "1Gi", "pods": "10"}
CPU = {"cpu": "1"}


async def add_group(made: World, name: str, minimum: int, **spec: object) -> None:
    document: Document = {
        "apiVersion": PODGROUP.api_version,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": minimum, **spec},
    }
    await made.client.create(PODGROUP, document, "default")


async def group(made: World, name: str) -> PodGroup:
    return await made.client.get(PODGROUP, name, "default")


async def members(made: World, gang: str, *pods: str) -> None:
    await made.add_pods(*pods, labels={GROUP_LABEL: gang}, requests=CPU)


async def set_phase(made: World, name: str, phase: str) -> None:
    patch = {"status": {"phase": phase}}
    await made.client.patch(POD, name, "default", patch=patch, subresource="status")


def scheduled(status: PodGroup) -> tuple[str, str, str]:
    [reported] = status.status.conditions
    return reported.status, reported.reason, reported.message


async def failures(made: World) -> list[str]:
    """The names of the pods with an event FailedScheduling."""
    return sorted(name for reason, name in await made.events() if reason == "FailedScheduling")


async def test_gang_that_is_completed_soon_has_no_warning(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", "b", capacity=SMALL)
        await made.start_scheduler()
        await members(made, "g", "p0")
        await made.settle()
        assert await made.message("p0") == "pod group default/g does not exist"
        await add_group(made, "g", 2)
        await made.settle()
        assert await made.message("p0") == "waits until 2 pods of pod group default/g exist"
        await members(made, "g", "p1")
        await made.settle(60.0)
        assert sorted((await made.pods()).values()) == ["a", "b"]
        assert await failures(made) == []


async def test_gang_that_stays_incomplete_is_warned_about(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", "b", capacity=SMALL)
        await made.start_scheduler()
        await add_group(made, "g", 3)
        await members(made, "g", "p0")
        await made.settle(5.0)
        await members(made, "g", "p1")
        await made.settle(4.0)
        assert await failures(made) == []
        await made.settle(4.0)
        assert await failures(made) == ["p0"]
        await made.settle(5.0)
        assert await failures(made) == ["p0", "p1"]


async def test_gang_without_room_is_warned_about_at_once(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=SMALL)
        await made.start_scheduler()
        await add_group(made, "g", 2)
        await members(made, "g", "p0", "p1")
        await made.settle(3.0)
        assert await failures(made) == ["p0", "p1"]


async def test_groups_that_come_and_go_leave_nothing_behind(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        scheduler = await made.start_scheduler()
        for number in range(3):
            await add_group(made, f"g{number}", 2)
            await members(made, f"g{number}", f"p{number}")
            await made.settle()
            assert len(scheduler._status._last_reasons) == 1
            await made.client.delete(PODGROUP, f"g{number}", "default")
            await made.settle()
            assert not scheduler._status._last_reasons


async def test_the_status_of_a_group_shows_its_whole_life(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=SMALL)
        await made.start_scheduler()
        await add_group(made, "g", 2)
        await members(made, "g", "p0")
        await made.settle()
        found = await group(made, "g")
        assert (found.status.phase, found.status.pending) == ("Pending", 1)
        assert scheduled(found) == (
            "False", "NotEnoughMembers", "waits for minMember: 1 of 2 pods exist",
        )  # fmt: skip
        assert await made.message("p0") == "waits until 2 pods of pod group default/g exist"
        await members(made, "g", "p1")
        await made.settle()
        found = await group(made, "g")
        assert (found.status.phase, found.status.pending) == ("Scheduling", 2)
        why = (
            "0/1 nodes are available: gang wants 2 (cpu 1 each), room for 1"
            " (can never fit on these nodes: 1 when empty), 1 Insufficient cpu."
        )
        assert scheduled(found) == ("False", "NoRoom", why)
        assert [await made.message(name) for name in ("p0", "p1")] == [why, why]
        await made.add_nodes("b", capacity=SMALL)
        await made.settle(12.0)
        found = await group(made, "g")
        assert (found.status.phase, found.status.scheduled) == ("Scheduled", 2)
        assert scheduled(found)[:2] == ("True", "Placed")
        assert sorted((await made.pods()).values()) == ["a", "b"]
        for name in ("p0", "p1"):
            await set_phase(made, name, "Running")
        await made.settle()
        found = await group(made, "g")
        assert (found.status.phase, found.status.running) == ("Running", 2)
        for name in ("p0", "p1"):
            await set_phase(made, name, "Succeeded")
        await made.settle()
        found = await group(made, "g")
        assert (found.status.phase, found.status.running, found.status.succeeded) == (
            "Finished", 0, 2,
        )  # fmt: skip
        events = (await made.client.list(EVENT, "default")).items
        reported = [item.reason for item in events if item.involved_object.kind == "PodGroup"]
        assert sorted(reported) == ["NoRoom", "NotEnoughMembers", "Scheduled"]


async def test_a_gang_of_many_costs_few_writes_of_status(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity={"cpu": "64", "memory": "64Gi", "pods": "110"})
        scheduler = await made.start_scheduler()
        await add_group(made, "g", 40)
        await members(made, "g", *names("p", 40))
        await made.settle()
        assert all((await made.pods()).values())
        assert scheduler.gangs.attempts == 1
        assert made.writes("/podgroups/g/status") <= 3


async def test_the_status_of_a_queue_shows_what_is_used_and_who_waits(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity={"cpu": "64", "memory": "64Gi", "pods": "110"})
        await made.start_scheduler()
        document: Document = {
            "apiVersion": QUEUE.api_version,
            "kind": "Queue",
            "metadata": {"name": "q"},
            "spec": {"capacity": {"cpu": "3", "memory": "1Gi"}},
        }
        await made.client.create(QUEUE, document)
        await add_group(made, "g", 2, queue="q")
        await add_group(made, "h", 2, queue="q")
        await members(made, "g", "g0", "g1")
        await made.settle()
        await members(made, "h", "h0", "h1")
        await made.settle()
        found: Queue = await made.client.get(QUEUE, "q")
        assert found.status.used == {"cpu": "2", "memory": "0"}
        assert (found.status.admitted, found.status.pending) == (2, 1)
        why = "over quota of queue q: cpu 4 of 3, borrowing none"
        [reported] = found.status.conditions
        assert (reported.status, reported.message) == ("False", f"default/h: {why}")
        assert scheduled(await group(made, "h")) == ("False", "OverQuota", why)
        assert [(await group(made, name)).status.used for name in "gh"] == [{"cpu": "2"}, {}]
        await set_phase(made, "g0", "Succeeded")
        await made.settle()
        assert [(await group(made, name)).status.used["cpu"] for name in "gh"] == ["1", "2"]
        found = await made.client.get(QUEUE, "q")
        assert (found.status.used["cpu"], found.status.pending) == ("3", 0)
        await set_phase(made, "g1", "Succeeded")
        await made.settle()
        assert (await group(made, "g")).status.used == {}


async def test_member_whose_binding_fails_is_retried_and_others_stay(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The server refuses one of four bindings for good: three are bound, and the fourth follows."""
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity={"cpu": "64", "memory": "64Gi", "pods": "110"})
        refused: list[str] = []

        async def gate(request: Request, server: Handler) -> Response:
            body = request.body.decode(errors="replace") if request.body else ""
            binding = "binding" in request.path.lower()
            if binding and "p2" in (request.path + body) and len(refused) < 2:
                refused.append(request.path)
                return refusal(422, "Invalid")
            return await server(request)

        made.intercept = gate
        scheduler = await made.start_scheduler()
        await add_group(made, "g", 4)
        await members(made, "g", *names("p", 4))
        await made.settle(30.0)
        assert refused
        assert all((await made.pods()).values())
        assert scheduler.cache.assumed_count == 0
        assert (await group(made, "g")).status.phase == "Scheduled"


async def test_gang_left_half_bound_is_completed_by_the_successor(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Killed between two bindings: the rest of the gang is placed as one, or waits as one."""
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", "b", "c", capacity=SMALL)
        await add_group(made, "g", 3)
        await members(made, "g", *names("p", 3))
        target = {"apiVersion": "v1", "kind": "Node", "name": "b"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p1"}}
        await made.client.post(POD, "p1", "default", "binding", {**binding, "target": target})
        await made.add_pods("x", requests=CPU, priority=9)
        scheduler = await made.start_scheduler()
        await made.settle()
        placed = await made.pods()
        assert (placed["p1"], placed["p0"], placed["p2"]) == ("b", "", "")
        wants = "0/3 nodes are available: gang wants 2 (cpu 1 each), room for 1"
        assert await made.message("p0") == f"{wants}, 3 Insufficient cpu."
        await made.delete("x")
        await made.settle(12.0)
        assert all((await made.pods()).values())
        assert scheduler.cache.assumed_count == 0


class Gatekeeper:
    """Holds one pod back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.permits: WaitingPods[PodInfo] | None = None
        self.uid = ""

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        if pod.pod.metadata.name != self.name:
            return Status(Code.SUCCESS)
        self.permits, self.uid = state.read(WaitingPods), pod.uid
        return Status(Code.WAIT, wait_s=60.0)


async def test_119_gang_with_held_member_binds_no_pod_until_timeout(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        gate = Gatekeeper("p1")
        await made.add_nodes("a", "b", "c", capacity=SMALL)
        profile = Profile((*plugins.DEFAULT, Plugin("Gatekeeper", permit=gate)))
        scheduler = await made.start_scheduler(profile=profile)
        await add_group(made, "g", 3)
        await members(made, "g", *names("p", 3))
        await made.settle(30.0)
        assert set((await made.pods()).values()) == {""}
        assert scheduler.cache.assumed_count == 3
        await made.settle(31.0)  # over: taken back, and tried again
        assert scheduler.cache.assumed_count == 3
        assert set((await made.pods()).values()) == {""}
        assert gate.permits is not None
        gate.permits.allow(gate.uid, "Gatekeeper")
        await made.settle()
        assert sorted((await made.pods()).values()) == ["a", "b", "c"]
        assert scheduler.cache.assumed_count == 0


async def test_pod_groups_are_right_after_the_cache_was_rebuilt(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity={"cpu": "64", "memory": "64Gi", "pods": "110"})
        document: Document = {
            "apiVersion": QUEUE.api_version,
            "kind": "Queue",
            "metadata": {"name": "q"},
            "spec": {"capacity": {"cpu": "3"}},
        }
        await made.client.create(QUEUE, document)
        scheduler = await made.start_scheduler()
        held = asyncio.Event()

        async def gate(request: Request, server: Handler) -> Response:
            if "binding" in request.path.lower():
                await held.wait()
                raise Timeout("the connection broke")
            return await server(request)

        made.intercept = gate
        await add_group(made, "g", 3, queue="q")
        await members(made, "g", *names("p", 3))
        await made.settle()
        assert scheduler.cache.assumed_count == 3
        scheduler._handlers.rebuild()
        assert scheduler.gangs.quotas.used("q")["cpu"] == 3_000
        assert scheduler.cache.assumed_count == 3
        made.intercept = None
        held.set()
        await made.settle(20.0)
        assert all((await made.pods()).values())
        assert scheduler.gangs.quotas.used("q")["cpu"] == 3_000
        for name in names("p", 3):
            await made.delete(name)
        await made.settle()
        assert scheduler.gangs.quotas.used("q") == {}
        assert (await group(made, "g")).status.phase == "Pending"


@pytest.mark.parametrize(("kind", "name"), [(PODGROUP, "g"), (QUEUE, "q")])
async def test_status_keeps_conditions_of_others(
    clock: Clock, rng: Stream, log: Logger, kind: KindInfo[Any], name: str
) -> None:
    """Set between what the scheduler read and what it writes."""
    theirs = Condition("Audited", "True", "Reviewed", "by hand", "2026-01-01T00:00:00Z")
    namespace = "default" if kind.namespaced else ""
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=SMALL)
        await made.start_scheduler()
        queue: Document = {"metadata": {"name": "q"}, "spec": {"capacity": {"cpu": "1"}}}
        await made.client.create(QUEUE, queue)
        written: list[str] = []

        async def gate(request: Request, server: Handler) -> Response:
            if request.path.endswith(f"/{kind.plural}/{name}/status") and not written:
                written.append(request.path)
                patch = {"status": {"conditions": [msgspec.to_builtins(theirs)]}}
                await made.client.patch(kind, name, namespace, patch=patch, subresource="status")
            return await server(request)

        made.intercept = gate
        await add_group(made, "g", 2, queue="q")
        await members(made, "g", "p0", "p1")
        await made.settle(10.0)
        assert written
        found = (await made.client.get(kind, name, namespace)).status.conditions
        assert theirs in found
        assert len(found) == 2
