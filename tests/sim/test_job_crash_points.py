"""A job controller that dies at any of its requests, and is started again, changes nothing in the end.

The scenario is played once without a crash and its requests are counted; each seed plays it again
with a crash at one of them. Both pods fail once, the job succeeds, is cleaned up and deleted.
"""

from dataclasses import dataclass
from functools import cache
from math import gcd
from typing import Any

from tests.sim.job_judges import IndexesRunOnce, JobsAreCounted
from tests.sim.test_jobs import CONFIG

from grange.agent.runtimes.fake import Script
from grange.api.job_status import RoleStatus
from grange.api.kinds import GANGJOB, POD, PODGROUP, SERVICE
from grange.api.meta import Document, Resource, controller_of
from grange.api.status import NotFound
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER
from grange.controllers.gangjob.controller import JobService
from grange.sim import runner, simulated_nodes
from grange.sim.crashpoints import Asked, CrashPoint, CrashPoints, every_point
from grange.sim.pytest_plugin import EPOCH
from grange.sim.world import World, simulated

REPLICAS, CONTROLLER = 2, "jobs"
DOWN_S = 0.5
JOB: Document = {
    "metadata": {"name": "train", "namespace": "default"},
    "spec": {
        "replicaSpecs": {
            "worker": {
                "replicas": REPLICAS,
                "restartPolicy": "ExitCode",
                "template": {"spec": {"containers": [{"name": "main", "command": ["work"]}]}},
            }
        },
        "runPolicy": {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 5},
    },
}


@dataclass(frozen=True, slots=True)
class ScenarioEnd:
    """How a run ended.

    Attributes:
        asked: the requests of the controller.
        struck: the one at which it died.
        restarts: in all, and those without a charge.
        worker: the status of the role at the end of the job.
    """

    asked: tuple[Asked, ...]
    struck: Asked | None
    restarts: tuple[int, int]
    worker: RoleStatus


class FailsFirst(dict[str, Script]):
    """The first program of each index fails with a code that is retried."""

    def __init__(self) -> None:
        super().__init__()
        self._started = 0

    def get(self, key: str, default: Any = None) -> Any:
        self._started += 1
        return Script(duration_s=4.0, exit_code=130 if self._started <= REPLICAS else 0)


async def play(log: Logger, point: CrashPoint | None = None) -> ScenarioEnd:
    """One run, judged at every write."""
    clock, rng = LoopClock(EPOCH), Stream(0)
    async with simulated(clock=clock, rng=rng, log=log) as world:
        points = CrashPoints(world, actors={CONTROLLER}, point=point)
        machines = {"n0": simulated_nodes.add_node(world, "n0")}
        machines["n0"].scripts = FailsFirst()
        once = IndexesRunOnce(machines)
        world.witnesses.append(once.witness)
        for judge in (once, JobsAreCounted()):
            world.history.add(judge)
        simulated_nodes.add_controllers(world, besides="gangjob")
        simulated_nodes.add_scheduler(world)
        await simulated_nodes.registered(world, 1)
        points.begin()
        world.add(CONTROLLER, lambda deps: JobService(deps, GANGJOB_ADAPTER, CONFIG))
        async with Nursery() as nursery:
            reviving = nursery.start(revive(world, points))
            await world.client.create(GANGJOB, JOB, "default")
            await world.until(lambda: has_ended(world), limit_s=60)
            status = (await world.client.get(GANGJOB, "train", "default")).status
            await world.until(lambda: is_gone(world), limit_s=30)
            points.end()
            reviving.cancel()
        restarts = status.restarts, status.uncharged_restarts
        worker = status.replica_statuses["worker"]
        return ScenarioEnd(tuple(points.asked), points.struck, restarts, worker)


async def revive(world: World, points: CrashPoints) -> None:
    """Start the controller again when it has died."""
    while points.struck is None:
        await world.clock.sleep(DOWN_S)
    world.restart(CONTROLLER)


async def has_ended(world: World) -> bool:
    """Whether the job has succeeded."""
    return (await world.client.get(GANGJOB, "train", "default")).status.phase == "Succeeded"


async def is_gone(world: World) -> bool:
    """Whether nothing is left of the job."""
    try:
        await world.client.get(GANGJOB, "train", "default")
    except NotFound:
        left: list[Resource] = [*(await world.client.list(POD, "default")).items]
        left += (await world.client.list(SERVICE, "default")).items
        left += (await world.client.list(PODGROUP, "default")).items
        return not any(controller_of(item.metadata) for item in left)
    return False


@cache
def untroubled() -> ScenarioEnd:
    """The scenario without a crash."""
    return runner.run(play(Logger("scenario")))


def pick(seed: int) -> CrashPoint:
    """The crash point of a seed; seeds that follow each other are far apart in the scenario."""
    found = [*every_point(len(untroubled().asked))]
    size = len(found)
    stride = next(n for n in range(int(size * 0.618), 2 * size) if gcd(n, size) == 1)
    return found[seed * stride % size]


def test_a_crash_of_the_controller_changes_no_job(seed: int, log: Logger) -> None:
    point, expected = pick(seed), untroubled()
    found = runner.run(play(log, point))
    assert found.struck == expected.asked[point.number], point
    assert (found.restarts, found.worker) == (expected.restarts, expected.worker), point


def test_scenario_charges_each_failure_once() -> None:
    found = untroubled()
    assert len(found.asked) > 25
    assert found.restarts == (REPLICAS, 0)
    assert found.worker.index_restarts == {"0": 1, "1": 1}
