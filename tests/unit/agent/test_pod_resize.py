"""Pods that get other resources while they run: what is allocated, applied and reported."""

from typing import Any

import pytest
from tests.support.agent_world import World, world
from tests.unit.agent.builders import container, document

from grange.agent.container_runtime import ContainerLimits
from grange.api.kinds import POD
from grange.api.kinds.pod import condition
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

MIB = 2**20
Tools = tuple[Clock, Stream, Logger]
SMALL = {
    "requests": {"cpu": "1", "memory": "64Mi"},
    "limits": {"cpu": "2", "memory": "128Mi"},
}


@pytest.fixture
def tools(clock: Clock, rng: Stream, log: Logger) -> Tools:
    return clock, rng, log


def burstable(**fields: Any) -> Any:
    return container(resources=SMALL, **fields)


async def resize(there: World, name: str = "web", container: str = "main", **parts: Any) -> None:
    patch = {"spec": {"containers": [{"name": container, "resources": parts}]}}
    await there.client.patch(
        POD, name, "default", patch=patch, type="strategic", subresource="resize"
    )


async def resources(there: World, name: str = "web") -> tuple[Any, Any, Any]:
    """Allocated requests, and requests and limits in force."""
    main = await there.main(name)
    assert main.resources is not None
    return main.allocated_resources, main.resources.requests, main.resources.limits


async def events_of_resize(there: World) -> list[str]:
    """What became of resizes, in the order of the alphabet."""
    found = {reason for reason, _ in await there.events() if reason.startswith("Resize")}
    return sorted(reason.removeprefix("Resize") for reason in found)


async def test_container_reports_what_it_was_given(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(burstable(), container("other")))
        await there.until_ready()
        assert await resources(there) == (SMALL["requests"], SMALL["requests"], SMALL["limits"])
        other = await there.main(container="other")
        assert other.allocated_resources is None
        assert other.resources is not None
        assert (other.resources.requests, other.resources.limits) == ({}, {})


async def test_resize_is_applied_without_a_restart(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(burstable()))
        await there.until_ready()
        await resize(there, requests={"cpu": "1500m"}, limits={"memory": "256Mi"})
        await there.clock.sleep(1)
        wanted = {"cpu": "1500m", "memory": "64Mi"}
        assert await resources(there) == (wanted, wanted, {"cpu": "2", "memory": "256Mi"})
        [started] = there.starts()
        assert there.machine.limits[started] == ContainerLimits(2000, 256 * MIB)
        assert there.machine.signals == []
        assert await there.condition("PodResizeInProgress") == ("", "", "")
        assert await there.condition("PodResizePending") == ("", "", "")
        assert await events_of_resize(there) == ["Completed", "Started"]


async def test_resize_restarts_a_container_that_asks_for_it(tools: Tools) -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    spec = burstable(program="slow-to-stop", resizePolicy=policy)
    async with world(*tools) as there:
        await there.create(document(spec, restartPolicy="OnFailure"))
        await there.until_ready()
        await resize(there, limits={"cpu": "3"})
        await there.clock.sleep(1)
        assert len(there.starts()) == 1
        await resize(there, limits={"memory": "256Mi"})
        await there.clock.sleep(2)
        assert (await there.condition("PodResizeInProgress"))[:2] == ("True", "")
        assert (await resources(there))[2] == {"cpu": "3", "memory": "128Mi"}
        await there.clock.sleep(5)
        assert len(there.starts()) == 2, "though it ended well"
        assert there.machine.limits[there.starts()[1]] == ContainerLimits(3000, 256 * MIB)
        assert (await resources(there))[2] == {"cpu": "3", "memory": "256Mi"}
        assert await there.condition("PodResizeInProgress") == ("", "", "")
        main = await there.main()
        assert (main.restart_count, main.state.running is not None) == (1, True)
        assert await events_of_resize(there) == ["Completed", "Started"]


async def test_resize_waits_until_others_leave_room(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(container(resources={"requests": {"cpu": "2"}}), name="other"))
        await there.create(document(burstable()))
        await there.until_ready("other")
        await there.until_ready()
        await resize(there, requests={"cpu": "2500m"}, limits={"cpu": "3"})
        await there.clock.sleep(1)
        found = await there.condition("PodResizePending")
        assert found[:2] == ("True", "Deferred")
        assert "cpu, requested: 2500, used: 2000, capacity: 4000" in found[2]
        assert await resources(there) == (SMALL["requests"], SMALL["requests"], SMALL["limits"])
        await there.client.delete(POD, "other", "default")
        await there.until_gone("other")
        await there.clock.sleep(0.5)
        assert await there.condition("PodResizePending") == ("", "", "")
        assert (await resources(there))[0] == {"cpu": "2500m", "memory": "64Mi"}
        assert await events_of_resize(there) == ["Completed", "Deferred", "Started"]


