"""The audit of membership. Numbers A… are those of the checks in the specification of replication.

Upstream writes a record in the transaction that makes the change; here an outbox in the status
stands for the transaction, so "commit" below is the compare-and-set that announces a change.
"""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.support.controller_world import World, world
from tests.unit.controllers import builders
from tests.unit.controllers.gates import dies_after

from grange.api import timestamps
from grange.api.http import Request
from grange.api.kinds import AUDITRECORD, POD, REPLICATIONCONTROLLER
from grange.api.kinds.auditevents import (
    EVENTS,
    MEMBERSHIP_CHANGED,
    ROLLOUT_COMPLETED,
    ROLLOUT_STARTED,
)
from grange.api.kinds.auditrecord import SCHEMA_VERSION, AuditRecord, AuditSpec
from grange.api.kinds.transfer_status import MemberPod, NodeTransfer, OutboxEntry
from grange.api.meta import Document
from grange.api.status import ApiError, Forbidden, InternalError, Invalid
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.controllers.audit.controller import AuditConfig, AuditController
from grange.controllers.replication import audit_trail
from grange.controllers.replication.controller import ReplicationConfig, ReplicationService
from grange.controllers.replication.plan import Addition, Plan, Removal
from grange.controllers.shared import audit_records

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TRANSFER = NodeTransfer(
    id="t", phase="RollingBack", old="a", old_pod="web-a", old_uid="u", new="b", reason="late"
)

# Every node of these tests matches it, as it matches the default; pods that are not bound are made again.
ELSEWHERE = {"matchExpressions": [{"key": "other", "operator": "DoesNotExist"}]}


async def records(there: World) -> list[AuditRecord]:
    found = (await there.client.list(AUDITRECORD)).items
    return sorted(found, key=lambda item: (item.spec.time, int(item.metadata.resource_version)))


async def start(there: World, *nodes: str, replicas: int, **settings: Any) -> ReplicationService:
    for name in nodes:
        await there.add_node(name)
    await there.add_controller(replicas=replicas)
    service = ReplicationService(there.deps, ReplicationConfig(**settings))
    there.start(service)
    return service


def names(members: tuple[MemberPod, ...]) -> list[str]:
    return [item.pod for item in members]


def refuse(method: str, ending: str) -> Callable[[Request], ApiError | None]:
    def gate(request: Request) -> ApiError | None:
        bad = request.method == method and request.path.endswith(ending)
        return InternalError("no") if bad else None

    return gate


# --- pure ----------------------------------------------------------------------------------------


def test_a1_a_record_names_the_members_that_are_left() -> None:
    """From {1, 2}: 3 comes and 2 goes, so {1, 3} are members."""
    web = builders.controller(replicas=2)
    one, two = (builders.pod(web, node=node) for node in ("1", "2"))
    plan = Plan(create=(Addition("web-3", "3"),), delete=(Removal(two, "Surplus"),))
    done = audit_trail.entry(web, MEMBERSHIP_CHANGED, NOW, plan=plan)
    members = audit_records.members([one, two], [done])
    document = audit_records.record_of(web.key, web.metadata.uid, 2, done, members)
    spec = msgspec.convert(document["spec"], AuditSpec)
    assert spec.event == MEMBERSHIP_CHANGED
    assert [(item.pod, item.node) for item in spec.members] == [("web-1", "1"), ("web-3", "3")]
    assert (names(spec.added), names(spec.removed)) == (["web-3"], ["web-2"])
    assert (spec.controller, spec.controller_uid, spec.replicas) == ("web", "rc-uid", 2)
    assert spec.message == "Surplus", "why it goes"
    assert document["metadata"]["labels"] == {
        "grange.dev/replication-controller": "web",
        "grange.dev/replication-controller-uid": "rc-uid",
    }


@pytest.mark.parametrize("event", EVENTS)
def test_a5_every_field_survives_the_wire(event: str) -> None:
    member = MemberPod("web-a", "a", "u")
    spec = AuditSpec(
        event=event,
        controller="web",
        time="2026-01-01T00:00:00.000000Z",
        controller_uid="u",
        replicas=3,
        added=(member,),
        removed=(member,),
        members=(member, MemberPod("web-b")),
        transfer=TRANSFER,
        message="because",
    )
    wire = msgspec.json.encode(spec)
    assert msgspec.json.decode(wire, type=AuditSpec) == spec
    entry = OutboxEntry("e", event, "t", (member,), (member,), TRANSFER, "because")
    assert msgspec.json.decode(msgspec.json.encode(entry), type=OutboxEntry) == entry


