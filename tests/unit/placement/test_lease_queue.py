"""The queue of machine leases: the checks Q1 to Q6, policies, messages, and how much work it does."""

from typing import Any

import pytest

from grange.api.kinds.leasepolicy import BACKFILL, FIRST_FIT, STRICT, LeasePolicySpec
from grange.placement.lease_model import GrantedLease, MachineCounts, WaitingLease
from grange.placement.lease_outlook import LeaseOutlook, outlooks
from grange.placement.lease_queue import LeaseQueue
from grange.placement.machine_table import MachineTable, PoolMachine

NOW = 1_000.0
ENDLESS = 10**6


def request(
    uid: str, need: int | dict[str, int], namespace: str = "ns", **fields: Any
) -> WaitingLease:
    machines = {"w": need} if isinstance(need, int) else need
    fields.setdefault("created", NOW)
    return WaitingLease(uid, namespace, tuple(machines.items()), **fields)


class Queue(LeaseQueue):
    """A queue whose pools lose and gain machines as leases are granted and end."""

    def __init__(self, pools: dict[str, int] | int, **policy: Any) -> None:
        super().__init__(LeasePolicySpec(**policy))
        machines = {"w": pools} if isinstance(pools, int) else pools
        for name, count in machines.items():
            self.set_pool(name, MachineCounts(count, count, count))

    def add(self, *requests: WaitingLease) -> None:
        for one in requests:
            self.put(one)

    def grant(self, now: float = NOW) -> list[str]:
        """Grant what can be granted; uids in order."""
        granted = self.decide(now).granted
        for one in granted:
            self.begin(one, now)
        return [one.uid for one in granted]

    def begin(self, one: WaitingLease, now: float = NOW) -> None:
        self._change(one.need, -1)
        self.hold(
            GrantedLease(
                one.uid, one.namespace, one.need, one.semaphores, now, one.expected_s, one.holder
            )
        )

    def end(self, uid: str) -> None:
        self._change(self.granted[uid].held, 1)
        self.remove(uid)

    def _change(self, machines: tuple[tuple[str, int], ...], sign: int) -> None:
        for pool, count in machines:
            was = self.pools[pool]
            self.set_pool(pool, MachineCounts(was.free + sign * count, was.usable, was.total))

    def outlook(self, uid: str, now: float = NOW) -> LeaseOutlook:
        return next(found for found in outlooks(self, now) if found.request.uid == uid)

    def why(self, uid: str, now: float = NOW) -> tuple[str, str]:
        found = self.outlook(uid, now)
        return found.reason, found.message


def test_q1_all_that_wait_are_counted() -> None:
    queue = Queue(0)
    queue.add(request("a", 1), request("b", 1), request("c", {"w": 1, "v": 1}))
    assert queue.queue_length() == {"w": 3, "v": 1}
    queue.remove("b")
    assert queue.queue_length() == {"w": 2, "v": 1}


def test_q2_q3_leases_are_granted_in_order() -> None:
    queue = Queue(ENDLESS)
    names = [f"s{number}" for number in range(20)]
    queue.add(*(request(name, 1 + number % 3) for number, name in enumerate(names)))
    assert [found.request.uid for found in outlooks(queue, NOW)] == names
    assert queue.grant() == names


def test_q4_a_head_that_does_not_fit_is_passed() -> None:
    queue = Queue(5)
    queue.begin(request("held", 2))
    queue.add(request("five", 5), request("three", 3), request("one", 1))
    assert queue.grant() == ["three"]
    assert queue.why("five")[0] == queue.why("one")[0] == "PoolAvailability"


def test_q5_an_empty_queue_grants_nothing() -> None:
    assert Queue(5).grant() == []


def test_q6_what_ends_makes_room_for_the_next() -> None:
    queue = Queue(7)
    queue.add(request("five", 5), request("four", 4), request("two", 2))
    assert queue.grant() == ["five", "two"]
    queue.end("five")
    queue.end("two")
    assert queue.grant() == ["four"]


