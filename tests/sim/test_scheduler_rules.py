"""The scheduler among pods that know each other, on a bad network, with nodes that come and go.

Each decision is judged by what the scheduler knew when it made it: room, required affinity and
anti-affinity, and the skew of DoNotSchedule constraints. Each write is judged by the world's
invariants. When the faults stop, everything that may be placed is placed, nothing stays assumed,
and the world rests.
"""

from collections.abc import Callable
from typing import Any

from tests.sim.test_scheduler import Users
from tests.support import faults
from tests.support.faults import BAD
from tests.support.placement_oracle import HOST, ApartOnHost, Cluster, Judge

from grange.api.kinds import NODE, POD
from grange.api.kinds.pod import condition
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.farm.leader_election import LeaderElectedServices
from grange.reconcile.farm.member import Member
from grange.scheduler.service import Scheduler, SchedulerConfig
from grange.sim import builders
from grange.sim.chaos import Chaos
from grange.sim.world import World, simulated

ZONE = "topology.kubernetes.io/zone"
MUST = "requiredDuringSchedulingIgnoredDuringExecution"
CAPACITY = {"cpu": "2", "memory": "4Gi", "pods": "6"}
LARGE = {"cpu": "64", "memory": "256Gi", "pods": "200"}


def term(key: str, app: str) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


class PodPairs(Users):
    """Users whose pods attract, repel and spread each other."""

    def __init__(self, world: World, rng: Stream, capacity: dict[str, str] | None = None) -> None:
        super().__init__(world, rng)
        self._capacity = capacity or CAPACITY

    async def add_node(self) -> None:
        self.nodes += 1
        zone = self.rng.choice(["a", "b", "c", ""])
        await builders.create_node(
            self.world.client, f"n{self.nodes}", zone=zone, capacity=self._capacity
        )

    async def move_node(self) -> None:
        """A node's label changes; whatever runs there stays."""
        nodes = (await self.world.client.list(NODE)).items
        name, zone = self.rng.choice(nodes).metadata.name, self.rng.choice(["a", "b", "c"])
        await self.world.client.patch(NODE, name, patch={"metadata": {"labels": {ZONE: zone}}})

    async def add_pod(self) -> None:
        self.pods += 1
        app = self.rng.choice(["web", "web", "db"])
        spec: dict[str, Any] = {}
        match self.rng.integer(0, 5):
            case 0:
                spec["affinity"] = {"podAntiAffinity": {MUST: [term(HOST, app)]}}
            case 1:
                spec["affinity"] = {"podAntiAffinity": {MUST: [term(ZONE, "db")]}}
            case 2:
                spec["affinity"] = {"podAffinity": {MUST: [term(ZONE, app)]}}
            case 3:
                key = self.rng.choice([ZONE, ZONE, HOST])
                spec["topologySpreadConstraints"] = [
                    {
                        "maxSkew": self.rng.integer(1, 2),
                        "whenUnsatisfiable": "DoNotSchedule",
                        **term(key, app),
                    }
                ]
        document = builders.pod_document(
            f"p{self.pods}",
            labels={"app": app},
            requests={"cpu": self.rng.choice(["100m", "500m", "1"])},
            priorityClassName=f"p{self.rng.integer(0, 2)}",
            **spec,
        )
        await self.world.client.create(POD, document, "default")

    async def act(self) -> None:
        match self.rng.integer(0, 11):
            case 0:
                await self.add_node()
            case 1:
                await self.remove_node()
            case 2:
                await self.move_node()
            case 3 | 4:
                await self.delete_pod()
            case _:
                await self.add_pod()


async def may_be_placed(world: World) -> list[str]:
    """Waiting pods that some node would do for."""
    nodes = {node.metadata.name: node for node in (await world.client.list(NODE)).items}
    pods = (await world.client.list(POD, "default")).items
    placed = [(pod, pod.spec.node_name) for pod in pods if pod.spec.node_name]
    cluster = Cluster(nodes, placed)
    return [
        pod.metadata.name
        for pod in pods
        if not pod.spec.node_name and any(cluster.would_do(pod, name) for name in nodes)
    ]


async def trouble(world: World, rng: Stream, names: list[str]) -> None:
    """One fault, which may last for minutes."""
    name = rng.choice(names)
    match rng.integer(0, 8):
        case 0 | 1:
            await faults.crash(world, rng, name)
        case 2:
            lengths = [rng.uniform(0.0, 8.0), rng.uniform(60.0, 300.0)]
            await faults.outage(world, rng.choice(lengths))
        case 3:
            await faults.partition(world, rng.uniform(0.0, 30.0), name)
        case 4:
            await Chaos(world, {}, rng=rng).lose_history()


async def settle(world: World, lives: Callable[[], list[Scheduler]]) -> None:
    """The faults stop; then everything that may be placed is, and nothing more is written."""
    world.network.calm()

    async def settled() -> bool:
        assumed = sum(one.cache.assumed_count for one in lives())
        return assumed == 0 and not await may_be_placed(world)

    await world.until(settled, limit_s=900.0)
    # Reasons are refreshed when pods that no event concerns are tried again, after five minutes.
    await world.clock.sleep(400.0)
    assert await may_be_placed(world) == []
    assert await world.fixed_point(40.0) == []
    pods = (await world.client.list(POD)).items
    bound = sum(1 for pod in pods if pod.spec.node_name)
    for one in lives():
        assert one.cache.assumed_count == 0, "no assumption is leaked"
        assert one.cache.pod_count == bound


