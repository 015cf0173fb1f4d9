"""Small, complete stories of replicated services, run with and without a crash of who acts in them.

Two members share the controllers; what else there is (agents, the scheduler) never fails here. While a
story runs everything is judged at every write; how it ends is compared with the same story without
a crash.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from tests.sim.test_replication_farm import OneWriter
from tests.sim.test_rollouts import MinimumIsKept, controller, patched, template
from tests.sim.test_transfers import FITS, Births
from tests.support.scenarios import Deaths

from grange.api.farm_protocol import OWNER_ANNOTATION
from grange.api.http import Request, Response
from grange.api.kinds import (
    AUDITRECORD,
    NODE,
    POD,
    REPLICATIONCONTROLLER,
    ROLLINGUPDATE,
    pod as pods,
)
from grange.api.kinds.auditevents import MEMBERSHIP_CHANGED
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import DRAINED_NODES
from grange.api.meta import Document, controller_of
from grange.api.replication import TRANSFER_ANNOTATION, Transfer, written
from grange.base.clock import LoopClock
from grange.base.errors import invariant
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery, supervise
from grange.controllers.replication.controller import ReplicationService
from grange.controllers.rollingupdate.controller import RollingUpdateService
from grange.controllers.rollingupdate.controller_pair import REVOKED_ANNOTATION
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.farm.leader_election import LeaderElectedServices
from grange.reconcile.farm.leases import Token
from grange.reconcile.farm.member import Member
from grange.reconcile.machine_pool import MachinePool
from grange.sim import simulated_nodes
from grange.sim.crashpoints import Asked, CrashPoint, CrashPoints
from grange.sim.faults import NetworkFaults
from grange.sim.invariants import ObservedWrite
from grange.sim.pytest_plugin import EPOCH
from grange.sim.simulated_pool import SimulatedPool
from grange.sim.world import World, simulated

MEMBERS = ("one", "two")
CAPACITY = {"cpu": "16", "memory": "64Gi", "pods": "110"}
STEP_S = 120.0  # a step of a story, with a takeover in it
TAKEOVER_S = 40.0  # a term, a claim, and what was left to do
REST_S = 40.0
ROLLOUT: Document = {"maxUnavailable": 0, "maxSurge": 1, "progressDeadlineSeconds": 300}
_NETWORKS = (NetworkFaults(), NetworkFaults(latency_s=0.02))
OVER = {"Complete", "RolledBack", "Refused"}


class Process:
    """A member of the farm with everything that replication needs."""

    def __init__(self, deps: Deps, name: str, pool: MachinePool, *, rolls: bool) -> None:
        self._deps = deps
        config = FarmConfig(member=name)
        self._member = Member(deps, config)
        farm = self._member.farm("replication", REPLICATIONCONTROLLER)
        service = ReplicationService(farm.fence(deps), pool=pool)
        farm.attach(service.loop)
        self._roles = [("service", service.run), ("farm", self._member.run)]
        if rolls:
            services = {"rollingupdate": RollingUpdateService}
            leader_elected = LeaderElectedServices(self._member, config, lambda _: deps, services)
            self._roles.append(("services", leader_elected.run))

    async def run(self) -> None:
        clock, log = self._deps.clock, self._deps.log
        async with Nursery("process") as nursery:
            for name, run in self._roles:
                nursery.start(supervise(name, run, clock=clock, log=log))


# --- judges ------------------------------------------------------------------------------------


class ReplicasAreKept:
    """Together the controllers ask for so many replicas at every revision, once they do."""

    def __init__(self) -> None:
        self.minimum = 0
        self._asked: dict[str, int] = {}

    def see(self, change: ObservedWrite) -> None:
        """Add up."""
        if not change.concerns(REPLICATIONCONTROLLER):
            return
        self._asked[change.uid] = 0 if change.deleted else change.document["spec"]["replicas"]
        invariant(
            sum(self._asked.values()) >= self.minimum,
            "no replica is lost between controllers",
            asked=dict(self._asked),
            minimum=self.minimum,
            revision=change.revision,
        )


class Actors:
    """Who writes something besides signs of life."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def witness(self, request: Request, response: Response) -> None:
        """Take note of a write."""
        name = request.user.name.removeprefix("system:")
        quiet = "/leases" in request.path or "/events" in request.path
        if name in MEMBERS and request.method != "GET" and not quiet:
            self.names.add(name)


