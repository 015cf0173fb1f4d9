"""A server in memory for each test."""

import pytest
from tests.unit.apiserver.server import Server

from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream


@pytest.fixture
async def server(clock: Clock, rng: Stream, log: Logger) -> Server:
    """An API server with its namespaces."""
    made = Server(clock=clock, rng=rng, log=log)
    await made.application.bootstrap()
    return made
