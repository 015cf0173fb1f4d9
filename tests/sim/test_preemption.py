"""Preemption on a bad network: victims, promises and their end under crashes, outages and lost answers.

At every revision no node is overcommitted, and no pod is preempted for one that is not more
important. When the faults stop, no pod waits that could have a less important pod's place, nothing
is promised to anybody who needs it no more, and the world comes to rest.
"""

from collections.abc import Iterable

from tests.sim import test_scheduler
from tests.support import faults
from tests.support.faults import BAD

from grange.api.fields import lookup
from grange.api.kinds import NODE, POD, PODDISRUPTIONBUDGET, PRIORITYCLASS
from grange.api.kinds.pod import Pod
from grange.api.pod_requests import allocatable, pod_request
from grange.api.status import Conflict, NotFound, ServiceUnavailable
from grange.base.clock import Clock
from grange.base.errors import invariant
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.disruption.controller import DisruptionController
from grange.placement import resource_fit
from grange.placement.node_usage import IDLE, Usage, charged
from grange.scheduler.preemption.evaluator import BY_SCHEDULER
from grange.sim import builders, simulated_nodes
from grange.sim.faults import NetworkFaults
from grange.sim.invariants import ObservedWrite
from grange.sim.world import World, simulated

_NEVER, _LEVELS = 3, 4


class Preemptions:
    """Victims are less important than the pod that they make room for; bound pods hold no promises."""

    def __init__(self) -> None:
        self._priority: dict[str, int] = {}
        self._reported: set[str] = set()
        self.count = 0

    def see(self, change: ObservedWrite) -> None:
        """Judge a write of a pod."""
        if not change.concerns(POD) or change.deleted:
            return
        document, name = change.document, change.document["metadata"]["name"]
        mine = self._priority[name] = lookup(document, "spec.priority") or 0
        bound = lookup(document, "spec.nodeName")
        invariant(
            not (bound and lookup(document, "status.nominatedNodeName")),
            "a bound pod needs no promise",
            pod=name,
            revision=change.revision,
        )
        for item in lookup(document, "status.conditions") or ():
            if item.get("reason") == BY_SCHEDULER and change.uid not in self._reported:
                self._reported.add(change.uid)
                self.count += 1
                for_whom = item["message"].split()[3].strip(",").rpartition("/")[2]
                invariant(
                    mine < self._priority[for_whom],
                    "victims are less important",
                    victim=name,
                    pod=for_whom,
                    revision=change.revision,
                )


class Users(test_scheduler.Users):
    """As there, with pods that may preempt and some that are guarded; they end pods that are to go."""

    async def prepare(self) -> None:
        client = self.world.client
        for value in range(_LEVELS):
            document = {"metadata": {"name": f"p{value}"}, "value": value}
            if value == _NEVER:
                document["preemptionPolicy"] = "Never"
            await client.create(PRIORITYCLASS, document)
        spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "guarded"}}}
        budget = {"metadata": {"name": "guarded"}, "spec": spec}
        await client.create(PODDISRUPTIONBUDGET, budget, "default")
        for _ in range(4):
            await self.add_node()

    async def add_pod(self) -> None:
        self.pods += 1
        cpu = self.rng.choice(["100m", "500m", "1", "1500m"])
        labels = {"app": self.rng.choice(["guarded", "free"])}
        level = f"p{self.rng.integer(0, _LEVELS - 1)}"
        document = builders.pod_document(
            f"p{self.pods}", requests={"cpu": cpu}, labels=labels, priorityClassName=level
        )
        await self.world.client.create(POD, document, "default")

    async def act(self) -> None:
        match self.rng.integer(0, 11):
            case 0:
                await self.add_node()
            case 1:
                await self.remove_node()
            case 2 | 3:
                await self.delete_pod()
            case _:
                await self.add_pod()

    async def agents(self) -> None:
        """Pods that run, and that end some time after they were asked to."""
        while True:
            try:
                for pod in (await self.world.client.list(POD, "default")).items:
                    await self.look_after(pod)
            except ServiceUnavailable:
                pass
            await self.world.clock.sleep(1.0)

    async def look_after(self, pod: Pod) -> None:
        meta = pod.metadata
        try:
            if meta.deletion_timestamp and self.rng.integer(0, 2) == 0:
                await self.world.client.delete(
                    POD, meta.name, meta.namespace, uid=meta.uid, grace_period_s=0
                )
            elif pod.spec.node_name and pod.status.phase == "Pending":
                await self.started(pod)
        except (NotFound, Conflict):
            return

    async def started(self, pod: Pod) -> None:
        meta = pod.metadata
        ready = {"type": "Ready", "status": "True"}
        patch = {
            "metadata": {"uid": meta.uid},
            "status": {"phase": "Running", "conditions": [ready]},
        }
        await self.world.client.patch(
            POD, meta.name, meta.namespace, patch=patch, type="strategic", subresource="status"
        )


def taken(pods: Iterable[Pod], node: str, at_least: int) -> Usage:
    usage = IDLE
    for pod in pods:
        if pod.spec.node_name == node and pod.spec.priority >= at_least:
            usage = charged(usage, pod_request(pod.spec), ())
    return usage


async def wronged(world: World) -> list[str]:
    """Pods that wait although a node has room for them, or would have without less important ones."""
    nodes = (await world.client.list(NODE)).items
    pods = (await world.client.list(POD, "default")).items
    found = [pod.metadata.name for pod in pods if pod.metadata.deletion_timestamp]
    for pod in pods:
        if pod.spec.node_name:
            continue
        floor = -1 if pod.spec.preemption_policy == "Never" else pod.spec.priority
        for node in nodes:
            left = taken(pods, node.metadata.name, floor)
            offered = allocatable(node.status.allocatable)
            if resource_fit.fits(pod_request(pod.spec), offered, left):
                found.append(pod.metadata.name)
                break
    return found


async def test_preemption_survives_faults_and_settles(
    clock: Clock, rng: Stream, log: Logger, seed: int
) -> None:
    rng = Stream(seed, "test")
    async with simulated(clock=clock, rng=Stream(seed), log=log, faults=BAD) as world:
        judge = Preemptions()
        world.history.add(judge)
        users = Users(world, rng.fork("users"))
        await users.prepare()
        world._nursery.start(users.agents(), name="agents")
        lives = simulated_nodes.add_scheduler(world)
        world.add("disruption", DisruptionController)
        for _ in range(12):
            for _ in range(rng.integer(2, 7)):
                await users.act()
            await clock.sleep(rng.uniform(0.0, 4.0))
            await faults.perhaps(world, rng)
        world.network.faults = NetworkFaults()

        async def settled() -> bool:
            return lives[-1].cache.assumed_count == 0 and not await wronged(world)

        await world.until(settled, limit_s=900.0)
        await clock.sleep(60.0)  # the last conditions are written
        assert await world.fixed_point(40.0) == []
        pods = (await world.client.list(POD)).items
        promised = {
            pod.metadata.uid: pod.status.nominated_node_name
            for pod in pods
            if pod.status.nominated_node_name
        }
        assert dict(lives[-1].cycle.nominator) == promised
        assert promised == {}, judge.count
        assert lives[-1].cycle.nominator.evicting == {}
        assert lives[-1].cache.pod_count == sum(1 for pod in pods if pod.spec.node_name)
