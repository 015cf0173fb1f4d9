"""Containers that are added to a pod that runs: they run once and count for nothing else."""

import pytest
from tests.support.agent_world import World, world
from tests.unit.agent.builders import container, document

from grange.api.kinds import POD
from grange.api.kinds.pod import ContainerStatus
from grange.api.meta import Document
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

Tools = tuple[Clock, Stream, Logger]


@pytest.fixture
def tools(clock: Clock, rng: Stream, log: Logger) -> Tools:
    return clock, rng, log


async def add(there: World, *containers: Document) -> None:
    patch = {"spec": {"ephemeralContainers": list(containers)}}
    await there.client.patch(
        POD, "web", "default", patch=patch, type="strategic", subresource="ephemeralcontainers"
    )


async def added(there: World, name: str = "debug") -> ContainerStatus:
    statuses = (await there.pod()).status.ephemeral_container_statuses
    return next(item for item in statuses if item.name == name)


async def test_added_container_runs_once(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document())
        await there.until_ready()
        await add(there, container("debug", "badly"))
        await there.clock.sleep(60)
        ended = (await added(there)).state.terminated
        assert ended is not None
        assert ended.exit_code == 3
        assert len(there.starts("debug")) == 1
        pod = await there.pod()
        assert pod.status.phase == "Running"
        assert (await there.condition("Ready"))[0] == "True"
        assert [item.name for item in pod.status.container_statuses] == ["main"]
        assert pod.status.init_container_statuses == ()


async def test_added_container_does_not_wait_for_others(tools: Tools) -> None:
    """It is for pods that do not get on."""
    async with world(*tools) as there:
        await there.create(document(initContainers=[container("init")]))
        await there.clock.sleep(1)
        await add(there, container("debug"))
        await there.clock.sleep(1)
        running = await added(there)
        assert running.state.running is not None
        assert not running.ready
        assert there.starts() == []


async def test_added_container_ends_with_its_pod(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(container(program="well"), restartPolicy="Never"))
        await add(there, container("debug"))
        await there.until_phase("Succeeded")
        ended = (await added(there)).state.terminated
        assert ended is not None
        assert ended.signal == 15


async def test_next_agent_does_not_run_it_again(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document())
        await there.until_ready()
        await add(there, container("over", "well"), container("debug"))
        await there.clock.sleep(30)
        there.crash_agent()
        there.start_agent()
        await there.clock.sleep(30)
        assert [len(there.starts(name)) for name in ("over", "debug")] == [1, 1]
        assert (await added(there)).state.running is not None
        assert (await added(there, "over")).state.terminated is not None