async def test_resize_waits_until_another_shrinks(tools: Tools) -> None:
    other = container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "2"}})
    async with world(*tools) as there:
        await there.create(document(other, name="other"))
        await there.create(document(burstable()))
        await there.until_ready("other")
        await there.until_ready()
        await resize(there, requests={"cpu": "2500m"}, limits={"cpu": "3"})
        await there.clock.sleep(1)
        assert (await there.condition("PodResizePending"))[:2] == ("True", "Deferred")
        await resize(there, "other", requests={"cpu": "1"})
        await there.clock.sleep(0.5)
        assert await there.condition("PodResizePending") == ("", "", "")
        assert (await resources(there))[0] == {"cpu": "2500m", "memory": "64Mi"}


async def test_resize_beyond_the_node_is_infeasible(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(burstable()))
        await there.until_ready()
        await resize(there, requests={"cpu": "5"}, limits={"cpu": "6"})
        await there.clock.sleep(1)
        assert (await there.condition("PodResizePending"))[:2] == ("True", "Infeasible")
        await there.create(document(container(resources={"requests": {"cpu": "3"}}), name="other"))
        await there.until_ready("other")
        await resize(there, requests={"cpu": "500m"}, limits={"cpu": "1"})
        await there.clock.sleep(1)
        assert condition(await there.pod(), "PodResizePending") is None
        assert (await resources(there))[0] == {"cpu": "500m", "memory": "64Mi"}
        assert await events_of_resize(there) == ["Completed", "Infeasible", "Started"]


async def test_resize_counts_at_admission(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(burstable()))
        await there.until_ready()
        await resize(there, requests={"cpu": "3500m"}, limits={"cpu": "4"})
        await there.clock.sleep(1)
        await resize(there, requests={"cpu": "100m"}, limits={"cpu": "4"})
        await there.clock.sleep(1)
        await there.create(document(container(resources={"requests": {"cpu": "3500m"}}), name="b"))
        await there.until_ready("b")


async def test_resize_that_fails_is_tried_again(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(burstable()))
        await there.until_ready()
        there.machine.resize_refusal = "the memory limit cannot be 64"
        await resize(there, limits={"memory": "64Mi"})
        await there.clock.sleep(1)
        message = "container main: the memory limit cannot be 64"
        assert await there.condition("PodResizeInProgress") == ("True", "Error", message)
        assert (await resources(there))[2] == SMALL["limits"]
        there.machine.resize_refusal = ""
        await there.clock.sleep(15)
        assert await there.condition("PodResizeInProgress") == ("", "", "")
        assert (await resources(there))[2] == {"cpu": "2", "memory": "64Mi"}
        assert await events_of_resize(there) == ["Completed", "Error", "Started"]


async def test_next_agent_goes_by_what_was_allocated(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(container(resources={"requests": {"cpu": "2"}}), name="other"))
        await there.create(document(burstable()))
        await there.until_ready("other")
        await there.until_ready()
        there.crash_agent()
        await resize(there, requests={"cpu": "2500m"}, limits={"cpu": "3"})
        there.start_agent()
        await there.clock.sleep(5)
        assert (await there.condition("PodResizePending"))[:2] == ("True", "Deferred")
        assert (await resources(there))[0] == SMALL["requests"]
        await resize(there, requests={"cpu": "1500m"})
        await there.clock.sleep(1)
        assert (await resources(there))[0] == {"cpu": "1500m", "memory": "64Mi"}
        assert [item.attempt for item in there.starts()] == [0, 0]


async def test_waiting_container_starts_with_its_new_resources(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(burstable(program="badly")))
        await there.clock.sleep(2.5)
        assert (await there.main()).state.waiting is not None
        await resize(there, limits={"cpu": "3"})
        await there.clock.sleep(5)
        assert there.machine.limits[there.starts()[-1]].cpu_milli == 3000
        assert await there.condition("PodResizeInProgress") == ("", "", "")


async def test_pod_that_ends_is_not_resized(tools: Tools) -> None:
    async with world(*tools) as there:
        await there.create(document(burstable(program="slow-to-stop")))
        await there.until_ready()
        await there.client.delete(POD, "web", "default")
        await resize(there, limits={"cpu": "3"})
        await there.until_gone()
        assert there.machine.limits[there.starts()[0]].cpu_milli == 2000
