"""Gangs on a bad network, through crashes, partitions and an API server that goes away.

Whatever happens, no node is overcommitted and no pod bound twice (the world's invariants). A gang is
half bound only while a scheduler is still at it; when the faults stop it is bound whole or not at all,
every pod that fits is placed, nothing is left assumed and nothing is left reserved.
"""

import pytest
from tests.support import faults
from tests.support.faults import BAD

from grange.api.kinds import POD, PODGROUP, PRIORITYCLASS, QUEUE
from grange.api.kinds.pod import Pod
from grange.api.kinds.podgroup import GROUP_LABEL, PodGroup
from grange.api.meta import Document
from grange.api.status import NotFound, ServiceUnavailable
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.scheduler import plugins
from grange.scheduler.cycle import Assumed
from grange.scheduler.framework import Code, CycleState, Plugin, Profile, Status
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queued_pods import QueueSettings
from grange.scheduler.service import Scheduler, SchedulerConfig
from grange.scheduler.waiting_pods import WaitingPods
from grange.sim import builders, simulated_nodes
from grange.sim.faults import NetworkFaults
from grange.sim.world import World, simulated

NODES = 6
SLOTS = 2  # pods of one CPU that fit on a node
CAPACITY = {"cpu": str(SLOTS), "memory": "8Gi", "pods": "10"}
QUOTA = 8
OVERTAKES = 3


class Gatekeeper:
    """A Permit plugin that holds pods back now and then, and each pod twice at the most."""

    def __init__(self, rng: Stream) -> None:
        self._rng = rng
        self._times: dict[str, int] = {}

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        permits: WaitingPods[Assumed] | None = state.read(WaitingPods)
        assert permits is not None
        for placed in permits.held():
            if self._rng.uniform(0.0, 1.0) < 0.2:
                permits.allow(placed.uid, "Gatekeeper")
        times = self._times[pod.uid] = self._times.get(pod.uid, 0) + 1
        if times > 2 or self._rng.uniform(0.0, 1.0) < 0.7:
            return Status(Code.SUCCESS)
        return Status(Code.WAIT, wait_s=self._rng.uniform(0.5, 6.0))


