"""A session controller that dies at any of its requests, and is started again, changes nothing in the end.

The scenario is played once without a crash and its requests are counted; each seed plays it again
with a crash at one of them. The first driver is lost, the second attempt passes, and the session
expires.
"""

from dataclasses import dataclass
from functools import cache
from math import gcd
from typing import Any

import pytest
from tests.sim.session_judges import AttemptsRunAlone, SessionsEndOnce

from grange.agent.runtimes.fake import FakeMachine, Script
from grange.api.kinds import CONFIGMAP, MACHINELEASE, NODE, POD, TESTSESSION
from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.api.kinds.testsession import SESSION_LABEL, TestSessionStatus
from grange.api.meta import Document
from grange.api.status import NotFound
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.controllers.testsession.controller import SessionService
from grange.sim import runner, simulated_nodes
from grange.sim.crashpoints import Asked, CrashPoint, CrashPoints, every_point
from grange.sim.pytest_plugin import EPOCH
from grange.sim.world import World, simulated

CONTROLLER, DOWN_S = "sessions", 0.5
MACHINES = {"w0": "workers", "w1": "workers", "d0": "drivers"}
SESSION: Document = {
    "metadata": {"name": "qps", "namespace": "default"},
    "spec": {
        "driver": {"command": ["drive"], "pool": "drivers"},
        "servers": [{"command": ["serve"], "pool": "workers"}],
        "clients": [{"command": ["serve"], "pool": "workers"}],
        "ttlSecondsAfterFinished": 5,
    },
}


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """How a run ended.

    Attributes:
        asked: the requests of the controller.
        struck: the one at which it died.
        status: of the session at its end.
        drivers: how many drivers ran, by attempt.
    """

    asked: tuple[Asked, ...]
    struck: Asked | None
    status: TestSessionStatus
    drivers: dict[str, int]

    @property
    def events(self) -> list[str]:
        """Types of the session's events."""
        return [item.type for item in self.status.events]


class Drivers(dict[str, Script]):
    """Drivers take their time; workers serve."""

    def get(self, key: str, default: Any = None) -> Any:
        return Script(duration_s=6.0) if key == "drive" else Script(term_s=0.5)


async def play(log: Logger, point: CrashPoint | None = None) -> SessionEnd:
    """One run, judged at every write."""
    clock, rng = LoopClock(EPOCH), Stream(0)
    async with simulated(clock=clock, rng=rng, log=log) as world:
        points = CrashPoints(world, actors={CONTROLLER}, point=point)
        machines: dict[str, FakeMachine] = {}
        for name, pool in MACHINES.items():
            machines[name] = simulated_nodes.add_node(world, name, labels={"pool": pool})
            machines[name].scripts = Drivers()
        alone = AttemptsRunAlone(machines)
        world.witnesses.append(alone.witness)
        for judge in (alone, SessionsEndOnce()):
            world.history.add(judge)
        simulated_nodes.add_controllers(world, besides="testsession")
        simulated_nodes.add_scheduler(world)
        await simulated_nodes.registered(world, len(MACHINES))
        points.begin()
        world.add(CONTROLLER, SessionService)
        async with Nursery() as nursery:
            reviving = nursery.start(revive(world, points))
            await world.client.create(TESTSESSION, SESSION, "default")
            await world.until(lambda: is_running(world), limit_s=60)
            await world.client.delete(POD, "qps-server", "default")
            await world.until(lambda: has_ended(world), limit_s=90)
            status = (await world.client.get(TESTSESSION, "qps", "default")).status
            await world.until(lambda: is_gone(world), limit_s=30)
            points.end()
            reviving.cancel()
        drivers = {attempt: len(found) for (_, attempt), found in alone.drivers.items()}
        return SessionEnd(tuple(points.asked), points.struck, status, drivers)


async def revive(world: World, points: CrashPoints) -> None:
    """Start the controller again when it has died."""
    while points.struck is None:
        await world.clock.sleep(DOWN_S)
    world.restart(CONTROLLER)


async def is_running(world: World) -> bool:
    """Whether the driver of the first attempt runs."""
    return (await world.client.get(TESTSESSION, "qps", "default")).status.phase == "Running"


async def has_ended(world: World) -> bool:
    """Whether the session has passed."""
    return (await world.client.get(TESTSESSION, "qps", "default")).status.phase == "Succeeded"


async def is_gone(world: World) -> bool:
    """Whether nothing is left of the session."""
    try:
        await world.client.get(TESTSESSION, "qps", "default")
    except NotFound:
        left = len((await world.client.list(POD, "default", labels=SESSION_LABEL)).items)
        left += len((await world.client.list(CONFIGMAP, "default", labels=SESSION_LABEL)).items)
        left += len((await world.client.list(MACHINELEASE, "default")).items)
        left += len((await world.client.list(NODE, labels=MACHINE_LEASE)).items)
        return left == 0
    return False


@cache
def untroubled() -> SessionEnd:
    """The scenario without a crash."""
    return runner.run(play(Logger("scenario")))


def pick(seed: int) -> CrashPoint:
    """The crash point of a seed; seeds that follow each other are far apart in the scenario."""
    found = [*every_point(len(untroubled().asked))]
    size = len(found)
    stride = next(n for n in range(int(size * 0.618), 2 * size) if gcd(n, size) == 1)
    return found[seed * stride % size]


@pytest.mark.seeds(3)
def test_a_crash_of_the_controller_changes_no_session(seed: int, log: Logger) -> None:
    point, expected = pick(seed), untroubled()
    found = runner.run(play(log, point))
    assert found.struck == expected.asked[point.number], point
    assert found.events == expected.events, point
    assert found.drivers == expected.drivers, point
    assert found.status.verdict == "Passed", point


def test_scenario_has_one_driver_in_each_attempt() -> None:
    found = untroubled()
    assert len(found.asked) > 40
    assert found.drivers == {"0": 1, "1": 1}
    once = ["QUEUE", "ACCEPT", "PROVISION", "RUN"]
    assert found.events == [*once, "RETRY", *once[1:], "DONE"]
