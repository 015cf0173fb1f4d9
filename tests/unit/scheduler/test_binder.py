"""Bindings in groups: each pod's outcome is its own, and none is bound to a second node."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import cast

import pytest
from tests.support.scheduler_world import World, binding_answers, refusal, world

from grange.api import bindings, codec
from grange.api.http import Request, Response
from grange.api.kinds import EVENT, NODE, POD
from grange.api.meta import Document
from grange.api.status import Forbidden, ServiceUnavailable, Timeout
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.client.errors import Unreachable
from grange.scheduler.service import SchedulerConfig
from grange.sim import builders
from grange.sim.api_fixture import Handler

COUNT = 30
PODS = [f"p{number}" for number in range(COUNT)]


async def prepare(made: World, capacity: str = "100") -> None:
    await made.add_nodes("a", "b", capacity={"cpu": capacity, "memory": "64Gi", "pods": "100"})
    await made.add_pods(*PODS, requests={"cpu": "1"})


@pytest.mark.parametrize(("group", "requests"), [(128, 1), (10, 3), (7, 5)])
async def test_waiting_pods_share_requests(
    clock: Clock, rng: Stream, log: Logger, *, group: int, requests: int
) -> None:
    async with world(clock, rng, log) as made:
        await prepare(made)
        await made.start_scheduler(SchedulerConfig(binding_group=group))
        await made.settle()
        assert all((await made.pods()).values())
        assert (made.writes("/bindings"), made.writes("/binding")) == (requests, 0)


async def test_a_refused_pod_in_a_group_holds_up_no_other(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A user bound one, deleted another and made a third again while the group was on its way."""
    async with world(clock, rng, log) as made:
        answers: list[tuple[str, int]] = []

        async def gate(request: Request, handle: Handler) -> Response:
            if request.path == bindings.PATH and not answers:
                body: Document = {"target": {"kind": "Node", "name": "b"}}
                await made.client.post(POD, "p0", "default", "binding", body)
                await made.delete("p1")
                await made.delete("p2")
                await made.add_pods("p2", requests={"cpu": "1"})
            response = await handle(request)
            answers.extend(binding_answers(request, response))
            return response

        made.intercept = gate
        await prepare(made)
        scheduler = await made.start_scheduler()
        await made.settle(30.0)
        assert dict(answers[:COUNT]) == {
            **dict.fromkeys(PODS, 201),
            "p0": 409,
            "p1": 404,
            "p2": 409,
        }
        placed = await made.pods()
        assert (len(placed), placed["p0"], all(placed.values())) == (COUNT - 1, "b", True)
        assert (scheduler.cache.assumed_count, scheduler.cache.pod_count) == (0, COUNT - 1)
        assert len(scheduler.queue) == 0


