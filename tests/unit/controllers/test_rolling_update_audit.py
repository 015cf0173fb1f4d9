"""The records of rollouts between two controllers. Numbers U… are those of the specification's checks.

Upstream writes the record of a rollout's end in the transaction that ends it. Here the rollout's own
outbox announces a record in the write that makes the change, and a finalizer keeps the rollout until
its records are written.
"""

import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers.gates import dies_after
from tests.unit.controllers.test_replication_alerts import report_rollouts
from tests.unit.controllers.test_replication_audit import names
from tests.unit.controllers.test_rolling_update import begun, change, counts, phase, roll, update
from tests.unit.controllers.test_rollout_service import Sick, Tools, tools, version

from grange.api import conditions
from grange.api.http import Request
from grange.api.kinds import AUDITRECORD, NAMESPACE, REPLICATIONCONTROLLER, ROLLINGUPDATE
from grange.api.kinds.auditrecord import AuditRecord
from grange.api.status import ApiError, InternalError, Invalid, NotFound
from grange.base.tasks import Nursery
from grange.controllers.rollingupdate.controller import RollingUpdateService

__all__ = ["tools"]

STARTED, COMPLETED = "RolloutStarted", "RolloutCompleted"
ROLLED_BACK, CANCELLED = "RolloutRolledBack", "RolloutCancelled"


async def records(there: World) -> list[AuditRecord]:
    """Those of rollouts between two controllers, in order."""
    found = (await there.client.list(AUDITRECORD)).items
    recorded = [item for item in found if item.spec.message.startswith("RollingUpdate ")]
    return sorted(recorded, key=lambda item: item.spec.time)


async def events(there: World) -> list[str]:
    return [item.spec.event for item in await records(there)]


async def recorded(there: World, *wanted: str) -> bool:
    """Whether these are the records, and nothing more is announced."""
    try:
        found = await update(there)
    except NotFound:
        return await events(there) == [*wanted]
    return not found.status.outbox and await events(there) == [*wanted]


async def gone(there: World) -> bool:
    try:
        await update(there)
    except NotFound:
        return True
    return False


async def delete(there: World) -> None:
    await there.client.delete(ROLLINGUPDATE, "roll", "default")


def unrecorded(request: Request) -> ApiError | None:
    """Nothing can be recorded of a rollout between two controllers."""
    bad = request.method == "POST" and b"RollingUpdate " in request.body
    return InternalError("no room for records") if bad else None


def nothing(request: Request) -> ApiError | None:
    """Everything goes well."""
    return None


async def test_check_u8_complete_rollout_leaves_one_record_of_its_end(tools: Tools) -> None:
    """It names both controllers, their counts and the members; it outlives old one and rollout."""
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there)
        uid = (await there.controller("two")).metadata.uid
        await there.until(lambda: recorded(there, STARTED, COMPLETED))
        await there.settle(30.0)
        started, completed = await records(there)
        assert started.spec.message == "RollingUpdate roll begins: one has 3, two has 0; 3 wanted"
        assert completed.spec.message == "RollingUpdate roll is complete: one is gone, two has 3"
        for found in (started, completed):
            assert (found.spec.controller, found.spec.controller_uid) == ("two", uid)
        assert (started.spec.replicas, completed.spec.replicas) == (0, 3)
        assert names(started.spec.members) == []
        assert len(completed.spec.members) == 3
        await delete(there)
        assert await gone(there), "nothing holds a rollout that is over and recorded"
        await there.settle(30.0)
        assert await events(there) == [STARTED, COMPLETED]


async def test_a_rollout_that_went_back_leaves_a_record_of_that(tools: Tools) -> None:
    async with world(*tools, kind=Sick) as there:
        await begun(there, 3, healthy=False)
        await roll(there, progressDeadlineSeconds=30, autoRollback=True)
        await there.until(lambda: recorded(there, STARTED, ROLLED_BACK))
        await there.settle(30.0)
        last = (await records(there))[-1]
        assert last.spec.message == "RollingUpdate roll went back: one has 3, two has 0"


async def test_check_u14_deleting_a_rollout_half_way_records_its_end(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, canary=1)
        await there.until(lambda: phase(there, "Waiting"))
        await delete(there)
        await there.until(lambda: gone(there))
        await there.settle(30.0)
        assert await events(there) == [STARTED, CANCELLED]
        last = (await records(there))[-1]
        assert last.spec.message == "RollingUpdate roll was deleted half-way: one has 2, two has 1"
        assert await counts(there) == (2, 1)


