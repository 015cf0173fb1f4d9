"""What pods' conditions show while they wait, on a server that does not always take it."""

from tests.support.scheduler_world import refusal, world

from grange.api.http import Request, Response
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.sim.api_fixture import Handler

SMALL = {"cpu": "1", "memory": "1Gi", "pods": "10"}


async def test_the_newest_word_is_the_last(clock: Clock, rng: Stream, log: Logger) -> None:
    """An older one that could not be written in its time is not written after it."""
    async with world(clock, rng, log) as made:
        refusing = True

        async def gate(request: Request, serve: Handler) -> Response:
            if refusing and request.path.endswith("/status"):
                return refusal(503, "ServiceUnavailable")
            return await serve(request)

        await made.add_nodes("a", capacity=SMALL)
        made.intercept = gate
        await made.add_pods("big", requests={"cpu": "8"})
        await made.start_scheduler()
        await made.settle(8.0)  # by now the first word waits for long between its tries
        taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
        await made.add_nodes("b", capacity={**SMALL, "cpu": "10"}, taints=[taint])
        await made.settle(20.0)
        refusing = False
        await made.settle(60.0)
        newest = (
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s)."
            " preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
        )
        assert await made.message("big") == newest
        assert made.writes("/big/status") < 30
        before = made.writes("/big/status")
        await made.settle(60.0)
        assert made.writes("/big/status") == before


async def test_conditions_and_events_stay_bounded(clock: Clock, rng: Stream, log: Logger) -> None:
    """However many reasons there are, and however often they change."""
    async with world(clock, rng, log) as made:
        for number in range(300):
            taint = {"key": f"team-{number:03}", "value": "x" * 60, "effect": "NoSchedule"}
            await made.add_nodes(f"n{number}", taints=[taint])
        await made.add_pods("p")
        scheduler = await made.start_scheduler()
        await made.settle()
        message = await made.message("p")
        assert "300 node(s) had untolerated taint(s)" in message
        assert len(message) < 4096
        for number in range(60):  # every one changes the counts, and brings another try
            await made.add_nodes(f"m{number}", capacity={"cpu": "1m", "pods": "0"})
            await made.settle(11.0)
        events = [item for item in await made.events() if item[1] == "p"]
        assert len(events) <= 28, "25 at once and one in five minutes"
        assert len((await made.pod("p")).status.conditions) == 1
        answer = scheduler.explain(await made.pod("p"))
        assert answer is not None
        assert len(answer.reasons) <= 16
        assert len(answer.attempts) <= 8
        assert len(answer.nearest) == 5