async def test_rules_about_other_pods_hold_at_every_decision(
    clock: Clock, rng: Stream, log: Logger, seed: int
) -> None:
    """Nodes that vanish between decision and binding, crashes there too, minutes without an API."""
    rng = Stream(seed, "rules")
    lives: list[Scheduler] = []
    judges: list[Judge] = []

    def scheduler(deps: Deps) -> Scheduler:
        lives.append(Scheduler(deps, SchedulerConfig()))
        judges.append(Judge(lives[-1]))
        return lives[-1]

    async with simulated(clock=clock, rng=Stream(seed), log=log, faults=BAD) as world:
        world.history.add(ApartOnHost())
        users = PodPairs(world, rng.fork("users"))
        await users.add_classes()
        for _ in range(5):
            await users.add_node()
        world.add("scheduler", scheduler)
        for _ in range(14):
            for _ in range(rng.integer(1, 6)):
                await users.act()
            # Often so short that bindings of what was just decided are still under way.
            await clock.sleep(rng.choice([rng.uniform(0.0, 0.3), rng.uniform(0.0, 4.0)]))
            await trouble(world, rng, ["scheduler"])
        await settle(world, lambda: lives[-1:])
        for pod in (await world.client.list(POD)).items:
            if not pod.spec.node_name:
                reported, answer = condition(pod, "PodScheduled"), lives[-1].explain(pod)
                assert reported is not None
                assert answer is not None
                assert reported.message == answer.attempts[-1].message, (
                    "the last word is the newest"
                )
    assert sum(judge.judged for judge in judges) > 0


class Shared:
    """A process of the farm whose only work is the scheduler, as long as it is its turn."""

    def __init__(self, deps: Deps, name: str, made: list[Scheduler]) -> None:
        config = FarmConfig(member=name)
        self._member = Member(deps, config)

        def scheduler(tools: Deps) -> Scheduler:
            made.append(Scheduler(tools, SchedulerConfig()))
            Judge(made[-1])
            return made[-1]

        services = {"scheduler": scheduler}
        self._services = LeaderElectedServices(self._member, config, lambda _: deps, services)

    async def run(self) -> None:
        async with Nursery("process") as nursery:
            nursery.start(self._services.run())
            nursery.start(self._member.run())


async def test_two_schedulers_in_a_farm_take_turns(
    clock: Clock, rng: Stream, log: Logger, seed: int
) -> None:
    """The holder of the lease decides: no node is overcommitted by two that know half each."""
    rng = Stream(seed, "turns")
    made: dict[str, list[Scheduler]] = {"one": [], "two": []}

    async with simulated(clock=clock, rng=Stream(seed), log=log, faults=BAD) as world:
        world.history.add(ApartOnHost())
        users = PodPairs(world, rng.fork("users"))
        await users.add_classes()
        for _ in range(5):
            await users.add_node()
        world.add("one", lambda deps: Shared(deps, "one", made["one"]))
        world.add("two", lambda deps: Shared(deps, "two", made["two"]))
        for _ in range(10):
            for _ in range(rng.integer(1, 6)):
                await users.act()
            await clock.sleep(rng.choice([rng.uniform(0.0, 0.3), rng.uniform(0.0, 15.0)]))
            await trouble(world, rng, ["one", "two"])
        world.network.calm()
        await world.until(lambda: placed(world), limit_s=900.0)
        await clock.sleep(60.0)
        await world.until(lambda: placed(world), limit_s=900.0)


async def placed(world: World) -> bool:
    """No pod waits that need not."""
    return not await may_be_placed(world)


async def test_two_schedulers_side_by_side_bind_no_pod_twice(
    clock: Clock, rng: Stream, log: Logger, seed: int
) -> None:
    """Both want every pod. There is room for all: how full a node gets is each one's own guess."""
    rng = Stream(seed, "rivals")
    lives: dict[str, Scheduler] = {}

    def rival(name: str) -> Callable[[Deps], Scheduler]:
        def scheduler(deps: Deps) -> Scheduler:
            lives[name] = Scheduler(deps, SchedulerConfig())
            return lives[name]

        return scheduler

    async with simulated(clock=clock, rng=Stream(seed), log=log, faults=BAD) as world:
        users = Users(world, rng.fork("users"))
        await users.add_classes()
        for number in range(3):
            await builders.create_node(world.client, f"n{number}", capacity=LARGE)
        for name in ("one", "two"):
            world.add(name, rival(name))
        for _ in range(8):
            for _ in range(rng.integer(1, 6)):
                await users.add_pod()
            if rng.integer(0, 2) == 0:
                await users.delete_pod()
            await clock.sleep(rng.choice([rng.uniform(0.0, 0.3), rng.uniform(0.0, 4.0)]))
            await trouble(world, rng, ["one", "two"])
        await settle(world, lambda: [*lives.values()])
        pods = (await world.client.list(POD, "default")).items
        assert all(pod.spec.node_name for pod in pods)
