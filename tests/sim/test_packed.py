"""Packed services among drains, orders and rollouts: never below the minimum, and where they belong.

The scheduler chooses the nodes here, so that a pod leaves one is the work of two that do not know
each other. Machines and programs do not fail (programs in some worlds), as in the worlds of rollouts.
"""

from collections import Counter
from functools import partial

import msgspec
import pytest
from tests.sim.operators import Operators, OrdersTakeReplicasAlong
from tests.sim.test_farm import skewed
from tests.sim.test_replication import BAD_NETWORK, crashes
from tests.sim.test_replication_farm import MEMBERS, OneWriter, Process, settled
from tests.sim.test_rollouts import MinimumIsKept, chaos_of, controller, patched, template
from tests.sim.test_transfers import FITS, Births
from tests.sim.users import Users

from grange.agent.runtimes.fake import FakeMachine
from grange.api.kinds import AUDITRECORD, NODE, POD, REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import drained_nodes
from grange.api.meta import controller_of
from grange.base.clock import Clock, LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.sim import simulated_nodes
from grange.sim.invariants import ObservedWrite
from grange.sim.pytest_plugin import EPOCH, Records
from grange.sim.simulated_pool import SimulatedPool
from grange.sim.world import World, simulated

NODES = ("n0", "n1", "n2", "n3")
SERVICES = ("heap", "pile")
ROOMY, TIGHT = "8", "4"  # CPUs of a node; every pod asks for one
MOST = 6  # replicas; with surge, two services of so many fill four tight nodes
TROUBLE_S = 160
_QUIET_S = 5.0  # so long after a change of mind nothing is on its way any more


