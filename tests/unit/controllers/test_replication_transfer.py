"""Node transfers against a real API server in memory, under virtual time.

Numbers X… and Y… are those of the checks in the specification of replication. Where the two forms
of transfer there differ, the one that comes up first and leaves last counts; X checks are kept
for what they promise to users.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers import builders

from grange.api.http import Request
from grange.api.kinds import AUDITRECORD, NODE, POD, REPLICATIONCONTROLLER
from grange.api.kinds.auditevents import TRANSFER_COMPLETED, TRANSFER_ROLLED_BACK, TRANSFER_STARTED
from grange.api.kinds.auditrecord import AuditRecord
from grange.api.kinds.transfer_status import DRAINED_NODES, TRANSFER_LOCK, NodeTransfer
from grange.api.meta import ObjectKey
from grange.api.status import InternalError
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.locks import ObjectLock
from grange.controllers.replication import node_transfer
from grange.controllers.replication.controller import ReplicationService
from grange.controllers.replication.node_transfer import TRANSITIONS, TransferEvent, TransferPhase
from grange.sim.simulated_pool import SimulatedPool

DYNAMIC: dict[str, Any] = {"strategy": "Dynamic", "nodeSelector": {"matchLabels": {"web": "y"}}}
FITS = {"web": "y"}


async def nodes(there: World, *names: str) -> None:
    for name in names:
        await there.add_node(name, labels=FITS)


async def started(
    there: World, *names: str, replicas: int, pool: SimulatedPool | None = None, **spec: Any
) -> ReplicationService:
    """A controller ``web``, Dynamic by default, that is complete on these nodes."""
    await nodes(there, *names)
    await there.add_controller(replicas=replicas, **{**DYNAMIC, **spec})
    service = ReplicationService(there.deps, pool=pool)
    there.start(service)
    await there.until(lambda: there.ready(replicas))
    await there.settle(1.0)
    return service


async def label(there: World, name: str, fits: bool) -> None:
    """Make a node eligible or not."""
    patch = {"metadata": {"labels": {"web": "y" if fits else None}}}
    await there.client.patch(NODE, name, patch=patch)


async def transfers(there: World, name: str = "web") -> Sequence[NodeTransfer]:
    return (await there.controller(name)).status.node_transfers


async def on(there: World) -> list[str]:
    """The nodes of the pods that are not on their way out."""
    pods = [pod for pod in await there.pods() if not pod.metadata.deletion_timestamp]
    return sorted(pod.spec.node_name for pod in pods)


async def records(there: World, *events: str) -> list[AuditRecord]:
    found = [r for r in (await there.client.list(AUDITRECORD)).items if r.spec.event in events]
    return sorted(found, key=lambda item: item.spec.time)


async def moved(there: World, *names: str) -> bool:
    return await on(there) == sorted(names) and not await transfers(there)


async def phase(there: World, wanted: TransferPhase) -> bool:
    found = await transfers(there)
    return bool(found) and found[0].phase == wanted


# --- the table -----------------------------------------------------------------------------------


def test_every_phase_can_be_left_and_every_transfer_ends() -> None:
    """No cycles: a transfer never goes back to where it was, so it takes at most four steps."""
    reached = {TransferPhase.ALLOCATING: 0}
    order = [
        TransferPhase.ALLOCATING,
        TransferPhase.STARTING,
        TransferPhase.FINISHING,
        TransferPhase.ROLLING_BACK,
        TransferPhase.DONE,
    ]
    for (before, _), after in TRANSITIONS.items():
        assert order.index(after) > order.index(before)
        reached.setdefault(after, 1)
    assert set(reached) == set(TransferPhase)
    for place in TransferPhase:
        left = [event for (before, event) in TRANSITIONS if before is place]
        assert bool(left) is (place is not TransferPhase.DONE)


def test_an_event_that_means_nothing_changes_nothing() -> None:
    item = NodeTransfer(id="t", phase="Finishing", old="a", old_pod="web-a", old_uid="u")
    for event in set(TransferEvent) - {TransferEvent.RELEASED, TransferEvent.RELAPSED}:
        assert node_transfer.step(item, event) is item
    assert node_transfer.step(item, TransferEvent.RELEASED) is None


def test_a_phase_from_another_version_is_rolled_back() -> None:
    item = NodeTransfer(id="t", phase="Teleporting", old="a", old_pod="web-a", old_uid="u")
    assert node_transfer.phase_of(item) is TransferPhase.ROLLING_BACK


@pytest.mark.parametrize(
    ("new", "deleted"), [("running", True), ("terminating", False), ("gone", False)]
)
def test_rollback_deletes_its_new_pod_once(new: str, *, deleted: bool) -> None:
    item = NodeTransfer(
        id="t",
        phase="RollingBack",
        old="a",
        old_pod="web-a",
        old_uid="uid-web-a",
        new="b",
        new_pod="web-b",
    )
    web = builders.controller(replicas=1)
    pods = [builders.pod(web, node="a", name="web-a")]
    if new != "gone":
        pods.append(builders.pod(web, node="b", name="web-b", deleted=new == "terminating"))
    situation = builders.inputs(web, pods, {"a", "b"})
    acts = node_transfer.transfer_pods(situation, [item])
    assert [act.pod.metadata.name for act in acts.delete] == ["web-b"] * deleted


# --- the way it goes -----------------------------------------------------------------------------


async def test_y1_y8_the_new_pod_comes_first_and_the_old_one_goes_last(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", "c", replicas=2)
        lowest = 2

        async def watch() -> bool:
            nonlocal lowest
            lowest = min(lowest, (await there.controller()).status.ready_replicas)
            return await moved(there, "b", "c")

        await label(there, "a", fits=False)
        await there.until(watch)
        assert lowest == 2
        (begun,) = await records(there, TRANSFER_STARTED)
        (ended,) = await records(there, TRANSFER_COMPLETED)
        assert begun.spec.transfer is not None
        assert ended.spec.transfer is not None
        assert begun.spec.transfer.id == ended.spec.transfer.id != ""
        assert (ended.spec.transfer.old, ended.spec.transfer.new) == ("a", "c")
        await there.settle()
        assert (await there.condition("Misplaced")).status == "False"


async def test_a_single_replica_is_never_missing_while_it_moves(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=1)
        lowest = 1

        async def watch() -> bool:
            nonlocal lowest
            lowest = min(lowest, (await there.controller()).status.ready_replicas)
            return await moved(there, "b")

        await label(there, "a", fits=False)
        await there.until(watch)
        assert lowest == 1


async def test_x1_static_pods_stay_where_they_are(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", "c", replicas=2, strategy="Static")
        await label(there, "a", fits=False)
        await there.settle(30.0)
        assert await on(there) == ["a", "b"]
        condition = await there.condition("Misplaced")
        assert (condition.status, condition.reason) == ("True", "Static")


async def test_y14_a_spare_node_is_used_before_one_is_allocated(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    pool = SimulatedPool(["p"])
    async with world(clock, rng, log) as there:
        await nodes(there, "p")
        await started(there, "a", "b", replicas=1, pool=pool)
        await label(there, "a", fits=False)
        await there.until(lambda: moved(there, "b"))
        assert pool.requests == {}


async def test_x4_a_node_is_allocated_when_there_is_no_spare_one(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    pool = SimulatedPool(["p", "q"])
    async with world(clock, rng, log) as there:
        await nodes(there, "p", "q")
        await started(there, "a", "b", replicas=2, pool=pool)
        await label(there, "a", fits=False)
        await there.until(lambda: moved(there, "b", "p"))
        uid = (await there.controller()).metadata.uid
        assert await pool.holders() == {"p": uid, "q": ""}
        await label(there, "p", fits=False)
        await there.until(lambda: moved(there, "b", "q"))
        assert await pool.holders() == {"p": "", "q": uid}, "what is left is given back"


async def test_allocated_machines_are_given_back_on_scale_down(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    pool = SimulatedPool(["p"])
    async with world(clock, rng, log) as there:
        await nodes(there, "p")
        await started(there, "a", "b", replicas=2, pool=pool)
        await label(there, "a", fits=False)
        await there.until(lambda: moved(there, "b", "p"))
        await there.change(replicas=0)
        await there.until(lambda: moved(there))
        await there.settle()
        assert await pool.holders() == {"p": ""}


async def test_y3_x6_refused_allocation_is_retried_under_the_same_id(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", replicas=1, pool=SimulatedPool([]))
        await label(there, "a", fits=False)
        await there.settle(20.0)
        assert await on(there) == ["a"]
        condition = await there.condition("Misplaced")
        assert (condition.status, condition.reason) == ("True", "AllocationRefused")
        assert "add machines" in condition.message
        (item,) = await transfers(there)
        assert item.phase == TransferPhase.ALLOCATING
        await nodes(there, "b")
        await there.until(lambda: moved(there, "b"))
        (begun,) = await records(there, TRANSFER_STARTED)
        assert begun.spec.transfer is not None
        assert begun.spec.transfer.id == item.id


class PoolDown(GrangeError):
    """What a pool in trouble reports."""


class AnswerLost(SimulatedPool):
    """A pool that carries out its first claim and loses the answer."""

    lost = False

    async def claim(self, request_id: str, **rest: Any) -> Sequence[str]:
        given = await super().claim(request_id, **rest)
        if not self.lost:
            self.lost = True
            raise PoolDown("connection reset")
        return given


async def test_y3_allocation_with_lost_answer_claims_one_machine(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The machines have no Node yet, so that only the request id leads back to the first claim."""
    pool = AnswerLost(["p", "q"])
    async with world(clock, rng, log) as there:
        await started(there, "a", replicas=1, pool=pool)
        await label(there, "a", fits=False)
        await there.settle(20.0)
        assert pool.lost
        (item,) = await transfers(there)
        assert list(pool.requests) == [item.id]
        holder = (await there.controller("web")).metadata.uid
        assert await pool.holders() == {"p": holder, "q": ""}
        await nodes(there, "p")
        await there.until(lambda: moved(there, "p"))


