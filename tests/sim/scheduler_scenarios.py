"""Small, complete stories of a scheduler, run with and without a fault at one of its requests.

Every pod asks for one CPU, so what fits is a matter of counting. Agents are good: they end the pods
that are asked to go or whose node is gone, and a gang that lost members ends as a whole. A story goes
on when no pod waits that could be placed; that is found out from the objects alone. In the end
nothing is assumed, and what the living scheduler has in its books is what the cluster shows.
"""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from tests.sim.test_preemption import Preemptions
from tests.support.scenarios import Deaths

from grange.api import quantity
from grange.api.kinds import NODE, POD, PODGROUP, PRIORITYCLASS
from grange.api.kinds.pod import Pod, condition
from grange.api.kinds.podgroup import GROUP_LABEL
from grange.api.meta import Document
from grange.api.pod_requests import pod_request
from grange.api.status import NotFound
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.placement.node_usage import IDLE, charged
from grange.scheduler.service import Scheduler, SchedulerConfig
from grange.sim import builders, simulated_nodes
from grange.sim.crashpoints import Asked, CrashPoint, CrashPoints
from grange.sim.faults import NetworkFaults
from grange.sim.pytest_plugin import EPOCH
from grange.sim.world import World, simulated

SCHEDULER = "scheduler"
NODES = ("n0", "n1")
SLOTS = 2  # pods that fit on a node
LIMIT_S = 400.0  # for one step of a story, with a successor, backoffs and a gang's turn in it
REST_S = 60.0
PRIORITIES = {"low": 0, "high": 10}
SINGLY = SchedulerConfig(binding_group=1, binders=1)
"""As on a server that takes no groups of bindings: a gang may be bound in part at a crash."""

_NETWORKS = (NetworkFaults(), NetworkFaults(latency_s=0.02))


@dataclass(frozen=True, slots=True)
class Cluster:
    """What there is, as a client reads it.

    Attributes:
        pods: all of them.
        slots: how many pods fit on each node.
        sizes: by gang, how many members it needs.
    """

    pods: list[Pod]
    slots: dict[str, int]
    sizes: dict[str, int]

    @classmethod
    async def read(cls, world: World) -> "Cluster":
        nodes = (await world.client.list(NODE)).items
        slots = {
            node.metadata.name: quantity.value(node.status.allocatable.get("cpu", 0))
            for node in nodes
        }
        groups = (await world.client.list(PODGROUP)).items
        sizes = {group.metadata.name: group.spec.min_member for group in groups}
        return cls([*(await world.client.list(POD)).items], slots, sizes)

    def free(self, below: int | None = None) -> int:
        """How many pods fit, if all of a lower priority went."""
        taken = Counter(
            pod.spec.node_name
            for pod in self.pods
            if pod.spec.node_name and (below is None or pod.spec.priority >= below)
        )
        return sum(max(0, slots - taken[name]) for name, slots in self.slots.items())

    def gangs(self) -> dict[str, list[Pod]]:
        """The members of each gang; a pod without one is a gang by itself."""
        found: dict[str, list[Pod]] = defaultdict(list)
        for pod in self.pods:
            found[pod.metadata.labels.get(GROUP_LABEL, pod.metadata.name)].append(pod)
        return found

    def lost(self) -> list[Pod]:
        """Pods that are to go, or whose node is gone."""
        return [
            pod
            for pod in self.pods
            if pod.metadata.deletion_timestamp
            or (pod.spec.node_name and pod.spec.node_name not in self.slots)
        ]

    def half(self) -> list[str]:
        """Gangs of which some are bound and some are not."""
        return [
            name
            for name, members in self.gangs().items()
            if len({bool(pod.spec.node_name) for pod in members}) == 2
        ]

    def wronged(self) -> list[str]:
        """Who waits although there is room, or would be without less important pods."""
        found = []
        for name, members in self.gangs().items():
            waiting = [pod for pod in members if not pod.spec.node_name]
            size = self.sizes.get(name, 1)
            if not waiting or len(members) < size:
                continue
            if len(waiting) <= self.free(below=waiting[0].spec.priority):
                found.append(name)
        return found


