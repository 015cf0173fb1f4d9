"""Patience after failed transfers: it outlives the process that learnt it, and does not grow."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace
from tests.support.controller_world import World, world
from tests.unit.controllers import builders
from tests.unit.controllers.test_replication_transfer import (
    DYNAMIC,
    label,
    moved,
    nodes,
    records,
)

from grange.api import timestamps
from grange.api.kinds.auditevents import TRANSFER_ROLLED_BACK, TRANSFER_STARTED
from grange.api.kinds.transfer_status import TransferBackoff
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import registry
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.controllers.replication import node_transfer
from grange.controllers.replication.controller import ReplicationService
from grange.controllers.replication.node_eligibility import NodeScheduler
from grange.controllers.replication.node_transfer_service import Transfers
from grange.reconcile.deps import Deps
from grange.reconcile.informer import InformerFactory

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def take_over(there: World, owner: Nursery) -> None:
    """Start a process that knows nothing but what the server has."""
    informers = InformerFactory(there.deps.client, clock=there.clock, rng=there.rng, log=there.log)
    deps = Deps(there.deps.client, informers, there.clock, there.rng, there.log, registry())
    owner.start(ReplicationService(deps).run())
    owner.start(informers.run())


async def known(there: World) -> tuple[TransferBackoff, ...]:
    return (await there.controller()).status.transfer_backoffs


async def begun(there: World, count: int) -> bool:
    return len(await records(there, TRANSFER_STARTED)) == count


async def failed(there: World, count: int) -> bool:
    over = not (await there.controller()).status.node_transfers
    return over and len(await records(there, TRANSFER_ROLLED_BACK)) == count


async def test_the_next_owner_waits_as_long_and_avoids_the_same_nodes(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await nodes(there, "a")
        await there.add_controller(replicas=1, **DYNAMIC, rollout={"progressDeadlineSeconds": 20})
        async with Nursery("first owner") as first:
            take_over(there, first)
            await there.until(lambda: there.ready(1))
            there.silent.update({"b", "c"})
            await nodes(there, "b", "c", "d")
            await label(there, "a", fits=False)
            await there.until(lambda: failed(there, 1), limit_s=40)
            first.cancel()
        (item,) = await known(there)
        assert (item.node, item.attempts, item.avoid) == ("a", 1, ("b",))

        await label(there, "d", fits=False)
        async with Nursery("second owner") as second:
            take_over(there, second)
            await there.settle(20.0)
            assert await begun(there, 1), "30 s of patience, whichever member owns it"
            assert (await there.condition("Misplaced")).reason == "BackingOff"
            await there.until(lambda: failed(there, 2), limit_s=60)
            second.cancel()
        (item,) = await known(there)
        assert (item.attempts, item.avoid) == (2, ("b", "c")), "c before b, which failed"

        await label(there, "d", fits=True)
        async with Nursery("third owner") as third:
            take_over(there, third)
            await there.settle(50.0)
            assert await begun(there, 2), "twice as long after the second"
            await there.until(lambda: moved(there, "d"), limit_s=60)
            assert await known(there) == (), "a transfer that is complete ends it"
            third.cancel()


async def test_failures_are_forgotten_when_no_pod_has_to_leave(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await nodes(there, "a")
        await there.add_controller(replicas=1, **DYNAMIC, rollout={"progressDeadlineSeconds": 20})
        there.start(ReplicationService(there.deps))
        await there.until(lambda: there.ready(1))
        there.silent.add("b")
        await nodes(there, "b")
        await label(there, "a", fits=False)
        await there.until(lambda: failed(there, 1), limit_s=40)
        await there.settle(5.0)
        assert len(await known(there)) == 1
        await label(there, "a", fits=True)
        await there.settle(2.0)
        assert await known(there) == (), "and nothing is left to write later"


def test_backoff_doubles_to_ten_minutes_despite_a_wrong_clock() -> None:
    found = TransferBackoff("a")
    waits = []
    for _ in range(7):
        found = node_transfer.backed_off(found, "b", NOW)
        waits.append(node_transfer.backoff_left_s(found, NOW))
    assert waits == [30, 60, 120, 240, 480, 600, 600]
    assert node_transfer.backoff_left_s(found, NOW - timedelta(hours=5)) == 600
    assert node_transfer.backoff_left_s(TransferBackoff("a", until="soon"), NOW) == 0.0
    assert node_transfer.backoff_left_s(TransferBackoff("other"), NOW) == 0.0


def test_a_backoff_names_the_last_eight_nodes_to_avoid() -> None:
    found = TransferBackoff("a")
    for number in range(100):
        found = node_transfer.backed_off(found, f"n{number}", NOW)
    assert found.avoid == tuple(f"n{number}" for number in range(92, 100))
    once = node_transfer.backed_off(TransferBackoff("b"), "", NOW)
    assert once == TransferBackoff("b", 1, timestamps.rfc3339(NOW + timedelta(seconds=30)))


async def test_backoffs_are_bounded_and_only_of_nodes_to_leave(clock: Clock, log: Logger) -> None:
    names = [f"old{number:02}" for number in range(40)]
    stored = tuple(TransferBackoff(name, 1, "2999-01-01T00:00:00Z") for name in ["idle", *names])
    owner = builders.controller(replicas=40, strategy="Dynamic")
    owner = replace(owner, status=replace(owner.status, transfer_backoffs=stored))
    inputs = builders.inputs(owner, [builders.pod(owner, node=name) for name in names], ["idle"])
    transfers = Transfers(NodeScheduler([], clock=clock), clock=clock, log=log)
    assert list((await transfers.advance(inputs)).backoffs) == names[8:]
    inputs = builders.inputs(owner, [builders.pod(owner, node="old39")], ["idle"])
    assert list((await transfers.advance(inputs)).backoffs) == ["old39"]
    inputs = builders.inputs(owner, [builders.pod(owner, node="idle")], ["idle"])
    assert (await transfers.advance(inputs)).backoffs == {}