async def test_a_rollout_that_never_began_leaves_no_record(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, startingReplicas={"old": 2, "new": 0})
        await there.until(lambda: phase(there, "Refused"))
        await delete(there)
        assert await gone(there)
        await roll(there, new="later")
        await there.until(lambda: phase(there, "Pending"))
        await delete(there)
        assert await gone(there)
        await there.settle(30.0)
        assert await records(there) == []


async def test_check_u9_unwritable_record_is_reported_and_retried(
    tools: Tools,
) -> None:
    """No record, one warning, and the rollout stays until there is one; it is not written twice."""
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there)
        await there.until(lambda: recorded(there, STARTED))
        there.gate = unrecorded
        await there.until(lambda: phase(there, "Complete"))
        await there.settle(30.0)
        assert await events(there) == [STARTED]
        (waiting,) = (await update(there)).status.outbox
        assert waiting.event == COMPLETED
        (warning,) = await there.events("FailedAudit")
        assert "no room for records" in warning.message
        await delete(there)
        await there.settle(30.0)
        assert not await gone(there), "the record is not written"
        there.gate = nothing
        await there.until(lambda: gone(there), limit_s=120)
        assert await events(there) == [STARTED, COMPLETED]


async def test_rollout_deleted_while_audit_is_refused_waits(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, canary=1)
        await there.until(lambda: phase(there, "Waiting"))
        there.gate = unrecorded
        await delete(there)
        await there.settle(30.0)
        assert not await gone(there)
        there.gate = nothing
        await there.until(lambda: gone(there), limit_s=120)
        assert await events(there) == [STARTED, CANCELLED]


async def test_rollout_with_records_refused_for_good_can_be_deleted(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, canary=1)
        await there.until(lambda: phase(there, "Waiting"))
        there.gate = lambda request: Invalid("never") if unrecorded(request) else None
        await delete(there)
        await there.until(lambda: gone(there), limit_s=120)
        await there.settle(5.0)  # events come later
        assert "never" in (await there.events("FailedAudit"))[-1].message


async def test_rollout_ends_while_the_server_refuses_its_records(
    tools: Tools,
) -> None:
    """It waited for its first record forever, and its service with it."""
    async with world(*tools) as there:
        memory = report_rollouts(there)
        there.gate = lambda request: (
            Invalid("never") if request.path.endswith("/auditrecords") else None
        )
        await begun(there, 3)
        await roll(there, ttlSecondsAfterFinished=60)
        await there.until(lambda: phase(there, "Complete"), limit_s=120)
        await there.until(lambda: there.ready(3, "two"))
        await there.settle(10.0)  # events come later
        found = await update(there)
        assert found.status.outbox == ()
        assert found.metadata.finalizers == ()
        refused = conditions.find(found.status.conditions, "AuditRefused")
        assert refused is not None
        assert refused.status == "True"
        assert refused.message.startswith("Not recorded: RolloutStarted of ")
        recorded = [event.message.split(" of ")[0] for event in await there.events("FailedAudit")]
        assert f"Not recorded: {COMPLETED}" in recorded
        alerts = [(alert.about, alert.reason, alert.urgency) for alert in memory.active]
        assert alerts == [("rollingupdate/default/roll", "AuditRefused", "low")]
        await there.until(lambda: gone(there), limit_s=120)
        await there.settle()
        assert memory.active == []
        with pytest.raises(NotFound):
            await there.controller("one")


async def test_new_rollout_may_begin_while_a_deleted_one_is_recorded(
    tools: Tools,
) -> None:
    """Deleting is the end: what is left of it is only its record."""
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, canary=1)
        await there.until(lambda: phase(there, "Waiting"))
        there.gate = unrecorded
        await delete(there)
        await there.settle(5.0)
        await roll(there, "again")
        await there.settle(5.0)
        assert not await phase(there, "Refused", name="again")
        there.gate = nothing
        await there.until(lambda: phase(there, "Complete", name="again"), limit_s=120)


async def test_a_namespace_that_goes_does_not_wait_for_records(tools: Tools) -> None:
    """Nothing can be created in it any more, and its records would go along."""
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, canary=1)
        await there.until(lambda: phase(there, "Waiting"))
        space = {"metadata": {"name": "elsewhere"}}
        await there.client.create(NAMESPACE, space)
        for name, replicas in (("one", 0), ("two", 0)):
            document = {
                "metadata": {"name": name},
                "spec": {"replicas": replicas, "template": version(1)},
            }
            await there.client.create(REPLICATIONCONTROLLER, document, "elsewhere")
        wanted = {
            "metadata": {"name": "roll"},
            "spec": {"old": "one", "new": "two", "desired": 1, "minimum": 0, "paused": True},
        }
        await there.client.create(ROLLINGUPDATE, wanted, "elsewhere")

        async def held() -> bool:
            found = await there.client.get(ROLLINGUPDATE, "roll", "elsewhere")
            return bool(found.metadata.finalizers)

        await there.until(held)
        await there.client.delete(NAMESPACE, "elsewhere")
        await there.client.delete(ROLLINGUPDATE, "roll", "elsewhere")
        await there.settle(10.0)
        with pytest.raises(NotFound):
            await there.client.get(ROLLINGUPDATE, "roll", "elsewhere")


