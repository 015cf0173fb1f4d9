"""What takes the place of transactions. Numbers T…, U… and X… are those of the specification's checks.

Upstream changes several keys in one transaction. Here one write, a compare-and-set of an object's status,
announces what belongs together; everything after it can be done twice. So "commit" below is that write,
and "operations" are what it announces.
"""

import json

import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers.test_replication_audit import names, records, start
from tests.unit.controllers.test_replication_transfer import label, moved, on, started, transfers
from tests.unit.controllers.test_rolling_update import begun, change, counts, phase, roll
from tests.unit.controllers.test_rollout_service import Tools, tools, version

from grange.api.http import Request
from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.auditevents import MEMBERSHIP_CHANGED
from grange.api.meta import Document
from grange.api.status import ApiError, InternalError
from grange.base.tasks import Nursery
from grange.controllers.replication import audit_trail
from grange.controllers.replication.controller import ReplicationService
from grange.controllers.replication.plan import Addition, Inputs, Plan
from grange.controllers.shared.audit_records import AuditRetries
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.farm.member import Member
from grange.reconcile.recorder import Recorder

__all__ = ["tools"]


class Writes:
    """What the controller sends, in order: ``(verb and resource, body)``, without events."""

    def __init__(self, there: World) -> None:
        self.sent: list[tuple[str, Document]] = []
        self.refuse = ""  # a method and the end of a path
        there.gate = self._see

    def _see(self, request: Request) -> ApiError | None:
        if request.method == "GET" or request.path.endswith("/events"):
            return None
        what = f"{request.method} {request.path.rpartition('/')[2]}"
        self.sent.append((what, json.loads(request.body) if request.body else {}))
        return InternalError("no") if what == self.refuse else None

    def outboxes(self) -> list[list[str]]:
        """The pods to add of every announcement, in order."""
        bodies = [body.get("status", {}) for what, body in self.sent if what == "PATCH status"]
        found = [status["outbox"] for status in bodies if status.get("outbox")]
        return [[pod["pod"] for item in box for pod in item.get("added", ())] for box in found]


# --- T: what is announced together ----------------------------------------------------------------


async def test_check_t1_one_write_announces_a_bounded_batch(
    tools: Tools,
) -> None:
    """As many as ``burst`` in one; one more is not an error but the next write's."""
    async with world(*tools) as there:
        writes = Writes(there)
        await start(there, *"abcde", replicas=2, burst=2)
        await there.until(lambda: there.ready(2))
        await there.change(replicas=5)
        await there.until(lambda: there.ready(5))
        assert max(map(len, writes.outboxes())) == 2
        reported = [names(item.spec.added) for item in await records(there)]
        assert sorted(reported) == [["web-a", "web-b"], ["web-c", "web-d"], ["web-e"]]


async def test_check_t2_announced_changes_are_done_in_order(tools: Tools) -> None:
    async with world(*tools) as there:
        writes = Writes(there)
        await start(there, "a", "b", "c", replicas=3)
        await there.until(lambda: there.ready(3))
        (announced,) = writes.outboxes()
        at = next(
            n for n, (_, body) in enumerate(writes.sent) if (body.get("status") or {}).get("outbox")
        )
        acts = writes.sent[at : at + 6]
        assert [what for what, _ in acts] == [
            "PATCH status",
            *["POST pods"] * 3,
            "POST auditrecords",
            "PATCH status",
        ]
        assert [body["metadata"]["name"] for _, body in acts[1:4]] == announced
        assert acts[5][1]["status"]["outbox"] == []


async def test_check_t3_a_second_commit_does_nothing(tools: Tools) -> None:
    """A record is written once, however often; and nothing follows a write that was overtaken."""
    async with world(*tools) as there:
        await start(there, "a", "b", replicas=3)
        await there.until(lambda: there.ready(2))
        web = await there.controller()
        plan = Plan(create=(Addition("web-c", "c"),))
        done = audit_trail.entry(web, MEMBERSHIP_CHANGED, there.clock.now(), plan=plan)
        deps, clock = there.deps, there.clock
        recorder = Recorder(
            deps.client, "test", clock=clock, rng=deps.rng, log=deps.log, metrics=deps.metrics
        )
        audit = audit_trail.AuditTrail(there.client, recorder, AuditRetries(clock), clock=clock)
        for _ in range(2):
            seen = Inputs(web, await there.pods(), [])
            await audit.record(web, [done], audit_trail.Recorded(""), seen)
        assert [names(item.spec.added) for item in await records(there)].count(["web-c"]) == 1

        there.held_watches.add("/apis/grange.dev/v1alpha1/replicationcontrollers")
        await there.change(paused=True)
        writes = Writes(there)
        await there.add_node("c")
        await there.settle(20.0)
        assert {what for what, _ in writes.sent} == {"PATCH status"}, "it tried"
        assert await there.names() == ["web-a", "web-b"], "what it saw is not there any more"


async def test_check_t5_a_pass_with_nothing_to_do_sends_nothing(tools: Tools) -> None:
    async with world(*tools) as there:
        service = await start(there, "a", "b", replicas=2, resync_s=50.0)
        await there.until(lambda: there.ready(2))
        await there.settle(5.0)
        writes, before = Writes(there), service.loop.statistics().done
        await there.settle(120.0)
        assert service.loop.statistics().done > before
        assert writes.sent == []


