"""What replication does while its pool of machines has trouble, and with machines that are not needed.

A pool is the part of a pass that depends on another system; W10 and W13 of the specification of
replication state that the rest of the pass goes on and that nothing lent is forgotten.
"""

from collections.abc import Callable

from tests.support.controller_world import World, report_controllers, world
from tests.support.memory_sink import MemorySink
from tests.unit.controllers import builders
from tests.unit.controllers.test_replication_transfer import (
    DYNAMIC,
    PoolDown,
    label,
    moved,
    nodes,
    on,
    phase,
    started,
    transfers,
)

from grange.api.kinds import NODE, POD, REPLICATIONCONTROLLER
from grange.api.kinds.transfer_status import NodeTransfer
from grange.base.clock import Clock, LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.controllers.replication import logic, node_transfer
from grange.controllers.replication.controller import ReplicationConfig, ReplicationService
from grange.controllers.replication.node_eligibility import NodeScheduler
from grange.controllers.replication.node_transfer import TransferEvent, TransferPhase
from grange.controllers.replication.plan import Plan
from grange.sim.simulated_pool import SimulatedPool


def down(*requests: str) -> Callable[[str], None]:
    """What a pool answers that cannot do this."""

    def gate(request: str) -> None:
        if request in requests:
            raise PoolDown("the provider does not answer")

    return gate


async def mislabel(there: World, name: str) -> None:
    patch = {"metadata": {"labels": {"grange.dev/replication-controller": None}}}
    await there.client.patch(POD, name, "default", patch=patch)


async def is_labelled(there: World, name: str) -> bool:
    pod = await there.client.get(POD, name, "default")
    return "grange.dev/replication-controller" in pod.metadata.labels


# --- W10: the rest of the pass goes on -----------------------------------------------------------


