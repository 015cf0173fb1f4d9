"""An API server in memory for one service under test: what it counts, refuses and holds up."""

import pytest

from grange.api.http import Request, Response
from grange.api.kinds import CONFIGMAP
from grange.api.meta import Document
from grange.api.status import ApiError, Conflict, Timeout
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.sim.api_fixture import ApiFixture, Handler, opened

MAPS = "/api/v1/configmaps"


def configmap(name: str) -> Document:
    return {"metadata": {"name": name, "namespace": "default"}}


async def test_requests_under_test_are_counted(clock: Clock, rng: Stream, log: Logger) -> None:
    async with opened(ApiFixture(clock, rng, log)) as api:
        await api.client.create(CONFIGMAP, configmap("ours"))
        await api.new_client().create(CONFIGMAP, configmap("theirs"))
        await api.new_client().list(CONFIGMAP, "default")
        assert api.requests == [("POST", "/api/v1/namespaces/default/configmaps")]


async def test_gate_refuses_before_the_server_acts(clock: Clock, rng: Stream, log: Logger) -> None:
    async with opened(ApiFixture(clock, rng, log)) as api:
        api.gate = lambda request: Conflict("no")
        with pytest.raises(Conflict):
            await api.new_client().create(CONFIGMAP, configmap("a"))
        assert (await api.client.list(CONFIGMAP, "default")).items == []


async def test_answer_gate_loses_the_answer_of_a_write(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    def lost(request: Request) -> ApiError | None:
        return Timeout("no answer") if request.method == "POST" else None

    async with opened(ApiFixture(clock, rng, log)) as api:
        api.answer_gate = lost
        with pytest.raises(Timeout):
            await api.new_client().create(CONFIGMAP, configmap("a"))
        assert len((await api.client.list(CONFIGMAP, "default")).items) == 1


async def test_intercept_stands_in_for_the_server(clock: Clock, rng: Stream, log: Logger) -> None:
    async def twice(request: Request, handler: Handler) -> Response:
        await handler(request)
        return await handler(request)

    async with opened(ApiFixture(clock, rng, log)) as api:
        api.intercept = twice
        with pytest.raises(ApiError, match="exists"):
            await api.new_client().create(CONFIGMAP, configmap("a"))


async def test_held_watch_delivers_after_it_is_released(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with opened(ApiFixture(clock, rng, log)) as api:
        informers = api.new_deps().informers
        informer = informers.informer(CONFIGMAP)
        api.start(informers)
        await informers.wait_synced()
        api.held_watches.add(MAPS)
        before = len(informer.store)
        await api.client.create(CONFIGMAP, configmap("a"))
        await api.settle(30.0)
        assert len(informer.store) == before
        api.held_watches.clear()

        async def arrived() -> bool:
            return len(informer.store) == before + 1

        assert await api.until(arrived) < 1.0
