"""Who lives in a world: node agents on simulated machines, controllers, the scheduler."""

from collections.abc import Mapping

from grange.agent.config import NodeConfig
from grange.agent.runtimes.fake import FakeMachine, FakeRuntime, Script
from grange.agent.service import NodeAgent
from grange.api.kinds import NODE
from grange.base.clock import Clock
from grange.controllers import TABLE
from grange.controllers.sharded import SHARDED
from grange.reconcile.deps import Deps
from grange.scheduler.config import SchedulerConfig
from grange.scheduler.framework import Profiles
from grange.scheduler.service import Scheduler
from grange.sim.world import World

CAPACITY: Mapping[str, str] = {"cpu": "4", "memory": "8Gi", "pods": "110"}
SCRIPTS: Mapping[str, Script] = {
    "serve": Script(term_s=0.5),  # runs until SIGTERM, and then takes its time
    "stubborn": Script(term_s=None),  # ignores SIGTERM
    "job": Script(duration_s=5.0),
    "crash": Script(duration_s=3.0, exit_code=1),
    "flicker": Script(duration_s=20.0, exit_code=1),
    "fade": Script(duration_s=45.0, exit_code=1),
}


def add_node(
    world: World,
    name: str,
    *,
    capacity: Mapping[str, str] = CAPACITY,
    labels: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> FakeMachine:
    """Add a machine with an agent on it.

    Args:
        world: where to.
        name: of the node; its agent is the component ``agent-<name>``.
        capacity: the capacity that the node reports.
        labels: of the node.
        clock: the machine's own; the true one by default.

    Returns:
        The machine, which outlives its agent.
    """
    machine = FakeMachine(SCRIPTS)
    config = NodeConfig(name=name, capacity=capacity, labels=dict(labels or {}))

    def agent(deps: Deps) -> NodeAgent:
        return NodeAgent(deps, config, FakeRuntime(machine, deps.clock))

    world.add(f"agent-{name}", agent, clock=clock)
    world.recovery.judges = True
    return machine


async def registered(world: World, count: int, *, limit_s: float = 300.0) -> None:
    """Wait until so many nodes have reported their capacity.

    Raises:
        TimeoutError: they have not after ``limit_s`` virtual seconds.
    """

    async def all_have() -> bool:
        nodes = (await world.client.list(NODE)).items
        return len([node for node in nodes if node.status.allocatable]) == count

    await world.until(all_have, limit_s=limit_s)


def add_controllers(world: World, *, besides: str = "") -> None:
    """Add every controller, each as a separate component, but not the one that is named."""
    sharded = ((name, controller.create) for name, controller in SHARDED.items())
    for name, factory in (*sharded, *TABLE):
        if name != besides:
            world.add(name, factory)


def add_scheduler(
    world: World, config: SchedulerConfig | None = None, profile: Profiles | None = None
) -> list[Scheduler]:
    """Add the scheduler.

    Returns:
        Its lives so far; the last is the one that runs.
    """
    lives: list[Scheduler] = []

    def scheduler(deps: Deps) -> Scheduler:
        lives.append(Scheduler(deps, config, profile=profile))
        return lives[-1]

    world.add("scheduler", scheduler)
    return lives


def running(machine: FakeMachine) -> list[str]:
    """UIDs of the pods that have a running program on the machine, in the order of arrival."""
    return [
        uid
        for uid, pod in machine.pods.items()
        if any(live.run.running for live in pod.runs.values())
    ]