class Stage:
    """A world with a scheduler in which a story runs.

    Attributes:
        lives: the schedulers so far; the last is alive.
    """

    def __init__(self, world: World, points: CrashPoints, config: SchedulerConfig) -> None:
        self.world = world
        self.points = points
        self.lives: list[Scheduler] = []
        self.deaths = Deaths(lambda pod: pod["metadata"]["labels"]["app"])
        self._config = config
        self._whole: dict[str, int] = {}  # gangs of which all members were there
        for judge in (self.deaths, Preemptions()):
            world.history.add(judge)

    # --- who is there -------------------------------------------------------------------------

    async def populate(self) -> None:
        """Nodes and priorities; nothing schedules yet."""
        for name, value in PRIORITIES.items():
            await self.world.client.create(
                PRIORITYCLASS, {"metadata": {"name": name}, "value": value}
            )
        for name in NODES:
            await self.add_node(name)

    async def add_node(self, name: str, slots: int = SLOTS) -> None:
        capacity = {"cpu": str(slots), "memory": "8Gi", "pods": "10"}
        await builders.create_node(self.world.client, name, capacity=capacity)

    def start(self) -> None:
        """A scheduler starts, and from now on its requests count."""
        self.points.begin()
        self.lives = simulated_nodes.add_scheduler(self.world, self._config)

    async def succession(self) -> None:
        """The scheduler is replaced soon after its death, by a new process."""
        world = self.world
        while self.points.struck is None:
            await world.clock.sleep(0.25)
        world.restart(SCHEDULER)  # which does nothing to one that lives

    async def agents(self) -> None:
        """End the pods that are asked to go or whose node is gone, and gangs that lost members."""
        while True:
            await self.world.clock.sleep(0.5)
            cluster = await Cluster.read(self.world)
            gangs = cluster.gangs()
            for pod in cluster.lost():
                await self.end(pod.metadata.name)
            for name, size in [*self._whole.items()]:
                if name in gangs and len(gangs[name]) < size:
                    await self.end_gang(name)

    # --- what users do ------------------------------------------------------------------------

    async def add_pods(
        self, app: str, count: int, *, priority: str = "low", group: str = ""
    ) -> None:
        labels = {"app": app, **({GROUP_LABEL: group} if group else {})}
        for number in range(count):
            document = builders.pod_document(
                f"{app}-{number}", labels=labels, requests={"cpu": "1"}, priorityClassName=priority
            )
            await self.world.client.create(POD, document, "default")

    async def add_gang(self, name: str, size: int, *, priority: str = "low") -> None:
        document: Document = {"metadata": {"name": name}, "spec": {"minMember": size}}
        await self.world.client.create(PODGROUP, document, "default")
        await self.add_pods(name, size, priority=priority, group=name)
        self._whole[name] = size

    async def end(self, name: str) -> None:
        try:
            await self.world.client.delete(POD, name, "default", grace_period_s=0)
        except NotFound:
            return

    async def end_gang(self, name: str) -> None:
        self._whole.pop(name, None)
        for pod in (await Cluster.read(self.world)).gangs().get(name, ()):
            await self.end(pod.metadata.name)
        try:
            await self.world.client.delete(PODGROUP, name, "default")
        except NotFound:
            return

    async def settled(self) -> None:
        """Wait until everybody is placed who can be."""

        async def over() -> bool:
            cluster = await Cluster.read(self.world)
            if cluster.lost() or cluster.wronged():
                return False
            return bool(self.lives) and self.lives[-1].cache.assumed_count == 0

        await self.world.until(over, limit_s=LIMIT_S)


# --- the stories -------------------------------------------------------------------------------


async def fill(stage: Stage) -> None:
    """Pods wait for the scheduler; then some come of which one gets the last room; then one goes."""
    await stage.add_pods("web", 3)
    stage.start()
    await stage.settled()
    await stage.add_pods("late", 2)
    await stage.settled()
    await stage.end("web-1")
    await stage.settled()


async def preempt(stage: Stage) -> None:
    """A full cluster, and two pods that are more important."""
    await stage.add_pods("web", 4)
    stage.start()
    await stage.settled()
    await stage.add_pods("vip", 2, priority="high")
    await stage.settled()


async def gang(stage: Stage) -> None:
    """A gang waits for the last room, with a pod behind it; it is bound one by one, and ends."""
    await stage.add_pods("web", 1)
    stage.start()
    await stage.settled()
    await stage.add_gang("crew", 4)
    await stage.settled()
    await stage.end("web-0")
    await stage.settled()
    await stage.add_pods("late", 1)
    await stage.settled()
    await stage.end_gang("crew")
    await stage.settled()


async def conquer(stage: Stage) -> None:
    """A gang takes the place of another one and of single pods: everybody has to go for it."""
    await stage.add_pods("web", 2)
    await stage.add_gang("crew", 2)
    stage.start()
    await stage.settled()
    await stage.add_gang("elite", 4, priority="high")
    await stage.settled()


@dataclass(frozen=True, slots=True)
class Story:
    """What happens.

    Attributes:
        run: the events, and when to go on.
        apps: what the pods are of.
        config: of the scheduler.
    """

    run: Callable[[Stage], Awaitable[None]]
    apps: tuple[str, ...]
    config: SchedulerConfig = field(default_factory=SchedulerConfig)


STORIES: Mapping[str, Story] = {
    "fill": Story(fill, ("web", "late")),
    "preempt": Story(preempt, ("web", "vip")),
    "gang": Story(gang, ("web", "crew", "late"), SINGLY),
    "conquer": Story(conquer, ("crew", "elite")),
}


# --- faults -------------------------------------------------------------------------------


async def lose(stage: Stage, name: str) -> None:
    """The node is gone."""
    try:
        await stage.world.client.delete(NODE, name)
    except NotFound:
        return


async def shrink(stage: Stage, name: str) -> None:
    """The node is gone, and another one has its name and less room."""
    await lose(stage, name)
    await stage.add_node(name, SLOTS - 1)


