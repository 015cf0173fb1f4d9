"""A controller that is deleted takes no record along that is announced and not written yet."""

import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers import builders
from tests.unit.controllers.gates import dies_after
from tests.unit.controllers.test_replication_audit import names, records, refuse

from grange.api.kinds import AUDITRECORD, EVENT, NAMESPACE, REPLICATIONCONTROLLER
from grange.api.meta import Document
from grange.api.status import ApiError, BadRequest, Forbidden, Invalid, NotFound, TooLarge
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.controllers.replication.controller import ReplicationService
from grange.controllers.replication.controller_status import FINALIZER


async def gone(there: World) -> bool:
    try:
        await there.controller()
    except NotFound:
        return True
    return False


async def started(there: World, nursery: Nursery, replicas: int = 2) -> None:
    for name in ("a", "b"):
        await there.add_node(name)
    await there.add_controller(replicas=replicas)
    nursery.start(ReplicationService(there.deps).run())
    await there.until(lambda: there.ready(replicas))
    await there.settle(1.0)


async def removed(there: World) -> list[list[str]]:
    found = [names(one.spec.removed) for one in await records(there) if one.spec.removed]
    return [sorted(one) for one in found]


async def test_controller_deleted_after_scale_down_leaves_the_record(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there, Nursery("owner") as owner:
        await started(there, owner)
        there.gate = refuse("POST", "/auditrecords")
        await there.change(replicas=0)
        await there.until(lambda: empty(there))
        await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
        await there.settle(5.0)
        assert (await there.controller()).metadata.finalizers == (FINALIZER,)
        there.gate = lambda request: None
        await there.until(lambda: gone(there), limit_s=120)
        assert await removed(there) == [["web-a", "web-b"]]
        reported = [e.reason for e in (await there.client.list(EVENT)).items]
        assert "FailedAudit" in reported
        owner.cancel()


@pytest.mark.parametrize("kind", [BadRequest, Forbidden, Invalid, TooLarge])
async def test_records_that_the_server_refuses_hold_no_controller(
    kind: type[ApiError], clock: Clock, rng: Stream, log: Logger
) -> None:
    """Another try would be answered alike: the controller could never be deleted."""
    async with world(clock, rng, log) as there:
        await started(there, there.nursery)
        there.gate = lambda request: (
            kind("never")
            if (request.method, request.path[-13:]) == ("POST", "/auditrecords")
            else None
        )
        await there.change(replicas=0)
        await there.until(lambda: empty(there))
        await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
        await there.until(lambda: gone(there), limit_s=120)
        await there.settle(5.0)  # events come later
        assert "never" in (await there.events("FailedAudit"))[-1].message


async def test_record_refused_for_good_takes_no_other_along(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await started(there, there.nursery)
        outbox = [{"id": "bad", "event": "Party"}, {"id": "good", "event": "RolloutStarted"}]
        change = {"status": {"outbox": outbox}}
        await there.client.patch(
            REPLICATIONCONTROLLER, "web", "default", patch=change, subresource="status"
        )
        await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
        await there.until(lambda: gone(there), limit_s=120)
        await there.settle(5.0)  # events come later
        reported = [one.spec.event for one in await records(there)]
        assert sorted(reported) == ["MembershipChanged", "RolloutStarted"]
        assert "Party" in (await there.events("FailedAudit"))[-1].message


async def empty(there: World) -> bool:
    return await there.names() == []


@pytest.mark.parametrize("crash_after", range(6))
async def test_owner_crash_after_any_write_then_deletion_keeps_records(
    crash_after: int, clock: Clock, rng: Stream, log: Logger
) -> None:
    """Whatever was done is recorded once, nothing else is, and the controller goes."""
    async with world(clock, rng, log) as there:
        async with Nursery("first owner") as first:
            await started(there, first)
            there.gate = dies_after(crash_after, first)
            await there.change(replicas=0)
            await clock.sleep(5.0)
            first.cancel()
        there.gate = lambda request: None
        left = await there.names()
        await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
        there.start(ReplicationService(there.deps))
        await there.until(lambda: gone(there))
        await there.settle(10.0)
        went = sorted({"web-a", "web-b"} - set(left))
        assert [name for one in await removed(there) for name in one] == went
        assert await there.names() == left, "what was not done by then is not done any more"


@pytest.mark.parametrize("crash_after", range(4))
async def test_the_owner_dies_after_any_write_of_the_finalizer(
    crash_after: int, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        async with Nursery("first owner") as first:
            await started(there, first)
            there.gate = refuse("POST", "/auditrecords")
            await there.change(replicas=0)
            await there.until(lambda: empty(there))
            there.gate = dies_after(crash_after, first)
            await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
            await clock.sleep(5.0)
            first.cancel()
        there.gate = lambda request: None
        there.start(ReplicationService(there.deps))
        await there.until(lambda: gone(there))
        assert await removed(there) == [["web-a", "web-b"]]


async def test_one_that_never_changed_anything_is_not_held(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await there.add_controller(replicas=0)
        there.start(ReplicationService(there.deps))
        await there.settle()
        await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
        assert await gone(there)


async def test_in_a_namespace_that_goes_nothing_is_waited_for(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await there.add_node("a")
        await there.client.create(NAMESPACE, {"metadata": {"name": "team"}})
        document: Document = {
            "metadata": {"name": "web"},
            "spec": {"replicas": 1, "template": builders.TEMPLATE},
        }
        there.gate = refuse("POST", "/auditrecords")
        await there.client.create(REPLICATIONCONTROLLER, document, "team")
        there.start(ReplicationService(there.deps))
        await there.settle(5.0)
        held = await there.client.get(REPLICATIONCONTROLLER, "web", "team")
        assert held.metadata.finalizers == (FINALIZER,)
        assert held.status.outbox
        there.gate = lambda request: None
        await there.client.delete(NAMESPACE, "team")
        await there.client.delete(REPLICATIONCONTROLLER, "web", "team")
        await there.settle(5.0)
        with pytest.raises(NotFound):
            await there.client.get(REPLICATIONCONTROLLER, "web", "team")
        assert (await there.client.list(AUDITRECORD)).items == []