async def test_a6_the_version_of_the_form_is_the_servers(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        document: Document = {
            "metadata": {"name": "x"},
            "spec": {"event": MEMBERSHIP_CHANGED, "controller": "web", "schemaVersion": 77},
        }
        made = await there.client.create(AUDITRECORD, document, "default")
        assert made.spec.schema_version == SCHEMA_VERSION


async def test_a_record_is_written_once_and_never_changed(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        document: Document = {
            "metadata": {"name": "x"},
            "spec": {"event": MEMBERSHIP_CHANGED, "controller": "web"},
        }
        await there.client.create(AUDITRECORD, document, "default")
        change = {"spec": {"message": "it was another user"}}
        with pytest.raises(Invalid, match="written once and never changed"):
            await there.client.patch(AUDITRECORD, "x", "default", patch=change)
        for spec in ({"event": "Party", "controller": "web"}, {"event": MEMBERSHIP_CHANGED}):
            with pytest.raises((Invalid, Forbidden)):
                await there.client.create(
                    AUDITRECORD, {"metadata": {"name": "y"}, "spec": spec}, "default"
                )


def test_what_did_not_come_true_is_not_recorded() -> None:
    web = builders.controller(replicas=2)
    one, two = (builders.pod(web, node=node) for node in ("1", "2"))
    going = builders.pod(web, node="3", deleted=True)
    entry = OutboxEntry(
        "e",
        MEMBERSHIP_CHANGED,
        added=(MemberPod("web-1"), MemberPod("web-9")),
        removed=(MemberPod("web-2", uid="uid-web-2"), MemberPod("web-3", uid="uid-web-3")),
        message="Surplus",
    )
    done = audit_trail.effective(entry, [one, two, going])
    assert done is not None
    assert (names(done.added), names(done.removed)) == (["web-1"], ["web-3"])
    assert done.message == "Surplus"
    three = builders.pod(web, node="3")
    came = audit_trail.effective(entry, [one, two, three])
    assert came is not None
    assert (names(came.removed), came.message) == ([], ""), "not why those go who stay"
    nothing = OutboxEntry("e", MEMBERSHIP_CHANGED, added=(MemberPod("web-9"),))
    assert audit_trail.effective(nothing, [one]) is None
    of_transfer = OutboxEntry("e", "NodeTransferStarted", transfer=TRANSFER)
    assert audit_trail.effective(of_transfer, []) is of_transfer, (
        "it came true with its announcement"
    )


# --- through the API -----------------------------------------------------------------------------


async def test_a2_growing_and_shrinking_leave_one_record_each(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """R3 and R7: the record of the last removal has no members."""
    async with world(clock, rng, log) as there:
        await start(there, "a", "b", replicas=2)
        await there.until(lambda: there.ready(2))
        await there.settle(30.0)
        (grown,) = await records(there)
        assert names(grown.spec.added) == names(grown.spec.members) == ["web-a", "web-b"]
        await there.change(replicas=0)
        await there.until(lambda: there.ready(0))
        await there.settle(30.0)
        (_, shrunk) = await records(there)
        assert sorted(names(shrunk.spec.removed)) == ["web-a", "web-b"]
        assert shrunk.spec.members == ()
        assert (await there.controller()).status.outbox == ()


async def test_a_pass_that_places_nothing_leaves_no_record(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await start(there, replicas=2)
        await there.settle(400.0)
        assert await records(there) == []


async def test_what_others_do_to_the_members_is_recorded_too(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await start(there, "a", "b", replicas=2)
        await there.until(lambda: there.ready(2))
        await there.change(paused=True)
        await there.settle()
        await there.client.delete(POD, "web-a", "default")
        await there.settle()
        last = (await records(there))[-1]
        assert names(last.spec.members) == ["web-b"]
        assert last.spec.message == "pods came or went without this controller"
        await there.settle(400.0)
        assert len(await records(there)) == 2, "once"


async def test_a3_a_record_that_cannot_be_written_is_written_later(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        there.gate = refuse("POST", "/auditrecords")
        service = await start(there, "a", replicas=1)
        await there.settle(5.0)
        assert await there.names() == ["web-a"]
        assert await records(there) == []
        assert len((await there.controller()).status.outbox) == 1
        assert service.loop.statistics().failed > 0
        there.gate = lambda request: None
        await there.until(lambda: recorded(there, 1), limit_s=90)
        (only,) = await records(there)
        assert names(only.spec.added) == ["web-a"]


async def recorded(there: World, count: int) -> bool:
    outbox = (await there.controller()).status.outbox
    return not outbox and len(await records(there)) == count


async def test_a4_t4_a_change_that_is_not_announced_is_not_made(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        there.gate = refuse("PATCH", "/status")
        await start(there, "a", replicas=1)
        await there.settle(20.0)
        assert await there.names() == []
        assert await records(there) == []
        there.gate = lambda request: None
        await there.until(lambda: recorded(there, 1), limit_s=120)


@pytest.mark.parametrize("crash_after", range(1, 6))
async def test_crash_after_any_write_leaves_change_and_record_together(
    crash_after: int, clock: Clock, rng: Stream, log: Logger
) -> None:
    """The first owner dies after so many writes; the second one finds everything out."""
    async with world(clock, rng, log) as there:
        for name in ("a", "b"):
            await there.add_node(name)
        await there.add_controller(replicas=2)
        async with Nursery("first owner") as first:
            there.gate = dies_after(crash_after, first)
            first.start(ReplicationService(there.deps).run())
            await clock.sleep(5.0)
            first.cancel()
        there.gate = lambda request: None
        there.start(ReplicationService(there.deps))
        await there.until(lambda: there.ready(2))
        await there.settle(30.0)
        found = await records(there)
        added = [name for item in found for name in names(item.spec.added)]
        assert sorted(added) == ["web-a", "web-b"], "each exactly once"
        last = next(item for item in found if "web-b" in names(item.spec.added))
        assert names(last.spec.members) == ["web-a", "web-b"]
        assert (await there.controller()).status.outbox == ()


@pytest.mark.parametrize("crash_after", range(5))
async def test_crash_while_a_name_is_reused_is_recorded_as_it_was(
    crash_after: int, clock: Clock, rng: Stream, log: Logger
) -> None:
    """One without a node that would not be made like this any more: out and in with one entry."""
    async with world(clock, rng, log, hands=False) as there:
        await there.add_node("a", labels={"disk": "ssd"})
        await there.add_controller(replicas=1)
        async with Nursery("first owner") as first:
            first.start(ReplicationService(there.deps).run())
            await there.until(lambda: recorded(there, 1))
            await there.settle(1.0)
            there.gate = dies_after(crash_after, first)
            (before,) = await there.pods()
            await there.change(nodeSelector={"matchLabels": {"disk": "ssd"}})
            await clock.sleep(5.0)
            first.cancel()
        there.gate = lambda request: None
        there.start(ReplicationService(there.deps))
        await there.settle(30.0)
        assert [pod.metadata.uid for pod in await there.pods()] != [before.metadata.uid]
        found = await records(there)
        assert [name for item in found for name in names(item.spec.added)] == ["web-a", "web-a"]
        removed = [one.uid for item in found for one in item.spec.removed]
        assert removed == [before.metadata.uid]


async def test_a7_old_and_surplus_records_go(clock: Clock, rng: Stream, log: Logger) -> None:
    """Retention: the newest stay, those of a controller that is gone go with age."""
    async with world(clock, rng, log) as there:
        await start(there, "a", replicas=1)
        retention = AuditConfig(keep=2, max_age_s=250.0, sweep_s=60.0)
        there.start(AuditController(there.deps, retention))
        for replicas in (0, 1, 0, 1):
            await there.settle(5.0)
            await there.change(replicas=replicas)
        await there.settle(5.0)
        before = await records(there)
        assert len(before) == 5
        await there.settle(70.0)
        assert await records(there) == before[-2:]
        await there.client.delete(REPLICATIONCONTROLLER, "web", "default", propagation="Orphan")
        await there.settle(300.0)
        assert await records(there) == []


async def test_of_records_of_one_time_those_written_last_stay(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Entries of one decision bear its time; their names do not give their order."""
    async with world(clock, rng, log, hands=False) as there:
        written = [f"r{number}" for number in (3, 9, 1, 7, 0, 8, 2, 6, 5, 4, 10)]
        spec = {
            "event": MEMBERSHIP_CHANGED,
            "controller": "web",
            "time": timestamps.rfc3339_micro(NOW),
        }
        for name in written:
            document: Document = {"metadata": {"name": name}, "spec": spec}
            await there.client.create(AUDITRECORD, document, "default")
        removed = await AuditController(there.deps, AuditConfig(keep=3, max_age_s=1e9)).trim()
        assert removed == len(written) - 3
        left = {item.metadata.name for item in await records(there)}
        assert left == set(written[-3:])


async def test_what_the_cache_does_not_show_is_not_recorded_again(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A new owner whose view of pods is late finds them by the records' own look at the server."""
    async with world(clock, rng, log) as there:
        await there.add_node("a")
        await there.add_node("b")
        await there.add_controller(replicas=2)
        await there.settle()
        there.held_watches.add("/api/v1/pods")
        async with Nursery() as nursery:
            nursery.start(ReplicationService(there.deps).run())
            await there.settle(5.0)
            nursery.cancel()
        assert await there.names() == ["web-a", "web-b"]
        there.start(ReplicationService(there.deps))
        await there.settle(10.0)
        there.held_watches.clear()
        await there.until(lambda: there.ready(2))
        found = (await there.client.list(AUDITRECORD)).items
        reported = [member.pod for one in found for member in one.spec.added]
        assert sorted(reported) == ["web-a", "web-b"]


def test_terminating_pod_is_not_the_announced_one_of_its_name() -> None:
    owner = builders.controller(replicas=1)
    plan = Plan(create=(Addition("web-a", "a"),))
    announced = audit_trail.entry(
        owner, MEMBERSHIP_CHANGED, datetime(2026, 1, 1, tzinfo=UTC), plan=plan
    )
    leaving = builders.pod(owner, node="a", deleted=True)
    assert audit_trail.effective(announced, [leaving]) is None


def test_pod_announced_to_go_is_not_the_new_one_of_its_name() -> None:
    owner = builders.controller(replicas=1)
    before = builders.pod(owner, node="a", bound=False)
    plan = Plan(create=(Addition("web-a", "a"),), delete=(Removal(before, "Outdated"),))
    announced = audit_trail.entry(owner, MEMBERSHIP_CHANGED, NOW, plan=plan)
    assert audit_trail.effective(announced, [before]) is None, "nothing was done"
    gone = audit_trail.effective(announced, [])
    assert gone is not None
    assert (names(gone.added), names(gone.removed)) == ([], ["web-a"])
    made = replace(before, metadata=replace(before.metadata, uid="another"))
    assert audit_trail.effective(announced, [made]) == announced


@pytest.mark.parametrize("crash_after", range(1, 6))
async def test_a_pod_that_takes_the_name_of_another_is_recorded_once(
    crash_after: int, clock: Clock, rng: Stream, log: Logger
) -> None:
    """An owner that dies before it replaces a pod in place has done nothing (simulation, seed 702)."""
    async with world(clock, rng, log, hands=False) as there:
        await there.add_node("a")
        await there.add_controller(replicas=1)
        async with Nursery("first owner") as first:
            first.start(ReplicationService(there.deps).run())
            await there.until(lambda: recorded(there, 1))
            await there.settle(5.0)
            (before,) = await there.pods()
            there.gate = dies_after(crash_after, first)
            await there.change(nodeSelector=ELSEWHERE)
            await there.settle(5.0)
            first.cancel()
        there.gate = lambda request: None
        there.start(ReplicationService(there.deps))
        await there.settle(30.0)
        (after,) = await there.pods()
        assert after.metadata.uid != before.metadata.uid
        found = await records(there)
        assert [name for one in found for name in names(one.spec.added)] == ["web-a", "web-a"]
        assert [m.uid for one in found for m in one.spec.removed] == [before.metadata.uid]


async def test_pod_that_cannot_go_yet_is_not_recorded_as_successor(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Each try announces both, and finds the name taken."""
    async with world(clock, rng, log, hands=False) as there:
        await start(there, "a", replicas=1)
        await there.until(lambda: recorded(there, 1))
        there.gate = refuse("DELETE", "/pods/web-a")
        await there.change(nodeSelector=ELSEWHERE)
        await there.settle(30.0)
        assert len(await records(there)) == 1
        there.gate = lambda request: None
        await there.until(lambda: recorded(there, 3), limit_s=120)
        _, went, came = await records(there)
        assert (names(went.spec.added), names(went.spec.removed)) == ([], ["web-a"])
        assert (names(came.spec.added), names(came.spec.removed)) == (["web-a"], [])


async def test_pod_whose_name_is_freed_later_is_not_recorded_before(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """One pod goes in a pass, and another one's successor would come: it finds its name taken."""
    async with world(clock, rng, log, hands=False) as there:
        await start(there, "a", "b", replicas=2, burst=1)
        await there.until(lambda: held(there, 2))
        await there.settle(5.0)
        await there.change(paused=True)
        await there.settle(5.0)
        _, failed = await there.pods()
        await there.set_phase(failed, "Failed")
        await there.change(nodeSelector=ELSEWHERE)
        await there.settle(5.0)
        await there.change(paused=False)
        await there.settle(60.0)
        found = await records(there)
        reported = Counter(name for one in found for name in names(one.spec.added))
        assert reported == {"web-a": 2, "web-b": 2}


async def held(there: World, count: int) -> bool:
    return len(await there.pods()) == count


@pytest.mark.parametrize("crash_after", range(7))
async def test_each_record_names_the_members_after_its_own_event(
    crash_after: int, clock: Clock, rng: Stream, log: Logger
) -> None:
    """A rollout begins in the pass that makes its first pod: it begins before that pod is there."""
    async with world(clock, rng, log) as there:
        await there.add_node("a")
        await there.add_controller(replicas=2, placement="Packed")
        async with Nursery("first owner") as first:
            first.start(ReplicationService(there.deps).run())
            await there.until(lambda: there.ready(2))
            await there.settle()
            there.gate = dies_after(crash_after, first)
            labels = {"labels": {"app": "web", "v": "2"}}
            await there.change(template={**builders.TEMPLATE, "metadata": labels})
            await clock.sleep(3.0)
            first.cancel()
        there.gate = lambda request: None
        there.start(ReplicationService(there.deps))
        await there.settle(30.0)
        found = (await there.client.list(AUDITRECORD)).items
        found.sort(key=lambda item: int(item.metadata.resource_version))
        events = [item.spec.event for item in found]
        assert (events.count(ROLLOUT_STARTED), events.count(ROLLOUT_COMPLETED)) == (1, 1)
        reported: set[str] = set()
        for item in found:
            reported = reported.difference(names(item.spec.removed)).union(names(item.spec.added))
            assert set(names(item.spec.members)) == reported, (events, item.spec.event)


async def test_a_late_view_does_not_become_the_record(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """What a new owner with a late view does is recorded on top of what there is (simulation, seed 18)."""
    async with world(clock, rng, log) as there:
        for name in ("a", "b", "c"):
            await there.add_node(name)
        await there.add_controller(replicas=1)
        await there.settle()
        there.held_watches.add("/api/v1/pods")
        async with Nursery() as nursery:
            nursery.start(ReplicationService(there.deps).run())
            await there.settle(5.0)
            nursery.cancel()
        await there.change(replicas=2)
        there.start(ReplicationService(there.deps))
        await there.settle(10.0)
        there.held_watches.clear()
        await there.until(lambda: there.ready(2))
        found = (await there.client.list(AUDITRECORD)).items
        reported = {
            m.pod: [n.pod for n in one.spec.members] for one in found for m in one.spec.added
        }
        assert reported == {"web-a": ["web-a"], "web-b": ["web-a", "web-b"]}
        assert [one.spec.message for one in found if one.spec.message] == []


async def test_an_entry_that_only_a_late_cache_shows_is_not_recorded(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """It did not come true, was dropped, and what it announced came with the entry after it."""
    async with world(clock, rng, log) as there:
        there.gate = refuse("POST", "/pods")
        await start(there, "a", replicas=1)
        await there.settle(5.0)
        (failed,) = (await there.controller()).status.outbox
        there.held_watches.add("/apis/grange.dev/v1alpha1/replicationcontrollers")
        there.gate = lambda request: None
        await there.until(lambda: recorded(there, 1), limit_s=90)
        await there.settle(60.0)
        there.held_watches.clear()
        await there.settle(60.0)
        (only,) = await records(there)
        assert names(only.spec.added) == ["web-a"]
        assert not only.metadata.name.endswith(failed.id)
