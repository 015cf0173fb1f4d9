"""MachineLeases as the machine pool of ReplicationControllers: grants, withdrawals, late requests, pods."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support import controller_world
from tests.support.machine_world import MachineWorld, machine_world
from tests.unit.controllers import builders
from tests.unit.controllers.test_replication_transfer import DYNAMIC, label, moved, nodes

from grange.api.http import Request
from grange.api.kinds import LEASEPOLICY, MACHINELEASE, NODE, POD
from grange.api.kinds.machine import DEDICATED_TAINT
from grange.api.kinds.machinelease import MACHINE_LEASE, MachineLease
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Document
from grange.api.status import ApiError, ServiceUnavailable
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.machinelease.controller import MachineLeaseController
from grange.controllers.replication.controller import ReplicationService
from grange.machines.holders.combined_pool import CombinedMachinePool
from grange.machines.holders.lease_machines import GRANT_S, LeaseMachines
from grange.reconcile.machine_pool import PoolExhausted
from grange.sim import builders as sim_builders

SPARE = {"pool": "spare"}
TOLERANT = {"key": DEDICATED_TAINT, "operator": "Exists"}
TEMPLATE = {**builders.TEMPLATE, "spec": {**builders.TEMPLATE["spec"], "tolerations": [TOLERANT]}}
WEB = builders.controller("web", uid="u-web", template=TEMPLATE)


async def serve(world: Any, *pools: str) -> None:
    """The pools serve ReplicationControllers, and the lease controller runs."""
    spec = {"replicationPools": [*pools]}
    await world.client.create(LEASEPOLICY, {"metadata": {"name": "default"}, "spec": spec})
    deps = world.new_deps()
    world.start(MachineLeaseController(deps))
    world.nursery.start(deps.informers.run())


@asynccontextmanager
async def machines(
    clock: Clock, rng: Stream, log: Logger, count: int = 2
) -> AsyncIterator[MachineWorld]:
    """A world with so many nodes of the pool ``spare``."""
    async with machine_world(clock, rng, log) as world:
        for number in range(count):
            await sim_builders.create_node(world.client, f"m{number}", labels=SPARE)
            await world.set_ready(f"m{number}", ready=True)
        await serve(world, "spare")
        yield world


def pool_of(world: MachineWorld) -> LeaseMachines:
    """The pool as one process has it."""
    deps = world.new_deps()
    made = LeaseMachines(deps)
    world.nursery.start(deps.informers.run())
    return made


async def claim(pool: LeaseMachines, request: str, count: int = 1, epoch: int = 1) -> list[str]:
    return [*await pool.claim(request, holder="u-web", demand=WEB, count=count, epoch=epoch)]


async def leases(world: Any) -> list[MachineLease]:
    return [*(await world.client.list(MACHINELEASE)).items]


async def marked(world: Any) -> dict[str, str]:
    """Leases of nodes."""
    found = (await world.client.list(NODE)).items
    labels = {node.metadata.name: node.metadata.labels.get(MACHINE_LEASE, "") for node in found}
    return {name: uid for name, uid in labels.items() if uid}


async def no_leases(world: Any) -> bool:
    return not await leases(world) and not await marked(world)


async def test_claim_that_is_not_granted_is_withdrawn(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The machine is free by its node, but a pod without a lease is on it."""
    async with machines(clock, rng, log) as world:
        pool = pool_of(world)
        await world.add_daemon("d", "m1")  # does not count
        await world.client.create(POD, sim_builders.pod_document("guest", nodeName="m0"), "default")
        await world.settle(1.0)
        began = clock.monotonic()
        with pytest.raises(PoolExhausted, match=r"1 more node wanted: .*default/guest"):
            await claim(pool, "r1", 2)
        assert clock.monotonic() - began < GRANT_S + 1.0
        await world.until(lambda: no_leases(world))
        assert await pool.holders() == {"m0": "", "m1": ""}
        assert await claim(pool, "r1") == ["m1"]