# --- the stage ---------------------------------------------------------------------------------


class Stage:
    """A world with two members, in which a story runs."""

    def __init__(self, world: World, points: CrashPoints, pool: SimulatedPool) -> None:
        self.world = world
        self.points = points
        self.pool = pool
        self.minimum = MinimumIsKept(world.clock)
        self.replicas = ReplicasAreKept()
        self.writer = OneWriter()
        self.births, self.actors = Births(), Actors()
        self.deaths = Deaths(lambda pod: pod["metadata"]["name"])
        for judge in (self.minimum, self.replicas, self.writer, self.births, self.deaths):
            world.history.add(judge)
        world.witnesses += [self.writer.witness, self.actors.witness]

    async def populate(self, nodes: Collection[str], *, rolls: bool) -> None:
        """Nodes, the scheduler, and two members that know each other."""
        for name in nodes:
            simulated_nodes.add_node(self.world, name, capacity=CAPACITY, labels=FITS)
        simulated_nodes.add_scheduler(self.world)
        for name in MEMBERS:
            pool = self.points.pool(self.pool, name)
            self.world.add(name, partial(Process, name=name, pool=pool, rolls=rolls))
        await simulated_nodes.registered(self.world, len(nodes), limit_s=60)
        await self.world.clock.sleep(5.0)

    async def create(self, name: str, replicas: int, **spec: Any) -> None:
        """A controller of the first template."""
        document = controller(name, replicas, **{"rollout": ROLLOUT, **spec})
        await self.world.client.create(REPLICATIONCONTROLLER, document, "default")

    async def annotate(self, name: str, annotations: dict[str, str | None]) -> None:
        """Put a word on a controller."""
        change: Document = {"metadata": {"annotations": annotations}}
        await self.world.client.patch(REPLICATIONCONTROLLER, name, "default", patch=change)

    async def label(self, node: str, value: str | None) -> None:
        """Make a node eligible, or not."""
        await self.world.client.patch(NODE, node, patch={"metadata": {"labels": {"web": value}}})

    async def settled(self, **wanted: int) -> bool:
        """Whether the controllers have exactly these replicas, all ready, and nothing is under way."""
        client = self.world.client
        found = (await client.list(REPLICATIONCONTROLLER)).items
        if {one.metadata.name: one.spec.replicas for one in found} != wanted:
            return False
        live = (await client.list(POD)).items
        for one in found:
            status, state = one.status, one.status.rollout
            if (
                status.node_transfers
                or status.outbox
                or one.metadata.annotations.keys() & {TRANSFER_ANNOTATION}
            ):
                return False
            if status.observed_generation != one.metadata.generation:
                return False
            if state is not None and state.phase != "Complete":
                return False
            own = [pod for pod in live if _owner(pod) == one.metadata.uid]
            if len(own) != one.spec.replicas or not all(map(pods.is_ready, own)):
                return False
            if status.ready_replicas != len(own) or status.updated_replicas != len(own):
                return False
        return True

    async def until_settled(self, **wanted: int) -> None:
        """Wait for it."""
        await self.world.until(lambda: self.settled(**wanted), limit_s=STEP_S)

    async def placed(self) -> list[str]:
        """The nodes of all pods."""
        return sorted(pod.spec.node_name for pod in (await self.world.client.list(POD)).items)

    async def until_placed(self, *nodes: str) -> None:
        """Wait until the pods of ``web`` are on these nodes, and nothing is under way."""

        async def there() -> bool:
            return await self.settled(web=len(nodes)) and await self.placed() == sorted(nodes)

        await self.world.until(there, limit_s=STEP_S)

    async def owners(self) -> set[str]:
        """The members that controllers name."""
        found = (await self.world.client.list(REPLICATIONCONTROLLER)).items
        tokens = [Token.parse(one.metadata.annotations.get(OWNER_ANNOTATION, "")) for one in found]
        return {token.member if token else "" for token in tokens}


def _owner(pod: pods.Pod) -> str:
    reference = controller_of(pod.metadata)
    return "" if reference is None else reference.uid


# --- the stories -------------------------------------------------------------------------------


