"""Pods that wait for a Permit plugin's word: held, allowed, rejected, and never forgotten."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from tests.support.scheduler_world import World, world

from grange.api.kinds import EVENT, NODE, POD
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.scheduler import plugins
from grange.scheduler.clusterevents import Action, ClusterEvent, Registration, Subject
from grange.scheduler.framework import SUCCESS, Code, CycleState, Plugin, Profile, Status
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queued_pods import QueueSettings
from grange.scheduler.service import Scheduler, SchedulerConfig
from grange.scheduler.waiting_pods import WAIT_MAX_S, Refused, WaitingPods

SMALL = {"cpu": "1", "memory": "1Gi", "pods": "10"}


@dataclass(frozen=True)
class Item:
    uid: str


def uids(items: list[Item]) -> list[str]:
    return [item.uid for item in items]


# --- the waiting room ---------------------------------------------------------------------------


def test_a_pod_goes_on_when_the_last_plugin_allows_it() -> None:
    calls: list[int] = []
    permits: WaitingPods[Item] = WaitingPods(lambda: calls.append(1))
    permits.hold([Item("a")], {"a": {"x": 5.0, "y": 9.0}}, 0.0)
    assert permits.waiting_for("a") == ("x", "y")
    permits.allow("a", "x")
    permits.allow("a", "x")  # again
    permits.allow("a", "absent")
    permits.allow("b", "y")  # not held
    assert permits.collect_released() == []
    assert not calls
    permits.allow("a", "y")
    assert calls == [1]
    assert uids(permits.collect_released()) == ["a"]
    assert permits.collect_released() == []
    assert "a" not in permits
    assert permits.waiting_for("a") == ()


def test_114_the_shortest_timer_rejects() -> None:
    permits: WaitingPods[Item] = WaitingPods()
    permits.hold([Item("a")], {"a": {"x": 5.0, "y": 2.0}}, 100.0)
    assert permits.next_deadline() == 102.0
    permits.expire(101.9)
    assert "a" in permits
    permits.expire(102.0)
    [refused] = permits.collect_refused()
    assert refused == Refused((Item("a"),), "a", "y", "y did not permit the pod in time")
    assert permits.next_deadline() is None


def test_114_no_timer_is_longer_than_a_quarter_of_an_hour() -> None:
    permits: WaitingPods[Item] = WaitingPods()
    permits.hold([Item("a")], {"a": {"x": 10_000.0}}, 0.0)
    permits.hold([Item("b")], {"b": {"x": 0.0}}, 50.0)
    assert permits.next_deadline() == WAIT_MAX_S == 900.0
    permits.expire(900.0)
    assert [item.uid for item in permits.collect_refused()] == ["a"]
    assert permits.next_deadline() == 950.0


def test_114_an_allowed_plugin_no_longer_rejects_by_time() -> None:
    permits: WaitingPods[Item] = WaitingPods()
    permits.hold([Item("a")], {"a": {"x": 1.0, "y": 20.0}}, 0.0)
    permits.allow("a", "x")
    permits.expire(19.0)
    assert permits.waiting_for("a") == ("y",)


def test_pods_placed_together_go_on_together_or_not_at_all() -> None:
    permits: WaitingPods[Item] = WaitingPods()
    both = [Item("a"), Item("b"), Item("c")]
    permits.hold(both, {"a": {"x": 5.0}, "b": {"x": 5.0}}, 0.0)
    permits.allow("a", "x")
    assert permits.collect_released() == []
    permits.allow("b", "x")
    assert uids(permits.collect_released()) == ["a", "b", "c"]
    permits.hold(both, {"a": {"x": 5.0}}, 0.0)
    permits.reject("c", "z", "no")
    [refused] = permits.collect_refused()
    assert (refused.pods, refused.uid, refused.reason) == (tuple(both), "c", "no")
    assert len(permits) == 0


def test_held_pods_are_listed_in_the_order_of_arrival() -> None:
    permits: WaitingPods[Item] = WaitingPods()
    permits.hold([Item("b")], {"b": {"x": 1.0}}, 0.0)
    permits.hold([Item("a"), Item("c")], {"a": {"x": 1.0}}, 0.0)
    assert [item.uid for item in permits.held()] == ["b", "a", "c"]
    permits.clear()
    assert permits.held() == ()


# --- in the service -------------------------------------------------------------------------------


@dataclass
class Gatekeeper:
    """Answers WAIT and remembers whom to call; keeps a book of reservations."""

    wait_s: float = 30.0
    permits: WaitingPods[Item] | None = None
    asked: list[str] = field(default_factory=list)
    booked: list[str] = field(default_factory=list)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self.permits = state.read(WaitingPods)
        self.asked.append(pod.uid)
        return Status(Code.WAIT, wait_s=self.wait_s)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self.booked.append(pod.uid)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        if pod.uid in self.booked:
            self.booked.remove(pod.uid)

    def profile(self) -> Profile:
        mine = Plugin("Gatekeeper", permit=self, reserve=self)
        return Profile((*plugins.DEFAULT, mine))


async def held(made: World, gate: Gatekeeper) -> Scheduler:
    await made.add_nodes("n", capacity=SMALL)
    scheduler = await made.start_scheduler(profile=gate.profile())
    await made.add_pods("a", requests={"cpu": "1"})
    await made.settle()
    assert scheduler.cache.assumed_count == 1
    assert (await made.pods())["a"] == ""
    return scheduler


async def test_a_held_pod_keeps_its_place_until_it_is_allowed(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        gate = Gatekeeper()
        scheduler = await held(made, gate)
        await made.add_pods("b", requests={"cpu": "1"})
        await made.settle()
        assert await made.message("b") == (
            "0/1 nodes are available: 1 Insufficient cpu."
            " preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
        )
        assert gate.permits is not None
        gate.permits.allow(gate.asked[0], "Gatekeeper")
        await made.settle()
        assert await made.pods() == {"a": "n", "b": ""}
        assert scheduler.cache.assumed_count == 0


async def test_114_a_timeout_takes_everything_back_and_tries_again(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        gate = Gatekeeper(wait_s=10.0)
        scheduler = await held(made, gate)
        uid = gate.asked[0]
        await made.until(_asked(gate, 2))
        await made.settle(1.0)
        assert await made.message("a") == (
            "0/1 nodes are available: Gatekeeper did not permit the pod in time."
        )
        assert gate.booked == [uid]  # of the second try
        assert scheduler.cache.assumed_count == 1


def _asked(gate: Gatekeeper, times: int) -> Callable[[], Awaitable[bool]]:
    async def enough() -> bool:
        return len(gate.asked) >= times

    return enough


@pytest.mark.parametrize("how", ["rejected", "deleted"])
async def test_114_a_rejected_or_deleted_pod_frees_its_place(
    clock: Clock, rng: Stream, log: Logger, how: str
) -> None:
    """The pod behind it is placed at once, and the books are empty again."""
    async with world(clock, rng, log) as made:
        gate = Gatekeeper(wait_s=600.0)
        scheduler = await held(made, gate)
        await made.add_pods("b", requests={"cpu": "1"})
        await made.settle()
        assert gate.permits is not None
        if how == "rejected":
            gate.permits.reject(gate.asked[0], "Gatekeeper", "not today")
        else:
            await made.delete("a")
        await made.settle(0.5)
        assert gate.booked == gate.asked[1:]
        assert len(gate.asked) == 2
        assert scheduler.cache.assumed_count == 1
        if how == "rejected":
            events = await made.client.list(EVENT, "default")
            assert "0/1 nodes are available: not today." in [item.message for item in events.items]


async def test_a_pod_bound_by_another_client_is_not_held_any_more(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        gate = Gatekeeper(wait_s=600.0)
        scheduler = await held(made, gate)
        await made.add_nodes("m", capacity=SMALL)
        target = {"apiVersion": "v1", "kind": "Node", "name": "m"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}}
        await made.client.post(POD, "a", "default", "binding", {**binding, "target": target})
        await made.settle()
        assert len(scheduler.cycle.waiting_pods) == 0
        assert gate.booked == []
        assert scheduler.cache.assumed_count == 0
        entry = scheduler.cache.node_info("n")
        assert entry is not None
        assert not entry.pods


async def test_held_pods_survive_a_cache_that_is_rebuilt(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        gate = Gatekeeper(wait_s=600.0)
        scheduler = await held(made, gate)
        scheduler._handlers.rebuild()
        await made.settle()
        assert scheduler.cache.assumed_count == 1
        assert len(gate.asked) == 1
        assert gate.permits is not None
        gate.permits.allow(gate.asked[0], "Gatekeeper")
        await made.settle()
        assert (await made.pods())["a"] == "n"


class _Awaits:
    """Reserves a node that is made ready somewhere else, which is known when it has a label."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.is_ready = False

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return SUCCESS if self.is_ready else Status(self.code, ("is made ready",))

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass


@pytest.mark.parametrize(("code", "node"), [(Code.PENDING, "a"), (Code.UNSCHEDULABLE, "")])
async def test_check_100_who_is_pending_waits_for_no_backoff(
    clock: Clock, rng: Stream, log: Logger, code: Code, node: str
) -> None:
    async with world(clock, rng, log) as made:
        awaits = _Awaits(code)
        labelled = ClusterEvent(Subject.NODE, Action.NODE_LABEL)
        plugin = Plugin("Awaits", reserve=awaits, events=(Registration(labelled),))
        await made.add_nodes("a", capacity=SMALL)
        config = SchedulerConfig(queue=QueueSettings(early_per_s=0))
        await made.start_scheduler(config, profile=Profile([*plugins.DEFAULT, plugin]))
        await made.add_pods("p", requests={"cpu": "1"})
        await made.settle(0.1)
        assert await made.message("p") == "0/1 nodes are available: is made ready."
        awaits.is_ready = True
        await made.client.patch(NODE, "a", patch={"metadata": {"labels": {"ready": "yes"}}})
        await made.settle(0.1)
        assert (await made.pods())["p"] == node
