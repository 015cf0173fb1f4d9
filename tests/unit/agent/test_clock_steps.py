"""Graces, back-offs and deadlines where the wall clock steps, or the agent is another one."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.support.agent_world import World, world
from tests.unit.agent.builders import container, document

from grange.api.kinds import POD
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream

HOUR_S = 3600.0


class SteppingClock(LoopClock):
    """A wall clock that a user sets."""

    def __init__(self) -> None:
        super().__init__(datetime(2026, 1, 1, tzinfo=UTC))
        self.step_s = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.step_s)


async def touch(there: World) -> None:
    """Something about the pod changes, so that its agent decides again."""
    patch = {"metadata": {"annotations": {"touched": "yes"}}}
    await there.client.patch(POD, "web", "default", patch=patch)


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
async def test_step_of_the_clock_changes_no_grace(rng: Stream, log: Logger, step_s: float) -> None:
    clock = SteppingClock()
    async with world(clock, rng, log) as there:
        await there.create(
            document(container(program="stubborn"), terminationGracePeriodSeconds=12)
        )
        await there.until_ready()
        await there.client.delete(POD, "web", "default")
        await clock.sleep(2)
        clock.step_s = step_s
        await touch(there)
        assert round(await there.until_gone()) == 10


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
async def test_step_of_the_clock_changes_no_backoff(
    rng: Stream, log: Logger, step_s: float
) -> None:
    clock = SteppingClock()
    async with world(clock, rng, log) as there:
        await there.create(document(container(program="badly")))
        await clock.sleep(13)  # in the fourth back-off, of 8 s, since 12 s
        assert len(there.starts()) == 5
        clock.step_s = step_s
        await touch(there)
        await clock.sleep(5)
        assert len(there.starts()) == 5
        await clock.sleep(4)
        assert len(there.starts()) == 6


async def test_step_of_the_clock_reaches_no_deadline(rng: Stream, log: Logger) -> None:
    clock = SteppingClock()
    async with world(clock, rng, log) as there:
        await there.create(document(activeDeadlineSeconds=30))
        await there.until_ready()
        clock.step_s = HOUR_S
        await touch(there)
        await clock.sleep(20)
        assert (await there.pod()).status.phase == "Running"
        await there.until_phase("Failed")


async def test_grace_goes_on_over_a_restart_of_the_agent(rng: Stream, log: Logger) -> None:
    clock = SteppingClock()
    async with world(clock, rng, log) as there:
        await there.create(
            document(container(program="stubborn"), terminationGracePeriodSeconds=30)
        )
        await there.until_ready()
        await there.client.delete(POD, "web", "default")
        await clock.sleep(20)
        there.crash_agent()
        there.start_agent()
        assert round(await there.until_gone()) == 10


async def test_grace_that_is_over_still_ends_in_order(rng: Stream, log: Logger) -> None:
    """Whether the agent before had asked the program is unknown: SIGTERM comes first again."""
    clock = SteppingClock()
    async with world(clock, rng, log) as there:
        await there.create(document(container(program="slow-to-stop")))
        await there.until_ready()
        there.crash_agent()
        await clock.sleep(1)
        await there.client.delete(POD, "web", "default")
        await clock.sleep(HOUR_S)
        there.start_agent()
        assert 1.9 < await there.until_gone() < 2.1