async def scale(stage: Stage) -> None:
    """From nothing to three replicas, and down to one."""
    await stage.create("web", 0)
    await stage.until_settled(web=0)
    await patched(stage.world, "web", replicas=3)
    await stage.until_settled(web=3)
    stage.minimum.minimum["web"] = 1
    await patched(stage.world, "web", replicas=1)
    await stage.until_settled(web=1)


async def roll(stage: Stage) -> None:
    """Four packed replicas get another template."""
    await stage.create("web", 4, placement="Packed", rollout={**ROLLOUT, "maxUnavailable": 1})
    await stage.until_settled(web=4)
    stage.minimum.minimum["web"] = 3
    await patched(stage.world, "web", template=template("web", 2))
    await stage.until_settled(web=4)


async def borrow(stage: Stage) -> None:
    """The only node is lost, a machine of the pool takes its place, and is given back."""
    await stage.create("web", 1, strategy="Dynamic", nodeSelector={"matchLabels": FITS})
    await stage.until_placed("n0")
    stage.minimum.minimum["web"] = 1
    await stage.label("n0", None)
    await stage.until_placed("p0")
    await stage.label("n0", "y")
    await stage.annotate("web", {DRAINED_NODES: "p0"})
    await stage.until_placed("n0")
    await stage.annotate("web", {DRAINED_NODES: None})
    await stage.until_placed("n0")


async def drain(stage: Stage) -> None:
    """An operator has a service leave a node, as ``grange rc drain-node`` does."""
    await stage.create("web", 2)
    await stage.until_placed("n0", "n1")
    stage.minimum.minimum["web"] = 2
    await stage.annotate("web", {DRAINED_NODES: "n0"})
    await stage.until_placed("n1", "n2")
    await stage.annotate("web", {DRAINED_NODES: None})
    await stage.until_placed("n1", "n2")


async def between(stage: Stage, **spec: Any) -> None:
    """A RollingUpdate of three replicas begins."""
    spread = {"placement": "Packed", "app": "web"}
    await stage.create("old", 3, **spread)
    await stage.create("new", 0, **spread, template=template("web", 2))
    await stage.until_settled(old=3, new=0)
    stage.minimum.minimum["web"] = 2
    stage.replicas.minimum = 3
    update: Document = {
        "metadata": {"name": "roll", "namespace": "default"},
        "spec": {"old": "old", "new": "new", "desired": 3, "minimum": 2, **spec},
    }
    await stage.world.client.create(ROLLINGUPDATE, update, "default")


async def replace(stage: Stage) -> None:
    """A RollingUpdate moves three replicas to another controller, and the old one is deleted."""
    await between(stage)

    async def over() -> bool:
        found = await stage.world.client.get(ROLLINGUPDATE, "roll", "default")
        recorded = not found.status.outbox and not found.metadata.finalizers
        return found.status.phase in OVER and recorded and await stage.settled(new=3)

    await stage.world.until(over, limit_s=STEP_S)


async def abandon(stage: Stage) -> None:
    """A RollingUpdate waits at its canary, and is deleted half-way."""
    await between(stage, canary=1)

    async def waiting() -> bool:
        found = await stage.world.client.get(ROLLINGUPDATE, "roll", "default")
        return found.status.phase == "Waiting" and await stage.settled(old=2, new=1)

    async def gone() -> bool:
        left = (await stage.world.client.list(ROLLINGUPDATE)).items
        return not left and await stage.settled(old=2, new=1)

    await stage.world.until(waiting, limit_s=STEP_S)
    await stage.world.client.delete(ROLLINGUPDATE, "roll", "default")
    await stage.world.until(gone, limit_s=STEP_S)


async def leave(stage: Stage) -> None:
    """A controller goes to nothing, and is deleted as soon as its pods are gone."""
    await stage.create("web", 2)
    await stage.until_settled(web=2)
    await patched(stage.world, "web", replicas=0)

    async def empty() -> bool:
        return not await stage.placed()

    await stage.world.until(empty, limit_s=STEP_S)
    await stage.world.client.delete(REPLICATIONCONTROLLER, "web", "default")
    await stage.world.until(stage.settled, limit_s=STEP_S)


