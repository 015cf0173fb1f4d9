"""What a person must hear of a controller: once, from its owner, and that it is over."""

import msgspec
import pytest
from tests.unit.controllers.test_replication_transfer import label, moved, started
from tests.unit.controllers.test_rolling_update import begun, change, phase, roll
from tests.unit.controllers.test_rollout_service import Sick
from tests.unit.controllers.world import World, world

from grange.api.kinds import REPLICATIONCONTROLLER, ROLLINGUPDATE
from grange.api.meta import Condition, ObjectKey
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.replication import status
from grange.controllers.replication.alarms import HELD, MISPLACED, URGENCY, Alarms, RolloutAlarms
from grange.controllers.replication.controller import ReplicationService
from grange.reconcile.farm.alerts import Alerts, MemoryAlerter
from grange.reconcile.farm.notes import UNSURE_S, Notes
from grange.sim.machinepool import SimulatedPool

WEB = ObjectKey("default", "web")


async def test_a_short_controller_alerts_once_and_says_when_it_is_over(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Checks R2 and R4: one alert, however many passes; P2 raised it again in each."""
    async with world(clock, rng, log) as there:
        memory = MemoryAlerter()
        informer = there.informers.informer(REPLICATIONCONTROLLER)
        Alarms(Notes(Alerts(memory), clock), informer, lambda key: True, clock=clock)
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


async def test_shortage_of_nodes_alerts_only_after_it_has_lasted(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Nodes register and become Ready after their controllers start: that needs no person."""
    async with world(clock, rng, log) as there:
        memory = MemoryAlerter()
        informer = there.informers.informer(REPLICATIONCONTROLLER)
        alarms = Alarms(
            Notes(Alerts(memory), clock), informer, lambda key: True, held=HELD, clock=clock
        )
        there.nursery.start(alarms.run())
        await there.add_controller(replicas=1)
        there.start(ReplicationService(there.deps))
        await there.settle(5)
        assert (await there.said("InsufficientNodes")).status == "True"
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


async def test_the_owner_alerts_and_nobody_else(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        memory = MemoryAlerter()
        owned: set[ObjectKey] = set()
        informer = there.informers.informer(REPLICATIONCONTROLLER)
        notes = Notes(Alerts(memory), clock)
        alarms = Alarms(notes, informer, owned.__contains__, clock=clock)
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
        assert [what for what, _ in memory.history] == ["raised", "left"], "it is not over"
        alarms.gained(ObjectKey("default", "gone"))


class Teller:
    """One member's view of the controllers, and what people hear from it."""

    def __init__(self, there: World, clock: Clock, peers: "list[Teller]") -> None:
        self.owned: set[ObjectKey] = set()
        self.has_owned = False
        self.memory = MemoryAlerter()
        self.peers = peers
        peers.append(self)
        self.alarms = Alarms(
            Notes(Alerts(self.memory), clock, lambda: len(peers) > 1),
            there.informers.informer(REPLICATIONCONTROLLER),
            self.owned.__contains__,
            tended=lambda _: any(peer.has_owned for peer in peers if peer is not self),
            clock=clock,
        )

    def gain(self) -> None:
        self.has_owned = True
        self.owned.add(WEB)
        self.alarms.gained(WEB)

    def lose(self) -> None:
        self.owned.clear()
        self.alarms.lost(WEB)

    def crash(self) -> None:
        self.owned.clear()
        self.peers.remove(self)

    @property
    def said(self) -> list[str]:
        """What people hear: all but what passes between members."""
        return [what for what, _ in self.memory.history if what in {"raised", "resolved"}]


def owner_and_peer(there: World, clock: Clock) -> tuple[Teller, Teller]:
    """Two who know each other; the first owns the controller."""
    peers: list[Teller] = []
    one, two = Teller(there, clock, peers), Teller(there, clock, peers)
    one.gain()
    return one, two


async def short(there: World) -> None:
    await there.add_controller(replicas=1)
    there.start(ReplicationService(there.deps))
    await there.settle()


async def enough(there: World) -> None:
    await there.add_node("a")
    await there.until(lambda: there.ready(1))
    await there.settle()


@pytest.mark.parametrize("age_s", [1.0, UNSURE_S])
async def test_alert_that_changes_owners_is_raised_and_cleared_once(
    clock: Clock, rng: Stream, log: Logger, age_s: float
) -> None:
    async with world(clock, rng, log) as there:
        one, two = owner_and_peer(there, clock)
        await short(there)
        await there.settle(age_s)
        for claim in range(3):
            one.lose()
            two.gain()
            mark = {"metadata": {"annotations": {"claim": str(claim)}}}  # claims are written on it
            await there.client.patch(REPLICATIONCONTROLLER, "web", "default", patch=mark)
            await there.settle()
            one, two = two, one
        assert one.memory.active, "who owns it shows it"
        assert not two.memory.active
        await enough(there)
        assert sorted(one.said + two.said) == ["raised", "resolved"]


@pytest.mark.parametrize(("age_s", "said"), [(1.0, ["raised"]), (UNSURE_S, [])])
async def test_alert_begun_before_owner_died_alone_is_repeated(
    clock: Clock, rng: Stream, log: Logger, age_s: float, said: list[str]
) -> None:
    """Nobody knows what the dead had still to deliver; what is older people know of."""
    async with world(clock, rng, log) as there:
        one, two = owner_and_peer(there, clock)
        await short(there)
        await clock.sleep(age_s)
        one.crash()
        two.gain()
        assert two.said == said
        await enough(there)
        assert two.said == [*said, "resolved"], "nothing that was told is left standing"


@pytest.mark.parametrize("others", [True, False])
async def test_new_process_takes_old_alert_as_sent_if_sender_lived(
    clock: Clock, rng: Stream, log: Logger, *, others: bool
) -> None:
    async with world(clock, rng, log) as there:
        await short(there)
        await clock.sleep(UNSURE_S)
        peers: list[Teller] = []
        new = Teller(there, clock, peers)
        if others:
            Teller(there, clock, peers)
        await there.settle()
        new.gain()
        assert [alert.reason for alert in new.memory.active] == ["InsufficientNodes"]
        assert new.said == ([] if others else ["raised"])


@pytest.mark.parametrize("end", ["enough", "delete"])
async def test_what_ends_while_nobody_owns_it_is_told_to_be_over(
    clock: Clock, rng: Stream, log: Logger, end: str
) -> None:
    """The last owner wrote that it is over, and died before it could tell; or somebody deleted it."""
    async with world(clock, rng, log) as there:
        one, two = owner_and_peer(there, clock)
        await short(there)
        one.crash()
        if end == "enough":
            await enough(there)
            two.gain()
        else:
            await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
            await there.settle(30)
        assert two.said == ["resolved"]
        assert two.memory.active == []


async def test_deleted_controller_clears_its_alert_at_its_owner_only(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        one, two = owner_and_peer(there, clock)
        await short(there)
        await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
        await there.settle(30)
        assert (one.said, two.said) == (["raised", "resolved"], [])


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


async def test_only_immovable_pods_alert_each_under_its_own_name(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A transfer that goes its way is no trouble; one that is refused is another than one rolled back."""
    async with world(clock, rng, log, hands=False) as there:
        memory = MemoryAlerter()
        informer = there.informers.informer(REPLICATIONCONTROLLER)
        notes = Notes(Alerts(memory), clock)
        alarms = Alarms(notes, informer, lambda key: True, clock=clock)
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


@pytest.mark.parametrize("pool", [None, SimulatedPool([])], ids=["sick", "refused"])
async def test_a_pod_that_cannot_be_moved_is_told_of_until_it_is(
    pool: SimulatedPool | None, clock: Clock, rng: Stream, log: Logger
) -> None:
    """Trying again is no end of the trouble, whatever each attempt fails of."""
    async with world(clock, rng, log) as there:
        memory = MemoryAlerter()
        informer = there.informers.informer(REPLICATIONCONTROLLER)
        Alarms(Notes(Alerts(memory), clock), informer, lambda key: True, clock=clock)
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


def test_each_reason_for_undone_work_is_counted_once() -> None:
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


def told_of_rollouts(there: World) -> MemoryAlerter:
    """What becomes of rollouts between two controllers from now on."""
    memory = MemoryAlerter()
    informer, clock = there.informers.informer(ROLLINGUPDATE), there.clock
    RolloutAlarms(Notes(Alerts(memory), clock), informer, lambda: True, clock=clock)
    return memory


async def test_failed_rollout_of_two_alerts_once_and_names_the_paused(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        memory = told_of_rollouts(there)
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
        memory = told_of_rollouts(there)
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


async def test_rollout_that_goes_back_by_policy_alerts_as_well(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Nobody asked for it: what somebody wanted is not there, and nobody has looked at why."""
    async with world(clock, rng, log, kind=Sick) as there:
        memory = told_of_rollouts(there)
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


async def test_refused_rollout_of_two_alerts_once_until_deleted(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Nothing is harmed, but what somebody asked for is not being done, and never will be."""
    async with world(clock, rng, log) as there:
        memory = told_of_rollouts(there)
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
