"""Records that the server refuses for good hold no service up, and do not vanish silently.

Upstream writes change and record in one transaction, so a refused record stops the service.
"""

import pytest
from tests.support.controller_world import World, report_controllers, world
from tests.support.memory_sink import MemorySink
from tests.unit.controllers.gates import any_write, dies_after
from tests.unit.controllers.test_replication_audit import names, records, start
from tests.unit.controllers.test_replication_finalizer import gone
from tests.unit.controllers.test_rollout_service import Tools, tools, version

from grange.api.http import Request
from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.status import ApiError, BadRequest, Forbidden, Invalid, NotFound, TooLarge
from grange.base.tasks import Nursery
from grange.controllers.replication.controller import ReplicationService
from grange.controllers.shared.audit_records import AUDIT_RETRY_S

__all__ = ["tools"]

MARK = "Not recorded: "


def recorded(request: Request) -> bool:
    return (request.method, request.path[-13:]) == ("POST", "/auditrecords")


def nothing(request: Request) -> ApiError | None:
    return None


async def refused(there: World) -> str:
    """What is missing by the condition; empty if nothing is."""
    shown = await there.condition("AuditRefused")
    return shown.message if shown.status == "True" else ""


def alarms(there: World) -> MemorySink:
    memory = MemorySink()
    informer = there.informers.informer(REPLICATIONCONTROLLER)
    report_controllers(memory, informer, there.clock)
    return memory


@pytest.mark.parametrize("kind", [BadRequest, Forbidden, Invalid, NotFound, TooLarge])
async def test_a_service_goes_on_while_the_server_refuses_its_records(
    kind: type[ApiError], tools: Tools
) -> None:
    """It is made, healed, rolled out and scaled, and reports what the audit lacks."""
    async with world(*tools) as there:
        there.gate = lambda request: kind("never") if recorded(request) else None
        await start(there, "a", "b", "c", replicas=2)
        await there.until(lambda: there.ready(2))
        missing = await refused(there)
        assert missing.startswith(MARK)
        assert missing.endswith(": never")
        await there.client.delete(POD, "web-a", "default")
        await there.until(lambda: there.ready(2))
        await there.change(template=version(2))
        await there.until(lambda: rolled_out(there))
        await there.change(replicas=3)
        await there.until(lambda: there.ready(3))
        await there.settle(5.0)  # events come later
        assert await refused(there) == missing, "the first is named"
        assert (await there.condition("Reconciled")).status == "True"
        assert (await there.controller()).status.outbox == ()
        audit = [event.message for event in await there.events("FailedAudit")]
        assert missing in audit
        assert {text.removeprefix(MARK).split(" of ")[0] for text in audit} == {
            "MembershipChanged",
            "RolloutStarted",
            "RolloutCompleted",
        }


async def test_missing_records_are_named_by_the_next_accepted_one(tools: Tools) -> None:
    async with world(*tools) as there:
        memory = alarms(there)
        there.gate = lambda request: Invalid("never") if recorded(request) else None
        await start(there, "a", "b", replicas=2)
        await there.until(lambda: there.ready(2))
        await there.settle(5.0)
        assert [(alert.reason, alert.urgency) for alert in memory.active] == [
            ("AuditRefused", "low")
        ]
        there.requests.clear()
        await there.settle(3 * AUDIT_RETRY_S + 10.0)
        tries = [path for method, path in there.requests if path.endswith("/auditrecords")]
        assert len(tries) == 3, "it is tried again, and not more often than that"
        missing, there.gate = await refused(there), nothing
        await there.settle(AUDIT_RETRY_S)
        assert not await refused(there)
        [note] = await records(there)
        assert note.spec.message == missing
        assert names(note.spec.members) == ["web-a", "web-b"]
        assert [what for what, _ in memory.history] == ["raised", "resolved"]


async def rolled_out(there: World) -> bool:
    state = (await there.controller()).status.rollout
    return state is not None and state.phase == "Complete" and await there.ready(2)


