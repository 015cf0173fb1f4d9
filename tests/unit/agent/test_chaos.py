"""Crashes, outages and lost containers in any order: nothing is doubled, and all comes right."""

import pytest
from tests.support.agent_world import World, world
from tests.unit.agent.builders import container, document

from grange.agent.runtimes.fake import Script
from grange.api.http import Request
from grange.api.kinds import POD
from grange.api.status import ApiError, NotFound, ServiceUnavailable, Timeout
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

NAMES = ("a", "b", "c", "d")
STORM_S = 120.0


class Storm:
    """Draws faults from a stream."""

    def __init__(self, there: World, rng: Stream) -> None:
        self.there = there
        self.rng = rng
        self.crashed = False

    def gate(self, request: Request) -> ApiError | None:
        """One request in five gets lost while the storm lasts."""
        if self.rng.uniform(0, 1) < 0.2 and "watch" not in request.query:
            return self.rng.choice([ServiceUnavailable("away"), Timeout("who knows")])
        return None

    async def strike(self) -> None:
        there = self.there
        match self.rng.choice(["crash", "kill", "lose", "create", "create", "delete", "force"]):
            case "crash" if self.crashed:
                there.start_agent()
                self.crashed = False
            case "crash":
                there.crash_agent()
                self.crashed = True
            case "kill" | "lose" as how:
                live = [run.id for pod in there.runtime.pods() for run in pod.runs if run.running]
                if live:
                    reason = "ContainerStatusUnknown" if how == "lose" else ""
                    victim = self.rng.choice(live)
                    there.machine.end(victim, there.clock.now(), 1, reason=reason)
            case "create":
                await self.create(self.rng.choice(NAMES))
            case "delete":
                await self.delete(self.rng.choice(NAMES), None)
            case "force":
                await self.delete(self.rng.choice(NAMES), 0)

    async def create(self, name: str) -> None:
        program = self.rng.choice(["forever", "stubborn", "flaky", "slow-to-stop"])
        inits = [container("init", "well")] if self.rng.integer(0, 1) else []
        made = document(
            container(program=program), name=name, initContainers=inits,
            terminationGracePeriodSeconds=4,
        )  # fmt: skip
        try:
            await self.there.create(made)
        except ApiError:
            return

    async def delete(self, name: str, grace_s: int | None) -> None:
        try:
            await self.there.client.delete(POD, name, "default", grace_period_s=grace_s)
        except NotFound:
            return


@pytest.mark.parametrize("storm_seed", range(8))
async def test_after_any_storm_all_comes_right(
    storm_seed: int, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        there.machine.scripts["flaky"] = Script(duration_s=7.0, exit_code=1)
        storm = Storm(there, Stream(storm_seed, "storm"))
        there.gate = storm.gate
        until = clock.monotonic() + STORM_S
        while clock.monotonic() < until:
            await storm.strike()
            assert_nothing_is_doubled(there)
            await clock.sleep(storm.rng.uniform(0.0, 3.0))
        there.gate = lambda request: None
        if storm.crashed:
            there.start_agent()
        there.machine.scripts["flaky"] = Script()
        await clock.sleep(120)
        assert_nothing_is_doubled(there)
        wanted = (await there.client.list(POD, "default")).items
        live = {run.id for pod in there.runtime.pods() for run in pod.runs if run.running}
        assert {pod.metadata.uid for pod in wanted} == {target.pod_uid for target in live}
        for pod in wanted:
            (status,) = pod.status.container_statuses
            assert (pod.status.phase, status.ready) == ("Running", True)
            (target,) = [x for x in live if x.pod_uid == pod.metadata.uid]
            assert (target.container, target.attempt) == ("main", status.restart_count)


def assert_nothing_is_doubled(there: World) -> None:
    assert len(set(there.machine.starts)) == len(there.machine.starts)
    live = [run.id for pod in there.runtime.pods() for run in pod.runs if run.running]
    places = [(target.pod_uid, target.container) for target in live]
    assert len(set(places)) == len(places)