class Users:
    """Create gangs and single pods, and end them, over a good network."""

    def __init__(self, world: World, rng: Stream) -> None:
        self.world, self.rng = world, rng
        self.made = 0

    async def add_nodes(self, count: int) -> None:
        for number in range(count):
            await builders.create_node(self.world.client, f"n{number}", capacity=CAPACITY)

    async def add_queue_and_class(self) -> None:
        document = {
            "apiVersion": QUEUE.api_version,
            "kind": "Queue",
            "metadata": {"name": "team"},
            "spec": {"capacity": {"cpu": str(QUOTA)}},
        }
        await self.world.client.create(QUEUE, document)
        high: Document = {
            "apiVersion": PRIORITYCLASS.api_version,
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 10,
        }
        await self.world.client.create(PRIORITYCLASS, high)

    async def add_gang(self, size: int, *, queue: str = "", high: bool = False) -> str:
        self.made += 1
        name = f"g{self.made}"
        document = {
            "apiVersion": PODGROUP.api_version,
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minMember": size, "queue": queue},
        }
        await self.world.client.create(PODGROUP, document, "default")
        for number in range(size):
            member = builders.pod_document(
                f"{name}-{number}",
                labels={GROUP_LABEL: name},
                requests={"cpu": "1"},
                priorityClassName="high" if high else "",
            )
            await self.world.client.create(POD, member, "default")
        return name

    async def add_pod(self) -> None:
        self.made += 1
        document = builders.pod_document(f"p{self.made}", requests={"cpu": "1"})
        await self.world.client.create(POD, document, "default")

    async def end(self, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self.world.client.delete(POD, meta.name, meta.namespace, grace_period_s=0)
        except NotFound:
            return

    async def end_gang(self, name: str) -> None:
        for pod in await members(self.world, name):
            await self.end(pod)
        try:
            await self.world.client.delete(PODGROUP, name, "default")
        except NotFound:
            return

    async def end_one(self) -> None:
        """One gang that runs as a whole ends as a whole; or a single pod does."""
        running = [
            name for name, (bound, size) in (await gangs(self.world)).items() if bound == size
        ]
        singles = [pod for pod in await pods(self.world) if GROUP_LABEL not in pod.metadata.labels]
        if running and self.rng.uniform(0.0, 1.0) < 0.5:
            await self.end_gang(self.rng.choice(running))
        elif singles:
            await self.end(self.rng.choice(singles))


async def pods(world: World) -> list[Pod]:
    return [*(await world.client.list(POD, "default")).items]


async def members(world: World, name: str) -> list[Pod]:
    return [pod for pod in await pods(world) if pod.metadata.labels.get(GROUP_LABEL) == name]


async def gangs(world: World) -> dict[str, tuple[int, int]]:
    """How many members of each group are bound, of how many it wants."""
    bound: dict[str, int] = {}
    for pod in await pods(world):
        name = pod.metadata.labels.get(GROUP_LABEL, "")
        bound[name] = bound.get(name, 0) + bool(pod.spec.node_name)
    groups: list[PodGroup] = [*(await world.client.list(PODGROUP, "default")).items]
    return {
        group.metadata.name: (bound.get(group.metadata.name, 0), group.spec.min_member)
        for group in groups
    }


async def agents(world: World, users: Users, clock: Clock) -> None:
    """End the pods that are asked to, as agents would; a gang that lost members ends as a whole."""
    while True:
        await clock.sleep(1.0)
        try:
            for pod in await pods(world):
                if pod.metadata.deletion_timestamp:
                    name = pod.metadata.labels.get(GROUP_LABEL)
                    await (users.end_gang(name) if name else users.end(pod))
        except ServiceUnavailable:
            continue


async def unfinished(world: World, scheduler: Scheduler) -> list[str]:
    """What is not as it should be once nothing disturbs: half gangs, gangs that would fit."""
    found = await gangs(world)
    half = [f"{name} is half bound" for name, (bound, size) in found.items() if 0 < bound < size]
    if scheduler.cache.assumed_count:
        half.append(f"{scheduler.cache.assumed_count} pods are assumed")
    groups = {item.metadata.name: item for item in (await world.client.list(PODGROUP)).items}
    placed = [pod for pod in await pods(world) if pod.spec.node_name]
    team = [name for name in groups if groups[name].spec.queue == "team"]
    # Who was overtaken that often claims its share, and the others wait until it has had it.
    waiting = [waiter.gang for waiter in scheduler.gangs.wait_line.for_quota]
    claimed = any(gang.overtaken >= OVERTAKES for gang in waiting if gang)
    in_use = sum(1 for pod in placed if pod.metadata.labels.get(GROUP_LABEL) in team)
    if not scheduler.gangs.reservation.owner:
        for name, (bound, size) in found.items():
            quota = name not in team or (not claimed and in_use + size <= QUOTA)
            if not bound and len(placed) + size <= NODES * SLOTS and quota:
                half.append(f"{name} would fit")
    return half


async def everybody_has_a_turn(world: World, users: Users, clock: Clock) -> None:
    """End what runs, again and again, until no gang is left."""
    for _ in range(200):
        found = await gangs(world)
        if not found:
            return
        for name, (bound, size) in found.items():
            # One that lost members ends as a whole; the server may have gone away in the middle.
            if bound == size or len(await members(world, name)) < size:
                await users.end_gang(name)
        for pod in await pods(world):
            if pod.spec.node_name and GROUP_LABEL not in pod.metadata.labels:
                await users.end(pod)
        await clock.sleep(15.0)
    raise AssertionError(f"never had a turn: {await gangs(world)}")


async def ordinary_day(users: Users, rng: Stream) -> None:
    for _ in range(rng.integer(1, 3)):
        match rng.integer(0, 3):
            case 0 | 1:
                queue, size = rng.choice(["", "team"]), rng.integer(2, QUOTA)
                await users.add_gang(size, queue=queue, high=rng.integer(0, 1) == 1)
            case 2:
                await users.add_pod()
            case _:
                await users.end_one()


@pytest.mark.parametrize("held", [False, True], ids=["", "held"])
async def test_gangs_are_bound_whole_and_settle(
    clock: Clock, rng: Stream, log: Logger, seed: int, held: bool
) -> None:
    rng = Stream(seed, "test")
    gate = Plugin("Gatekeeper", permit=Gatekeeper(rng.fork("gate")))
    profile = Profile((*plugins.DEFAULT, gate) if held else plugins.DEFAULT)

    async with (
        simulated(clock=clock, rng=Stream(seed), log=log, faults=BAD) as world,
        Nursery("users") as nursery,
    ):
        users = Users(world, rng.fork("users"))
        await users.add_nodes(NODES)
        await users.add_queue_and_class()
        nursery.start(agents(world, users, clock))
        config = SchedulerConfig(overtakes=OVERTAKES)
        lives = simulated_nodes.add_scheduler(world, config, profile)
        for _ in range(10):
            await ordinary_day(users, rng)
            await clock.sleep(rng.uniform(0.0, 3.0))
            await faults.perhaps(world, rng)
        world.network.faults = NetworkFaults()

        async def settled() -> bool:
            return not await unfinished(world, lives[-1])

        await world.until(settled, limit_s=900.0)
        await everybody_has_a_turn(world, users, clock)
        await clock.sleep(60.0)
        assert await world.fixed_point(40.0) == []
        now = lives[-1]
        bound = sum(1 for pod in await pods(world) if pod.spec.node_name)  # single ones
        assert (now.cache.assumed_count, now.cache.pod_count) == (0, bound)
        assert now.gangs.reservation.nodes == {}
        assert now.gangs.quotas.used("team") == {}
        nursery.cancel()


async def test_gangs_that_each_fit_alone_all_run_in_the_end(
    clock: Clock, rng: Stream, log: Logger, seed: int
) -> None:
    """Each wants more than half of the cluster; their pods arrive mixed; each runs for a while."""
    rng = Stream(seed, "test")
    async with simulated(clock=clock, rng=Stream(seed), log=log, faults=BAD) as world:
        users = Users(world, rng.fork("users"))
        await users.add_nodes(NODES)
        queue = QueueSettings(backoff_max_s=4.0)
        simulated_nodes.add_scheduler(world, SchedulerConfig(queue=queue))
        waiting = [await users.add_gang(rng.integer(7, NODES * SLOTS)) for _ in range(5)]
        for _ in range(120):
            found = await gangs(world)
            whole = [name for name, (bound, size) in found.items() if bound == size]
            at_work = [name for name, (bound, _) in found.items() if bound]
            assert len(at_work) <= 1, "two gangs hold a part each"
            for name in whole:
                await clock.sleep(rng.uniform(0.0, 5.0))
                await users.end_gang(name)
                waiting.remove(name)
            if not waiting:
                break
            if rng.uniform(0.0, 1.0) < 0.2:
                await faults.perhaps(world, rng)
            await clock.sleep(5.0)
        assert waiting == []


async def test_a_large_gang_is_not_starved_by_small_pods(
    clock: Clock, rng: Stream, log: Logger, seed: int
) -> None:
    """Single pods keep coming and fill the cluster; each runs for up to twenty seconds."""
    rng = Stream(seed, "test")
    async with simulated(clock=clock, rng=Stream(seed), log=log, faults=BAD) as world:
        users = Users(world, rng.fork("users"))
        await users.add_nodes(NODES)
        for _ in range(NODES * SLOTS):
            await users.add_pod()
        simulated_nodes.add_scheduler(world, SchedulerConfig(overtakes=6))
        await clock.sleep(5.0)
        big = await users.add_gang(NODES * SLOTS - 2)
        ends: dict[str, float] = {}
        started = clock.monotonic()
        while (await gangs(world))[big][0] == 0:
            assert clock.monotonic() - started < 300.0, "the gang is starved"
            now = clock.monotonic()
            for pod in await pods(world):
                if pod.spec.node_name and GROUP_LABEL not in pod.metadata.labels:
                    end = ends.setdefault(pod.metadata.uid, now + rng.uniform(5.0, 20.0))
                    if end <= now:
                        await users.end(pod)
            for _ in range(rng.integer(1, 4)):
                await users.add_pod()
            await clock.sleep(1.0)