async def test_no_pod_is_bound_to_a_node_that_is_known_to_be_gone(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """It goes while the first of three groups is on its way; the others were decided before that."""
    async with world(clock, rng, log) as made:
        sent: list[Request] = []

        async def gate(request: Request, handle: Handler) -> Response:
            if request.path == bindings.PATH:
                sent.append(request)
                if len(sent) == 1:
                    await made.client.delete(NODE, "a")
                    await clock.sleep(1.0)
            return await handle(request)

        made.intercept = gate
        await prepare(made)
        scheduler = await made.start_scheduler(SchedulerConfig(binders=1, binding_group=10))
        await made.settle(30.0)
        first = codec.decode_document(sent[0].body)["items"]
        lost = {item["metadata"]["name"] for item in first if item["target"]["name"] == "a"}
        assert lost
        placed = await made.pods()
        assert {name for name, node in placed.items() if node == "a"} == lost
        assert all(placed.values())
        assert (scheduler.cache.assumed_count, scheduler.cache.pod_count) == (0, COUNT)


@pytest.mark.parametrize("landed", [True, False])
async def test_a_group_without_an_answer_is_read_back_pod_by_pod(
    clock: Clock, rng: Stream, log: Logger, *, landed: bool
) -> None:
    async with world(clock, rng, log) as made:
        lost: list[Request] = []
        accepted: list[str] = []

        async def gate(request: Request, handle: Handler) -> Response:
            if request.path == bindings.PATH and not lost:
                lost.append(request)
                if landed:
                    answers = binding_answers(request, await handle(request))
                    accepted.extend(name for name, code in answers if code == 201)
                raise Timeout("no answer")
            response = await handle(request)
            answers = binding_answers(request, response)
            accepted.extend(name for name, code in answers if code == 201)
            return response

        made.intercept = gate
        await prepare(made, capacity="15")  # full to the last CPU: a second decision would show
        scheduler = await made.start_scheduler()
        await made.settle(30.0)
        asked = codec.decode_document(lost[0].body)["items"]
        wanted = {item["metadata"]["name"]: item["target"]["name"] for item in asked}
        assert await made.pods() == wanted
        assert sorted(accepted) == sorted(PODS)
        assert (scheduler.cache.assumed_count, scheduler.cache.pod_count) == (0, COUNT)


@pytest.mark.parametrize("answer", [503, 507, 500])
async def test_a_group_that_is_refused_as_a_whole_is_decided_again(
    clock: Clock, rng: Stream, log: Logger, *, answer: int
) -> None:
    async with world(clock, rng, log) as made:
        refused: list[str] = []

        async def gate(request: Request, handle: Handler) -> Response:
            if request.path == bindings.PATH and not refused:
                refused.append(request.path)
                return refusal(answer, "")
            return await handle(request)

        made.intercept = gate
        await prepare(made)
        scheduler = await made.start_scheduler()
        await made.settle(60.0)
        assert refused
        assert all((await made.pods()).values())
        assert (scheduler.cache.assumed_count, scheduler.cache.pod_count) == (0, COUNT)
        assert len(scheduler.queue) == 0


@pytest.mark.parametrize("answer", [500, 502, 503, 507])
@pytest.mark.parametrize("grouped", [False, True])
async def test_a_server_error_is_not_believed_before_the_pod_was_read(
    clock: Clock, rng: Stream, log: Logger, *, answer: int, grouped: bool
) -> None:
    """The binding was made, a proxy answers otherwise, and the watch is late: the room is taken."""
    async with world(clock, rng, log) as made:
        refused: list[str] = []

        async def late(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
            async with aclosing(cast(AsyncGenerator[bytes, None], chunks)) as pieces:
                async for piece in pieces:
                    if refused:
                        await clock.sleep(5.0)
                    yield piece

        async def gate(request: Request, handle: Handler) -> Response:
            if request.path.endswith(("/binding", "/bindings")) and not refused:
                refused.append(request.path)
                await handle(request)
                return refusal(answer, "")
            response = await handle(request)
            if response.chunks is not None and request.path.endswith("/pods"):
                return replace(response, chunks=late(response.chunks))
            return response

        made.intercept = gate
        await made.add_nodes("a", capacity={"cpu": "2", "memory": "4Gi", "pods": "10"})
        first = ["p0", "p1"] if grouped else ["p0"]
        cpu = "1" if grouped else "2"
        await made.add_pods(*first, requests={"cpu": cpu}, priority=5)
        await made.add_pods("late", requests={"cpu": cpu})
        scheduler = await made.start_scheduler()
        await made.settle(3.0)
        assert refused
        assert await made.pods() == {**dict.fromkeys(first, "a"), "late": ""}
        await made.settle(30.0)
        assert await made.pods() == {**dict.fromkeys(first, "a"), "late": ""}
        assert (scheduler.cache.assumed_count, scheduler.cache.pod_count) == (0, len(first))


@pytest.mark.parametrize("grouped", [False, True])
async def test_node_filled_by_another_scheduler_is_found_by_refusal(
    clock: Clock, rng: Stream, log: Logger, *, grouped: bool
) -> None:
    """The room is free again in the cache, the pod shows why it waits, and is tried again."""
    async with world(clock, rng, log) as made:
        first = True

        async def gate(request: Request, handle: Handler) -> Response:
            nonlocal first
            if first and request.path.endswith(("/binding", "/bindings")):
                first = False
                await made.client.create(POD, other, "default")
                target: Document = {"target": {"kind": "Node", "name": "a"}}
                await made.client.post(POD, "other", "default", "binding", target)
            return await handle(request)

        other = builders.pod_document("other", requests={"cpu": "800m"}, schedulerName="theirs")
        made.intercept = gate
        await made.add_nodes("a", capacity={"cpu": "1", "memory": "1Gi", "pods": "10"})
        mine = ["p", "q"] if grouped else ["p"]
        await made.add_pods(*mine, requests={"cpu": "500m"})
        scheduler = await made.start_scheduler()
        await made.settle(0.3)
        assert await made.pods() == {**dict.fromkeys(mine, ""), "other": "a"}
        assert (scheduler.cache.assumed_count, scheduler.cache.pod_count) == (0, 1)
        refused = [
            event.message
            for event in (await made.client.list(EVENT, "default")).items
            if event.reason == "FailedScheduling"
        ]
        assert refused[0] == (
            'the binding to a was refused: Operation cannot be fulfilled on pods "p": '
            "node a has not enough cpu: 500m requested, 200m free"
        )
        explained = scheduler.explain(await made.pod("p"))
        assert explained is not None
        assert [attempt.result for attempt in explained.attempts][:2] == ["scheduled", "error"]
        assert explained.attempts[1].message == refused[0]
        await made.settle(5.0)
        assert await made.message("p") == (
            "0/1 nodes are available: 1 Insufficient cpu."
            " preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
        )
        await made.delete("other")
        await made.settle(15.0)
        assert await made.pods() == dict.fromkeys(mine, "a")


async def test_what_was_never_sent_gives_its_room_away_at_once(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        reads: list[str] = []

        async def gate(request: Request, handle: Handler) -> Response:
            if request.path.endswith("/binding"):
                raise Unreachable("no connection")
            if request.method == "GET" and "/pods/" in request.path:
                reads.append(request.path)
            return await handle(request)

        made.intercept = gate
        await made.add_nodes("a")
        scheduler = await made.start_scheduler()
        await made.add_pods("p", requests={"cpu": "1"})
        await made.settle(0.5)
        assert made.writes("/binding") == 1
        assert (reads, scheduler.cache.pod_count) == ([], 0)


async def test_a_server_without_groups_gets_the_bindings_one_by_one(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:

        async def gate(request: Request, handle: Handler) -> Response:
            if request.path == bindings.PATH:
                raise Forbidden("cannot create resource bindings at the cluster scope")
            return await handle(request)

        made.intercept = gate
        await prepare(made)
        await made.start_scheduler(SchedulerConfig(binding_group=10))
        await made.settle()
        assert all((await made.pods()).values())
        assert made.writes("/binding") == COUNT


async def test_deciding_pauses_while_too_many_bindings_are_under_way(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        away = True

        async def gate(request: Request, handle: Handler) -> Response:
            if away and "/binding" in request.path:
                await clock.sleep(5.0)
                raise Timeout("no answer")
            if away and "/pods/" in request.path:
                raise ServiceUnavailable("away")
            return await handle(request)

        made.intercept = gate
        await prepare(made)
        scheduler = await made.start_scheduler(SchedulerConfig(backlog=12, binding_group=4))
        await made.settle(300.0)
        assert scheduler.cache.assumed_count == 12
        assert scheduler.cycle.decisions == 12
        away = False
        await made.settle(60.0)
        assert all((await made.pods()).values())


def test_a_group_is_no_larger_than_the_server_takes() -> None:
    with pytest.raises(ValueError, match="binding_group must be at most 500"):
        SchedulerConfig(binding_group=bindings.LIMIT + 1)
