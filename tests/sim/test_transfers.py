"""Services that must leave nodes, under faults: nothing lost, nothing doubled, everything recorded."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tests.sim.lateness import late_writes
from tests.sim.test_replication import BAD_NETWORK, crashes, kept, service

from grange.agent.runtimes.fake import FakeMachine
from grange.api.kinds import (
    AUDITRECORD,
    LEASEPOLICY,
    MACHINELEASE,
    NODE,
    POD,
    REPLICATIONCONTROLLER,
)
from grange.api.kinds.auditrecord import AuditRecord
from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.api.meta import Document, controller_of
from grange.api.status import ApiError
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.controllers.replication.controller import ReplicationService
from grange.machines.holders.combined_pool import CombinedMachinePool
from grange.reconcile.deps import Deps
from grange.reconcile.machine_pool import MachinePool
from grange.sim import simulated_nodes
from grange.sim.chaos import Chaos
from grange.sim.invariants import ObservedWrite
from grange.sim.pytest_plugin import EPOCH, Records
from grange.sim.simulated_pool import SimulatedPool
from grange.sim.world import World, simulated

OWN = ("n0", "n1", "n2", "n3")
ALLOCATED = ("p0", "p1", "p2")
FITS = {"web": "y"}


class Births:
    """Counts the pods that were created, by name; ``uids`` are theirs."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()
        self.uids: set[str] = set()

    def see(self, change: ObservedWrite) -> None:
        if change.concerns(POD) and change.uid not in self.uids:
            self.uids.add(change.uid)
            self.names[change.document["metadata"]["name"]] += 1

    def judge(self, audit: Sequence[AuditRecord], *, exact: bool) -> None:
        """Compare with what is recorded.

        Args:
            audit: all records.
            exact: every creation is announced by who sees to it. One that was held on its way is
                not: its pod is recorded among those that came without this controller.
        """
        recorded = Counter(item.pod for one in audit for item in one.spec.added)
        if exact:
            assert recorded == self.names, "every pod that came is recorded, once"
            return
        assert recorded <= self.names, "no pod that came is recorded twice"
        found = {item.pod for one in audit for item in one.spec.members}
        assert set(self.names) <= found, "every pod that came is recorded"


@dataclass
class AllocatedMachines:
    """Machines that are always there, from a pool that every process has.

    Attributes:
        labels: of their nodes.
    """

    labels: dict[str, str] = field(default_factory=lambda: FITS)
    pool: SimulatedPool = field(default_factory=lambda: SimulatedPool(ALLOCATED))

    def create(self, deps: Deps) -> MachinePool:
        """The pool as one process has it."""
        return self.pool

    async def begin(self, world: World) -> None:
        """Nothing: the pool is there."""

    async def held(self, world: World) -> set[str]:
        """The machines that have a holder."""
        return {name for name, holder in (await self.pool.holders()).items() if holder}


class LeasedMachines(AllocatedMachines):
    """Machines of a pool that the lease controller grants."""

    def create(self, deps: Deps) -> MachinePool:
        """The pool as one process has it."""
        return CombinedMachinePool(deps)

    async def begin(self, world: World) -> None:
        """The pool serves ReplicationControllers."""
        policy: Document = {
            "metadata": {"name": "default"},
            "spec": {"replicationPools": ["spare"]},
        }
        await world.client.create(LEASEPOLICY, policy)

    async def held(self, world: World) -> set[str]:
        """The nodes that bear marks of a lease, and those of leases."""
        nodes_ = (await world.client.list(NODE)).items
        marked = {one.metadata.name for one in nodes_ if MACHINE_LEASE in one.metadata.labels}
        leases = (await world.client.list(MACHINELEASE)).items
        return marked | {item.node for one in leases for item in one.status.machines}


async def populate(world: World, allocated: AllocatedMachines) -> dict[str, FakeMachine]:
    capacity = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    labels = {**dict.fromkeys(OWN, FITS), **dict.fromkeys(ALLOCATED, allocated.labels)}
    machines = {
        name: simulated_nodes.add_node(world, name, capacity=capacity, labels=labels[name])
        for name in (*OWN, *ALLOCATED)
    }
    await allocated.begin(world)
    simulated_nodes.add_controllers(world, besides="replication")
    world.add("replication", lambda deps: ReplicationService(deps, pool=allocated.create(deps)))
    simulated_nodes.add_scheduler(world)
    await simulated_nodes.registered(world, len(machines))
    return machines