async def give(stage: Stage) -> None:
    """An operator orders a transfer of replicas, and dies before anything of it is done."""
    await stage.create("web", 2)
    await stage.create("api", 1, app="web")
    await stage.until_settled(web=2, api=1)
    stage.minimum.minimum["web"] = 2
    stage.replicas.minimum = 3
    receiver = await stage.world.client.get(REPLICATIONCONTROLLER, "api", "default")
    uid = receiver.metadata.uid
    order = Transfer(id="order", to="api", to_uid=uid, to_start=1, add=1, remove=1)
    await stage.annotate("web", {TRANSFER_ANNOTATION: written(order)})
    await stage.until_settled(web=1, api=2)


async def stay(stage: Stage) -> None:
    """A pod is to move to a machine of the pool that does not answer; in the end it stays."""
    rollout = {**ROLLOUT, "progressDeadlineSeconds": 30}
    where: Document = {"strategy": "Dynamic", "nodeSelector": {"matchLabels": FITS}}
    await stage.create("web", 1, **where, rollout=rollout)
    await stage.until_placed("n0")
    stage.minimum.minimum["web"] = 1
    stage.world.crash("agent-p0")
    await stage.label("n0", None)

    async def begun() -> bool:
        return await stage.placed() == ["n0", "p0"]

    await stage.world.until(begun, limit_s=STEP_S)
    await stage.label("n0", "y")

    async def turned() -> bool:
        found = await stage.world.client.get(REPLICATIONCONTROLLER, "web", "default")
        return {item.phase for item in found.status.node_transfers} <= {"RollingBack"}

    await stage.world.until(turned, limit_s=STEP_S)
    stage.world.restart("agent-p0")
    await stage.until_placed("n0")


async def fail(stage: Stage) -> None:
    """A template whose program does not stay up is rolled back by policy."""
    rollout = {**ROLLOUT, "maxUnavailable": 1, "minReadySeconds": 10, "autoRollback": True}
    await stage.create(
        "web", 3, placement="Packed", rollout={**rollout, "progressDeadlineSeconds": 20}
    )
    await stage.until_settled(web=3)
    await stage.world.clock.sleep(15.0)  # they count as available
    stage.minimum.minimum["web"] = 2
    await patched(stage.world, "web", template=template("web", 2, "crashes"))

    async def back() -> bool:
        found = await stage.world.client.get(REPLICATIONCONTROLLER, "web", "default")
        state, status = found.status.rollout, found.status
        if state is None or state.phase != "RolledBack" or status.outbox:
            return False
        return status.available_replicas == status.replicas == len(await stage.placed()) == 3

    await stage.world.until(back, limit_s=STEP_S)


@dataclass(frozen=True, slots=True)
class Story:
    """What happens, and where.

    Attributes:
        run: makes it happen, and waits for its end.
        own: nodes of the cluster.
        pooled: nodes of the pool.
        rolls: whether the members run RollingUpdates.
    """

    run: Callable[[Stage], Awaitable[None]]
    own: tuple[str, ...]
    pooled: tuple[str, ...] = ()
    rolls: bool = False


STORIES = {
    "scale": Story(scale, ("n0", "n1", "n2")),
    "roll": Story(roll, ("n0", "n1")),
    "borrow": Story(borrow, ("n0",), ("p0", "p1")),
    "replace": Story(replace, ("n0", "n1"), rolls=True),
    "abandon": Story(abandon, ("n0", "n1"), rolls=True),
    "drain": Story(drain, ("n0", "n1", "n2")),
    "leave": Story(leave, ("n0", "n1")),
    "give": Story(give, ("n0", "n1")),
    "stay": Story(stay, ("n0",), ("p0", "p1")),
    "fail": Story(fail, ("n0", "n1")),
}


@dataclass(frozen=True, slots=True)
class Audited:
    """What the records contain.

    Attributes:
        added, removed: how often each pod came and went, by name.
        came, went: how many pods, by controller.
        events: what else happened, by controller.
    """

    added: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)
    came: Counter[str] = field(default_factory=Counter)
    went: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)


# --- running -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ending:
    """How a story ended.

    Attributes:
        asked: the requests that counted.
        actors: the members that did something.
        struck: the request at which one of them died.
        portrait: what there is and what the audit contains, without what differs from one run to the
            next: uids and times, and the ordinals of packed pods, which are free sooner or later.
    """

    asked: list[Asked]
    actors: frozenset[str]
    struck: Asked | None
    portrait: Document

    @property
    def acted(self) -> list[Asked]:
        """The requests of the members that did something."""
        return [one for one in self.asked if one.component in self.actors]