# --- how long a rollout that is over is kept ------------------------------------------------------


async def test_finished_rollout_is_removed_and_its_records_stay(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, ttlSecondsAfterFinished=100)
        await there.until(lambda: phase(there, "Complete"))
        await there.settle(95.0)
        assert (await update(there)).status.finished_at
        await there.settle(10.0)
        assert await gone(there)
        assert await events(there) == [STARTED, COMPLETED]


async def test_finished_rollout_is_kept_for_a_day_by_default(tools: Tools) -> None:
    async with world(*tools, hands=False) as there:
        for name in ("one", "two"):
            await there.add_controller(name, replicas=0, template=version(1))
        there.start(RollingUpdateService(there.deps))
        await roll(there, startingReplicas={"old": 7, "new": 7})
        await there.until(lambda: phase(there, "Refused"))
        assert (await update(there)).spec.ttl_seconds_after_finished == 86_400
        await there.settle(86_300.0)
        assert not await gone(there)
        await there.settle(100.0)
        assert await gone(there)


async def test_a_rollout_that_goes_on_is_kept_however_long_it_takes(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, canary=1, ttlSecondsAfterFinished=0)
        await there.settle(60.0)
        assert await phase(there, "Waiting")
        await change(there, canary=None)
        await there.until(lambda: gone(there))
        assert await events(there) == [STARTED, COMPLETED]


async def test_a_new_owner_removes_what_became_due_without_an_owner(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 3, service=False)
        await roll(there, ttlSecondsAfterFinished=60)
        async with Nursery() as nursery:
            nursery.start(RollingUpdateService(there.deps).run())
            await there.until(lambda: phase(there, "Complete"))
            await there.settle(5.0)
            nursery.cancel()
        await there.settle(120.0)
        assert await phase(there, "Complete"), "it was not looked at"
        there.start(RollingUpdateService(there.deps))
        await there.until(lambda: gone(there))


async def test_a_time_to_live_below_zero_is_refused(tools: Tools) -> None:
    async with world(*tools, hands=False) as there:
        with pytest.raises(Invalid, match="ttlSecondsAfterFinished"):
            await roll(there, ttlSecondsAfterFinished=-1)


# --- crashes --------------------------------------------------------------------------------------


def moves_or_records(request: Request) -> bool:
    """A write to the rollout, to its controllers, or to the audit."""
    record = b"RollingUpdate " in request.body and request.path.endswith("/auditrecords")
    moved = request.path.endswith(("/rollingupdates/roll", "/roll/status", "/one", "/two"))
    return request.method != "GET" and (record or moved)


@pytest.mark.parametrize("crash_after", range(18))
@pytest.mark.parametrize("wish", ["complete", "undo", "delete"])
async def test_a_crash_after_any_write_leaves_end_and_record_together(
    wish: str, crash_after: int, tools: Tools
) -> None:
    """The first owner dies after so many writes; the next one records what there was, once."""
    async with world(*tools) as there:
        await begun(there, 2, service=False)
        canary = None if wish == "complete" else 1
        first = Nursery("first owner")

        async def live() -> None:
            async with first:
                first.start(RollingUpdateService(there.deps).run())

        there.gate = dies_after(crash_after, first, moves_or_records)
        there.nursery.start(live())
        await roll(there, desired=2, minimum=1, canary=canary)
        await there.settle(5.0)
        if wish == "undo":
            await change(there, undo=True)
        elif wish == "delete":
            await delete(there)
        await there.settle(5.0)
        first.cancel()
        there.gate = nothing
        there.start(RollingUpdateService(there.deps))
        if wish == "delete":
            await there.until(lambda: gone(there))
        else:
            await there.until(lambda: phase(there, "Complete", "RolledBack"))
        await there.settle(10.0)
        ends = {"complete": COMPLETED, "undo": ROLLED_BACK, "delete": CANCELLED}
        began = wish != "delete" or crash_after > 1
        assert await events(there) == ([STARTED, ends[wish]] if began else [])
