"""Machine leases under faults: two members share the queue while holders come and go and nodes vanish.

At every write a node has one lease at most, passes from one to another only when it was free, and a
grant names only machines that bear its marks. When the faults stop everything is granted or freed
within seconds, and no machine is leaked.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from tests.sim.test_farm import skewed
from tests.sim.test_replication import BAD_NETWORK, crashes

from grange.agent.runtimes.fake import FakeMachine
from grange.api.kinds import MACHINELEASE, NODE, POD
from grange.api.kinds.machinelease import MACHINE_LEASE, STATE_ANNOTATION
from grange.api.meta import Document
from grange.api.status import ApiError, NotFound
from grange.app.manager import Manager
from grange.base.clock import LoopClock
from grange.base.errors import invariant
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery, supervise
from grange.controllers import TABLE
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.sim import builders, simulated_nodes
from grange.sim.chaos import Chaos, Disturbance
from grange.sim.invariants import ObservedWrite
from grange.sim.pytest_plugin import EPOCH, Records
from grange.sim.world import World, simulated

MEMBERS = ("one", "two")
POOLS: Mapping[str, int] = {"w": 4, "d": 2}
LEASES = tuple(f"l{number}" for number in range(6))
TROUBLE_S = 120.0
MOVES_S = 10.0
WATCHES_RESUME_S = (
    45.0  # an informer whose streams broke again and again waits so long for the next
)


class LeaseProcess:
    """A member of the farm that may run the machine lease controller."""

    def __init__(self, deps: Deps, name: str) -> None:
        self._deps = deps
        self._manager = Manager(
            FarmConfig(member=name), lambda _: deps, frozenset({"machinelease"})
        )

    async def run(self) -> None:
        async with Nursery("process") as nursery:
            for role in self._manager.runnables():
                clock, log = self._deps.clock, self._deps.log
                nursery.start(supervise(role.name, role.run, clock=clock, log=log))


class MachinesAreGrantedOnce:
    """What must hold of nodes and leases at every write.

    Attributes:
        grants: how many there were.
    """

    def __init__(self) -> None:
        self.grants = 0
        self._nodes: dict[str, tuple[str, str]] = {}
        self._phases: dict[str, str] = {}

    def see(self, change: ObservedWrite) -> None:
        """Judge a write of a node or of a lease."""
        meta = change.document["metadata"]
        if change.concerns(NODE):
            self._see_node(change, meta["name"])
        elif change.concerns(MACHINELEASE):
            status = change.document.get("status") or {}
            phase = status.get("phase", "")
            if phase == "Granted" != self._phases.get(change.uid):
                self.grants += 1
                for machine in status["machines"]:
                    _, holder = self._nodes.get(machine["node"], ("", change.uid))
                    invariant(holder == change.uid, "a grant names marked machines", lease=meta)
            self._phases[change.uid] = phase

    def _see_node(self, change: ObservedWrite, name: str) -> None:
        if change.deleted:
            self._nodes.pop(name, None)
            return
        label = change.document["metadata"].get("labels", {}).get(MACHINE_LEASE, "")
        taints = (change.document.get("spec") or {}).get("taints") or []
        values = [taint["value"] for taint in taints if taint["key"] == MACHINE_LEASE]
        invariant(values == ([label] if label else []), "label and taint agree", node=name)
        uid, before = self._nodes.get(name, (change.uid, ""))
        if uid == change.uid and before and label:
            invariant(before == label, "a machine is freed before it is lent again", node=name)
        self._nodes[name] = change.uid, label


class LeaseUsers:
    """Holders of leases, and what happens to nodes."""

    def __init__(self, world: World, machines: Mapping[str, FakeMachine], draw: Stream) -> None:
        self._world, self._machines, self._draw = world, machines, draw
        self._pods = 0

    def all(self) -> list[Disturbance]:
        more = [self.acquire, self.acquire, self.run_pod, self.run_pod, self.release]
        return [*more, self.intrude, self.lose_node, self.cordon, self.clean]

    async def acquire(self) -> None:
        """Create a lease, where there is none of the name."""
        draw = self._draw
        machines = [{"pool": "w", "count": draw.integer(1, 3)}]
        if draw.integer(0, 1):
            machines.append({"pool": "d", "count": 1})
        spec: Document = {"machines": machines, "priority": draw.choice([0, 0, 1])}
        if draw.integer(0, 1):
            spec["expectedSeconds"] = draw.integer(5, 60)
        if draw.integer(0, 2) == 0:
            spec["ttlSeconds"] = draw.integer(5, 40)
        if draw.integer(0, 3) == 0:
            spec["cleaning"] = "Manual"
        document = {"metadata": {"name": draw.choice(LEASES)}, "spec": spec}
        with suppress(ApiError):
            await self._world.client.create(MACHINELEASE, document, "default")

    async def run_pod(self) -> None:
        """The holder of a granted lease runs a pod on one of its machines."""
        with suppress(ApiError):
            leases = (await self._world.client.list(MACHINELEASE)).items
            granted = [one for one in leases if one.status.phase == "Granted"]
            granted = [one for one in granted if not one.metadata.deletion_timestamp]
            if not granted:
                return
            uid = self._draw.choice(granted).metadata.uid
            await self._create(
                labels={MACHINE_LEASE: uid},
                nodeSelector={MACHINE_LEASE: uid},
                tolerations=[{"key": MACHINE_LEASE, "value": uid, "effect": "NoSchedule"}],
            )

    async def intrude(self) -> None:
        """A pod of no lease, which may run anywhere in a pool."""
        with suppress(ApiError):
            await self._create(nodeSelector={"pool": self._draw.choice([*POOLS])})

    async def _create(self, **fields: Any) -> None:
        self._pods += 1
        document = builders.pod_document(f"p{self._pods}", restartPolicy="Never", **fields)
        document["spec"]["containers"][0]["command"] = ["job"]
        await self._world.client.create(POD, document, "default")

    async def release(self) -> None:
        """A holder gives its machines back; its pods end by themselves."""
        with suppress(ApiError):
            await self._world.client.delete(MACHINELEASE, self._draw.choice(LEASES), "default")

    async def cordon(self) -> None:
        """A node is cordoned for a while."""
        name = self._draw.choice([*self._machines])
        for value in (True, False):
            with suppress(ApiError):
                patch = {"spec": {"unschedulable": value}}
                await self._world.client.patch(NODE, name, patch=patch)
            await self._world.clock.sleep(self._draw.uniform(0.0, 20.0))

    async def clean(self) -> None:
        """All dirty machines are cleaned."""
        with suppress(ApiError):
            for node in (await self._world.client.list(NODE)).items:
                if node.metadata.annotations.get(STATE_ANNOTATION) == "Dirty":
                    clean: Document = {"metadata": {"annotations": {STATE_ANNOTATION: None}}}
                    await self._world.client.patch(NODE, node.metadata.name, patch=clean)

    async def lose_node(self) -> None:
        """A machine stops for good with all that runs on it; one of the same name replaces it."""
        name = self._draw.choice([*self._machines])
        machine = self._machines[name]
        self._world.network.note(name, "vanishes")
        self._world.crash(f"agent-{name}")
        for pod in machine.pods.values():
            for live in list(pod.runs.values()):
                machine.lose(live.run.id, self._world.clock.now())
        machine.pods.clear()
        with suppress(ApiError):
            await self._world.client.delete(NODE, name)
        await self._world.clock.sleep(self._draw.uniform(5.0, 30.0))
        self._world.restart(f"agent-{name}")


async def populate(world: World, draw: Stream) -> dict[str, FakeMachine]:
    """Nodes of the pools, two members, and the controllers and the scheduler next to them."""
    machines = {}
    for pool, count in POOLS.items():
        for number in range(count):
            name = f"{pool}{number}"
            machines[name] = simulated_nodes.add_node(world, name, labels={"pool": pool})
    factories = dict(TABLE)
    for name in ("nodelifecycle", "garbagecollector"):
        world.add(name, factories[name])
    for name in MEMBERS:
        world.add(
            name, partial(LeaseProcess, name=name), clock=skewed(world, name, draw.fork(name))
        )
    simulated_nodes.add_scheduler(world)
    await simulated_nodes.registered(world, len(machines))
    return machines


async def marked(world: World) -> dict[str, str]:
    """Leases of nodes."""
    nodes = (await world.client.list(NODE)).items
    labels = {node.metadata.name: node.metadata.labels.get(MACHINE_LEASE, "") for node in nodes}
    return {name: uid for name, uid in labels.items() if uid}


@pytest.mark.seeds(3)
async def test_leases_survive_a_week_of_faults(seed: int, log: Logger, records: Records) -> None:
    clock, rng = LoopClock(EPOCH), Stream(seed)
    judge = MachinesAreGrantedOnce()
    async with simulated(clock=clock, rng=rng, log=log, faults=BAD_NETWORK) as world:
        machines = await populate(world, rng.fork("nodes"))
        world.history.add(judge)
        users = LeaseUsers(world, machines, rng.fork("users"))
        for _ in LEASES:
            await users.acquire()
        trouble = Chaos(world, machines, rng=rng.fork("chaos"))
        trouble.disturbances += users.all() * 2
        trouble.add_some([trouble.hang_watches, trouble.suspend], rng.fork("rare"))
        others = frozenset(world.components) - {*MEMBERS}
        members = Chaos(world, machines, rng=rng.fork("members"), excluded=others)
        members.disturbances = [members.crash, members.nothing]
        if rng.fork("late").integer(0, 1):
            members.disturbances = [members.hold_writes, members.hold_writes, members.crash]
        async with Nursery() as nursery:
            nursery.start(trouble.run(TROUBLE_S))
            nursery.start(members.run(TROUBLE_S))
        await trouble.restore()
        await clock.sleep(max(members.late_s + trouble.deaf_s, WATCHES_RESUME_S))
        await everything_is_freed(world, users)
        for name, count in POOLS.items():
            spec = {"machines": [{"pool": name, "count": count}]}
            document: Document = {"metadata": {"name": f"all-{name}"}, "spec": spec}
            await world.client.create(MACHINELEASE, document, "default")
        await world.until(partial(all_granted, world), limit_s=MOVES_S)
        assert len(await marked(world)) == sum(POOLS.values())
        restless = [line for line in await world.fixed_point(60.0) if "/core/nodes/" not in line]
        assert restless == []
    assert judge.grants >= len(POOLS)
    assert crashes(records) == []


async def all_granted(world: World) -> bool:
    leases = (await world.client.list(MACHINELEASE)).items
    return all(lease.status.phase == "Granted" for lease in leases)


async def everything_is_freed(world: World, users: LeaseUsers) -> None:
    """Delete all leases, and wait until nothing is left of them.

    Raises:
        TimeoutError: something still is; its notes name it.
    """
    for node in (await world.client.list(NODE)).items:
        patch = {"spec": {"unschedulable": False}}
        await world.client.patch(NODE, node.metadata.name, patch=patch)
    for lease in (await world.client.list(MACHINELEASE)).items:
        with suppress(NotFound):
            await world.client.delete(MACHINELEASE, lease.metadata.name, "default")

    async def pods_are_gone() -> bool:
        for pod in (await world.client.list(POD)).items:
            with suppress(ApiError):
                await world.client.delete(POD, pod.metadata.name, "default")
        return not (await world.client.list(POD)).items

    async def nodes_are_ready() -> bool:
        nodes = (await world.client.list(NODE)).items
        ready = [
            any(item.type == "Ready" and item.status == "True" for item in node.status.conditions)
            for node in nodes
        ]
        return len(ready) == sum(POOLS.values()) and all(ready)

    async def free() -> bool:
        await users.clean()
        return not await marked(world) and not (await world.client.list(MACHINELEASE)).items

    await world.until(nodes_are_ready, limit_s=120.0)
    await world.until(pods_are_gone, limit_s=120.0)
    try:
        await world.until(free, limit_s=MOVES_S)
    except TimeoutError as error:
        error.add_note(f"marks: {await marked(world)}")
        for lease in (await world.client.list(MACHINELEASE)).items:
            error.add_note(f"lease {lease.metadata.name}: {lease.status}")
        raise
