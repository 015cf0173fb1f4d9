"""What containers use: measured once per period, however often it is asked for."""

import asyncio

import pytest

from grange.agent.container_runtime import ContainerID, PodSetup, Program
from grange.agent.runtimes.fake import FakeMachine, FakeRuntime, Script
from grange.agent.usage_sampler import PERIOD_S, UsageSampler
from grange.api.resource_metrics import UsageSample
from grange.base.clock import Clock

SCRIPTS = {
    "busy": Script(cpu=0.5, memory_bytes=8_000_000),
    "idle": Script(memory_bytes=1_000_000),
}


class Node:
    """A runtime with scripted programs, and its sampler."""

    def __init__(self, clock: Clock) -> None:
        self.machine = FakeMachine(SCRIPTS)
        self.runtime = FakeRuntime(self.machine, clock)
        self.sampler = UsageSampler(self.runtime, ("node-1", "node-2"), clock)

    async def start(
        self, pod: str, command: str, container: str = "main", attempt: int = 0
    ) -> None:
        if not self.runtime.pods(pod):
            await self.runtime.prepare(PodSetup(pod, "default", f"{pod}-name", "node-1"))
        await self.runtime.start(ContainerID(pod, container, attempt), Program((command,), {}), ())

    @property
    def sample(self) -> UsageSample:
        found = self.sampler.newest()
        assert found is not None
        return found


@pytest.fixture
def node(clock: Clock) -> Node:
    return Node(clock)


async def test_cpu_is_the_average_over_the_period(node: Node, clock: Clock) -> None:
    await node.start("a", "idle")
    await clock.sleep(100)
    await node.sampler.measure()
    node.machine.scripts["idle"] = SCRIPTS["busy"]
    await node.start("a", "idle", attempt=1)
    await clock.sleep(PERIOD_S)
    await node.sampler.measure()
    await clock.sleep(PERIOD_S)
    await node.sampler.measure()
    (pod,) = node.sample.pods
    assert (pod.namespace, pod.name, pod.node) == ("default", "a-name", "node-1")
    assert pod.window_s == PERIOD_S
    assert pod.containers["main"].cpu_cores == pytest.approx(0.5)
    assert node.sample.taken_at == clock.now()


async def test_new_container_is_measured_since_its_start(node: Node, clock: Clock) -> None:
    await node.sampler.measure()
    await clock.sleep(PERIOD_S - 3)
    await node.start("a", "busy")
    await clock.sleep(3)
    await node.sampler.measure()
    (pod,) = node.sample.pods
    assert pod.window_s == 3
    used = pod.containers["main"]
    assert used.cpu_cores == pytest.approx(0.5)
    assert used.memory_bytes == 8_000_000


async def test_container_that_starts_at_the_reading_uses_nothing(node: Node) -> None:
    await node.start("a", "busy")
    await node.sampler.measure()
    assert node.sample.pods[0].containers["main"].cpu_cores == 0


async def test_ended_pods_are_left_out(node: Node) -> None:
    await node.start("a", "busy")
    await node.sampler.measure()
    await node.runtime.remove("a")
    await node.sampler.measure()
    assert node.sample.pods == ()
    assert node.sample.nodes == ("node-1", "node-2")


async def test_each_container_is_read_once_per_period(node: Node, clock: Clock) -> None:
    await node.start("a", "busy")
    await node.start("a", "idle", container="other")
    await node.start("b", "idle")
    assert node.sampler.newest() is None
    running = asyncio.create_task(node.sampler.run())
    await clock.sleep(4 * PERIOD_S + 1)
    for _ in range(100):
        node.sampler.newest()
    running.cancel()
    assert node.sampler.reads == 5 * 3