def test_a_lease_that_is_changed_keeps_its_place() -> None:
    queue = Queue(1)
    queue.add(request("a", 1), request("b", 1))
    queue.add(request("a", 1, expected_s=5.0))
    assert queue.grant() == ["a"]


# --- order ---------------------------------------------------------------------------------------


def test_higher_priorities_go_first() -> None:
    queue = Queue(1)
    queue.add(request("low", 1), request("high", 1, priority=1))
    assert queue.grant() == ["high"]


def test_the_lowest_weighted_share_goes_first() -> None:
    queue = Queue(6, namespace_weights={"b": 2})
    queue.add(*(request(f"a{n}", 1, "a") for n in range(6)))
    queue.add(*(request(f"b{n}", 1, "b") for n in range(6)))
    assert queue.grant() == ["a0", "b0", "b1", "a1", "b2", "b3"]


def test_the_share_counts_machines_of_all_pools() -> None:
    queue = Queue({"v": 9, "w": 1})
    queue.begin(request("holds", {"v": 8}, "a"))
    queue.add(request("a", {"w": 1}, "a"), request("b", {"w": 1}, "b"))
    assert queue.grant() == ["b"]


def test_a_lease_that_waited_for_long_goes_before_shares() -> None:
    queue = Queue(1, aging_seconds=100)
    queue.add(request("old", 1, "a", created=NOW - 100), request("new", 1, "b"))
    queue.hold(GrantedLease("mine", "a", (("w", 3),)))
    assert queue.grant() == ["old"]


# --- passing -------------------------------------------------------------------------------------


def blocked_head(order: str = BACKFILL, **policy: Any) -> Queue:
    """Of 4 machines 3 are held until NOW + 100, and the head waits for all."""
    queue = Queue(4, order=order, **policy)
    queue.begin(request("held", 3, expected_s=100.0, holder="TestSession ns/held"))
    queue.add(request("head", 4, expected_s=10.0, holder="TestSession ns/head"))
    return queue


def test_a_short_lease_passes_the_blocked_head() -> None:
    queue = blocked_head()
    queue.add(request("short", 1, expected_s=100.0))
    assert queue.grant() == ["short"]


@pytest.mark.parametrize("expected_s", [101.0, None])
def test_a_lease_that_would_delay_the_head_waits(expected_s: float | None) -> None:
    queue = blocked_head()
    queue.add(request("long", 1, expected_s=expected_s))
    assert queue.grant() == []
    reason, message = queue.why("long")
    assert reason == "BlockedByHead"
    assert "kept for TestSession ns/head" in message
    assert queue.outlook("head").expected_start == NOW + 100
    assert queue.outlook("long").expected_start == NOW + 110


def test_machines_that_the_head_leaves_over_are_used() -> None:
    queue = Queue(6)
    queue.begin(request("held", 4, expected_s=100.0))
    queue.add(request("head", 5), request("long", 1), request("longer", 1))
    assert queue.grant() == ["long"], "one is left over when the head starts"


def test_a_head_without_an_estimate_is_passed_until_it_is_old() -> None:
    queue = Queue(4, aging_seconds=100)
    queue.begin(request("held", 3))
    queue.add(request("head", 4), request("small", 1))
    assert queue.outlook("head").expected_start is None
    assert queue.grant() == ["small"]
    queue.end("small")
    queue.add(request("small", 1, created=NOW + 90))
    assert queue.grant(NOW + 99) == ["small"]
    queue.end("small")
    queue.add(request("small", 1, created=NOW + 90))
    assert queue.grant(NOW + 100) == []
    assert queue.why("small", NOW + 100)[0] == "BlockedByHead"


def test_a_large_lease_is_not_starved_by_small_ones() -> None:
    queue = Queue(4, aging_seconds=60)
    queue.add(request("large", 4))
    now, started = NOW, None
    running: list[str] = []
    for step in range(100):
        queue.add(request(f"small{step}", 1, created=now))
        if step == 0:
            queue.remove("large")
            running += queue.grant(now)
            queue.add(request("large", 4, created=now))
        else:
            running += queue.grant(now)
        if "large" in queue.granted:
            started = now
            break
        if len(running) > 3 or (now - NOW >= 60 and running):
            queue.end(running.pop(0))
        now += 1.0
    assert started is not None
    assert started - NOW <= 70