async def test_x7_unreleasable_node_is_reported_and_never_forgotten(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    pool = SimulatedPool(["p", "q"])

    def refuse(request: str) -> None:
        if request == "release":
            raise PoolDown("the provider does not answer")

    async with world(clock, rng, log) as there:
        await nodes(there, "p", "q")
        await started(there, "a", replicas=1, pool=pool)
        await label(there, "a", fits=False)
        await there.until(lambda: moved(there, "p"))
        pool.gate = refuse
        await label(there, "p", fits=False)
        await there.settle(60.0)
        assert await on(there) == ["q"]
        condition = await there.condition("Misplaced")
        assert condition.reason == "ReleaseFailed"
        assert "node p could not be released: the provider does not answer" in condition.message
        (item,) = await transfers(there)
        assert item.phase == TransferPhase.FINISHING
        pool.gate = lambda request: None
        await there.until(lambda: moved(there, "q"))
        assert (await pool.holders())["p"] == ""


async def test_x3_x5_the_old_pod_stays_while_others_are_not_available(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The disruption budget of a service of two allows none to be missing.

    The deadline is nothing to a transfer whose new pod is well.
    """
    async with world(clock, rng, log) as there:
        rollout = {"progressDeadlineSeconds": 30}
        await started(there, "a", "b", "c", replicas=2, rollout=rollout)
        bad = next(pod for pod in await there.pods() if pod.spec.node_name == "b")
        await there.set_phase(bad, "Unknown")
        await there.settle(1.0)
        await label(there, "a", fits=False)
        await there.settle(60.0)
        assert "a" in await on(there)
        assert await phase(there, TransferPhase.FINISHING)
        assert (await there.condition("Reconciled")).reason == "DisruptionBudget"
        bad = await there.client.get(POD, bad.metadata.name, "default")
        await there.set_phase(bad, "Running")
        await there.until(lambda: moved(there, "b", "c"))


async def test_new_pod_failing_during_transfer_is_rolled_back(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Whatever it reports meanwhile; the old pod is needed still, and another node is tried."""
    async with world(clock, rng, log) as there:
        rollout = {"progressDeadlineSeconds": 60}
        await started(there, "a", "b", "c", "d", replicas=2, rollout=rollout)
        (bad,) = [pod for pod in await there.pods() if pod.spec.node_name == "b"]
        await there.set_phase(bad, "Unknown")
        await label(there, "a", fits=False)
        await there.until(lambda: phase(there, TransferPhase.STARTING))
        began = clock.monotonic()
        await there.until(lambda: phase(there, TransferPhase.FINISHING))
        (new,) = [pod for pod in await there.pods() if pod.spec.node_name == "c"]
        await there.set_phase(new, "Unknown")
        await there.set_phase(bad, "Running")

        async def chatter() -> None:
            while True:
                for pod in await there.pods():
                    if pod.spec.node_name == "c" and not pod.metadata.deletion_timestamp:
                        await there.set_phase(pod, "Unknown")  # news, and no readiness
                await clock.sleep(5.0)

        async def back() -> bool:
            return bool(await records(there, TRANSFER_ROLLED_BACK))

        async with Nursery("chatter") as nursery:
            nursery.start(chatter())
            await there.settle(50.0)
            assert await phase(there, TransferPhase.FINISHING)
            assert await on(there) == ["a", "b", "c"]
            await there.until(back, limit_s=20)
            nursery.cancel()
        assert 59 <= clock.monotonic() - began <= 65
        assert await on(there) == ["a", "b"]
        (record,) = await records(there, TRANSFER_ROLLED_BACK)
        assert record.spec.transfer is not None
        assert record.spec.transfer.reason == TransferEvent.RELAPSED.value
        assert (await there.condition("Misplaced")).reason == "BackingOff"
        await there.until(lambda: moved(there, "b", "d"), limit_s=60)
        assert await there.ready(2)


async def test_a_new_pod_that_fails_is_kept_when_the_old_one_fails_too(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Once the old pod is down, too, keeping it helps nothing: the transfer goes on to its end."""
    async with world(clock, rng, log) as there:
        rollout = {"progressDeadlineSeconds": 60}
        await started(there, "a", "b", "c", "d", replicas=2, rollout=rollout)
        (old,) = [pod for pod in await there.pods() if pod.spec.node_name == "a"]
        (bad,) = [pod for pod in await there.pods() if pod.spec.node_name == "b"]
        await there.set_phase(bad, "Unknown")
        await label(there, "a", fits=False)
        await there.until(lambda: phase(there, TransferPhase.FINISHING))
        (new,) = [pod for pod in await there.pods() if pod.spec.node_name == "c"]
        await there.set_phase(new, "Unknown")
        await there.set_phase(old, "Unknown")
        await there.until(lambda: moved(there, "b", "c"), limit_s=20)
        assert await records(there, TRANSFER_ROLLED_BACK) == []


async def test_x5_an_old_pod_that_is_down_itself_holds_nothing_up(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", "c", replicas=2)
        bad = next(pod for pod in await there.pods() if pod.spec.node_name == "a")
        await there.set_phase(bad, "Unknown")
        await label(there, "a", fits=False)
        await there.until(lambda: moved(there, "b", "c"))


async def test_w13_new_pod_never_healthy_is_rolled_back_at_deadline(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """However much it chatters; what was allocated for it is released, and it is tried again."""
    pool = SimulatedPool(["p", "q"])
    rollout = {"progressDeadlineSeconds": 60}
    async with world(clock, rng, log) as there:
        await nodes(there, "p", "q")
        await started(there, "a", replicas=1, pool=pool, rollout=rollout)
        await there.hold_ready("p")
        await label(there, "a", fits=False)
        await there.until(lambda: phase(there, TransferPhase.STARTING))
        began = clock.monotonic()

        async def chatter() -> None:
            while True:
                for pod in await there.pods():
                    if pod.spec.node_name == "p" and not pod.metadata.deletion_timestamp:
                        await there.set_phase(pod, "Pending")  # news, and no readiness
                await clock.sleep(5.0)

        async with Nursery("chatter") as nursery:
            nursery.start(chatter())
            await there.until(lambda: moved(there, "a"), limit_s=90)
            nursery.cancel()
        assert clock.monotonic() - began <= 65
        await there.let_ready("p")
        assert set((await pool.holders()).values()) == {""}
        (back,) = await records(there, TRANSFER_ROLLED_BACK)
        assert back.spec.transfer is not None
        assert back.spec.transfer.reason == "the deadline has passed"
        condition = await there.condition("Misplaced")
        assert condition.reason == "BackingOff"
        await there.until(lambda: moved(there, "p"), limit_s=120)


async def test_a_new_node_that_is_lost_on_the_way_is_given_up(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=1)
        await there.hold_ready("b")
        await label(there, "a", fits=False)
        await there.until(lambda: bound(there, "b"))
        await label(there, "b", fits=False)
        await there.until(lambda: moved(there, "a"))
        (back,) = await records(there, TRANSFER_ROLLED_BACK)
        assert back.spec.transfer is not None
        assert back.spec.transfer.reason == "the new node is no longer eligible"


async def bound(there: World, node: str) -> bool:
    return node in await on(there)


# --- what it does not disturb ----------------------------------------------------------------------


async def test_y2_y4_a_new_owner_goes_on_with_the_same_transfer(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await nodes(there, "a", "b")
        await there.add_controller(replicas=1, **DYNAMIC)
        async with Nursery("first owner") as first:
            first.start(ReplicationService(there.deps).run())
            await there.until(lambda: there.ready(1))
            await there.hold_ready("b")
            await label(there, "a", fits=False)
            await there.until(lambda: phase(there, TransferPhase.STARTING))
            first.cancel()
        (before,) = await transfers(there)
        there.start(ReplicationService(there.deps))
        await there.settle(10.0)
        assert await transfers(there) == (before,)
        assert len(await records(there, TRANSFER_STARTED)) == 1
        await there.let_ready("b")
        await there.until(lambda: moved(there, "b"))
        assert len(await records(there, TRANSFER_STARTED, TRANSFER_COMPLETED)) == 2


async def test_y5_a_paused_controller_still_finishes_its_transfers(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=1)
        await there.hold_ready("b")
        await label(there, "a", fits=False)
        await there.until(lambda: phase(there, TransferPhase.STARTING))
        await there.change(paused=True)
        await there.settle(5.0)
        assert await phase(there, TransferPhase.STARTING)
        await there.let_ready("b")
        await there.until(lambda: moved(there, "b"))


async def test_y6_y11_y12_scale_down_keeps_both_pods_during_transfer(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=1)
        await there.hold_ready("b")
        await label(there, "a", fits=False)
        await there.until(lambda: bound(there, "b"))
        await there.change(replicas=0)
        await there.settle(5.0)
        assert await on(there) == ["a", "b"]
        assert await phase(there, TransferPhase.STARTING)
        await there.let_ready("b")
        await there.until(lambda: moved(there))


async def test_y7_growth_does_not_take_the_node_of_a_transfer(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=1)
        await there.hold_ready("b")
        await label(there, "a", fits=False)
        await there.until(lambda: bound(there, "b"))
        await there.change(replicas=2)
        await there.settle(5.0)
        assert (await there.condition("InsufficientNodes")).status == "True"
        assert await on(there) == ["a", "b"]
        await nodes(there, "c")
        await there.let_ready("b")
        await there.until(lambda: moved(there, "b", "c"))


async def test_y9_trouble_while_the_new_pod_is_made_loses_nothing(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=1)

        def gate(request: Request) -> InternalError | None:
            bad = request.method == "POST" and request.path.endswith("/pods")
            return InternalError("no") if bad else None

        there.gate = gate
        await label(there, "a", fits=False)
        await there.settle(10.0)
        assert await phase(there, TransferPhase.STARTING)
        assert await on(there) == ["a"]
        there.gate = lambda request: None
        await there.until(lambda: moved(there, "b"), limit_s=120)


async def test_y10_a_pod_that_is_there_already_is_no_trouble(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The owner before made it, and died before its cache could show it."""
    async with world(clock, rng, log) as there:
        service = await started(there, "a", "b", replicas=1)
        there.held_watches.add("/api/v1/pods")
        await label(there, "a", fits=False)
        await there.settle(3.0)
        there.held_watches.clear()
        await there.until(lambda: moved(there, "b"), limit_s=400)
        assert service.loop.statistics().failed == 0


async def test_y13_x2_no_transfer_begins_under_an_operators_lock(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=1)
        lock = ObjectLock(
            there.client,
            REPLICATIONCONTROLLER,
            ObjectKey("default", "web"),
            annotation=TRANSFER_LOCK,
            holder="ann",
            ttl_s=60.0,
            clock=clock,
        )
        await lock.acquire()
        await label(there, "a", fits=False)
        await there.settle(10.0)
        assert await transfers(there) == ()
        assert (await there.condition("Misplaced")).reason == "Locked"
        await lock.release()
        await there.until(lambda: moved(there, "b"), limit_s=10)


async def test_a_lock_that_is_forgotten_holds_nothing_up_for_ever(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=1)
        lock = ObjectLock(
            there.client,
            REPLICATIONCONTROLLER,
            ObjectKey("default", "web"),
            annotation=TRANSFER_LOCK,
            holder="ann",
            ttl_s=60.0,
            clock=clock,
        )
        await lock.acquire()
        await label(there, "a", fits=False)
        await there.until(lambda: moved(there, "b"), limit_s=70)


async def test_an_operator_drains_a_node_of_a_static_controller(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", "c", replicas=2, strategy="Static")
        patch = {"metadata": {"annotations": {DRAINED_NODES: "b, gone"}}}
        await there.client.patch(REPLICATIONCONTROLLER, "web", "default", patch=patch)
        await there.until(lambda: moved(there, "a", "c"))
        await there.change(replicas=3)
        await there.settle(5.0)
        assert await on(there) == ["a", "c"], "nothing goes to a drained node"


async def test_several_move_at_once_as_far_as_the_surge_allows(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        olds = [f"a{number}" for number in range(4)]
        spares = [f"b{number}" for number in range(4)]
        await nodes(there, *spares)
        await label_all(there, spares, fits=False)
        await started(there, *olds, replicas=4, rollout={"maxSurge": 2})
        most = 0

        async def watch() -> bool:
            nonlocal most
            most = max(most, len(await transfers(there)))
            assert (await there.controller()).status.ready_replicas >= 4
            return await moved(there, *spares)

        await label_all(there, spares, fits=True)
        await label_all(there, olds, fits=False)
        await there.until(watch, limit_s=120)
        assert most == 2


async def label_all(there: World, names: Sequence[str], fits: bool) -> None:
    for name in names:
        await label(there, name, fits)


async def test_packed_pods_move_where_the_scheduler_sends_them(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await nodes(there, "a")
        await started(there, replicas=3, placement="Packed")
        await nodes(there, "b")
        await label(there, "a", fits=False)
        await there.until(lambda: moved(there, "b", "b", "b"), limit_s=120)
        ended = [record.spec.transfer for record in await records(there, TRANSFER_COMPLETED)]
        assert [(item.old, item.new) for item in ended if item] == [("a", "b")] * 3
        assert await there.names() == ["web-0", "web-1", "web-2"] or len(await there.names()) == 3


async def test_old_node_that_fits_again_cancels_unstarted_transfers(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", replicas=1)
        await label(there, "a", fits=False)
        await there.until(lambda: phase(there, TransferPhase.ALLOCATING))
        await label(there, "a", fits=True)
        await there.until(lambda: moved(there, "a"))
        assert len(await records(there, TRANSFER_ROLLED_BACK)) == 1


@pytest.mark.parametrize("replicas", [1, 3])
async def test_when_no_node_is_eligible_everything_stays(
    replicas: int, clock: Clock, rng: Stream, log: Logger
) -> None:
    names = [f"n{number}" for number in range(replicas)]
    async with world(clock, rng, log) as there:
        await started(there, *names, replicas=replicas)
        await label_all(there, names, fits=False)
        await there.settle(1000.0)
        assert await on(there) == names
        assert (await there.condition("Misplaced")).status == "True"