async def test_one_record_that_is_refused_is_named_by_the_audit_itself(tools: Tools) -> None:
    async with world(*tools) as there:
        await start(there, "a", "b", "c", replicas=2)
        await there.until(lambda: there.ready(2))
        await there.settle(5.0)
        there.gate = lambda request: (
            Invalid("never") if recorded(request) and b"RolloutStarted" in request.body else None
        )
        await there.change(template=version(2))
        await there.until(lambda: rolled_out(there))
        missing = await refused(there)
        assert missing.startswith(f"{MARK}RolloutStarted of ")
        assert missing.endswith(": never")
        # The note names the event, too, so that this gate would refuse it.
        there.gate = nothing
        await there.settle(AUDIT_RETRY_S + 5.0)
        audit = await records(there)
        assert [one.spec.message for one in audit if MARK in one.spec.message] == [missing]
        assert "RolloutCompleted" in [one.spec.event for one in audit]
        assert not await refused(there)


@pytest.mark.parametrize("writes", range(1, 12))
async def test_what_is_refused_does_not_vanish_when_its_owner_crashes(
    writes: int, tools: Tools
) -> None:
    """A change is shown by its record, or by one that states which is missing."""
    async with world(*tools) as there:
        async with Nursery("owner") as owner:
            dies = dies_after(writes, owner, any_write)
            there.gate = lambda request: (
                dies(request) or (Invalid("never") if recorded(request) else None)
            )
            for name in ("a", "b"):
                await there.add_node(name)
            await there.add_controller(replicas=2)
            owner.start(ReplicationService(there.deps).run())
            await there.settle(5.0)
            owner.cancel()
        there.gate = nothing
        there.start(ReplicationService(there.deps))
        await there.until(lambda: there.ready(2))
        await there.settle(5.0)
        assert not await refused(there)
        audit = await records(there)
        added = [name for one in audit for name in names(one.spec.added)]
        missing = [one for one in audit if MARK in one.spec.message]
        assert sorted(added) == ["web-a", "web-b"] or missing
        assert any(names(one.spec.members) == ["web-a", "web-b"] for one in audit)


async def test_deleted_controller_tries_once_more_to_name_missing(
    tools: Tools,
) -> None:
    async with world(*tools) as there:
        there.gate = lambda request: Invalid("never") if recorded(request) else None
        await start(there, "a", "b", replicas=2)
        await there.until(lambda: there.ready(2))
        await there.settle()
        missing, there.gate = await refused(there), nothing
        await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
        await there.until(lambda: gone(there))
        [note] = await records(there)
        assert missing in note.spec.message


@pytest.mark.parametrize("writes", [1, 2, 3])
async def test_earlier_owners_entry_is_given_up_in_one_write(writes: int, tools: Tools) -> None:
    async with world(*tools) as there:
        async with Nursery("owner") as owner:
            for name in ("a", "b"):
                await there.add_node(name)
            await there.add_controller(replicas=2)
            owner.start(ReplicationService(there.deps).run())
            await there.until(lambda: there.ready(2))
            await there.settle()
            dies = dies_after(writes, owner, any_write)
            there.gate = lambda request: (
                dies(request) or (Invalid("never") if recorded(request) else None)
            )
            change = {"status": {"outbox": [{"id": "left", "event": "RolloutStarted"}]}}
            await there.client.patch(
                REPLICATIONCONTROLLER, "web", "default", patch=change, subresource="status"
            )
            await there.change(replicas=1)
            await there.settle()
            owner.cancel()
        there.gate = nothing
        there.start(ReplicationService(there.deps))
        await there.settle(5.0)
        assert not await refused(there)
        audit = await records(there)
        missing = [one for one in audit if f"{MARK}RolloutStarted" in one.spec.message]
        assert missing or [one for one in audit if one.metadata.name.endswith("-left")]


async def test_service_goes_on_with_an_unknown_event_in_its_outbox(
    tools: Tools,
) -> None:
    async with world(*tools) as there:
        await start(there, "a", "b", replicas=1)
        await there.until(lambda: there.ready(1))
        await there.settle()
        change = {"status": {"outbox": [{"id": "later", "event": "Party"}]}}
        await there.client.patch(
            REPLICATIONCONTROLLER, "web", "default", patch=change, subresource="status"
        )
        await there.change(replicas=2)
        await there.until(lambda: there.ready(2))
        assert (await refused(there)).startswith(f"{MARK}Party of ")
        assert (await there.controller()).status.outbox == ()