async def test_w10_service_heals_and_scales_while_the_pool_is_silent(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    pool = SimulatedPool(["p"])
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", "c", replicas=2, pool=pool)
        pool.gate = down("claim", "release", "holders")
        await mislabel(there, "web-a")
        await there.until(lambda: is_labelled(there, "web-a"), limit_s=5)
        await there.client.delete(POD, "web-b", "default")
        await there.until(lambda: there.ready(2), limit_s=5)
        await there.change(replicas=3)
        await there.until(lambda: there.ready(3), limit_s=5)
        await there.change(replicas=1)
        await there.until(lambda: there.ready(1), limit_s=5)


async def test_w10_failing_allocation_is_reported_and_blocks_nothing(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    pool = SimulatedPool(["p"])
    async with world(clock, rng, log) as there:
        await nodes(there, "p")
        await started(there, "a", "b", replicas=2, pool=pool)
        pool.gate = down("claim")
        await label(there, "a", fits=False)
        await there.until(lambda: phase(there, TransferPhase.ALLOCATING))
        await mislabel(there, "web-b")
        await there.until(lambda: is_labelled(there, "web-b"), limit_s=10)
        condition = await there.condition("Misplaced")
        assert condition.reason == "AllocationFailed"
        assert "the provider does not answer" in condition.message
        pool.gate = down()
        await there.until(lambda: moved(there, "b", "p"))


async def test_w10_process_started_without_pool_repairs_moves_nothing(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Which nodes may be used is not known, so nothing is placed; it is reported, and tried again."""
    pool = SimulatedPool(["p"])
    pool.gate = down("holders")
    async with world(clock, rng, log) as there:
        await nodes(there, "a")
        await there.add_controller(replicas=1, **DYNAMIC)
        there.start(ReplicationService(there.deps, pool=pool))
        await there.settle(5.0)
        assert await there.names() == []
        condition = await there.condition("Reconciled")
        assert (condition.status, condition.reason) == ("False", "NodesUnknown")
        assert "the provider does not answer" in condition.message
        assert (await there.condition("InsufficientNodes")).status == "Unknown"
        pool.gate = down()
        await there.until(lambda: there.ready(1), limit_s=70)


async def test_w10_what_cannot_be_seen_is_not_reported_over(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A short service whose pods are misplaced, and a new owner that knows nothing of nodes."""
    pool = SimulatedPool(["p"])
    async with world(clock, rng, log) as there:
        memory = MemorySink()
        informer = there.informers.informer(REPLICATIONCONTROLLER)
        report_controllers(memory, informer, clock)
        async with Nursery("first owner") as first:
            await nodes(there, "a")
            await there.add_controller(replicas=2, **{**DYNAMIC, "strategy": "Static"})
            first.start(ReplicationService(there.deps, pool=pool).run())
            await there.until(lambda: there.ready(1))
            await label(there, "a", fits=False)
            await there.settle()
            first.cancel()
        pool.gate = down("holders")
        there.start(ReplicationService(there.deps, pool=pool))
        await there.settle(10.0)
        assert (await there.condition("Reconciled")).reason == "NodesUnknown"
        reported = [(what, alert.reason) for what, alert in memory.history]
        assert sorted(reported) == [("raised", "InsufficientNodes"), ("raised", "Static")]
        pool.gate = down()
        await label(there, "a", fits=True)
        await there.add_node("b", labels={"web": "y"})
        await there.until(lambda: there.ready(2), limit_s=70)
        await there.settle()
        assert memory.active == []


async def test_w10_pool_that_never_answers_stops_no_controller(
    clock: Clock, rng: Stream, log: Logger
) -> None:

    class Asleep(SimulatedPool):
        asleep = False

        async def holders(self) -> dict[str, str]:
            if self.asleep:
                await clock.sleep(1e6)
            return dict(await super().holders())

    pool = Asleep(["p"])
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=1, pool=pool)
        pool.asleep = True
        await there.change(replicas=2)
        await there.until(lambda: there.ready(2), limit_s=60)


async def test_w10_controllers_wait_for_a_silent_pool_in_parallel(
    clock: Clock,
) -> None:

    class Asleep(SimulatedPool):
        asked = 0

        async def holders(self) -> dict[str, str]:
            self.asked += 1
            if self.asked > 1:
                await clock.sleep(1e6)
            return dict(await super().holders())

    pool = Asleep(["p"])
    there = [builders.node(name) for name in ("p", "own")]
    scheduler = NodeScheduler(there, pool, clock=clock)
    for number in range(100):
        owner = builders.controller(f"c{number}", uid=f"u{number}")
        assert (await scheduler.eligible_nodes())(owner) == ["own"]
    assert pool.asked == 2
    await clock.sleep(6.0)
    assert (await scheduler.eligible_nodes())(builders.controller()) == ["own"]
    assert pool.asked == 3


# --- machines that are not needed ------------------------------------------------------------------


def item(phase: TransferPhase, *, allocated: bool = False) -> NodeTransfer:
    """From node a to node b, far from its deadline."""
    return NodeTransfer(
        id="t",
        phase=phase.value,
        old="a",
        old_pod="web-a",
        old_uid="u",
        new="b",
        new_pod="web-b",
        allocated=allocated,
        deadline="2999-01-01T00:00:00Z",
    )


async def test_no_pod_is_made_on_a_machine_that_is_being_given_back(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The transfer is rolled back while the service grows: its machine is another service's now."""
    pool = SimulatedPool(["p"])
    async with world(clock, rng, log) as there:
        await nodes(there, "p")
        await there.hold_ready("p")
        await started(there, "a", replicas=1, pool=pool, rollout={"progressDeadlineSeconds": 30})
        await label(there, "a", fits=False)
        await there.until(lambda: phase(there, TransferPhase.STARTING))
        await there.change(replicas=3)

        async def stray() -> bool:
            holders = await pool.holders()
            bound = [pod for pod in await there.pods() if "p" in pod.metadata.name]
            assert holders["p"] or not [pod for pod in bound if not pod.metadata.deletion_timestamp]
            return not await transfers(there)

        await there.until(stray, limit_s=120)
        for _ in range(100):
            await stray()
            await there.settle(0.05)


async def test_machine_unknown_to_its_transfer_is_given_back(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """An owner died between being lent the machine and writing it down; the next one finds it spare."""
    pool = SimulatedPool(["p"])
    async with world(clock, rng, log) as there:
        await nodes(there, "p")
        await there.hold_ready("p")
        await started(there, "a", replicas=1, pool=pool, rollout={"progressDeadlineSeconds": 10})
        await there.until(lambda: there.ready(1))
        demand = await there.controller()
        await pool.claim("dead", holder=demand.metadata.uid, demand=demand, count=1, epoch=1)
        await label(there, "a", fits=False)
        await there.until(lambda: phase(there, TransferPhase.STARTING))
        await label(there, "a", fits=True)
        await there.until(lambda: moved(there, "a"))
        await there.settle(5.0)
        assert await pool.holders() == {"p": ""}


async def test_a_machine_with_another_pod_of_the_service_is_kept(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Two pods on one lent machine move one after another; it is lent until both are gone."""
    pool = SimulatedPool(["p"])
    async with world(clock, rng, log) as there:
        await nodes(there, "a", "p")
        await started(there, replicas=2, placement="Packed", pool=pool)
        uid = (await there.controller()).metadata.uid
        await label(there, "a", fits=False)
        await there.until(lambda: moved(there, "p", "p"), limit_s=120)
        assert await pool.holders() == {"p": uid}
        await label(there, "a", fits=True)
        await label(there, "p", fits=False)

        async def watch() -> bool:
            held = (await pool.holders())["p"]
            there_still = [pod for pod in await there.pods() if pod.spec.node_name == "p"]
            assert held or not there_still, "a machine was given back with a pod on it"
            return await moved(there, "a", "a")

        await there.until(watch, limit_s=120)
        await there.settle(5.0)
        assert await pool.holders() == {"p": ""}


async def test_machines_of_controllers_that_are_gone_are_given_back(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Also in the middle of a transfer; but not while pods that it left behind run there."""
    pool = SimulatedPool(["p", "q"])
    config = ReplicationConfig(pool_sweep_s=5.0)
    async with world(clock, rng, log) as there:
        await nodes(there, "a", "p", "q")
        await label(there, "q", fits=False)
        await there.add_controller(replicas=1, **DYNAMIC)
        there.start(ReplicationService(there.deps, config, pool=pool))
        await there.until(lambda: there.ready(1))
        await there.hold_ready("p")
        await label(there, "a", fits=False)
        await there.until(lambda: phase(there, TransferPhase.STARTING))
        await there.until(lambda: bound(there, "p"))
        await there.client.delete(REPLICATIONCONTROLLER, "web", "default", propagation="Orphan")
        let_go = {"metadata": {"finalizers": None}}  # the garbage collector's part
        await there.client.patch(REPLICATIONCONTROLLER, "web", "default", patch=let_go)
        await there.settle(20.0)
        assert (await pool.holders())["p"], "a pod is there"
        (left,) = [pod for pod in await there.pods() if pod.spec.node_name == "p"]
        await there.client.delete(POD, left.metadata.name, "default")
        await there.settle(20.0)
        assert await pool.holders() == {"p": "", "q": ""}


async def test_machines_of_controllers_that_are_there_stay_allocated(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    pool = SimulatedPool(["p"])
    config = ReplicationConfig(pool_sweep_s=2.0)
    async with world(clock, rng, log) as there:
        await nodes(there, "p")
        await there.add_controller(replicas=1, **DYNAMIC)
        there.start(ReplicationService(there.deps, config, pool=pool))
        uid = (await there.controller()).metadata.uid
        owner = builders.controller(uid=uid)
        await pool.claim("r", holder=uid, demand=owner, count=1, epoch=1)
        pool.gate = down("release")
        await there.settle(10.0)
        assert await pool.holders() == {"p": uid}


async def test_node_event_asks_the_pool_once_for_all_controllers(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """One question for all of them, and a pass only for whom the node concerns."""
    pool = SimulatedPool(["p"])
    async with world(clock, rng, log) as there:
        await nodes(there, "a")
        for number in range(20):
            await there.add_controller(f"web-{number}", replicas=0, **DYNAMIC)
        service = ReplicationService(there.deps, pool=pool)
        there.start(service)
        await there.settle(5.0)
        asked: list[str] = []
        pool.gate = asked.append
        passes = service.loop.statistics().done
        await there.client.create(NODE, {"metadata": {"name": "other"}})
        await there.settle(5.0)
        assert asked == ["holders"]
        assert service.loop.statistics().done == passes
        await there.add_controller("api", replicas=0, nodeSelector={"matchLabels": {"api": "y"}})
        await there.settle(5.0)
        passes = service.loop.statistics().done
        asked.clear()
        await there.add_node("third", labels={"api": "y"})
        await there.settle(5.0)
        assert service.loop.statistics().done == passes + 1, "of the one whose node it is"
        assert asked.count("holders") <= 4, "a look for each change, and the pass"


async def bound(there: World, node: str) -> bool:
    return node in await on(there)


# --- nothing begins for a controller that goes ---------------------------------------------------


def test_controller_under_deletion_makes_no_transfer_pod() -> None:
    owner = builders.controller(replicas=1, deleted=True)
    situation = builders.inputs(owner, [builders.pod(owner, node="a", uid="u")], ["b"])
    acts = node_transfer.transfer_pods(situation, [item(TransferPhase.STARTING)])
    assert acts == Plan()


def test_spare_node_lost_before_binding_ends_the_attempt() -> None:
    """Otherwise the old pod would stay where it must not be until the deadline."""
    owner = builders.controller(replicas=1)
    now = LoopClock().now()
    old = builders.pod(owner, node="a", uid="u")
    before = builders.inputs(owner, [old], ["c"])
    unbound = builders.pod(owner, node="b", bound=False)
    after = builders.inputs(owner, [old, unbound], ["c"])
    assert (
        node_transfer.happened(item(TransferPhase.STARTING), before, (), now)
        is TransferEvent.NEW_LOST
    )
    assert (
        node_transfer.happened(item(TransferPhase.STARTING), after, (), now)
        is TransferEvent.NEW_LOST
    )
    waiting = item(TransferPhase.STARTING, allocated=True)
    assert node_transfer.happened(waiting, before, (), now) is None, "a machine may be on its way"


def test_growth_waits_for_the_node_of_a_transferred_pod() -> None:
    """Its name is still held, so what would be made there would not be what was asked for."""
    owner = builders.controller(replicas=2)
    old = builders.pod(owner, node="a", uid="u", deleted=True)
    new = builders.pod(owner, node="b")
    situation = builders.inputs(owner, [old, new], ["a", "b"])
    plan = logic.plan(node_transfer.hidden(situation, [item(TransferPhase.FINISHING)]))
    assert plan.create == ()
