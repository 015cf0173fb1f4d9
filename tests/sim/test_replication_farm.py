"""Services that several members keep alive together: one writer each, and never below the minimum.

Three processes run the replication controller on separate clocks, and what goes wrong goes wrong
between any two of their steps. Machines and programs do not fail here, so no pod that serves may stop
serving before another does: ``maxUnavailable`` is zero, and the minimum is judged at every write.
"""

from contextlib import suppress
from functools import partial

import msgspec
from tests.sim.lateness import late_writes
from tests.sim.test_farm import skewed
from tests.sim.test_replication import BAD_NETWORK, crashes
from tests.sim.test_rollouts import (
    MinimumIsKept,
    chaos_of,
    controller,
    patched,
    template,
)
from tests.sim.test_transfers import ALLOCATED, FITS, OWN, AllocatedMachines, Births, nothing_lost
from tests.sim.users import Users

from grange.agent.runtimes.fake import FakeMachine
from grange.api.farm_protocol import OWNER_ANNOTATION
from grange.api.http import Request, Response
from grange.api.kinds import AUDITRECORD, NODE, POD, REPLICATIONCONTROLLER
from grange.api.kinds.transfer_status import DRAINED_NODES
from grange.api.meta import Document, controller_of
from grange.api.status import ApiError
from grange.base.clock import LoopClock
from grange.base.errors import invariant
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery, supervise
from grange.controllers.replication.controller import ReplicationService
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.farm.leases import Token
from grange.reconcile.farm.member import Member
from grange.sim import simulated_nodes
from grange.sim.chaos import Disturbance
from grange.sim.faults import LATE
from grange.sim.invariants import ObservedWrite
from grange.sim.pytest_plugin import EPOCH, Records
from grange.sim.simulated_pool import SimulatedPool
from grange.sim.world import World, simulated

MEMBERS = ("one", "two", "three")
TROUBLE_S = 160
SERVICES = ("web", "api", "jobs")
ROLLOUT: Document = {"maxUnavailable": 0, "maxSurge": 1, "progressDeadlineSeconds": 60}


class Process:
    """A member that runs the replication controller, with a pool of machines."""

    def __init__(self, deps: Deps, name: str, pool: SimulatedPool) -> None:
        self._deps = deps
        self._member = Member(deps, FarmConfig(member=name))
        farm = self._member.farm("replication", REPLICATIONCONTROLLER)
        self._service = ReplicationService(farm.fence(deps), pool=pool)
        farm.attach(self._service.loop)

    async def run(self) -> None:
        clock, log = self._deps.clock, self._deps.log
        async with Nursery("process") as nursery:
            for name, run in (("service", self._service.run), ("farm", self._member.run)):
                nursery.start(supervise(name, run, clock=clock, log=log))


# A creation has a name that only its controller would choose: at worst there is a pod too many for a
# moment. A deletion may arrive before the successor has made it fail, which counts the pod as gone.
_MAY_COME_LATE = frozenset({"POST", "DELETE"})


class OneWriter:
    """What a member writes about a controller is written while the controller names that member.

    But for creations and deletions of pods that were held on their way: these are judged by what is
    left of the service.
    """

    def __init__(self) -> None:
        self.writes: list[tuple[int, str, str]] = []
        self._owners: dict[str, list[tuple[int, str]]] = {}

    def see(self, change: ObservedWrite) -> None:
        """Remember who owned what since when."""
        if change.concerns(REPLICATIONCONTROLLER):
            notes = change.document["metadata"].get("annotations") or {}
            token = Token.parse(notes.get(OWNER_ANNOTATION, ""))
            owner = (change.revision, token.member if token else "")
            self._owners.setdefault(change.uid, []).append(owner)

    def witness(self, request: Request, response: Response) -> None:
        """Take note of a write that the server carried out, whatever becomes of its answer."""
        name = request.user.name.removeprefix("system:")
        if name not in MEMBERS or request.method == "GET" or response.status >= 300:
            return
        about_pods = "/pods" in request.path
        if LATE in request.headers and about_pods and request.method in _MAY_COME_LATE:
            return
        if not about_pods and not request.path.endswith("/status"):
            return
        document = msgspec.json.decode(response.body)
        meta = document.get("metadata") or {}
        if about_pods:
            owners = [one["uid"] for one in meta.get("ownerReferences") or []]
        else:
            owners = [meta["uid"]] if "/replicationcontrollers/" in request.path else []
        for uid in owners:
            self.writes.append((int(meta["resourceVersion"]), uid, name))

    def judge(self) -> None:
        """Compare, when everything has been seen."""
        for revision, uid, writer in self.writes:
            since = [owner for at, owner in self._owners.get(uid, []) if at <= revision]
            invariant(
                bool(since) and since[-1] == writer,
                "a controller has one writer at a time",
                revision=revision,
                controller=uid,
                writer=writer,
                owner=since[-1] if since else None,
            )


async def populate(world: World, pool: SimulatedPool, rng: Stream) -> dict[str, FakeMachine]:
    """Nodes, members and everybody else."""
    capacity = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    machines = {
        name: simulated_nodes.add_node(world, name, capacity=capacity, labels=FITS)
        for name in (*OWN, *ALLOCATED)
    }
    simulated_nodes.add_controllers(world, besides="replication")
    for name in MEMBERS:
        clock = skewed(world, name, rng.fork(name))
        world.add(name, partial(Process, name=name, pool=pool), clock=clock)
    simulated_nodes.add_scheduler(world)
    await simulated_nodes.registered(world, len(machines))
    return machines


