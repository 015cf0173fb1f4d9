"""What a node cannot do for a pod keeps that pod waiting with the remedy, and no other."""

from typing import Any

import pytest
from tests.support.agent_world import world
from tests.unit.agent.builders import container, document

from grange.api.kinds import POD
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

Tools = tuple[Clock, Stream, Logger]


@pytest.fixture
def tools(clock: Clock, rng: Stream, log: Logger) -> Tools:
    return clock, rng, log


async def test_runtime_class_cri_needs_a_node_with_images(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(container(image="nginx"), runtimeClassName="cri"))
        await there.clock.sleep(5)
        waiting = (await there.main()).state.waiting
        assert waiting is not None
        assert waiting.reason == "ImageRuntimeUnavailable"
        assert "grange.dev/images=true" in waiting.message
        assert there.machine.starts == []


@pytest.mark.parametrize(
    ("volume", "text"),
    [
        ({"hostPath": {"path": "/etc"}}, "--allow-host-path"),
        ({"persistentVolumeClaim": {"claimName": "data"}}, "this agent knows emptyDir"),
        ({"nfs": {"server": "s", "path": "/"}}, "this agent knows emptyDir"),
    ],
)
async def test_volume_that_cannot_be_had_keeps_its_pod_alone_waiting(
    tools: Tools, volume: dict[str, Any], text: str
) -> None:
    async with world(*tools, agent=False) as there:
        there.start_agent(host_paths=("/srv",))
        mounted = container(volumeMounts=[{"name": "v", "mountPath": "/v"}])
        await there.create(document(mounted, name="bad", volumes=[{"name": "v", **volume}]))
        await there.create(document())
        assert await there.until_ready() < 5
        (status,) = (await there.client.get(POD, "bad", "default")).status.container_statuses
        waiting = status.state.waiting
        assert waiting is not None
        assert waiting.reason == "CreateContainerConfigError"
        assert text in waiting.message
