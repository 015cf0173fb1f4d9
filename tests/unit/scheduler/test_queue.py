"""The scheduling queue: checks 97 to 103 of spec/scheduling.md §4, and what else it promises."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.scheduler_cluster import PROFILE, pool_of

from grange.scheduler import plugins
from grange.scheduler.clusterevents import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    LEFTOVER,
    NODE_ADD,
    Action,
    ClusterEvent,
    Object,
    Registration,
    Subject,
    node_update,
    pod_update,
)
from grange.scheduler.framework import Plugin, Profile
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.queued_pods import QueuedPod, QueueSettings, SubQueue
from grange.sim import builders

FIT = frozenset({"NodeResourcesFit"})
NO_EARLY = QueueSettings(early_per_s=0)


def info(name: str, priority: int = 0, **options: Any) -> PodInfo:
    found = PodInfo.of(builders.pod(name, priority=priority, **options))
    PROFILE.sign(found)
    return found


def popped(queue: SchedulingQueue, now: float) -> QueuedPod:
    found = queue.pop(now)
    assert found is not None
    return found


def names(queue: SchedulingQueue, now: float) -> list[str]:
    found = []
    while (pod := queue.pop(now)) is not None:
        found.append(pod.info.pod.metadata.name)
        queue.done(pod)
    return found


def test_priority_first_then_who_waited_longer() -> None:
    queue = SchedulingQueue(PROFILE)
    for at, (name, priority) in enumerate([("late", 0), ("later", 0), ("urgent", 9)]):
        queue.add(info(name, priority), now=float(at))
    assert names(queue, now=5.0) == ["urgent", "late", "later"]


def test_check_97_backoff_doubles_to_its_maximum() -> None:
    """1, 2, 4, 8, 10, 10 seconds from each return, then to the end of the second in which they end.

    Who returns at a full second waits that one second more.
    """
    queue = SchedulingQueue(PROFILE, NO_EARLY)
    queue.add(info("p"), now=0.0)
    now, waits = 0.0, []
    for _ in range(6):
        queue.mark_unschedulable(popped(queue, now), FIT, now)
        queue.move(ASSIGNED_POD_DELETE, now)
        start = now
        while pool_of(queue, "uid-p") is not SubQueue.ACTIVE:
            deadline = queue.next_deadline(now)
            assert deadline is not None
            assert deadline > now
            now = deadline
            queue.flush(now)
        waits.append(now - start)
    assert waits == [2.0, 3.0, 5.0, 9.0, 11.0, 11.0]


def test_check_97_errors_have_their_own_count_reset_by_rejection() -> None:
    queue = SchedulingQueue(PROFILE, NO_EARLY)
    queue.add(info("p"), now=0.0)
    pod = popped(queue, 0.0)
    queue.mark_unschedulable(pod, FIT, 0.0)
    queue.move(LEFTOVER, 100.0)
    for expected in (1, 2, 3):
        queue.flush(100.0 * expected)
        pod = popped(queue, 100.0 * expected)
        queue.fail(pod, 100.0 * expected)
        assert (pod.errors, pod.unschedulable_count) == (expected, 1)
        assert pod.pool is SubQueue.ERROR_BACKOFF
    queue.flush(1000.0)
    queue.mark_unschedulable(popped(queue, 1000.0), FIT, 1000.0)
    assert (pod.errors, pod.unschedulable_count) == (0, 2)


def test_check_97_without_backoff_nothing_waits() -> None:
    queue = SchedulingQueue(PROFILE, replace(NO_EARLY, backoff_max_s=0.0))
    queue.add(info("p"), now=0.0)
    queue.mark_unschedulable(popped(queue, 0.0), FIT, 0.0)
    queue.move(LEFTOVER, 0.0)
    assert pool_of(queue, "uid-p") is SubQueue.ACTIVE


def test_check_98_a_retry_goes_behind_newer_pods_of_its_priority() -> None:
    queue = SchedulingQueue(PROFILE, NO_EARLY)
    queue.add(info("first"), now=0.0)
    pod = popped(queue, 0.0)
    queue.add(info("second"), now=1.0)
    queue.mark_unschedulable(pod, FIT, now=2.0)
    queue.move(LEFTOVER, now=9.0)
    assert names(queue, now=9.0) == ["second", "first"]


def test_check_98_a_failing_urgent_pod_does_not_starve_others() -> None:
    queue = SchedulingQueue(PROFILE, NO_EARLY)
    queue.add(info("urgent", 100), now=0.0)
    queue.add(info("other"), now=0.0)
    queue.mark_unschedulable(popped(queue, 0.0), FIT, 0.0)
    queue.move(ASSIGNED_POD_DELETE, 0.1)
    assert popped(queue, 0.2).info.pod.metadata.name == "other"


def test_check_99_an_event_during_the_flight_prevents_parking() -> None:
    queue = SchedulingQueue(PROFILE, NO_EARLY)
    queue.add(info("p"), now=0.0)
    pod = popped(queue, 0.0)
    queue.move(ASSIGNED_POD_DELETE, 0.0)
    queue.mark_unschedulable(pod, FIT, 0.0)
    assert pod.pool is SubQueue.BACKOFF


def test_check_99_an_irrelevant_event_does_not() -> None:
    queue = SchedulingQueue(PROFILE, NO_EARLY)
    queue.add(info("p"), now=0.0)
    pod = popped(queue, 0.0)
    queue.move(ASSIGNED_POD_ADD, 0.0)
    queue.mark_unschedulable(pod, FIT, 0.0)
    assert pod.pool is SubQueue.UNSCHEDULABLE


def test_check_99_only_events_after_the_own_departure_count() -> None:
    queue = SchedulingQueue(PROFILE, NO_EARLY)
    for name in ("early", "late"):
        queue.add(info(name), now=0.0)
    early = popped(queue, 0.0)
    queue.move(ASSIGNED_POD_DELETE, 0.0)
    late = popped(queue, 0.0)
    queue.mark_unschedulable(late, FIT, 0.0)
    assert late.pool is SubQueue.UNSCHEDULABLE
    queue.mark_unschedulable(early, FIT, 0.0)
    assert early.pool is SubQueue.BACKOFF


def test_the_log_of_events_is_forgotten_with_the_last_flight() -> None:
    queue = SchedulingQueue(PROFILE)
    for number in range(3):
        queue.add(info(f"p{number}"), now=0.0)
    flights = [popped(queue, 0.0) for _ in range(3)]
    for _ in range(50):
        queue.move(NODE_ADD, 0.0)
    for pod in flights:
        queue.done(pod)
    assert len(queue._in_flight) == 0


BIG, SMALL = builders.node("big", capacity={"cpu": 8, "pods": 9}), builders.node("small")


@pytest.mark.parametrize(
    ("rejector", "event", "before", "after", "moves"),
    [
        ("NodeResourcesFit", NODE_ADD, None, BIG, True),
        ("NodeResourcesFit", NODE_ADD, None, SMALL, False),
        ("NodeResourcesFit", node_update(SMALL, BIG), SMALL, BIG, True),
        ("NodeResourcesFit", ASSIGNED_POD_DELETE, None, None, True),
        ("NodeResourcesFit", ASSIGNED_POD_ADD, None, None, False),
        ("NodeAffinity", NODE_ADD, None, builders.node("a", labels={"disk": "ssd"}), True),
        ("NodeAffinity", NODE_ADD, None, builders.node("a"), False),
        ("NodeAffinity", ASSIGNED_POD_DELETE, None, None, False),
        ("TaintToleration", NODE_ADD, None, builders.node("a"), True),
        (
            "TaintToleration",
            NODE_ADD,
            None,
            builders.node("a", taints=[{"key": "k", "effect": "NoSchedule"}]),
            False,
        ),
        ("NodeUnschedulable", NODE_ADD, None, builders.node("a", unschedulable=True), False),
        ("NodeUnschedulable", NODE_ADD, None, builders.node("a"), True),
        ("NodePorts", ASSIGNED_POD_DELETE, builders.pod("x", host_ports=[80]), None, True),
        ("NodePorts", ASSIGNED_POD_DELETE, builders.pod("x", host_ports=[81]), None, False),
    ],
)
def test_check_100_hints_decide_who_stays(
    rejector: str, event: ClusterEvent | None, before: Object, after: Object, *, moves: bool
) -> None:
    """A pod that needs 6 CPUs, an ssd and port 80, by the plugin that rejected it."""
    assert event is not None
    queue = SchedulingQueue(PROFILE, NO_EARLY)
    options: dict[str, Any] = {
        "requests": {"cpu": 6},
        "host_ports": [80],
        "nodeSelector": {"disk": "ssd"},
    }
    queue.add(info("p", **options), now=0.0)
    queue.mark_unschedulable(popped(queue, 0.0), frozenset({rejector}), 0.0)
    assert queue.move(event, 0.0, before, after) == int(moves)
    assert pool_of(queue, "uid-p") is (SubQueue.BACKOFF if moves else SubQueue.UNSCHEDULABLE)


def test_check_100_a_pending_plugin_skips_the_backoff() -> None:
    waits = Plugin("Waits", events=(Registration(ClusterEvent(Subject.NODE, Action.ADD)),))
    queue = SchedulingQueue(Profile([*plugins.DEFAULT, waits]), NO_EARLY)
    queue.add(info("p"), now=0.0)
    pod = popped(queue, 0.0)
    queue.mark_unschedulable(pod, frozenset({"Waits"}), 0.0, pending=True)
    queue.move(NODE_ADD, 0.0)
    assert pod.pool is SubQueue.ACTIVE


def test_check_100_one_answer_serves_all_pods_of_a_class() -> None:
    """A crowd of equal pods must not cost a hint each for every event."""
    asked = []

    def hint(pod: PodInfo, before: Object, after: Object) -> bool:
        asked.append(pod.uid)
        return False

    once = Plugin(
        "Counts",
        signature=lambda pod: 0,
        events=(Registration(ClusterEvent(Subject.NODE, Action.ADD), hint),),
    )
    queue = SchedulingQueue(Profile([*plugins.DEFAULT, once]))
    for number in range(100):
        queue.add(info(f"p{number}"), now=0.0)
        queue.mark_unschedulable(popped(queue, 0.0), frozenset({"Counts"}), 0.0)
    queue.move(NODE_ADD, 0.0)
    assert len(asked) == 1


GATED: dict[str, Any] = {"schedulingGates": [{"name": "quota"}]}


def test_check_101_a_gated_pod_ignores_unrelated_events() -> None:
    queue = SchedulingQueue(PROFILE)
    queue.add(info("p", **GATED), now=0.0)
    assert queue.statistics().gated == 1
    assert queue.pop(0.0) is None
    for event in (NODE_ADD, ASSIGNED_POD_DELETE):
        assert queue.move(event, 0.0) == 0
    assert queue.move(LEFTOVER, 0.0) == 0
    assert pool_of(queue, "uid-p") is SubQueue.UNSCHEDULABLE


def test_check_101_removing_the_gates_lets_the_pod_in() -> None:
    queue = SchedulingQueue(PROFILE)
    before, after = info("p", **GATED), info("p")
    queue.add(before, now=0.0)
    event = pod_update(before, after, Subject.UNSCHEDULED_POD)
    assert event is not None
    queue.update(after, event, now=1.0)
    assert names(queue, 1.0) == ["p"]


def test_check_102_leftovers_are_tried_again() -> None:
    queue = SchedulingQueue(PROFILE, NO_EARLY)
    queue.add(info("p"), now=0.0)
    queue.flush(0.0)
    queue.mark_unschedulable(popped(queue, 0.0), FIT, 0.0)
    queue.flush(300.0)
    assert pool_of(queue, "uid-p") is SubQueue.UNSCHEDULABLE
    queue.flush(330.5)
    assert pool_of(queue, "uid-p") is SubQueue.ACTIVE


def test_check_103_activating_a_pod_in_flight_brings_it_back() -> None:
    queue = SchedulingQueue(PROFILE, NO_EARLY)
    queue.add(info("p"), now=0.0)
    pod = popped(queue, 0.0)
    queue.activate([pod.uid], 0.0)
    queue.mark_unschedulable(pod, frozenset({"Deaf"}), 0.0)
    assert pool_of(queue, pod.uid) is SubQueue.BACKOFF
    queue.activate([pod.uid, "absent"], 0.0)
    assert pool_of(queue, pod.uid) is SubQueue.ACTIVE


def test_idle_time_is_not_spent_in_backoff() -> None:
    """With nothing else to do a pod that an event called is tried at once, within the limit."""
    queue = SchedulingQueue(PROFILE, QueueSettings(early_per_s=2))
    for number in range(3):
        queue.add(info(f"p{number}"), now=0.0)
    for _ in range(3):
        queue.mark_unschedulable(popped(queue, 0.0), FIT, 0.0)
    queue.move(ASSIGNED_POD_DELETE, 0.5)
    assert names(queue, 0.5) == ["p0", "p1"]
    assert queue.next_deadline(0.5) == 1.0
    assert names(queue, 1.0) == ["p2"]


def test_pods_in_error_backoff_are_not_taken_early() -> None:
    queue = SchedulingQueue(PROFILE)
    queue.add(info("p"), now=0.0)
    queue.fail(popped(queue, 0.0), 0.0)
    assert queue.pop(0.0) is None


def test_a_deleted_pod_is_nowhere_whatever_pool_it_was_in() -> None:
    queue = SchedulingQueue(PROFILE, NO_EARLY)
    for name in ("flying", "parked", "backoff", "failed"):
        queue.add(info(name), now=0.0)
    flying, parked, backoff, failed = (popped(queue, 0.0) for _ in range(4))
    queue.mark_unschedulable(parked, frozenset({"Deaf"}), 0.0)
    queue.mark_unschedulable(backoff, FIT, 0.0)
    queue.move(ASSIGNED_POD_DELETE, 0.0)
    queue.fail(failed, 0.0)
    queue.add(info("active"), now=0.0)
    for name in ("flying", "parked", "backoff", "failed", "active", "absent"):
        queue.delete(f"uid-{name}")
    queue.mark_unschedulable(flying, FIT, 0.0)
    queue.flush(1000.0)
    assert queue.pop(1000.0) is None
    assert len(queue) == 0
    counts = queue.statistics()
    assert (counts.active, counts.backoff, counts.unschedulable, counts.in_flight) == (0,) * 4


def test_a_pod_added_twice_is_queued_once() -> None:
    queue = SchedulingQueue(PROFILE)
    queue.add(info("p"), now=0.0)
    queue.add(info("p"), now=1.0)
    assert names(queue, 1.0) == ["p"]


def test_a_changed_pod_in_the_active_queue_is_tried_as_it_is_now() -> None:
    queue = SchedulingQueue(PROFILE)
    queue.add(info("p"), now=0.0)
    queue.add(info("q"), now=1.0)
    newer = info("p", requests={"cpu": 3})
    queue.update(newer, None, now=2.0)
    assert popped(queue, 2.0).info is newer


def test_a_binding_that_failed_comes_back_with_its_history() -> None:
    queue = SchedulingQueue(PROFILE, NO_EARLY)
    queue.add(info("p"), now=0.0)
    pod = popped(queue, 0.0)
    queue.done(pod)
    assert "uid-p" not in queue
    queue.requeue(pod.info, 1.0, tried=pod)
    assert pool_of(queue, "uid-p") is SubQueue.ERROR_BACKOFF
    queue.flush(10.0)
    assert popped(queue, 10.0).attempts == 2


def test_a_rejection_without_a_plugin_counts_as_an_error() -> None:
    queue = SchedulingQueue(PROFILE)
    queue.add(info("p"), now=0.0)
    pod = popped(queue, 0.0)
    queue.mark_unschedulable(pod, frozenset(), 0.0)
    assert pod.pool is SubQueue.ERROR_BACKOFF


def test_a_heartbeat_is_no_event() -> None:
    assert node_update(SMALL, builders.node("small")) is None
    assert pod_update(info("p"), info("p"), Subject.ASSIGNED_POD) is None


def test_a_pod_that_asks_for_less_is_an_event() -> None:
    old = info("p", requests={"cpu": 2})
    new = info("p", requests={"cpu": 1})
    event = pod_update(old, new, Subject.ASSIGNED_POD)
    assert event is not None
    assert event.action == Action.POD_SCALE_DOWN


def test_activation_keeps_the_place_of_an_active_pod() -> None:
    queue = SchedulingQueue(PROFILE)
    queue.add(info("first"), now=0.0)
    queue.add(info("second"), now=1.0)
    queue.activate(["uid-first"], 2.0)
    assert names(queue, 2.0) == ["first", "second"]


def test_leftovers_are_requeued_at_the_deadline() -> None:
    """A flush at the deadline does its work: the next deadline is later, not the same again."""
    queue = SchedulingQueue(PROFILE, replace(NO_EARLY, leftover_s=5.0, leftover_check_s=30.0))
    queue.add(info("p"), now=0.0)
    queue.flush(0.0)
    queue.mark_unschedulable(popped(queue, 0.0), FIT, 0.0)
    assert queue.next_deadline(0.0) == 30.0
    queue.flush(30.0)
    assert pool_of(queue, "uid-p") is SubQueue.ACTIVE


def test_unsigned_pods_each_get_their_own_hint() -> None:
    """Without a signature the answer for one pod does not hold for the next."""

    def hint(pod: PodInfo, before: Object, after: Object) -> bool:
        return pod.uid == "uid-second"

    unsigned = Plugin(
        "Unsigned", events=(Registration(ClusterEvent(Subject.NODE, Action.ADD), hint),)
    )
    queue = SchedulingQueue(Profile([*plugins.DEFAULT, unsigned]), NO_EARLY)
    for name in ("first", "second"):
        queue.add(info(name), now=0.0)
        queue.mark_unschedulable(popped(queue, 0.0), frozenset({"Unsigned"}), 0.0)
    assert queue.move(NODE_ADD, 0.0) == 1
    assert pool_of(queue, "uid-first") is SubQueue.UNSCHEDULABLE
    assert pool_of(queue, "uid-second") is SubQueue.BACKOFF


def test_ungated_pod_that_never_failed_has_no_backoff() -> None:
    queue = SchedulingQueue(PROFILE, NO_EARLY)
    before, after = info("p", **GATED), info("p")
    queue.add(before, now=0.0)
    event = pod_update(before, after, Subject.UNSCHEDULED_POD)
    queue.update(after, event, now=0.0)
    assert pool_of(queue, "uid-p") is SubQueue.ACTIVE


def test_statistics_of_a_pod_deleted_and_added_in_flight() -> None:
    queue = SchedulingQueue(PROFILE)
    queue.add(info("p"), now=0.0)
    popped(queue, 0.0)
    queue.delete("uid-p")
    counts = queue.statistics()
    assert (counts.active, counts.in_flight) == (0, 0)
    assert "uid-p" not in queue
    queue.add(info("p"), now=1.0)
    assert "uid-p" in queue
    counts = queue.statistics()
    assert (counts.active, counts.in_flight) == (1, 0)


def test_shelving_moves_only_pods_that_wait() -> None:
    queue = SchedulingQueue(PROFILE, NO_EARLY)
    for name in ("flying", "active", "parked"):
        queue.add(info(name), now=0.0)
    queue.add(info("gated", **GATED), now=0.0)
    flying, active, parked = (popped(queue, 0.0) for _ in range(3))
    queue.mark_unschedulable(parked, FIT, 0.0)
    queue.fail(active, 0.0)
    queue.activate([active.uid], 0.0)
    gate = queue.find("uid-gated")
    assert gate is not None
    rejectors = gate.rejectors
    for name in ("flying", "active", "parked", "gated", "absent"):
        queue.park(f"uid-{name}", frozenset({"Quota"}), 7.0)
    assert flying.pool is SubQueue.IN_FLIGHT
    for pod in (active, parked):
        assert (pod.pool, pod.rejectors) == (SubQueue.UNSCHEDULABLE, frozenset({"Quota"}))
    assert gate.rejectors == rejectors
    counts = queue.statistics()
    assert (counts.active, counts.backoff, counts.unschedulable, counts.gated) == (0, 0, 3, 1)
    queue.park(active.uid, frozenset({"Quota"}), 9.0)
    assert active.timestamp == 7.0


def test_due_is_when_a_pod_is_tried_at_the_latest() -> None:
    queue = SchedulingQueue(PROFILE, replace(NO_EARLY, leftover_s=300.0))
    for name in ("parked", "failed", "active"):
        queue.add(info(name), now=0.0)
    queue.add(info("gated", **GATED), now=0.0)
    parked, failed = popped(queue, 0.0), popped(queue, 0.0)
    assert queue.due(parked) is None
    queue.mark_unschedulable(parked, FIT, 7.0)
    queue.fail(failed, 7.25)
    due = {pod.info.pod.metadata.name: queue.due(pod) for pod in queue.waiting()}
    assert due == {"parked": 307.0, "failed": 9.0, "active": None, "gated": None}
    queue.move(LEFTOVER, 7.5)
    assert queue.due(parked) == 9.0
    queue.flush(8.99)
    assert pool_of(queue, "uid-failed") is SubQueue.ERROR_BACKOFF
    queue.flush(9.0)
    assert pool_of(queue, "uid-failed") is SubQueue.ACTIVE