def test_an_old_lease_bars_only_its_pools() -> None:
    queue = Queue({"v": 1, "w": 4}, aging_seconds=100)
    queue.begin(request("held", 3))
    queue.add(request("old", 4, created=NOW - 200), request("other", {"v": 1}))
    assert queue.grant() == ["other"]


def test_an_old_lease_with_an_estimate_is_passed_by_short_ones() -> None:
    """What ends before the old one can start does not delay it."""
    queue = blocked_head(aging_seconds=0)
    queue.add(request("short", 1, expected_s=100.0), request("long", 1, expected_s=101.0))
    assert queue.grant() == ["short"]


def test_strict_fifo_lets_nothing_pass() -> None:
    queue = blocked_head(STRICT)
    queue.add(request("short", 1, expected_s=1.0))
    assert queue.grant() == []
    assert queue.why("short")[0] == "BlockedByHead"


def test_strict_fifo_holds_what_waits_for_a_semaphore() -> None:
    queue = Queue(4, order=STRICT, semaphores={"db": 0})
    queue.add(request("head", 1, semaphores=("db",)), request("next", 1))
    assert queue.grant() == []


def test_first_fit_lets_everything_pass() -> None:
    queue = blocked_head(FIRST_FIT)
    queue.add(request("long", 1, expected_s=ENDLESS))
    assert queue.grant() == ["long"]


def test_an_overdue_lease_is_expected_to_last_longer() -> None:
    queue = blocked_head()
    late = NOW + 200
    start = queue.outlook("head", late).expected_start
    assert start == pytest.approx(late + 20)


# --- limits --------------------------------------------------------------------------------------


def test_nothing_is_granted_while_paused() -> None:
    queue = Queue(4, paused=True)
    queue.add(request("a", 1))
    assert queue.grant() == []
    assert queue.why("a") == ("Paused", "the queue is paused by the LeasePolicy")
    queue.policy = LeasePolicySpec()
    assert queue.grant() == ["a"]


def test_nothing_is_granted_of_a_draining_pool() -> None:
    queue = Queue({"v": 1, "w": 1}, draining_pools=("w",))
    queue.add(request("both", {"v": 1, "w": 1}), request("a", {"v": 1}))
    assert queue.grant() == ["a"]
    assert queue.why("both")[0] == "PoolDraining"


def test_no_more_are_granted_than_allowed() -> None:
    queue = Queue(9, max_granted=2)
    queue.add(request("a", 1), request("b", 1), request("c", 1))
    assert queue.grant() == ["a", "b"]
    reason, message = queue.why("c")
    assert (reason, message) == (
        "Concurrency",
        "2 leases are granted, as many as maxGranted allows",
    )
    queue.end("a")
    assert queue.grant() == ["c"]


def test_a_semaphore_is_taken_as_often_as_allowed() -> None:
    queue = Queue(9, semaphores={"db": 1})
    queue.add(request("a", 1, semaphores=("db",)), request("b", 1, semaphores=("db",)))
    queue.add(request("c", 1))
    assert queue.grant() == ["a", "c"]
    assert queue.why("b") == ("Semaphore", "semaphore db is taken 1 of 1 time")
    queue.end("a")
    assert queue.grant() == ["b"]


def test_a_semaphore_that_the_policy_does_not_name_has_no_limit() -> None:
    queue = Queue(9)
    queue.add(request("a", 1, semaphores=("x",)), request("b", 1, semaphores=("x",)))
    assert queue.grant() == ["a", "b"]


# --- what cannot be ------------------------------------------------------------------------------


def test_impossible_leases_are_found() -> None:
    queue = Queue({"v": 1, "w": 2})
    queue.add(request("fits", 2), request("unknown", {"w": 9, "z": 1}), request("large", 3))
    queue.add(request("several", {"w": 9, "v": 9}))
    found = [(one.uid, pool, size) for one, pool, size in queue.impossible()]
    assert found == [("unknown", "z", None), ("large", "w", 2), ("several", "v", 1)]
    assert queue.grant() == ["fits"], "later leases are unaffected"


