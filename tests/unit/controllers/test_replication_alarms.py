"""What a person must hear of a controller: once, from its owner, and that it is over."""

import msgspec
import pytest
from tests.unit.controllers.test_replication_transfer import label, moved, started
from tests.unit.controllers.test_rolling_update import begun, change, phase, roll
from tests.unit.controllers.test_rollout_service import Sick
from tests.unit.controllers.world import world

from grange.api.kinds import REPLICATIONCONTROLLER, ROLLINGUPDATE
from grange.api.meta import Condition, ObjectKey
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.replication import status
from grange.controllers.replication.alarms import MISPLACED, URGENCY, Alarms, RolloutAlarms
from grange.controllers.replication.controller import ReplicationService
from grange.reconcile.farm.alerts import Alerts, MemoryAlerter

WEB = ObjectKey("default", "web")


async def test_a_short_controller_alerts_once_and_says_when_it_is_over(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Checks R2 and R4: one alert, however many passes; P2 raised it again in each."""
    async with world(clock, rng, log) as there:
        memory = MemoryAlerter()
        informer = there.informers.informer(REPLICATIONCONTROLLER)
        Alarms(Alerts(memory), informer, lambda key: True)
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


async def test_the_owner_alerts_and_nobody_else(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        memory = MemoryAlerter()
        owned: set[ObjectKey] = set()
        informer = there.informers.informer(REPLICATIONCONTROLLER)
        alarms = Alarms(Alerts(memory), informer, owned.__contains__)
        await there.add_controller(replicas=1)
        there.start(ReplicationService(there.deps))
        await there.settle()
        assert memory.history == []
        owned.add(WEB)
        alarms.gained(WEB)
        assert [alert.reason for alert in memory.active] == ["InsufficientNodes"]
        owned.clear()
        alarms.lost(WEB)
        assert memory.active == []
        alarms.gained(ObjectKey("default", "gone"))


def test_every_alarming_condition_is_one_that_there_is() -> None:
    assert URGENCY.keys() <= {kind for kind, _ in status.RULES}


def condition(reason: str, status: str = "True") -> Condition:
    return Condition(
        type="Misplaced",
        status=status,
        reason=reason,
        message=reason,
        last_transition_time="2026-01-01T00:00:00Z",
    )


async def test_only_pods_that_cannot_move_alert_and_each_trouble_by_its_own_name(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A transfer that goes its way is no trouble; one that is refused is another than one rolled back."""
    async with world(clock, rng, log, hands=False) as there:
        memory = MemoryAlerter()
        informer = there.informers.informer(REPLICATIONCONTROLLER)
        alarms = Alarms(Alerts(memory), informer, lambda key: True)
        await there.add_controller(replicas=1)
        await there.settle()

        async def say(reason: str, status: str = "True") -> list[str]:
            told = [msgspec.to_builtins(condition(reason, status))]
            await there.client.patch(
                REPLICATIONCONTROLLER,
                "web",
                "default",
                patch={"status": {"conditions": told}},
                subresource="status",
            )
            await there.settle()
            return [alert.reason for alert in memory.active]

        assert await say("Transferring") == []
        assert await say("AllocationRefused") == ["AllocationRefused"]
        assert await say("BackingOff") == ["BackingOff"]
        assert await say("ReleaseFailed") == ["ReleaseFailed"]
        assert await say("AllOnEligibleNodes", "False") == []
        assert set(MISPLACED).isdisjoint(URGENCY)
        alarms.lost(WEB)


def test_every_reason_for_which_something_is_left_undone_is_counted_once_while_it_lasts() -> None:
    static = condition("Static")
    failed = Condition(type="Reconciled", status="False", reason="WriteFailed")
    scaling = Condition(type="Reconciled", status="False", reason="Scaling")
    assert status.skips([], [static, failed]) == ["Static", "WriteFailed"]
    assert status.skips([static], [static, failed]) == ["WriteFailed"]
    assert status.skips([], [scaling, condition("Transferring")]) == []


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


async def test_failed_rollout_between_two_controllers_alerts_once_and_names_who_is_paused(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        memory = MemoryAlerter()
        RolloutAlarms(Alerts(memory), there.informers.informer(ROLLINGUPDATE), lambda: True)
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
async def test_failed_rollout_is_over_when_it_goes_back_or_is_deleted(
    clock: Clock, rng: Stream, log: Logger, end: str
) -> None:
    async with world(clock, rng, log, kind=Sick) as there:
        memory = MemoryAlerter()
        RolloutAlarms(Alerts(memory), there.informers.informer(ROLLINGUPDATE), lambda: True)
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


async def test_refused_rollout_between_two_controllers_alerts_once_until_it_is_deleted(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Nothing is harmed, but what somebody asked for is not being done, and never will be."""
    async with world(clock, rng, log) as there:
        memory = MemoryAlerter()
        RolloutAlarms(Alerts(memory), there.informers.informer(ROLLINGUPDATE), lambda: True)
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
