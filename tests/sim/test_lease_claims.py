"""Owners of two controllers lease machines of a pool; they die at their writes, which may arrive later.

The lease controller dies, too, people take machines of the same pool, and pods that have no lease are put there.
No machine has two leases; what was claimed under an id stays so until it is released, also for the next owner; a
former one is refused; in the end everything is given back and nothing is left.
"""

from collections.abc import Awaitable, Callable

import pytest
from tests.sim.test_machine_claims import Owners
from tests.support.machine_world import MachineWorld, machine_world

from grange.api import codec
from grange.api.http import Request, Response
from grange.api.kinds import LEASEPOLICY, MACHINELEASE, NODE, POD
from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.base.clock import Clock
from grange.base.errors import invariant
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Child, Nursery
from grange.controllers.machinelease.controller import MachineLeaseController
from grange.machines.holders.lease_machines import LeaseMachines
from grange.reconcile.deps import Deps
from grange.reconcile.machine_pool import MachinePool
from grange.sim import builders

MACHINES = 4
SETTLED_S = 300.0


class LeaseOwners(Owners):
    """The owners of a controller whose machines are leased."""

    def new_pool(self, deps: Deps) -> MachinePool:
        """The pool of one process."""
        return LeaseMachines(deps)

    async def is_held(self, name: str) -> bool:
        """Whether a machine is the holder's."""
        node = await self._world.node(name)
        leases = (await self._world.client.list(MACHINELEASE)).items
        return any(
            lease.metadata.uid == node.metadata.labels.get(MACHINE_LEASE)
            and lease.spec.holder.uid == self.holder.uid
            and lease.metadata.deletion_timestamp is None
            for lease in leases
        )


class NodeJudge:
    """Sees every write to a node."""

    def __init__(self) -> None:
        self.passed = 0
        self._leases: dict[str, str] = {}

    async def intercept(
        self, request: Request, handle: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        response = await handle(request)
        if request.method == "PATCH" and "/nodes/" in request.path and response.status < 300:
            meta = codec.decode_document(response.body)["metadata"]
            lease = (meta.get("labels") or {}).get(MACHINE_LEASE, "")
            before = self._leases.get(meta["name"], "")
            invariant(
                lease in {"", before} or not before, "a machine has one lease", node=meta["name"]
            )
            self.passed += lease != before
            self._leases[meta["name"]] = lease
        return response


async def controller_dies_and_returns(world: MachineWorld, draw: Stream, forever: Nursery) -> None:
    """The lease controller, one life after another; the last one stays."""
    for last in (*[False] * 8, True):
        deps = world.new_deps()
        tasks: list[Child[None]] = [
            forever.start(deps.informers.run()),
            forever.start(MachineLeaseController(deps).run()),
        ]
        if last:
            return
        await world.clock.sleep(draw.uniform(2.0, 20.0))
        for task in tasks:
            task.cancel()
        await world.clock.sleep(draw.uniform(0.0, 5.0))


async def others_come_and_go(world: MachineWorld, draw: Stream) -> None:
    """Leases of people, and pods that no scheduler has put where they are."""
    for number in range(10):
        lease, pod = f"l{number}", f"guest{number}"
        spec = {"machines": [{"pool": "spare", "count": draw.integer(1, 2)}]}
        await world.client.create(
            MACHINELEASE, {"metadata": {"name": lease}, "spec": spec}, "default"
        )
        document = builders.pod_document(pod, nodeName=f"m{draw.integer(0, MACHINES - 1)}")
        await world.client.create(POD, document, "default")
        await world.clock.sleep(draw.uniform(0.5, 8.0))
        await world.client.delete(MACHINELEASE, lease, "default")
        await world.delete_pod(pod)
        await world.clock.sleep(draw.uniform(0.0, 8.0))


@pytest.mark.seeds(4)
async def test_machines_are_leased_to_one_holder_at_a_time(
    seed: int, clock: Clock, log: Logger
) -> None:
    async with machine_world(clock, Stream(seed), log, runs=False) as world:
        draw, judge = Stream(seed).fork("leases"), NodeJudge()
        for number in range(MACHINES):
            await builders.create_node(world.client, f"m{number}", labels={"pool": "spare"})
            await world.set_ready(f"m{number}", ready=True)
        policy = {"metadata": {"name": "default"}, "spec": {"replicationPools": ["spare"]}}
        await world.client.create(LEASEPOLICY, policy)
        world.intercept = judge.intercept
        owners = [LeaseOwners(world, uid, draw.fork(uid), tries=2) for uid in ("u-1", "u-2")]
        async with Nursery("holders") as nursery:
            for one in owners:
                nursery.start(one.run())
            nursery.start(controller_dies_and_returns(world, draw.fork("lives"), world.nursery))
            nursery.start(others_come_and_go(world, draw.fork("others")))
        await world.clock.sleep(60.0)  # until the last late write
        for one in owners:
            await one.end()

        async def free() -> bool:
            nodes = (await world.client.list(NODE)).items
            marked = [one for one in nodes if MACHINE_LEASE in one.metadata.labels]
            return not marked and not (await world.client.list(MACHINELEASE)).items

        await world.until(free, limit_s=SETTLED_S)
        invariant(judge.passed >= 2, "machines were leased")