async def drop(stage: Stage, app: str) -> None:
    """A pod that waits is gone; if none waits, one that is bound."""
    found = (await Cluster.read(stage.world)).pods
    pods = [pod for pod in found if pod.metadata.labels["app"] == app]
    for pod in sorted(pods, key=lambda pod: bool(pod.spec.node_name))[:1]:
        await stage.end(pod.metadata.name)


Fault = Callable[[Stage], Awaitable[None]]


def other_faults(name: str) -> dict[str, Fault]:
    """What may happen in a story besides the scheduler's death."""
    found: dict[str, Fault] = {
        **{f"lose {node}": partial(lose, name=node) for node in NODES},
        "shrink n0": partial(shrink, name="n0"),
    }
    return {**found, **{f"drop {app}": partial(drop, app=app) for app in STORIES[name].apps}}


# --- running -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ending:
    """How a story ended.

    Attributes:
        asked: the scheduler's requests.
        struck: the one at which the fault happened.
        portrait: what there is, by what the pods are of: who among equals is bound where may differ.
    """

    asked: list[Asked]
    struck: Asked | None
    portrait: Document


async def run_story(
    name: str,
    lap: int,
    log: Logger,
    *,
    point: CrashPoint | None = None,
    fault: Fault | None = None,
) -> Ending:
    """Run a story to its end and judge it.

    Args:
        name: of the story.
        lap: the seed of all chance in it; with 0 every request arrives at once, and else late.
        log: of everybody.
        point: where something happens; None for nowhere.
        fault: what happens there; the scheduler's death by default.

    Raises:
        BaseExceptionGroup: something did not hold, or the story did not come to its end.
    """
    story = STORIES[name]
    clock, rng = LoopClock(EPOCH), Stream(lap)
    async with simulated(clock=clock, rng=rng, log=log, faults=_NETWORKS[lap > 0]) as world:
        world.network.note("story", f"{name}, lap {lap}")  # for the report of a failure
        stages: list[Stage] = []
        happens = None if fault is None else (lambda: fault(stages[0]))
        points = CrashPoints(world, actors={SCHEDULER}, point=point, instead=happens)
        stage = Stage(world, points, story.config)
        stages.append(stage)
        await stage.populate()
        async with Nursery("story") as nursery:
            nursery.start(stage.succession(), name="succession")
            nursery.start(stage.agents(), name="agents")
            await story.run(stage)
            await clock.sleep(5.0)  # last words
            await stage.settled()
            points.end()
            await clock.sleep(REST_S)
            assert await world.fixed_point(REST_S) == []
            nursery.cancel()
        cluster = await Cluster.read(world)
        assert cluster.wronged() == []
        if fault is None:
            assert cluster.half() == []
        await judge_books(world, stage.lives[-1])
        return Ending(points.asked, points.struck, portrait(stage, cluster))


async def judge_books(world: World, scheduler: Scheduler) -> None:
    """Nothing is assumed, and the books agree with the cluster."""
    nodes = {node.metadata.name: node for node in (await world.client.list(NODE)).items}
    pods = (await world.client.list(POD)).items
    placed = {pod.metadata.uid: pod.spec.node_name for pod in pods if pod.spec.node_name}
    dump = scheduler.cache.snapshot()
    assert dump.assumed_pods == frozenset(), "no assumption is leaked"
    held = {info.uid: name for name, entry in dump.nodes.items() for info in entry.pods}
    assert held == placed, "the cache has the pods that are bound, where they are bound"
    assert {name for name, entry in dump.nodes.items() if entry.node is not None} == set(nodes)
    for name, entry in dump.nodes.items():
        usage = IDLE
        for pod in pods:
            if pod.spec.node_name == name:
                usage = charged(usage, pod_request(pod.spec), ())
        assert entry.usage == usage, f"what {name} is charged for"
        if entry.node is not None:
            assert entry.node.metadata.uid == nodes[name].metadata.uid
            assert entry.node.spec.taints == nodes[name].spec.taints, "nothing is kept for anybody"
    waiting = {pod.metadata.uid for pod in pods if not pod.spec.node_name}
    assert {queued.uid for queued in scheduler.queue.waiting()} == waiting, "who waits is queued"
    nominated = {pod.metadata.name for pod in pods if pod.status.nominated_node_name}
    assert (nominated, len(scheduler.cycle.nominator)) == (set(), 0), "nothing is promised"
    assert scheduler.cycle.nominator.evicting == {}
    assert len(scheduler.cycle.waiting_pods) == 0
    assert scheduler._binder.under_way == {}
    assert scheduler.gangs.reservation.nodes == {}


def portrait(stage: Stage, cluster: Cluster) -> Document:
    """What two endings must have in common."""
    pods: Counter[tuple[str, bool, str, str]] = Counter()
    for pod in cluster.pods:
        reported = condition(pod, "PodScheduled")
        assert reported is not None
        app, bound = pod.metadata.labels["app"], bool(pod.spec.node_name)
        assert reported.status == ("True" if bound else "False"), pod.metadata.name
        assert "Nominated" not in reported.message, "nothing is promised"
        pods[app, bound, reported.status, reported.reason] += 1
    return {"pods": pods, "deaths": stage.deaths.counts}
