"""Ends in order: of an agent, and of a pod that is deleted before it runs."""

from typing import Any

import pytest
from tests.support.agent_world import World, world
from tests.unit.agent.builders import container, document

from grange.api.kinds import CONFIGMAP, POD
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

Tools = tuple[Clock, Stream, Logger]


@pytest.fixture
def tools(clock: Clock, rng: Stream, log: Logger) -> Tools:
    return clock, rng, log


async def ready_condition(there: World) -> tuple[str, str]:
    (found,) = [item for item in (await there.node()).status.conditions if item.type == "Ready"]
    return found.status, found.reason


async def test_stopped_agent_takes_its_node_out_at_once(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document())
        await there.until_ready()
        await there.stop_agent()
        assert await ready_condition(there) == ("False", "AgentStopped")
        others = [item for item in (await there.node()).status.conditions if item.type != "Ready"]
        assert len(others) == 4
        there.start_agent()

        async def back() -> bool:
            return (await ready_condition(there))[0] == "True"

        assert await there.until(back) < 1
        assert len(there.starts()) == 1


async def test_agent_stops_although_the_server_is_away(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(*tools) as there:
        before = there.clock.monotonic()
        there.crash_agent()

        async def hang(*_: Any, **__: Any) -> None:
            await there.clock.sleep(600)

        with monkeypatch.context() as patched:
            patched.setattr(type(there.client), "patch", hang)
            await there.stop_agent()
        assert there.clock.monotonic() - before < 5


@pytest.mark.parametrize("grace_s", [None, 0])
async def test_pod_deleted_while_it_is_prepared_never_runs(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, grace_s: int | None
) -> None:
    async with world(*tools) as there:
        await there.client.create(CONFIGMAP, {"metadata": {"name": "words"}}, "default")
        get = type(there.client).get

        async def late(client: Any, kind: Any, *args: Any, **options: Any) -> Any:
            if kind is CONFIGMAP:
                await there.clock.sleep(10)
            return await get(client, kind, *args, **options)

        with monkeypatch.context() as patched:
            patched.setattr(type(there.client), "get", late)
            await there.create(document(container(envFrom=[{"configMapRef": {"name": "words"}}])))
            await there.clock.sleep(5)
            await there.client.delete(POD, "web", "default", grace_period_s=grace_s)
            await there.until_gone()
            await there.clock.sleep(10)
        assert there.starts() == []
        assert not there.machine.pods, "nothing is left of it"
