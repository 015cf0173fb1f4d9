"""Machines of dedicated pools as the machine pool of ReplicationControllers: races, crashes, late requests."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tests.support import controller_world
from tests.support.machine_world import MachineWorld, machine_world
from tests.unit.controllers import builders
from tests.unit.controllers.test_replication_transfer import DYNAMIC, label, moved, nodes

from grange.api.http import Request
from grange.api.kinds import CONFIGMAP, MACHINE, NODE, NODEPOOL
from grange.api.kinds.machine import DEDICATED_TAINT
from grange.api.machine_claims import EPOCHS_CONFIGMAP, NAMESPACE, REQUEST_PREFIX
from grange.api.machine_phases import MachinePhase
from grange.api.status import ApiError, ServiceUnavailable
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.controllers.replication.controller import ReplicationService
from grange.machines.holders import holder_epochs
from grange.machines.holders.claim_requests import REQUEST_S
from grange.machines.holders.holder_epochs import HolderEpochs
from grange.machines.holders.node_pool_machines import NodePoolMachines
from grange.reconcile.machine_pool import PoolExhausted, StaleRequest

P = MachinePhase
TOLERANT = {"key": DEDICATED_TAINT, "operator": "Exists"}
TEMPLATE = {**builders.TEMPLATE, "spec": {**builders.TEMPLATE["spec"], "tolerations": [TOLERANT]}}
WEB = builders.controller("web", uid="u-web", template=TEMPLATE)
API = builders.controller("api", uid="u-api", template=TEMPLATE)


def pool_of(world: MachineWorld) -> NodePoolMachines:
    """The pool as one process has it."""
    deps = world.new_deps()
    made = NodePoolMachines(deps)
    world.nursery.start(deps.informers.run())
    return made


@asynccontextmanager
async def machines(
    clock: Clock, rng: Stream, log: Logger, count: int = 2
) -> AsyncIterator[MachineWorld]:
    """A world with so many available machines, which are wiped after use."""
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(cleaning="Wipe", timeouts={"idleSeconds": 86_400})
        for number in range(count):
            await world.add_machine(f"m{number}")
        await world.count(P.AVAILABLE, count)
        yield world


async def claim(pool: NodePoolMachines, request: str, count: int = 1, epoch: int = 1) -> list[str]:
    return [*await pool.claim(request, holder="u-web", demand=WEB, count=count, epoch=epoch)]


async def test_two_that_want_one_machine(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machines(clock, rng, log, 1) as world:
        given: list[str] = []

        async def want(uid: str, demand: Any) -> None:
            with suppress(PoolExhausted):
                names = await pool_of(world).claim("r", holder=uid, demand=demand, count=1, epoch=1)
                given.extend(f"{uid} {name}" for name in names)

        async with Nursery("owners") as nursery:
            nursery.start(want("u-web", WEB))
            nursery.start(want("u-api", API))
        (machine,) = await world.machines(P.CLAIMED)
        assert given == [f"{machine.status.holder_uid} m0"]


async def test_machine_that_is_meant_for_a_pod_is_left(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machines(clock, rng, log) as world:
        assert world.task is not None
        world.task.cancel()  # it would see that there is no such pod
        bound = {"boundPodName": "default/p", "boundPodUID": "u-p"}
        await world.client.patch(MACHINE, "m0", patch={"status": bound}, subresource="status")
        assert await claim(pool_of(world), "r") == ["m1"]
        with pytest.raises(PoolExhausted, match="1 more node wanted, 0 available"):
            await claim(pool_of(world), "other")


async def test_held_machine_is_no_pods(clock: Clock, rng: Stream, log: Logger) -> None:
    """The node controller takes it from its holder neither for a pod nor because it has none."""
    async with machines(clock, rng, log, 1) as world:
        await claim(pool_of(world), "r")
        pod = await world.add_pod("p")
        await world.settle(120.0)
        machine = await world.machine("m0")
        assert (machine.phase, machine.status.holder_uid) == (P.CLAIMED, "u-web")
        assert machine.status.holder == "ReplicationController/default/web"
        assert (await world.pod(pod.metadata.name)).spec.node_name != "m0"


async def test_released_machine_serves_a_pod(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machines(clock, rng, log, 1) as world:
        pool = pool_of(world)
        await claim(pool, "r")
        await pool.release(["m0"], holder="u-web", epoch=1)
        await world.count(P.AVAILABLE, 1)
        status = (await world.machine("m0")).status
        assert (status.holder_uid, status.holder_epoch, status.request_id) == ("", 0, "")
        assert world.cloud.instances["m0"].wiped == 1


async def test_claim_names_nodes_that_the_cluster_named(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        world.cloud_names = True
        await world.add_pool(cleaning="Wipe", timeouts={"idleSeconds": 86_400})
        await world.add_machine("m0")
        await world.count(P.AVAILABLE, 1)
        pool, name = pool_of(world), world.node_name("m0")
        assert await claim(pool, "r") == [name]
        assert await pool.holders() == {name: "u-web"}
        await pool.release([name], holder="u-web", epoch=1)
        await world.count(P.AVAILABLE, 1)


def failing_at(left: int, *, done: bool) -> Callable[[Request], ApiError | None]:
    """The write after so many fails, done or not, and all that follow."""

    def gate(request: Request) -> ApiError | None:
        nonlocal left
        if request.method == "GET":
            return None
        left -= 1
        return ServiceUnavailable("dead") if left < (-1 if done else 0) else None

    return gate


@pytest.mark.parametrize("writes", range(4))
async def test_claim_that_ends_halfway_is_completed(
    writes: int, clock: Clock, rng: Stream, log: Logger
) -> None:
    """Its process dies before any of its writes: the epoch, the first machine, the second."""
    async with machines(clock, rng, log, 3) as world:
        assert world.task is not None
        world.task.cancel()
        world.gate = failing_at(writes, done=False)
        with suppress(ServiceUnavailable):
            await claim(pool_of(world), "r", 2)
        world.gate = lambda request: None
        successor = pool_of(world)
        given = await claim(successor, "r", 2, epoch=2)
        assert len(given) == 2
        held = [name for name, uid in (await successor.holders()).items() if uid]
        assert held == given
        assert {(await world.machine(name)).status.holder_epoch for name in given} == {2}


async def test_incomplete_claim_leaves_nothing(clock: Clock, rng: Stream, log: Logger) -> None:
    """Another one takes the last machine between the look and the write."""
    async with machines(clock, rng, log, 2) as world:
        first, other = pool_of(world), pool_of(world)
        await other.holders()
        stolen = False

        async def steal(request: Request, handle: Any) -> Any:
            nonlocal stolen
            if request.method == "PATCH" and "/machines/m0" in request.path and not stolen:
                stolen = True
                await other.claim("o", holder="u-api", demand=API, count=1, epoch=1)
            return await handle(request)

        world.intercept = steal
        with pytest.raises(PoolExhausted):
            await claim(first, "r", 2)
        assert {name: (await world.machine(name)).status.holder_uid for name in ("m0", "m1")} == {
            "m0": "u-api",
            "m1": "",
        }


async def test_late_release_of_a_former_owner_is_refused(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """It has read everything, and its write arrives after its successor has asked."""
    async with machines(clock, rng, log, 2) as world:
        former, successor = pool_of(world), pool_of(world)
        await claim(former, "r")
        asked = False

        async def late(request: Request, handle: Any) -> Any:
            nonlocal asked
            if request.method == "PATCH" and b"Cleaning" in request.body and not asked:
                asked = True
                assert await claim(successor, "r", epoch=2) == ["m0"]
            return await handle(request)

        world.intercept = late
        with pytest.raises(StaleRequest):
            await former.release(["m0"], holder="u-web", epoch=1)
        assert (await world.machine("m0")).phase is P.CLAIMED


async def test_late_claim_of_a_former_owner_is_undone(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machines(clock, rng, log, 2) as world:
        former, successor = pool_of(world), pool_of(world)
        asked = False

        async def late(request: Request, handle: Any) -> Any:
            nonlocal asked
            if request.method == "PATCH" and b"Claimed" in request.body and not asked:
                asked = True
                assert await claim(successor, "r", epoch=2) == ["m0"]
            return await handle(request)

        world.intercept = late
        with pytest.raises(StaleRequest):
            await claim(former, "r")
        assert (await world.machine("m0")).status.holder_epoch == 2
        assert (await world.machine("m1")).phase is P.AVAILABLE


@pytest.mark.parametrize("epoch", [1, 2])
async def test_late_write_of_a_dead_claim_is_given_back(
    epoch: int, clock: Clock, rng: Stream, log: Logger
) -> None:
    """Its request was met meanwhile, by the same owner or a later one, and keeps its machines."""
    async with machines(clock, rng, log, 2) as world:
        pool, held = pool_of(world), list[Request]()

        async def hold(request: Request, handle: Any) -> Any:
            if request.method == "PATCH" and "/machines/m1" in request.path and not held:
                held.append(request)
                raise ServiceUnavailable("the answer is late")
            return await handle(request)

        world.intercept = hold
        with pytest.raises(ServiceUnavailable):
            await claim(pool, "r", 2)
        await world.add_machine("a0")
        await world.count(P.AVAILABLE, 2)
        assert await claim(pool, "r", 2, epoch=epoch) == ["a0", "m0"]
        assert (await world.application.handle(held[0])).status == 200
        assert (await world.machine("m1")).status.holder_uid == "u-web"
        assert await claim(pool, "r", 2, epoch=epoch) == ["a0", "m0"]
        assert (await world.machine("m1")).phase is P.AVAILABLE


async def until_claimed(
    world: MachineWorld,
    pool: NodePoolMachines,
    request: str,
    count: int = 1,
    limit_s: float = 120.0,
) -> list[str]:
    """What a controller does: it tries again every few seconds."""
    for _ in range(int(limit_s / 5.0)):
        with suppress(PoolExhausted):
            return await claim(pool, request, count)
        await world.clock.sleep(5.0)
    raise AssertionError("the pool has not grown")


async def test_pool_grows_for_a_claim_and_shrinks_after(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(timeouts={"idleSeconds": 10})
        pool = pool_of(world)
        with pytest.raises(
            PoolExhausted, match="0 available in dedicated pools: NodePool p is asked"
        ):
            await claim(pool, "r", 2)
        given = await until_claimed(world, pool, "r", 2)
        assert len(given) == len(await world.machines()) == 2
        assert (await world.pool()).metadata.annotations == {}
        await pool.release(given, holder="u-web", epoch=1)
        await world.empty()


async def test_claim_that_is_given_up_leaves_no_machine(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """It was tried once: what boots for it is kept for a minute, then for the pool's grace."""
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(timeouts={"idleSeconds": 10})
        with pytest.raises(PoolExhausted):
            await claim(pool_of(world), "r")
        await world.count(P.AVAILABLE, 1)
        await world.settle(REQUEST_S / 2)
        assert len(await world.machines(P.AVAILABLE)) == 1
        await world.empty(limit_s=REQUEST_S + 60.0)
        assert (await world.pool()).metadata.annotations == {}


