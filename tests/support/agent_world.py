"""A node agent over a scripted machine and a real API server in memory, in virtual time."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.unit.agent import builders

from grange.agent.config import NodeConfig, Timing
from grange.agent.container_runtime import ContainerID
from grange.agent.probe_answer import Answer, ProbeTarget
from grange.agent.runtimes.fake import FakeMachine, FakeRuntime, Script
from grange.agent.service import NodeAgent
from grange.api.kinds import EVENT, NODE, POD
from grange.api.kinds.node import Node
from grange.api.kinds.pod import ContainerStatus, Pod, Probe, condition
from grange.api.meta import Document
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Child, Nursery
from grange.sim.api_fixture import ApiFixture, opened

CAPACITY = {"cpu": "4", "memory": "8Gi", "pods": "110"}
SCRIPTS = {
    "forever": Script(),
    "well": Script(duration_s=1.0),
    "badly": Script(duration_s=1.0, exit_code=3),
    "long": Script(duration_s=900.0, exit_code=1),
    "stubborn": Script(term_s=None),
    "slow-to-stop": Script(term_s=5.0, term_exit_code=0),
}


class FakeProber:
    """Answers as the test sets it, by command or container name; yes where nothing is set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, float]] = []
        self.failure: Exception | None = None
        # By the first word of a command: how long it takes, and the answer.
        self.commands: dict[str, tuple[float, Answer]] = {}
        self.ran: list[tuple[str, str]] = []

    async def ask(self, probe: Probe, target: ProbeTarget) -> Answer:
        if probe.exec is not None and probe.exec.command[0] in self.commands:
            word = probe.exec.command[0]
            self.ran.append((word, target.container.name))
            delay_s, answer = self.commands[word]
            await self._clock.sleep(delay_s)
            return answer
        if self.failure is not None:
            raise self.failure
        self.asked.append((target.container.name, self._clock.monotonic()))
        return self.answers.get(target.container.name, Answer(ok=True))


class World(ApiFixture):
    """Handles to everything in one test."""

    poll_s = 0.01

    def __init__(self, clock: Clock, rng: Stream, log: Logger) -> None:
        super().__init__(clock, rng, log)
        self.machine = FakeMachine(SCRIPTS)
        self.runtime = FakeRuntime(self.machine, clock)
        self.prober = FakeProber(clock)
        self._agents: list[Child[None]] = []
        self._newest: NodeAgent | None = None
        self._started = 0

    @property
    def writes(self) -> list[tuple[str, str]]:
        """What agents wrote, but for Events."""
        return [item for item in self.requests if "/events" not in item[1]]

    def start_agent(
        self,
        *,
        capacity: Mapping[str, str] = CAPACITY,
        timing: Timing | None = None,
        name_files: bool = False,
        cluster_dns: str = "",
        host_paths: tuple[str, ...] = (),
    ) -> None:
        """An agent with its own informers; it has the images of the machine."""
        # Every agent draws other names for its Events, as every process does.
        self._started += 1
        deps = replace(self.new_deps(), rng=self.rng.fork(f"agent-{self._started}"))
        config = NodeConfig(
            builders.NODE,
            capacity,
            pod_network=str(self.runtime.pod_network),
            timing=timing or Timing(),
            name_files=name_files,
            cluster_dns=cluster_dns,
            images=self.machine.images is not None,
            host_paths=host_paths,
        )
        images = self.machine.images
        agent = NodeAgent(deps, config, self.runtime, prober=self.prober, images=images)

        async def both() -> None:
            async with Nursery("agent and informers") as nursery:
                nursery.start(deps.informers.run())
                nursery.start(agent.run())

        self._agents.append(self.nursery.start(both()))
        self._newest = agent

    def crash_agent(self) -> None:
        """The agent ends without a word; the machine goes on."""
        for agent in self._agents:
            agent.cancel()
        self._agents.clear()

    async def stop_agent(self) -> None:
        """The agent ends in order."""
        self.crash_agent()
        assert self._newest is not None
        await self._newest.leave()

    # --- objects -------------------------------------------------------------------------------

    async def create(self, document: Document) -> Pod:
        return await self.client.create(POD, document, "default")

    async def pod(self, name: str = "web") -> Pod:
        return await self.client.get(POD, name, "default")

    async def node(self) -> Node:
        return await self.client.get(NODE, builders.NODE)

    async def main(self, name: str = "web", container: str = "main") -> ContainerStatus:
        found = await self.pod(name)
        everything = [*found.status.container_statuses, *found.status.init_container_statuses]
        return next(item for item in everything if item.name == container)

    async def condition(self, kind: str, name: str = "web") -> tuple[str, str, str]:
        found = condition(await self.pod(name), kind)
        return (found.status, found.reason, found.message) if found else ("", "", "")

    async def events(self) -> list[tuple[str, str]]:
        listing = await self.client.list(EVENT, "default")
        return [(item.reason, item.message) for item in listing.items]

    async def exists(self, name: str = "web") -> bool:
        try:
            await self.pod(name)
        except NotFound:
            return False
        return True

    def starts(self, container: str = "main") -> list[ContainerID]:
        return [target for target in self.machine.starts if target.container == container]

    async def until_ready(self, name: str = "web") -> float:
        async def ready() -> bool:
            return (await self.condition("Ready", name))[0] == "True"

        return await self.until(ready)

    async def until_phase(self, phase: str, name: str = "web") -> float:
        async def reached() -> bool:
            return (await self.pod(name)).status.phase == phase

        return await self.until(reached)

    async def until_gone(self, name: str = "web") -> float:
        async def gone() -> bool:
            return not await self.exists(name)

        return await self.until(gone)


@asynccontextmanager
async def world(
    clock: Clock, rng: Stream, log: Logger, *, agent: bool = True
) -> AsyncIterator[World]:
    """A world that ends with its block."""
    async with opened(World(clock, rng, log)) as there:
        if agent:
            there.start_agent()
            await there.until(lambda: _is_registered(there))
        yield there
    for uid in list(there.machine.pods):
        await there.runtime.remove(uid)


async def _is_registered(there: World) -> bool:
    return bool((await there.client.list(NODE)).items)