def test_a_pool_that_is_cordoned_holds_a_lease_and_not_more() -> None:
    queue = Queue(2)
    queue.set_pool("w", MachineCounts(1, 1, 2))
    queue.add(request("two", 2), request("one", 1))
    assert queue.impossible() == []
    assert queue.grant() == ["one"]
    reason, message = queue.why("two")
    assert reason == "PoolCapacity"
    assert message.startswith("pool w has 1 usable machine (2 in all) and 2 are requested")


def test_a_waiting_lease_names_pool_numbers_and_holders() -> None:
    queue = Queue(5)
    for number in range(4):
        queue.begin(request(f"u{number}", 1, holder=f"TestSession ns/s{number}"))
    queue.add(request("a", 2))
    assert queue.why("a") == (
        "PoolAvailability",
        "pool w has 1 of 5 machines free and 2 are requested; held by TestSession ns/s0 (1), "
        "TestSession ns/s1 (1), TestSession ns/s2 (1) and 1 more",
    )


def test_pods_that_keep_machines_are_named() -> None:
    table = MachineTable()
    for number in range(5):
        pod = f"ns/p{number}" if number else ""
        table.put(PoolMachine(f"m{number}", "w", True, bool(pod), "", "", pod))
    queue = LeaseQueue()
    queue.set_pool("w", table.counts("w"))
    queue.put(request("a", 2))
    [found] = outlooks(queue, NOW)
    assert found.message.endswith(
        "; used by pods ns/p1, ns/p2, ns/p3 and 1 more: delete or move them (grange rc drain-node NAME NODE), or wait"
    )
    table.put(PoolMachine("m2", "w", True, False, "", ""))
    table.put(PoolMachine("m3", "w", True, True, "other", "Leased", "ns/p3"))
    assert table.counts("w") == MachineCounts(2, 5, 5, 2, ("ns/p1", "ns/p4"))


def test_positions_and_starts_follow_the_order() -> None:
    queue = blocked_head()
    queue.add(request("b", 2, expected_s=5.0), request("c", 2, expected_s=50.0))
    found = [(o.request.uid, o.position, o.expected_start) for o in outlooks(queue, NOW)]
    assert found == [("head", 1, NOW + 100), ("b", 2, NOW + 110), ("c", 3, NOW + 110)]


# --- work ----------------------------------------------------------------------------------------


def test_a_decision_looks_only_at_pools_with_room() -> None:
    """1,000 leases that differ, 10 busy pools of 50 machines, and one lease that ends."""
    queue = Queue({f"p{n}": 50 for n in range(10)})
    for number in range(1_100):
        need = {f"p{number % 10}": 5}
        queue.add(request(f"s{number}", need, f"ns{number % 7}", expected_s=60.0 + number))
    assert len(queue.grant()) == 100
    before = queue.judged
    assert queue.grant() == []
    assert queue.judged == before
    queue.end(next(iter(queue.granted)))
    assert len(queue.grant()) == 1
    assert queue.judged - before <= 2


def test_leases_that_are_alike_are_looked_at_once() -> None:
    queue = Queue(50)
    queue.begin(request("held", 48))
    queue.add(*(request(f"s{number}", 5) for number in range(1_000)), request("one", 1))
    assert queue.grant() == ["one"]
    assert queue.judged == 1
    queue.end("one")
    assert queue.decide(NOW, whole=True).granted == ()
    assert queue.judged == 2


@pytest.mark.parametrize("growth", [1, -1])
def test_leases_that_delay_like_a_blocked_one_are_not_judged(growth: int) -> None:
    queue = Queue(4)
    queue.begin(request("held", 2, expected_s=100.0))
    queue.add(request("head", 4), request("short", 1, created=NOW + 2, expected_s=90.0))
    queue.add(
        *(request(f"s{n}", 1, created=NOW + 1, expected_s=800.0 + growth * n) for n in range(500)),
    )
    assert queue.grant() == ["short"]
    assert queue.judged == 2, "the first of the long ones, and the short one"
