"""Two agents on a control plane: one falls silent, its pods are replaced in time, and it returns."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from tests.support.agent_world import CAPACITY, FakeProber
from tests.unit.agent.builders import document

from grange.agent.config import NodeConfig
from grange.agent.runtimes.fake import FakeMachine, FakeRuntime, Script
from grange.agent.service import NodeAgent
from grange.api.kinds import ENDPOINTSLICE, NODE, POD, SERVICE
from grange.api.kinds.pod import condition
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Child, Nursery
from grange.controllers.endpoints.controller import EndpointsController
from grange.controllers.nodelifecycle.controller import NodeLifecycle
from grange.sim.api_fixture import ApiFixture, opened


class Machine:
    """One machine: programs that outlive its agent."""

    def __init__(self, plane: "Plane", name: str) -> None:
        self._plane = plane
        self.name = name
        self.programs = FakeMachine({"forever": Script()})
        self.runtime = FakeRuntime(self.programs, plane.clock)
        self._running: Child[None] | None = None
        self._starts = 0
        self._agent: NodeAgent | None = None

    def start(self) -> None:
        self._starts += 1
        rng = self._plane.rng.fork(f"{self.name}-{self._starts}")
        deps = replace(self._plane.new_deps(), rng=rng)
        agent = NodeAgent(
            deps,
            NodeConfig(self.name, CAPACITY),
            self.runtime,
            prober=FakeProber(self._plane.clock),
        )

        async def both() -> None:
            async with Nursery(self.name) as nursery:
                nursery.start(deps.informers.run())
                nursery.start(agent.run())

        self._agent = agent
        self._running = self._plane.nursery.start(both())

    def kill(self) -> None:
        """The agent ends without a report; programs go on."""
        assert self._running is not None
        self._running.cancel()

    async def stop(self) -> None:
        """The agent ends in order."""
        self.kill()
        assert self._agent is not None
        await self._agent.leave()

    @property
    def running(self) -> int:
        return sum(run.running for record in self.runtime.pods() for run in record.runs)


class Plane(ApiFixture):
    """Controllers and two machines."""

    def __init__(self, clock: Clock, rng: Stream, log: Logger) -> None:
        super().__init__(clock, rng, log)
        self.a, self.b = Machine(self, "a"), Machine(self, "b")

    async def ready(self, node: str) -> str:
        try:
            found = (await self.client.get(NODE, node)).status.conditions
        except NotFound:
            return ""
        return next((item.status for item in found if item.type == "Ready"), "")

    async def pod_ready(self, name: str) -> str:
        try:
            found = condition(await self.client.get(POD, name, "default"), "Ready")
        except NotFound:
            return "gone"
        return found.status if found is not None else ""

    async def endpoints(self) -> set[str]:
        """The pods that the Service leads to."""
        slices = (await self.client.list(ENDPOINTSLICE, "default")).items
        return {
            item["targetRef"]["name"]
            for found in slices
            for item in found.endpoints
            if item.get("targetRef") and item["conditions"]["ready"]
        }

    async def until_is(self, read: Any, wanted: object) -> float:
        async def reached() -> bool:
            return bool(await read() == wanted)

        return await self.until(reached, limit_s=120)


@asynccontextmanager
async def served(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[Plane]:
    """Both agents run a pod of one Service; the pod on ``a`` may stay for a minute."""
    async with opened(Plane(clock, rng, log)) as plane:
        deps = plane.new_deps()
        plane.nursery.start(deps.informers.run())
        plane.start(NodeLifecycle(deps), EndpointsController(deps))
        for machine in (plane.a, plane.b):
            machine.start()
            await plane.until_is(lambda: plane.ready(machine.name), "True")  # noqa: B023  called at once
        service = {
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        }
        await plane.client.create(SERVICE, service, "default")
        stay = [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]
        for node in ("a", "b"):
            body = document(
                name=f"on-{node}", meta={"labels": {"app": "web"}}, nodeName=node, tolerations=stay
            )
            await plane.client.create(POD, body, "default")
        await plane.until_is(plane.endpoints, {"on-a", "on-b"})
        yield plane
        for machine in (plane.a, plane.b):
            for uid in list(machine.programs.pods):
                await machine.runtime.remove(uid)


async def test_silent_agent_loses_connections_then_pods(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with served(clock, rng, log) as plane:
        plane.a.kill()
        assert 30 < await plane.until_is(lambda: plane.ready("a"), "Unknown") < 60
        assert await plane.until_is(plane.endpoints, {"on-b"}) < 10
        assert await plane.pod_ready("on-a") == "False"
        assert await plane.pod_ready("on-b") == "True"

        async def evicted() -> bool:
            pod = await plane.client.get(POD, "on-a", "default")
            return bool(pod.metadata.deletion_timestamp)

        assert 50 < await plane.until(evicted, limit_s=120) < 75
        assert plane.a.running == 1
        plane.a.start()  # it ends what was replaced
        await plane.until_is(lambda: plane.pod_ready("on-a"), "gone")
        await plane.until_is(lambda: plane.ready("a"), "True")
        assert (plane.a.running, plane.b.running) == (0, 1)


async def test_agent_that_returns_in_time_keeps_its_pods(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with served(clock, rng, log) as plane:
        for _ in range(2):
            plane.a.kill()
            await plane.until_is(plane.endpoints, {"on-b"})
            await clock.sleep(20)
            plane.a.start()
            assert await plane.until_is(plane.endpoints, {"on-a", "on-b"}) < 5
            await clock.sleep(120)
            assert await plane.ready("a") == "True"
        assert len(plane.a.programs.starts) == 1
        assert plane.a.running == 1


async def test_stopped_agent_loses_connections_at_once(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with served(clock, rng, log) as plane:
        await plane.a.stop()
        assert await plane.ready("a") == "False"
        assert await plane.until_is(plane.endpoints, {"on-b"}) < 10