async def test_claim_goes_to_a_pool_that_may_grow(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool("full", weight=10, limits={"machines": 0})
        await world.settle(1.0)
        pool = pool_of(world)
        with pytest.raises(PoolExhausted, match=r"asked for what is missing$"):
            await claim(pool, "r")
        await world.settle(1.0)
        with pytest.raises(PoolExhausted, match=r"full .* and refuses \(.*limits.machines: 0 of 0"):
            await claim(pool, "r")
        await world.add_pool("roomy")
        await world.settle(1.0)
        (name,) = await until_claimed(world, pool, "r")
        assert (await world.machine(name)).spec.pool == "roomy"
        for each in ("full", "roomy"):
            assert (await world.pool(each)).metadata.annotations == {}


@pytest.mark.parametrize(
    "unsuitable",
    [
        {"mode": "Packed"},
        {"template": {"labels": {"app": "api"}}},
        {"template": {"labels": {"app": "web"}, "taints": [{"key": "t", "effect": "NoSchedule"}]}},
    ],
)
async def test_pool_whose_nodes_do_not_suit_is_not_asked(
    unsuitable: dict[str, Any], clock: Clock, rng: Stream, log: Logger
) -> None:
    chosen = builders.controller(
        "web", uid="u-web", template=TEMPLATE, nodeSelector={"matchLabels": {"app": "web"}}
    )
    async with machine_world(clock, rng, log) as world:
        await world.add_pool("q", **unsuitable)
        pool = pool_of(world)
        with pytest.raises(PoolExhausted, match="add machines to a pool"):
            await pool.claim("r", holder="u-web", demand=chosen, count=1, epoch=1)
        assert (await world.pool("q")).metadata.annotations == {}
        await world.add_pool("p", template={"labels": {"app": "web"}})
        await world.settle(1.0)
        with pytest.raises(PoolExhausted, match="NodePool p is asked"):
            await pool.claim("r", holder="u-web", demand=chosen, count=1, epoch=1)


async def test_request_that_cannot_be_read_is_removed(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        patch = {"metadata": {"annotations": {f"{REQUEST_PREFIX}x": "{", "other": "kept"}}}
        await world.client.patch(NODEPOOL, "p", patch=patch)
        await world.settle(30.0)
        assert (await world.pool()).metadata.annotations == {"other": "kept"}
        assert not await world.machines()


async def test_oldest_epochs_are_forgotten_first(
    clock: Clock, rng: Stream, log: Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder_epochs, "HOLDERS_MAX", 2)
    async with machine_world(clock, rng, log, runs=False) as world:
        epochs = HolderEpochs(world.new_client())
        for holder, epoch in (("a", 5), ("b", 3), ("c", 4)):
            await epochs.admit(holder, epoch)
        found = await world.client.get(CONFIGMAP, EPOCHS_CONFIGMAP, NAMESPACE)
        assert found.data == {"a": "5", "c": "4"}
        await epochs.check("b", 1)
        with pytest.raises(StaleRequest, match="epoch 4 of a is over: 5 is on"):
            await epochs.check("a", 4)


async def test_pods_of_a_controller_move_to_a_machine(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with controller_world.world(clock, rng, log) as there:
        spec = {"provider": "simulated", "mode": "Dedicated"}
        await there.client.create(NODEPOOL, {"metadata": {"name": "p"}, "spec": spec})
        machine = {"pool": "p", "provider": "simulated", "instanceType": "small"}
        await there.client.create(MACHINE, {"metadata": {"name": "m"}, "spec": machine})
        status = {"status": {"phase": "Available"}}
        await there.client.patch(MACHINE, "m", patch=status, subresource="status")
        await nodes(there, "a", "m")
        taint = {"key": DEDICATED_TAINT, "effect": "NoSchedule"}
        await there.client.patch(NODE, "m", patch={"spec": {"taints": [taint]}})
        await there.add_controller(replicas=1, **DYNAMIC, template=TEMPLATE)
        there.start(ReplicationService(there.deps, pool=NodePoolMachines(there.deps)))
        await there.until(lambda: there.ready(1))
        assert [pod.spec.node_name for pod in await there.pods()] == ["a"]
        await label(there, "a", False)
        await there.until(lambda: moved(there, "m"), limit_s=60)
        held = (await there.client.get(MACHINE, "m")).status
        assert held.holder_uid == (await there.controller()).metadata.uid
        await there.change(replicas=0)
        await there.until(lambda: there.ready(0))

        async def released() -> bool:
            return (await there.client.get(MACHINE, "m")).phase is P.CLEANING

        await there.until(released, limit_s=60)
