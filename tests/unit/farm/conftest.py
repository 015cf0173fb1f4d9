"""A world on a good network, and the watch over who writes."""

from collections.abc import AsyncGenerator

import pytest
from tests.support.farm_fixtures import OneWriter

from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.sim.world import World, simulated


@pytest.fixture
def one_writer() -> OneWriter:
    """Judges every write of the world."""
    return OneWriter()


@pytest.fixture
async def world(
    clock: Clock, rng: Stream, log: Logger, one_writer: OneWriter
) -> AsyncGenerator[World, None]:
    """An API server and no members yet."""
    async with simulated(clock=clock, rng=rng, log=log) as world:
        world.history.add(one_writer)
        yield world
