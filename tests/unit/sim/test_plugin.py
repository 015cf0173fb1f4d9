"""The plugin runs asynchronous tests and fixtures on virtual time."""

from collections.abc import AsyncGenerator

import pytest

from grange.base.clock import Clock
from grange.base.tasks import Nursery


@pytest.fixture
async def started(clock: Clock) -> float:
    await clock.sleep(5)
    return clock.monotonic()


@pytest.fixture
async def nursery(clock: Clock) -> AsyncGenerator[Nursery, None]:
    async with Nursery() as nursery:
        yield nursery
        await clock.sleep(3)


async def test_sleep_is_virtual(clock: Clock, started: float, nursery: Nursery) -> None:
    await clock.sleep(3600)
    nursery.start(clock.sleep(3600))
    assert clock.monotonic() == 3605
    assert clock.now().isoformat() == "2026-01-01T01:00:05+00:00"