class MinimumFollowsTheSpec(MinimumIsKept):
    """The minimum of a service falls with its replicas, and rises when its pods have risen to it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._wanted: dict[str, tuple[int, float]] = {}  # and since when all know

    def see(self, change: ObservedWrite) -> None:
        """Take note of what is wanted; judge pods by it."""
        if change.concerns(REPLICATIONCONTROLLER) and not change.deleted:
            self._note(msgspec.convert(change.document, ReplicationController))
        super().see(change)
        for app, (minimum, since) in self._wanted.items():
            up = len(self._ready.get(app, {})) >= minimum
            if up and self._clock.monotonic() - since > _QUIET_S:
                self.minimum[app] = minimum

    def _note(self, found: ReplicationController) -> None:
        app, spec = found.metadata.name, found.spec
        missing = spec.rollout.max_unavailable
        assert isinstance(missing, int)
        minimum = max(0, spec.replicas - missing)
        if minimum < self.minimum.get(app, 0):
            self.minimum[app] = minimum
        before, since = self._wanted.get(app, (-1, 0.0))
        known = found.status.observed_generation == found.metadata.generation
        if minimum != before or not known or found.status.outbox:
            since = self._clock.monotonic()
        self._wanted[app] = minimum, since


async def populate(world: World, cpus: str, rng: Stream) -> dict[str, FakeMachine]:
    """Nodes, members and everybody else; no machines to lend."""
    capacity = {"cpu": cpus, "memory": "64Gi", "pods": "110"}
    machines = {
        name: simulated_nodes.add_node(world, name, capacity=capacity, labels=FITS)
        for name in NODES
    }
    simulated_nodes.add_controllers(world, besides="replication")
    for name in MEMBERS:
        clock = skewed(world, name, rng.fork(name))
        world.add(name, partial(Process, name=name, pool=SimulatedPool(())), clock=clock)
    simulated_nodes.add_scheduler(world)
    await simulated_nodes.registered(world, len(machines))
    return machines


async def astray(world: World, closed: str) -> list[str]:
    """Pods that are where their controllers do not want them."""
    pods = (await world.client.list(POD)).items
    found = []
    for one in (await world.client.list(REPLICATIONCONTROLLER)).items:
        left = drained_nodes(one) | ({closed} if one.spec.strategy == "Dynamic" else set())
        found += [
            f"{pod.metadata.name} on {pod.spec.node_name}"
            for pod in pods
            if (owner := controller_of(pod.metadata)) is not None
            and owner.uid == one.metadata.uid
            and pod.spec.node_name in left
        ]
    return found


async def create_services(world: World, draw: Stream) -> None:
    """Controllers of the first template, each with a strategy and its own budget."""
    for name in SERVICES:
        rollout = {
            "maxUnavailable": draw.choice([0, 0, 1]),
            "maxSurge": draw.integer(1, 2),
            "progressDeadlineSeconds": 60,
        }
        document = controller(
            name,
            draw.integer(2, MOST),
            placement="Packed",
            strategy=draw.choice(["Dynamic", "Dynamic", "Static"]),
            nodeSelector={"matchLabels": FITS},
            rollout=rollout,
        )
        await world.client.create(REPLICATIONCONTROLLER, document, "default")


async def decide(world: World, draw: Stream, operators: Operators, most: int) -> str:
    """The last wishes: each service has to leave one node perhaps, and the others have room.

    Returns:
        The node that is closed to all; empty for none.
    """
    closed = draw.choice(["", *NODES])
    for name in NODES:
        labels = {key: None if name == closed else value for key, value in FITS.items()}
        change = {"metadata": {"labels": labels}, "spec": {"unschedulable": False}}
        await world.client.patch(NODE, name, patch=change)
    for name in SERVICES:
        await operators.leave(name, draw.choice(["", *NODES]))
        last = {"replicas": draw.integer(1, most), "template": template(name, 4)}
        await patched(world, name, **last, paused=False, rollout={"paused": False})
    return closed


async def judge_audit(world: World, births: Births, *, taken_over: bool) -> None:
    """Every pod that came and every one that went is recorded, once.

    Args:
        world: at rest.
        births: the pods that came.
        taken_over: controllers were deleted and created again: what one had begun, its successor of the same name
            finds and takes over.
    """
    live = {pod.metadata.uid for pod in (await world.client.list(POD)).items}
    audit = (await world.client.list(AUDITRECORD)).items
    recorded = Counter(item.pod for one in audit for item in one.spec.added)
    gone = Counter(item.uid for one in audit for item in one.spec.removed)
    assert set(gone.values()) <= {1}, "a pod goes once"
    assert not live & set(gone), "what went is not there"
    twice = dict(recorded - births.names)
    assert not twice, f"no pod that came is recorded twice: {twice}"
    if taken_over:
        members = {item.pod for one in audit for item in one.spec.members}
        assert set(births.names) <= members, "every pod that came is recorded"
    else:
        untold = dict(births.names - recorded)
        assert not untold, f"every pod that came is recorded: not {untold}"
        assert set(gone) == births.uids - live, "every pod that went is recorded"


@pytest.mark.seeds(2)
async def test_packed_services_survive_drains_and_removals(
    seed: int, log: Logger, records: Records
) -> None:
    """Nodes are drained and closed, and pods ordered to go, while templates change and owners crash."""
    clock, rng = LoopClock(EPOCH), Stream(seed)
    minimum, writer = MinimumFollowsTheSpec(clock), OneWriter()
    births, orders = Births(), OrdersTakeReplicasAlong()
    async with simulated(clock=clock, rng=rng, log=log, faults=BAD_NETWORK) as world:
        for judge in (minimum, writer, births, orders):
            world.history.add(judge)
        world.witnesses.append(writer.witness)
        draw = rng.fork("wishes")
        cpus = draw.choice([ROOMY, TIGHT])
        machines = await populate(world, cpus, rng.fork("clocks"))
        await create_services(world, draw)
        await world.until(lambda: settled(world, 1), limit_s=300)

        chaos = chaos_of(world, rng.fork("chaos"), machines)
        minimum.breakable = chaos.break_newest in chaos.disturbances

        async def lose_owner() -> None:
            name = draw.choice(MEMBERS)
            world.crash(name)
            await clock.sleep(draw.uniform(0.0, 25.0))
            world.restart(name)

        users = Users(world, rng.fork("users"), SERVICES, most=MOST)
        chaos.disturbances += [lose_owner, lose_owner, users.scale, users.scale]
        rare = [users.pause, users.undo, users.create_again]
        chaos.add_some(rare, rng.fork("users.rare"))
        operators = Operators(world, rng.fork("operators"), SERVICES, NODES, FITS)
        async with Nursery() as nursery:
            nursery.start(chaos.run(TROUBLE_S))
            nursery.start(operators.run(TROUBLE_S))
            for version in (2, 3):
                await clock.sleep(draw.uniform(5.0, 75.0))
                for name in SERVICES:
                    await patched(world, name, template=template(name, version))
        await chaos.restore()

        closed = await decide(world, draw, operators, 4 if cpus == ROOMY else 2)

        async def at_rest() -> bool:
            return await settled(world, 4) and not await astray(world, closed)

        await world.until(at_rest, limit_s=1500)
        await clock.sleep(120 + chaos.deaf_s)  # news that is on its way may unsettle it once more
        await world.until(at_rest, limit_s=600)
        restless = [line for line in await world.fixed_point(200) if "/core/nodes/" not in line]
        assert restless == []
        writer.judge()

        live = (await world.client.list(POD)).items
        assert orders.left(live) == [], "what was ordered to go goes"
        await judge_audit(world, births, taken_over=users.create_again in chaos.disturbances)
    assert crashes(records) == []
