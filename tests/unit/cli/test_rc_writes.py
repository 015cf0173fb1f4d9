"""What the verbs of ``grange rc`` write, and what they leave alone."""

from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
from tests.support.controller_world import World, world
from tests.unit.cli.sessions import opened, session
from tests.unit.controllers import builders
from tests.unit.controllers.test_replica_orders import Interrupted

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Document
from grange.api.status import Conflict, Invalid, NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.confirm import NotConfirmed
from grange.cli.refused_objects import RefusedObjects
from grange.cli.verbs.rc import counts, objects, rollout, settings, show
from grange.client.client import Client


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
        await settings.switch(session(there), ("web", "nope"), paused=paused)
    assert (await there.controller("web")).spec.paused is not paused
    assert capsys.readouterr().out == ""
    assert await settings.switch(session(there), ("web", "api"), paused=paused) == 0
    for name in ("web", "api"):
        assert (await there.controller(name)).spec.paused is paused


async def test_controllers_by_name_are_shown_as_a_wide_table(
    there: World, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("web", "api", "other"):
        await there.add_controller(name, replicas=1)
    refusals = RefusedObjects()
    await show.tabled(session(there), ("none", "web", "api"), refusals)
    shown = capsys.readouterr()
    heading, *rows = shown.out.splitlines()
    assert "STRATEGY" in heading
    assert [row.split()[0] for row in rows] == ["web", "api"]
    assert "(NotFound)" in shown.err
    assert refusals.code == 1


OTHER: Document = {"spec": {"containers": [{"name": "other", "command": ["other"]}]}}


async def new_template(there: World, seen: ReplicationController) -> None:
    await objects.set_template(session(there), seen, OTHER)


async def restarted(there: World, seen: ReplicationController) -> None:
    await rollout.restart(session(there), seen, "2026-01-01T00:00:00Z")


@pytest.mark.parametrize("write", [new_template, restarted])
async def test_change_during_a_prompt_is_not_overwritten(
    there: World, write: Callable[[World, ReplicationController], Awaitable[None]]
) -> None:
    await there.add_controller("web", replicas=1)
    seen = await there.controller("web")
    await patch(there, {"spec": {"replicas": 2}})
    between = await there.controller("web")
    with pytest.raises(Conflict, match="web has changed since the question"):
        await write(there, seen)
    assert await there.controller("web") == between
    await patch(there, {"metadata": {"annotations": {"a": "b"}}})
    await write(there, between)
    assert (await there.controller("web")).spec.template != between.spec.template


@pytest.mark.parametrize("write", [new_template, restarted])
async def test_another_controller_of_the_name_is_left_alone(
    there: World, write: Callable[[World, ReplicationController], Awaitable[None]]
) -> None:
    await there.add_controller("web", replicas=1)
    seen = await there.controller("web")
    await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
    await there.add_controller("web", replicas=1)
    other = await there.controller("web")
    assert other.metadata.generation == seen.metadata.generation
    with pytest.raises(Conflict, match="web has changed since the question"):
        await write(there, seen)
    assert await there.controller("web") == other


async def test_a_write_that_a_status_overtakes_is_done_again(there: World) -> None:
    await there.add_controller("web", replicas=1)
    seen = await there.controller("web")
    tries = 0

    async def write(now: ReplicationController) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            await patch(there, {"metadata": {"annotations": {"a": str(tries)}}})
        ops = objects.operations(session(there))
        await ops.update_template("web", OTHER, unchanged_since=now)

    await objects.as_seen(session(there), seen, write)
    assert tries == 3
    assert (await there.controller("web")).spec.template == OTHER


async def test_a_template_that_breaks_a_rule_is_refused_once(there: World) -> None:
    await there.add_controller("web", replicas=1, template=builders.TEMPLATE)
    with pytest.raises(Invalid, match="containers"):
        await objects.set_template(session(there), await there.controller("web"), {"spec": {}})


async def patch(there: World, change: Document) -> None:
    await there.client.patch(REPLICATIONCONTROLLER, "web", "default", patch=change)


async def test_fewer_than_there_are_by_now_is_asked_about(there: World, clock: Clock) -> None:
    """A user scales up between the look, by which nothing would end, and the write."""
    await there.add_controller("web", replicas=1)

    async def others() -> None:
        await there.change("web", replicas=5)

    crossed = Client(Interrupted(there.client, others, before=3), clock=clock)
    here = opened(crossed, clock=clock, rng=there.rng, log=there.log)
    with pytest.raises(NotConfirmed, match=r"Scale web from 5 to 2\? 3 pods end"):
        await counts.set_to(here, "web", 2, yes=False)
    assert (await there.controller("web")).spec.replicas == 5
    assert (await counts.set_to(here, "web", 2, yes=True)).spec.replicas == 2
    assert (await counts.set_to(here, "web", 3, yes=False)).spec.replicas == 3