async def test_machines_of_a_claim_are_released_one_by_one(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machines(clock, rng, log) as world:
        pool = pool_of(world)
        assert await claim(pool, "r1", 2) == ["m0", "m1"]
        await pool.release(["m0"], holder="u-web", epoch=2)
        assert await pool.holders() == {"m0": "", "m1": "u-web"}

        async def freed() -> bool:
            return [*await marked(world)] == ["m1"]

        await world.until(freed)
        await pool.release(["m1"], holder="u-web", epoch=3)
        await world.until(lambda: no_leases(world))


async def test_claim_after_a_crash_has_the_leases_of_before(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The first owner dies between two creations."""
    async with machines(clock, rng, log) as world:
        made: list[str] = []

        def second_fails(request: Request) -> ApiError | None:
            if request.method == "POST" and request.path.endswith("/machineleases"):
                made.append(request.path)
                return ServiceUnavailable("gone") if len(made) == 2 else None
            return None

        world.gate = second_fails
        with pytest.raises(ServiceUnavailable):
            await claim(pool_of(world), "r1", 2)
        assert len(await leases(world)) == 1
        assert await claim(pool_of(world), "r1", 2, epoch=2) == ["m0", "m1"]
        assert len(await leases(world)) == 2


async def test_late_release_of_a_former_owner_is_refused(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """It was on its way when the next owner claimed under the same id."""
    async with machines(clock, rng, log) as world:
        assert await claim(pool_of(world), "r1") == ["m0"]
        (read,) = await leases(world)
        assert await claim(pool_of(world), "r1", epoch=2) == ["m0"]
        with pytest.raises(ApiError, match="version"):
            await world.client.delete_as_read(MACHINELEASE, read)


async def test_pool_whose_machines_differ_serves_none(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Which of them a lease is given is not known before."""
    async with machines(clock, rng, log) as world:
        await world.client.patch(NODE, "m1", patch={"metadata": {"labels": {"disk": "ssd"}}})
        await world.settle(1.0)
        picky = builders.controller(
            "web", uid="u-web", nodeSelector={"matchLabels": {"disk": "ssd"}}
        )
        with pytest.raises(PoolExhausted, match="1 more node wanted, 0 free"):
            await pool_of(world).claim("r", holder="u-web", demand=picky, count=1, epoch=1)
        assert await leases(world) == []


@pytest.mark.parametrize(
    ("policy", "why"),
    [({"paused": True}, "the queue of leases is paused"), ({"drainingPools": ["spare"]}, "0 free")],
)
async def test_pool_that_grants_nothing_is_not_asked(
    clock: Clock, rng: Stream, log: Logger, policy: Document, why: str
) -> None:
    async with machines(clock, rng, log) as world:
        await world.client.patch(LEASEPOLICY, "default", patch={"spec": policy})
        with pytest.raises(PoolExhausted, match=why):
            await claim(pool_of(world), "r1")
        assert await leases(world) == []


async def test_machines_of_other_leases_are_not_of_the_pool(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Their taint keeps them; a template that names such a lease keeps its nodes."""
    async with machines(clock, rng, log) as world:
        spec = {"machines": [{"pool": "spare", "count": 1}]}
        await world.client.create(
            MACHINELEASE, {"metadata": {"name": "mine"}, "spec": spec}, "default"
        )

        async def granted() -> bool:
            return [*await marked(world)] == ["m0"]

        await world.until(granted)
        pool = pool_of(world)
        assert await pool.holders() == {"m1": ""}
        await world.client.delete(MACHINELEASE, "mine", "default")
        await world.until(lambda: no_leases(world))
        assert await pool.holders() == {"m0": "", "m1": ""}


async def test_controller_without_a_lease_pool_claims_of_node_pools(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machines(clock, rng, log) as world:
        await world.add_pool(cleaning="Wipe", timeouts={"idleSeconds": 86_400})
        await world.add_machine("own")
        await world.count(MachinePhase.AVAILABLE, 1)
        deps = world.new_deps()
        pool = CombinedMachinePool(deps)
        world.nursery.start(deps.informers.run())
        other = builders.controller(
            "api",
            uid="u-api",
            template=TEMPLATE,
            nodeSelector={"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]},
        )
        for demand, given in ((WEB, "m0"), (other, "own")):
            uid = demand.metadata.uid
            asked = {"holder": uid, "demand": demand, "count": 1, "epoch": 1}
            assert await pool.claim("r1", **asked) == (given,)  # type: ignore[arg-type]  # of several types
        assert await pool.holders() == {"m0": "u-web", "m1": "", "own": "u-api"}
        await pool.release(["own"], holder="u-api", epoch=2)
        await pool.release(["m0"], holder="u-web", epoch=2)
        assert await pool.holders() == {"m0": "", "m1": "", "own": ""}


@pytest.mark.parametrize("placement", ["OnePerNode", "Packed"])
async def test_pods_of_a_controller_move_to_a_leased_machine(
    clock: Clock, rng: Stream, log: Logger, placement: str
) -> None:
    async with controller_world.world(clock, rng, log) as there:
        await nodes(there, "a", "m")
        await there.client.patch(NODE, "m", patch={"metadata": {"labels": SPARE}})
        await serve(there, "spare")
        await there.add_controller(replicas=1, **DYNAMIC, placement=placement)
        if placement == "Packed":  # the hands place it where they like
            await there.client.patch(NODE, "m", patch={"spec": {"unschedulable": True}})
            there.silent.add("m")
        there.start(ReplicationService(there.deps, pool=CombinedMachinePool(there.deps)))
        await there.until(lambda: there.ready(1))
        assert [pod.spec.node_name for pod in await there.pods()] == ["a"]
        there.silent.discard("m")
        await there.client.patch(NODE, "m", patch={"spec": {"unschedulable": None}})
        await label(there, "a", False)
        await there.until(lambda: moved(there, "m"), limit_s=60)
        (lease,), (pod,) = await leases(there), await there.pods()
        uid, owner = lease.metadata.uid, (await there.controller()).metadata
        assert (lease.spec.holder.uid, lease.metadata.owner_references[0].uid) == (
            owner.uid,
            owner.uid,
        )
        assert pod.metadata.labels[MACHINE_LEASE] == pod.spec.node_selector[MACHINE_LEASE] == uid
        assert [one.value for one in pod.spec.tolerations if one.key == MACHINE_LEASE] == [uid]
        await there.client.delete(POD, pod.metadata.name, "default", grace_period_s=0)

        async def replaced() -> bool:
            uids = [one.metadata.uid for one in await there.pods()]
            return uids not in ([], [pod.metadata.uid]) and await moved(there, "m")

        await there.until(replaced, limit_s=60)
        await there.change(replicas=0)
        await there.until(lambda: no_leases(there), limit_s=60)