async def settled(world: World, version: int) -> bool:
    """Whether every service has exactly its pods, all of one version, and nothing is under way."""
    try:
        found = (await world.client.list(REPLICATIONCONTROLLER)).items
        live = (await world.client.list(POD)).items
    except ApiError:
        return False
    for one in found:
        status, state = one.status, one.status.rollout
        if state is None or state.phase != "Complete" or status.node_transfers or status.outbox:
            return False
        versions = [
            pod.metadata.labels.get("version")
            for pod in live
            if (owner := controller_of(pod.metadata)) is not None and owner.uid == one.metadata.uid
        ]
        if versions != [str(version)] * one.spec.replicas or status.ready_replicas != len(versions):
            return False
    return True


def wishes(world: World, draw: Stream) -> list[Disturbance]:
    """What operators do meanwhile, and owners that are lost for longer or shorter than their term."""

    async def relabel() -> None:
        name, value = draw.choice([*OWN, *ALLOCATED]), draw.choice(["y", None])
        with suppress(ApiError):
            await world.client.patch(NODE, name, patch={"metadata": {"labels": {"web": value}}})

    async def drain() -> None:
        left = draw.choice(["", draw.choice(OWN)])
        change = {"metadata": {"annotations": {DRAINED_NODES: left or None}}}
        with suppress(ApiError):
            name = draw.choice(SERVICES)
            await world.client.patch(REPLICATIONCONTROLLER, name, "default", patch=change)

    async def lose_owner() -> None:
        name = draw.choice(MEMBERS)
        world.crash(name)
        await world.clock.sleep(draw.uniform(0.0, 25.0))
        world.restart(name)

    return [relabel, relabel, relabel, drain, lose_owner, lose_owner]


async def test_members_move_and_roll_services_and_none_is_ever_short(
    seed: int, log: Logger, records: Records
) -> None:
    """Nodes stop being eligible and are drained while templates change and owners come and go."""
    clock, rng = LoopClock(EPOCH), Stream(seed)
    minimum, writer, births = MinimumIsKept(clock), OneWriter(), Births()
    async with simulated(clock=clock, rng=rng, log=log, faults=BAD_NETWORK) as world:
        for judge in (minimum, writer, births):
            world.history.add(judge)
        world.witnesses.append(writer.witness)
        pool = SimulatedPool(ALLOCATED)
        machines = await populate(world, pool, rng.fork("clocks"))
        draw = rng.fork("wishes")
        for name in SERVICES:
            document = controller(
                name,
                draw.integer(1, 3),
                strategy=draw.choice(["Dynamic", "Dynamic", "Static"]),
                nodeSelector={"matchLabels": FITS},
                rollout=ROLLOUT,
            )
            await world.client.create(REPLICATIONCONTROLLER, document, "default")
        await world.until(lambda: settled(world, 1), limit_s=300)
        for one in (await world.client.list(REPLICATIONCONTROLLER)).items:
            minimum.minimum[one.metadata.name] = one.spec.replicas

        chaos = chaos_of(world, rng.fork("chaos"), machines)
        chaos.disturbances += wishes(world, draw)
        late = late_writes(world, rng.fork("late"), MEMBERS)
        minimum.breakable = chaos.break_newest in chaos.disturbances
        # One of our own nodes stays spare: where none may be missing, a rollout needs it.
        users = Users(world, rng.fork("users"), SERVICES, most=3, fewer=minimum.lower)
        rare = [users.scale, users.pause, users.undo, users.create_again]
        chaos.add_some(rare, rng.fork("users.rare"))
        async with Nursery() as nursery:
            nursery.start(chaos.run(TROUBLE_S))
            nursery.start(late.run(TROUBLE_S))
            for version in (2, 3):
                await clock.sleep(draw.uniform(5.0, 75.0))
                for name in SERVICES:
                    await patched(world, name, template=template(name, version))
        await chaos.restore()
        for name in (*OWN, *ALLOCATED):
            await world.client.patch(NODE, name, patch={"metadata": {"labels": FITS}})
        for name in SERVICES:
            stay: Document = {"metadata": {"annotations": {DRAINED_NODES: None}}}
            await world.client.patch(REPLICATIONCONTROLLER, name, "default", patch=stay)
            await patched(
                world, name, template=template(name, 4), paused=False, rollout={"paused": False}
            )
        await clock.sleep(late.late_s)
        await world.until(lambda: settled(world, 4), limit_s=1500)
        await clock.sleep(120 + chaos.deaf_s)  # news that is on its way may unsettle it once more
        await world.until(lambda: settled(world, 4), limit_s=600)
        if users.create_again in chaos.disturbances:
            # What was lent to a controller that is gone is looked for every five minutes.
            await world.until(
                lambda: nothing_lost(world, AllocatedMachines(pool=pool)), limit_s=700
            )
        restless = [line for line in await world.fixed_point(200) if "/core/nodes/" not in line]
        assert restless == []
        assert writer.writes
        writer.judge()

        assert await nothing_lost(world, AllocatedMachines(pool=pool)), "an allocation is lost"
        audit = (await world.client.list(AUDITRECORD)).items
        # What a controller had begun when it was deleted, its successor of the same name finds and takes over.
        births.judge(audit, exact=users.create_again not in chaos.disturbances and not late.late_s)
    assert crashes(records) == []