async def test_check_t6_trouble_is_retried_until_a_user_stops_it(tools: Tools) -> None:
    async with world(*tools) as there:
        for name in ("a", "b"):
            await there.add_node(name)
        await there.add_controller(replicas=1)
        writes = Writes(there)
        writes.refuse = "PATCH status"
        async with Nursery() as nursery:
            nursery.start(ReplicationService(there.deps).run())
            await there.settle(5.0)
            nursery.cancel()
        assert len(writes.outboxes()) >= 2
        assert await there.names() == []
        tried = len(writes.sent)
        await there.settle(60.0)
        assert len(writes.sent) == tried, "a stopped controller writes nothing"
        writes.refuse = ""
        there.start(ReplicationService(there.deps))
        await there.until(lambda: there.ready(1))
        assert [names(item.spec.added) for item in await records(there)] == [["web-a"]]


async def test_check_t7_announcements_of_two_owners_are_separate(tools: Tools) -> None:
    """The guard that every operation carries is the owner's claim: see W1."""
    async with world(*tools) as there:
        for name in ("a", "b"):
            await there.add_node(name)
        await there.add_controller("api", replicas=1)
        await there.add_controller("web", replicas=2)

        def gate(request: Request) -> ApiError | None:
            records_web = b'"controller":"web"' in request.body
            return InternalError("no") if records_web else None

        there.gate = gate
        there.start(ReplicationService(there.deps))
        await there.settle(20.0)
        api, web = await there.controller("api"), await there.controller("web")
        assert api.status.outbox == ()
        (waiting,) = web.status.outbox
        assert names(waiting.added) == ["web-a", "web-b"]
        assert [names(item.spec.added) for item in await records(there)] == [["api-a"]]


# --- U4, U13: whose rollouts, and under what -----------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "rolled"),
    [
        ("team=red", ["red"]),
        ("team notin (red)", ["blue", "plain"]),
        ("", ["blue", "plain", "red"]),
    ],
)
async def test_check_u4_a_farm_rolls_out_what_it_selects(
    selector: str, rolled: list[str], tools: Tools
) -> None:
    """A rollout goes where its controller goes; one without labels is selected by what is absent."""
    async with world(*tools) as there:
        await there.add_node("n0")
        for name, labels in (("red", {"team": "red"}), ("blue", {"team": "blue"}), ("plain", {})):
            document = {
                "metadata": {"name": name, "namespace": "default", "labels": labels},
                "spec": {"replicas": 1, "placement": "Packed", "template": version(1)},
            }
            await there.client.create(REPLICATIONCONTROLLER, document, "default")
        member = Member(there.deps, FarmConfig(member="one"))
        farm = member.farm("replication", REPLICATIONCONTROLLER, selector=selector)
        service = ReplicationService(farm.fence(there.deps))
        farm.attach(service.loop)
        there.start(service, member)
        await there.settle(30.0)
        for name in ("red", "blue", "plain"):
            await there.change(name, template=version(2))
        await there.settle(30.0)
        pods = [pod.metadata for pod in await there.pods() if pod.metadata.labels["v"] == "2"]
        assert sorted(meta.owner_references[0].name for meta in pods) == rolled


async def test_check_u13_no_step_is_taken_on_what_is_not_so_any_more(tools: Tools) -> None:
    """The lock of a rollout is the version that a step was decided on: paused means paused at once."""
    async with world(*tools) as there:
        await begun(there, 3)
        for number in range(3):
            await there.hold_ready(f"n{number}")
        await roll(there)
        await there.settle(10.0)
        assert await counts(there) == (2, 1)
        there.held_watches.add("/apis/grange.dev/v1alpha1/rollingupdates")
        await change(there, paused=True)
        for number in range(3):
            await there.let_ready(f"n{number}")
        await there.until(lambda: there.ready(1, "two"))
        await there.settle(30.0)
        assert await counts(there) == (2, 1), "it has not heard, and must not act all the same"
        there.held_watches.clear()
        await there.until(lambda: phase(there, "Paused"))
        assert await counts(there) == (2, 1)
        await change(there, paused=False)
        await there.until(lambda: phase(there, "Complete"))


# --- X8: what a transfer waits for -------------------------------------------------------------------


async def test_check_x8_transfer_waits_for_slow_pods_without_error(
    tools: Tools,
) -> None:
    """Upstream asks service discovery whether it has heard; here ``minReadySeconds`` is given to it."""
    async with world(*tools) as there:
        service = await started(there, "a", "b", "c", replicas=2, rollout={"minReadySeconds": 20})
        await there.settle(60.0)
        failed = service.loop.statistics().failed
        await label(there, "a", fits=False)
        await there.settle(15.0)
        assert await on(there) == ["a", "b", "c"]
        assert [item.new for item in await transfers(there)] == ["c"]
        assert service.loop.statistics().failed == failed
        assert (await there.condition("Misplaced")).reason == "Transferring"
        await there.until(lambda: moved(there, "b", "c"))