async def nothing_lost(world: World, allocated: AllocatedMachines) -> bool:
    """Whether every machine that is allocated is used."""
    used = {pod.spec.node_name for pod in (await world.client.list(POD)).items}
    return await allocated.held(world) <= used


async def test_pods_move_and_nothing_is_lost_in_a_week_of_faults(
    seed: int, log: Logger, records: Records
) -> None:
    await week_of_faults(seed, log, records, AllocatedMachines())


async def test_pods_move_to_leased_machines_in_a_week_of_faults(
    seed: int, log: Logger, records: Records
) -> None:
    await week_of_faults(seed, log, records, LeasedMachines({**FITS, "pool": "spare"}))


async def week_of_faults(
    seed: int, log: Logger, records: Records, allocated: AllocatedMachines
) -> None:
    clock, rng = LoopClock(EPOCH), Stream(seed)
    births = Births()
    async with simulated(clock=clock, rng=rng, log=log, faults=BAD_NETWORK) as world:
        world.history.add(births)
        machines = await populate(world, allocated)
        draw = rng.fork("wishes")
        document = service(
            "web",
            draw.integer(1, 3),
            strategy="Dynamic",
            nodeSelector={"matchLabels": FITS},
            rollout={"progressDeadlineSeconds": 60},
        )
        await world.client.create(REPLICATIONCONTROLLER, document, "default")

        async def relabel() -> None:
            name = draw.choice([*OWN, *ALLOCATED])
            value = draw.choice(["y", None])
            with suppress(ApiError):
                await world.client.patch(NODE, name, patch={"metadata": {"labels": {"web": value}}})

        async def scale() -> None:
            with suppress(ApiError):
                spec = {"replicas": draw.integer(0, 4)}
                await world.client.patch(
                    REPLICATIONCONTROLLER, "web", "default", patch={"spec": spec}
                )

        async def crash_owner() -> None:
            world.crash("replication")
            await clock.sleep(draw.uniform(0.0, 5.0))
            world.restart("replication")

        troubles = [Chaos(world, machines, rng=rng.fork(f"chaos.{n}")) for n in range(2)]
        async with Nursery() as nursery:
            for chaos in troubles:
                # A pod that a user deletes as soon as it is made leaves nothing to record.
                chaos.disturbances.remove(chaos.delete_pod)
                chaos.disturbances += [relabel, relabel, scale, crash_owner, crash_owner]
                chaos.add_some(chaos.rare, rng.fork("rare"))
            late = late_writes(world, rng.fork("late"), ["replication", "scheduler"])
            for chaos in (*troubles, late):
                nursery.start(chaos.run(240))
        await troubles[0].restore()
        for name in (*OWN, *ALLOCATED):
            await world.client.patch(NODE, name, patch={"metadata": {"labels": FITS}})

        async def settled() -> bool:
            one = await world.client.get(REPLICATIONCONTROLLER, "web", "default")
            busy = one.status.node_transfers or one.status.outbox
            return not busy and await kept(world, {"web": one.spec.replicas})

        await clock.sleep(late.late_s)
        await world.until(settled, limit_s=1500)
        await clock.sleep(120 + troubles[0].deaf_s)
        await world.until(settled, limit_s=600)
        restless = [line for line in await world.fixed_point(200) if "/core/nodes/" not in line]
        assert restless == []

        assert await nothing_lost(world, allocated), "an allocation is lost"

        audit = (await world.client.list(AUDITRECORD)).items
        births.judge(audit, exact=not late.late_s)
        members = [
            pod.metadata.name
            for pod in (await world.client.list(POD)).items
            if controller_of(pod.metadata) is not None
        ]
        if audit:
            # On a network that is repaired no time passes between two passes, so times can be equal.
            last = max(audit, key=lambda one: (one.spec.time, int(one.metadata.resource_version)))
            assert sorted(item.pod for item in last.spec.members) == sorted(members)
    assert crashes(records) == []
