"""Which conditions alert, once from the owner of the object, and when the alerts end."""

import msgspec
import pytest
from tests.support.controller_world import World, report_controllers, world
from tests.support.memory_sink import MemorySink
from tests.unit.controllers.test_replication_transfer import label, moved, started
from tests.unit.controllers.test_rolling_update import begun, change, phase, roll
from tests.unit.controllers.test_rollout_service import Sick

from grange.alerts.alerts import Alerts
from grange.api.kinds import REPLICATIONCONTROLLER, ROLLINGUPDATE
from grange.api.meta import Condition, ObjectKey
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.replication import condition_types, status_conditions
from grange.controllers.replication.controller import ReplicationService
from grange.controllers.rollingupdate import logic
from grange.reconcile.condition_alerts import ConditionAlerts
from grange.sim.simulated_pool import SimulatedPool

WEB = ObjectKey("default", "web")


async def test_shortage_alerts_once_until_resolved(clock: Clock, rng: Stream, log: Logger) -> None:
    """Checks R2 and R4: one alert, however many passes; P2 raised it again in each."""
    async with world(clock, rng, log) as there:
        memory = MemorySink()
        informer = there.informers.informer(REPLICATIONCONTROLLER)
        report_controllers(memory, informer, clock)
        await there.add_node("a")
        await there.add_controller(replicas=2)
        there.start(ReplicationService(there.deps))
        await there.settle(400)
        assert [(what, alert.reason) for what, alert in memory.history] == [
            ("raised", "InsufficientNodes")
        ]
        assert memory.active[0].about == "replicationcontroller/default/web"
        assert "1 of 2 replicas" in memory.active[0].message
        await there.add_node("b")
        await there.until(lambda: there.ready(2))
        await there.settle()
        assert memory.active == []


async def test_shortage_alerts_after_ten_seconds(clock: Clock, rng: Stream, log: Logger) -> None:
    """Nodes register and become Ready after their controllers start: that needs no person."""
    async with world(clock, rng, log) as there:
        memory = MemorySink()
        informer = there.informers.informer(REPLICATIONCONTROLLER)
        reporter = report_controllers(
            memory, informer, clock, after_s=condition_types.ALERT_AFTER_S
        )
        there.nursery.start(reporter.run())
        await there.add_controller(replicas=1)
        there.start(ReplicationService(there.deps))
        await there.settle(5)
        assert (await there.condition("InsufficientNodes")).status == "True"
        await there.add_node("a")
        await there.until(lambda: there.ready(1))
        await there.settle(60)
        assert memory.history == []
        await there.change(replicas=2)
        await there.settle(9)
        assert memory.active == []
        await there.settle(2)
        assert [alert.reason for alert in memory.active] == ["InsufficientNodes"]
        await there.add_node("b")
        await there.until(lambda: there.ready(2))
        await there.settle()
        assert memory.active == []
        await there.change(replicas=3)
        await there.settle(5)
        await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
        await there.settle(60)
        assert [what for what, _ in memory.history] == ["raised", "resolved"]


