"""Random lives of a job and its controller, which is killed in between, on a real API server in memory.

Every failure is charged once, a complete index never runs again, every other one has one pod, and
the end of the job stays.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.job_world import MANAGER, JobWorld, job_world

from grange.api import index_ranges
from grange.api.http import Request, Response
from grange.api.job_status import JobStatus
from grange.api.kinds import POD
from grange.base.backoff import Exponential
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Child
from grange.client.client import Client
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER
from grange.controllers.gangjob.config import GangJobConfig
from grange.controllers.gangjob.controller import JobService
from grange.sim.runner import Runner

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = GangJobConfig(replacement=Exponential(initial_s=0.1, cap_s=1.0))
DYING_S = 0.5
SETTLED_S = 4.0
RETRYABLE = 130
# The controller is killed after so many of its writes that follow an action, or not at all.
kills = st.sampled_from([None, None, 0, 1, 2, 3, 4])
places = st.integers(0, 3)


async def opened_world() -> AsyncGenerator[JobWorld, None]:
    async with job_world(LoopClock(EPOCH), Stream(1), Logger("machine")) as world:
        yield world


class MortalTransport:
    """Carries requests until so many writes are done; the next one never returns.

    Attributes:
        left: writes that are carried still; None: all.
    """

    def __init__(self, world: JobWorld) -> None:
        self._world = world
        self.left: int | None = None

    async def close(self) -> None:
        """Nothing is open."""

    async def send(self, request: Request) -> Response:
        """Carry a request."""
        if request.method != "GET" and "/events" not in request.path and self.left is not None:
            if self.left == 0:
                await asyncio.Event().wait()
            self.left -= 1
        return await self._world.handle(replace(request, user=MANAGER))


class JobLife(RuleBasedStateMachine):
    """A job under everything that its pods, its users and its controller do."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = Runner()
        self.failures = 0
        self.complete: set[int] = set()
        self.suspended = False
        self.end: JobStatus | None = None
        self.process: list[Child[None]] = []

    @initialize(replicas=st.integers(1, 4))
    def begin(self, replicas: int) -> None:
        self.replicas = replicas
        self.opened = self.runner.open(opened_world(), name="world")
        self.world: JobWorld = self.opened.value
        roles = {"worker": {"replicas": replicas, "restartPolicy": "ExitCode"}}
        policy = {"schedulingPolicy": {"backend": "None"}, "cleanPodPolicy": "All"}
        self.run(self.world.add_job(roles=roles, runPolicy=policy))

    def run(self, work: Coroutine[Any, Any, object], writes: int | None = None) -> None:
        """Do some work, kill the controller where that is drawn, and let its successor see it."""

        async def both() -> None:
            if not self.process:
                self.launch()
            self.transport.left = writes
            await work
            if writes is not None:
                await self.world.settle(DYING_S)
                for child in self.process:
                    child.cancel()
                self.launch()
            await self.world.settle(SETTLED_S)

        self.runner.run(both())

    def launch(self) -> None:
        self.transport = MortalTransport(self.world)
        client = Client(self.transport, clock=self.world.clock)
        deps = replace(self.world.new_deps(), client=client)
        service = JobService(deps, GANGJOB_ADAPTER, CONFIG)
        self.process = [self.world.nursery.start(deps.informers.run()), *self.world.start(service)]

    async def finish_pod(self, place: int, code: int) -> None:
        running = [
            name
            for name, pod in sorted((await self.world.pods()).items())
            if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp
        ]
        if not running:
            return
        name = running[place % len(running)]
        await self.world.finish(name, code)
        if code:
            self.failures += 1
        else:
            self.complete.add(int(name.rpartition("-")[2]))

    # --- what happens ---------------------------------------------------------------------------

    @rule(place=places, writes=kills)
    def succeed(self, place: int, writes: int | None) -> None:
        self.run(self.finish_pod(place, 0), writes)

    @rule(place=places, writes=kills)
    def fail(self, place: int, writes: int | None) -> None:
        self.run(self.finish_pod(place, RETRYABLE), writes)

    @rule(first=places, second=places, writes=kills)
    def fail_and_succeed(self, first: int, second: int, writes: int | None) -> None:
        async def both() -> None:
            await self.finish_pod(first, RETRYABLE)
            await self.finish_pod(second, 0)

        self.run(both(), writes)

    @rule(place=places, writes=kills)
    def delete_pod(self, place: int, writes: int | None) -> None:
        """A user deletes a pod: it is replaced and not charged."""

        async def delete() -> None:
            names = sorted(await self.world.pods())
            if names:
                await self.world.client.delete(POD, names[place % len(names)], "default")

        self.run(delete(), writes)

    @rule(wanted=st.booleans(), writes=kills)
    def suspend(self, wanted: bool, writes: int | None) -> None:
        if self.end is None:
            self.suspended = wanted
            self.run(self.world.change(runPolicy={"suspend": wanted}), writes)

    @rule(seconds=st.sampled_from([1.0, 30.0]), writes=kills)
    def wait(self, seconds: float, writes: int | None) -> None:
        self.run(self.world.settle(seconds), writes)

    # --- what holds -----------------------------------------------------------------------------

    @invariant()
    def job_is_as_it_should_be(self) -> None:
        if not hasattr(self, "world"):
            return
        status = self.runner.run(self.world.status())
        pods = self.runner.run(self.world.pods())
        role = status.replica_statuses["worker"]
        assert status.restarts == role.restarts == self.failures
        assert set(index_ranges.parse(role.completed_indexes)) == self.complete
        active = {
            int(name.rpartition("-")[2])
            for name, pod in pods.items()
            if pod.status.phase not in ("Succeeded", "Failed")
        }
        if len(self.complete) == self.replicas:
            assert status.phase == "Succeeded"
            assert pods == {}
            assert self.end in (None, status)
            self.end = status
        elif self.suspended:
            assert status.phase == "Suspended"
            assert active == set()
        else:
            assert active == set(range(self.replicas)) - self.complete
            assert status.phase == "Running"
            assert role.ready == len(active)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.opened.close()
        self.runner.close()


JobLife.TestCase.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)
TestJobLife = JobLife.TestCase
