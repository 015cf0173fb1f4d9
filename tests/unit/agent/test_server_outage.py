"""The agent while its server is away."""

import pytest
from tests.support.agent_world import world
from tests.unit.agent.builders import container, document

from grange.api.http import Request
from grange.api.status import ServiceUnavailable
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

Tools = tuple[Clock, Stream, Logger]


@pytest.fixture
def tools(clock: Clock, rng: Stream, log: Logger) -> Tools:
    return clock, rng, log


async def test_an_api_that_is_away_costs_no_pod(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document())
        await there.until_ready()
        there.gate = lambda request: ServiceUnavailable("away")
        await there.clock.sleep(20)
        there.machine.end(there.starts()[0], there.clock.now(), 1)
        await there.clock.sleep(20)
        assert len(there.starts()) == 2
        there.gate = lambda request: None
        await there.clock.sleep(40)
        assert (await there.main()).restart_count == 1
        assert (await there.condition("Ready"))[0] == "True"


async def test_hour_without_server_costs_no_pod(tools: Tools) -> None:
    """A program that ends every quarter of an hour is restarted meanwhile."""
    async with world(*tools) as there:
        await there.create(document())
        await there.create(document(container("often", "long"), name="ends"))
        await there.until_ready()
        asked: list[str] = []

        def refuse(request: Request) -> ServiceUnavailable:
            asked.append(request.path)
            return ServiceUnavailable("away")

        there.gate = refuse
        await there.clock.sleep(3600)
        assert len(there.starts()) == 1
        assert 2 <= len(there.starts("often")) <= 5
        heartbeats = [path for path in asked if "leases" in path]
        assert 350 <= len(heartbeats) <= 370, "no more than with a server"
        there.gate = lambda request: None
        await there.clock.sleep(60)
        assert (await there.main()).restart_count == 0
        assert (await there.main("ends", "often")).restart_count == len(there.starts("often")) - 1
        assert (await there.condition("Ready"))[0] == "True"
        ready = next(
            item for item in (await there.node()).status.conditions if item.type == "Ready"
        )
        assert ready.status == "True"