async def test_only_owner_reports_alerts(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        memory = MemorySink()
        owned: set[ObjectKey] = set()
        informer = there.informers.informer(REPLICATIONCONTROLLER)
        reporter = report_controllers(memory, informer, clock, owns=owned.__contains__)
        await there.add_controller(replicas=1)
        there.start(ReplicationService(there.deps))
        await there.settle()
        assert memory.history == []
        owned.add(WEB)
        reporter.gained(WEB)
        assert [alert.reason for alert in memory.active] == ["InsufficientNodes"]
        owned.clear()
        reporter.lost(WEB)
        assert memory.active == []
        assert [what for what, _ in memory.history] == ["raised", "released"], "it is not over"
        reporter.gained(ObjectKey("default", "gone"))


@pytest.mark.parametrize("end", ["add node", "delete"])
async def test_next_owner_reports_and_resolves_alerts(
    clock: Clock, rng: Stream, log: Logger, end: str
) -> None:
    """Receivers deduplicate by key, so an owner need not know what the last one has reported."""
    async with world(clock, rng, log) as there:
        owned: tuple[set[ObjectKey], set[ObjectKey]] = ({WEB}, set())
        sinks = (MemorySink(), MemorySink())
        informer = there.informers.informer(REPLICATIONCONTROLLER)
        _, second = [
            report_controllers(sink, informer, clock, owns=mine.__contains__)
            for mine, sink in zip(owned, sinks, strict=True)
        ]
        await there.add_controller(replicas=1)
        there.start(ReplicationService(there.deps))
        await there.settle()
        owned[0].clear()  # the first owner crashes
        owned[1].add(WEB)
        second.gained(WEB)
        assert [alert.key for sink in sinks for alert in sink.active] == [
            "replicationcontroller/default/web/InsufficientNodes"
        ] * 2
        if end == "delete":
            await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
        else:
            await there.add_node("a")
            await there.until(lambda: there.ready(1))
        await there.settle()
        assert [what for what, _ in sinks[1].history] == ["raised", "resolved"]


def test_alerting_conditions_exist() -> None:
    alerting = {
        name
        for name, kind in condition_types.CONDITIONS.items()
        if any(reason.urgency for reason in kind.reasons.values())
    }
    assert alerting == {"InsufficientNodes", "Misplaced", "RolloutFailed", "AuditRefused"}
    assert alerting <= status_conditions.RULES.keys() == condition_types.CONDITIONS.keys()


def condition(reason: str, status: str = "True") -> Condition:
    return Condition(
        type="Misplaced",
        status=status,
        reason=reason,
        message=reason,
        last_transition_time="2026-01-01T00:00:00Z",
    )


async def test_pods_that_cannot_move_alert_by_reason(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A transfer that goes its way is no trouble; one that is refused is another than one rolled back."""
    async with world(clock, rng, log, hands=False) as there:
        memory = MemorySink()
        informer = there.informers.informer(REPLICATIONCONTROLLER)
        reporter = report_controllers(memory, informer, clock)
        await there.add_controller(replicas=1)
        await there.settle()

        async def report(reason: str, status: str = "True") -> list[str]:
            reported = [msgspec.to_builtins(condition(reason, status))]
            await there.client.patch(
                REPLICATIONCONTROLLER,
                "web",
                "default",
                patch={"status": {"conditions": reported}},
                subresource="status",
            )
            await there.settle()
            return [alert.reason for alert in memory.active]

        assert await report("Transferring") == []
        assert await report("AllocationRefused") == ["AllocationRefused"]
        assert await report("BackingOff") == ["BackingOff"]
        assert await report("ReleaseFailed") == ["ReleaseFailed"]
        assert await report("AllOnEligibleNodes", "False") == []
        reasons = condition_types.CONDITIONS["Misplaced"].reasons
        alerting = {name for name, reason in reasons.items() if reason.urgency}
        assert alerting.isdisjoint(condition_types.CONDITIONS)
        reporter.lost(WEB)


@pytest.mark.parametrize("pool", [None, SimulatedPool([])], ids=["sick", "refused"])
async def test_pod_that_cannot_move_alerts_until_it_moves(
    pool: SimulatedPool | None, clock: Clock, rng: Stream, log: Logger
) -> None:
    """Trying again is no end of the trouble, whatever each attempt fails of."""
    async with world(clock, rng, log) as there:
        memory = MemorySink()
        informer = there.informers.informer(REPLICATIONCONTROLLER)
        report_controllers(memory, informer, clock)
        quick = {"rollout": {"progressDeadlineSeconds": 10}}
        await started(there, "a", replicas=1, pool=pool, **quick)
        if pool is None:
            await there.hold_ready("b")
            await there.add_node("b", labels={"web": "y"})
        await label(there, "a", fits=False)
        await there.settle(100)
        last = [alert.reason for what, alert in memory.history if what == "raised"][-1]
        assert last == "BackingOff"
        assert [alert.reason for alert in memory.active] == ["BackingOff"]
        assert len(memory.history) == (1 if pool is None else 3), "refused, and then again"
        await there.let_ready("b")
        if pool is not None:
            await there.add_node("b", labels={"web": "y"})
        await there.until(lambda: moved(there, "b"), limit_s=100)
        await there.settle()
        assert memory.active == []


def test_skips_are_counted_once_while_they_last() -> None:
    static = condition("Static")
    failed = Condition(type="Reconciled", status="False", reason="WriteFailed")
    scaling = Condition(type="Reconciled", status="False", reason="Scaling")
    assert status_conditions.skips([], [static, failed]) == ["Static", "WriteFailed"]
    assert status_conditions.skips([static], [static, failed]) == ["WriteFailed"]
    assert status_conditions.skips([], [scaling, condition("Transferring")]) == []


async def test_transfers_and_skips_are_counted(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=1)
        await label(there, "a", fits=False)
        await there.until(lambda: moved(there, "b"))
        await label(there, "b", fits=False)
        await there.settle(20.0)
        numbers = there.deps.metrics
        for event in ("NodeTransferStarted", "NodeTransferCompleted"):
            assert numbers.get_sample_value("grange_replication_transfers_total", {"event": event})
        refused = {"reason": "AllocationRefused"}
        assert numbers.get_sample_value("grange_replication_skips_total", refused) == 1.0


def report_rollouts(there: World) -> MemorySink:
    """Report the alerts of rollouts between two controllers to memory."""
    memory = MemorySink()
    informer, clock = there.informers.informer(ROLLINGUPDATE), there.clock
    ConditionAlerts(
        Alerts(memory),
        informer,
        find=logic.alerts_of,
        owns=lambda _: True,
        about=lambda key: f"rollingupdate/{key}",
        clock=clock,
    )
    return memory


async def test_failed_rolling_update_alert_names_paused_side(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        memory = report_rollouts(there)
        await begun(there, 3)
        pause = {"spec": {"paused": True}}
        await there.client.patch(REPLICATIONCONTROLLER, "two", "default", patch=pause)
        await roll(there, progressDeadlineSeconds=30)
        await there.until(lambda: phase(there, "Failed"))
        await there.settle(60)
        assert [(alert.about, alert.reason, alert.urgency) for alert in memory.active] == [
            ("rollingupdate/default/roll", "RolloutFailed", "high")
        ]
        assert "two is paused" in memory.active[0].message
        assert "one is paused" not in memory.active[0].message
        go_on = {"spec": {"paused": False}}
        await there.client.patch(REPLICATIONCONTROLLER, "two", "default", patch=go_on)
        await there.until(lambda: phase(there, "Complete"))
        await there.settle()
        assert [what for what, _ in memory.history] == ["raised", "resolved"]


@pytest.mark.parametrize("end", ["undo", "delete"])
async def test_failed_rolling_update_alert_ends(
    clock: Clock, rng: Stream, log: Logger, end: str
) -> None:
    async with world(clock, rng, log, kind=Sick) as there:
        memory = report_rollouts(there)
        await begun(there, 3, healthy=False)
        await roll(there, progressDeadlineSeconds=30)
        await there.until(lambda: phase(there, "Failed"))
        await there.settle()
        assert [alert.reason for alert in memory.active] == ["RolloutFailed"]
        assert "paused" not in memory.active[0].message
        if end == "undo":
            await change(there, undo=True)
        else:
            await there.client.delete(ROLLINGUPDATE, "roll", "default")
        await there.settle(30)
        assert memory.active == []
        assert len(memory.history) == 2


async def test_automatic_rollback_alerts(clock: Clock, rng: Stream, log: Logger) -> None:
    """It was not asked for: what a user wanted is not there, and no controller has looked at why."""
    async with world(clock, rng, log, kind=Sick) as there:
        memory = report_rollouts(there)
        await begun(there, 3, healthy=False)
        await roll(there, progressDeadlineSeconds=30, autoRollback=True)
        await there.until(lambda: phase(there, "RolledBack"))
        await there.settle(60)
        assert [(what, alert.reason, alert.urgency) for what, alert in memory.history] == [
            ("raised", "RolloutFailed", "high")
        ]
        assert "got no further for 30 s" in memory.active[0].message
        await there.client.delete(ROLLINGUPDATE, "roll", "default")
        await there.settle(30)
        assert memory.active == []


async def test_refused_rolling_update_alerts_until_deleted(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Nothing is harmed, but what a user asked for is not being done, and never will be."""
    async with world(clock, rng, log) as there:
        memory = report_rollouts(there)
        await begun(there, 3)
        await roll(there, startingReplicas={"old": 2, "new": 0})
        await there.until(lambda: phase(there, "Refused"))
        await there.settle(60)
        assert [(alert.about, alert.reason, alert.urgency) for alert in memory.active] == [
            ("rollingupdate/default/roll", "RolloutRefused", "low")
        ]
        assert "expected 2 and 0, found 3 and 0" in memory.active[0].message
        await there.client.delete(ROLLINGUPDATE, "roll", "default")
        await there.settle(30)
        assert [what for what, _ in memory.history] == ["raised", "resolved"]