async def run_story(
    name: str,
    seed: int,
    log: Logger,
    *,
    actors: Collection[str] | None = None,
    point: CrashPoint | None = None,
) -> Ending:
    """Run a story to its end and judge it.

    Args:
        name: of the story.
        seed: of all chance in it; with 0 every request arrives at once, and else late.
        log: of everybody.
        actors: whose requests count; None counts those of everybody.
        point: where the process that asks dies; None for nowhere.

    Raises:
        BaseExceptionGroup: something did not hold, or the story did not come to its end.
    """
    story = STORIES[name]
    clock, rng = LoopClock(EPOCH), Stream(seed)
    async with simulated(clock=clock, rng=rng, log=log, faults=_NETWORKS[seed > 0]) as world:
        world.network.note("story", f"{name}, lap {seed}")  # for the report of a failure
        points = CrashPoints(world, actors=actors, point=point)
        stage = Stage(world, points, SimulatedPool(story.pooled))
        await stage.populate((*story.own, *story.pooled), rolls=story.rolls)
        points.begin()
        await story.run(stage)
        await clock.sleep(5.0)  # last words
        points.end()
        if points.struck is not None:
            await clock.sleep(TAKEOVER_S)
        restless = [line for line in await world.fixed_point(REST_S) if "/core/nodes/" not in line]
        assert restless == []
        stage.writer.judge()
        alive = set(MEMBERS) - ({points.struck.component} if points.struck else set())
        assert await stage.owners() <= alive
        audit = await audited(world)
        assert audit.added == stage.births.names, "every pod that came is recorded, once"
        assert audit.removed == stage.deaths.counts, "every pod that went is recorded, once"
        actors = frozenset(stage.actors.names)
        return Ending(points.asked, actors, points.struck, await portrait(stage, audit))


async def audited(world: World) -> Audited:
    """Read the records."""
    records = [one.spec for one in (await world.client.list(AUDITRECORD)).items]
    found = Audited()
    for one in records:
        found.added.update(item.pod for item in one.added)
        found.removed.update(item.pod for item in one.removed)
        found.came[one.controller] += len(one.added)
        found.went[one.controller] += len(one.removed)
        if one.event != MEMBERSHIP_CHANGED:
            found.events[f"{one.controller} {one.event}"] += 1
    return found


async def portrait(stage: Stage, audit: Audited) -> Document:
    """Everything that two endings must have in common."""
    client = stage.world.client
    controllers = (await client.list(REPLICATIONCONTROLLER)).items
    names = {one.metadata.uid: one.metadata.name for one in controllers}
    packed = {one.metadata.uid for one in controllers if one.spec.placement == "Packed"}
    holders = await stage.pool.holders()
    return {
        "controllers": {one.metadata.name: _controller(one) for one in controllers},
        "pods": sorted(
            [
                "" if _owner(pod) in packed else pod.metadata.name,
                names[_owner(pod)],
                pod.metadata.labels.get("version"),
                pods.is_ready(pod),
            ]
            for pod in (await client.list(POD)).items
        ),
        "audit": [audit.came, audit.went, audit.events],
        "updates": {
            one.metadata.name: msgspec.to_builtins([one.status.phase, one.status.replicas])
            for one in (await client.list(ROLLINGUPDATE)).items
        },
        "pooled": {node: names.get(holder, holder) for node, holder in holders.items()},
        "requests": sorted(stage.pool.requests.values()),
    }


def _controller(one: ReplicationController) -> Document:
    status, state = one.status, one.status.rollout
    # Who owned it last, and that a step in doubt was revoked, is what a crash leaves behind.
    traces = {OWNER_ANNOTATION, REVOKED_ANNOTATION}
    words = one.metadata.annotations.keys() - traces
    return {
        "spec": msgspec.to_builtins(one.spec),
        "annotations": sorted(words),
        "conditions": {item.type: [item.status, item.reason] for item in status.conditions},
        "counts": [status.replicas, status.ready_replicas, status.available_replicas],
        "rollout": state and [state.phase, state.new_replicas, state.old_replicas],
        "history": [[item.revision, item.template] for item in status.history],
        "left": [
            len(status.node_transfers),
            len(status.outbox),
            len(status.pending_deletions),
        ],
    }
