"""What the verbs of ``grange rc`` write, and what they leave alone."""

from collections.abc import AsyncGenerator

import pytest
from tests.unit.cli.sessions import session
from tests.unit.controllers.world import World, world

from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.verbs.rc import switches


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> AsyncGenerator[World, None]:
    async with world(clock, rng, log) as made:
        yield made


@pytest.mark.parametrize("paused", [True, False])
async def test_all_are_switched_or_none(
    there: World, capsys: pytest.CaptureFixture[str], *, paused: bool
) -> None:
    for name in ("web", "api"):
        await there.add_controller(name, replicas=1, paused=not paused)
    with pytest.raises(NotFound, match="nope"):
        await switches.switch(session(there), ("web", "nope"), paused=paused)
    assert (await there.controller("web")).spec.paused is not paused
    assert capsys.readouterr().out == ""
    assert await switches.switch(session(there), ("web", "api"), paused=paused) == 0
    for name in ("web", "api"):
        assert (await there.controller(name)).spec.paused is paused
