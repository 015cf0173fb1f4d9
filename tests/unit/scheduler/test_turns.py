"""A scheduler that takes turns with others: what was true in its last turn holds no more."""

from collections.abc import AsyncGenerator, AsyncIterator

from tests.support.scheduler_world import World, world

from grange.api.http import ADMIN, Request, Response
from grange.api.kinds import POD
from grange.api.status import Timeout
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import registry
from grange.base.rng import Stream
from grange.base.tasks import Child
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.reconcile.deps import Deps
from grange.reconcile.informer import InformerFactory
from grange.scheduler.service import Scheduler
from grange.sim.faults import close_chunks

ONE = {"cpu": "1", "memory": "4Gi", "pods": "10"}


class Turns:
    """A scheduler on its own network, with its turns.

    Attributes:
        binds: whether its bindings arrive.
        hears: whether its watches report anything.
    """

    def __init__(self, made: World) -> None:
        self.made = made
        self.binds = self.receives = True
        client = Client(InProcess(self._handle, ADMIN), clock=made.clock)
        rng = made.rng.fork("turns")
        informers = InformerFactory(client, clock=made.clock, rng=rng, log=made.log)
        deps = Deps(client, informers, made.clock, rng, made.log, registry())
        self.scheduler = Scheduler(deps)
        made.nursery.start(informers.run())

    async def _handle(self, request: Request) -> Response:
        if not self.binds and request.path.endswith(("/binding", "/bindings")):
            raise Timeout("no answer came")
        response = await self.made.application.handle(request)
        if request.query.get("watch") and response.chunks is not None:
            return Response(response.status, chunks=self._reported(response.chunks))
        return response

    async def _reported(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in chunks:
                while not self.receives:
                    await self.made.clock.sleep(0.1)
                yield chunk
        finally:
            await close_chunks(chunks)

    def begin(self) -> Child[None]:
        return self.made.nursery.start(self.scheduler.run())

    async def end(self, turn: Child[None]) -> None:
        turn.cancel()
        await self.made.settle(0.1)


async def bind(made: World, name: str, node: str) -> None:
    """What another scheduler does."""
    await made.client.post(POD, name, "default", "binding", {"target": {"name": node}})


async def test_a_binding_of_an_earlier_turn_is_not_written_any_more(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Its node may have been given to others meanwhile."""
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=ONE)
        turns = Turns(made)
        turns.binds = False
        first = turns.begin()
        await made.add_pods("ours", requests={"cpu": "1"})
        await made.settle()
        assert turns.scheduler.cache.assumed_count == 1
        await turns.end(first)
        await made.add_pods("theirs", requests={"cpu": "1"})
        await bind(made, "theirs", "a")
        turns.binds = True
        turns.begin()
        await made.settle()
        assert await made.pods() == {"ours": "", "theirs": "a"}
        assert "Insufficient cpu" in await made.message("ours")
        assert turns.scheduler.cache.assumed_count == 0


async def test_a_turn_begins_with_knowing_the_bindings_of_others(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Its watch was silent while others were at work."""
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=ONE)
        turns = Turns(made)
        await turns.end(turns.begin())
        await made.add_pods("ours", "theirs", requests={"cpu": "1"})
        await made.settle()
        turns.receives = False
        await bind(made, "theirs", "a")
        turns.begin()
        await made.settle(20.0)
        assert await made.pods() == {"ours": "", "theirs": "a"}, "it waits for the news"
        turns.receives = True
        await made.settle()
        assert await made.pods() == {"ours": "", "theirs": "a"}
        assert "Insufficient cpu" in await made.message("ours")


async def test_bound_pods_that_are_deleted_meanwhile_hold_up_no_pod(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", capacity=ONE)
        turns = Turns(made)
        await turns.end(turns.begin())
        turns.receives = False
        await made.add_pods("brief", requests={"cpu": "1"})
        await bind(made, "brief", "a")
        turns.begin()
        await made.settle(1.0)
        await made.delete("brief")
        await made.settle(20.0)
        turns.receives = True
        await made.add_pods("next", requests={"cpu": "1"})
        await made.settle(5.0)
        assert (await made.pods())["next"] == "a"
