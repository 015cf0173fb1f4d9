"""The queue of machine leases against a simple reference, and what holds for it by chance."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, strategies as st
from tests.unit.placement.test_lease_queue import NOW, Queue

from grange.api.kinds.leasepolicy import BACKFILL, FIRST_FIT, STRICT, LeasePolicySpec
from grange.base.rng import Stream
from grange.placement.lease_model import GrantedLease, MachineCounts, WaitingLease
from grange.placement.lease_outlook import outlooks
from grange.placement.lease_queue import LeaseQueue

POOLS = "abc"
NEEDS = st.dictionaries(st.sampled_from(POOLS), st.integers(1, 4), min_size=1)
SEMAPHORES = st.sampled_from([(), (), ("s",)])
EXPECTED = st.sampled_from([None, 5.0, 20.0, 100.0])
NAMESPACES = st.sampled_from(["x", "y"])
POLICIES = st.builds(
    LeasePolicySpec,
    order=st.sampled_from([BACKFILL, STRICT, FIRST_FIT]),
    aging_seconds=st.sampled_from([50, 1000]),
    draining_pools=st.sampled_from([(), ("c",)]),
    max_granted=st.sampled_from([None, None, 3]),
    namespace_weights=st.sampled_from([{}, {"x": 3}]),
    semaphores=st.sampled_from([{}, {"s": 1}]),
)
REQUESTS = st.lists(
    st.builds(
        WaitingLease,
        uid=st.just(""),
        namespace=NAMESPACES,
        need=NEEDS.map(lambda need: tuple(need.items())),
        priority=st.integers(0, 1),
        created=st.sampled_from([NOW - 60, NOW - 10, NOW]),
        semaphores=SEMAPHORES,
        expected_s=EXPECTED,
    ),
    max_size=10,
).map(lambda found: [replace(one, uid=f"w{number}") for number, one in enumerate(found)])
GRANTS = st.lists(
    st.builds(
        GrantedLease,
        uid=st.just(""),
        namespace=NAMESPACES,
        held=NEEDS.map(lambda need: tuple(need.items())),
        semaphores=SEMAPHORES,
        started=st.sampled_from([NOW - 30, NOW]),
        expected_s=EXPECTED,
    ),
    max_size=4,
).map(lambda found: [replace(one, uid=f"g{number}") for number, one in enumerate(found)])
FREE = st.fixed_dictionaries({pool: st.integers(0, 6) for pool in POOLS})


class Reference:
    """The rules, one after the other, without indexes and without state between questions."""

    def __init__(
        self,
        policy: LeasePolicySpec,
        free: dict[str, int],
        waiting: list[WaitingLease],
        grants: list[GrantedLease],
    ) -> None:
        self.policy, self.free = policy, dict(free)
        self.waiting = waiting
        self.running = [(g.namespace, dict(g.held), g.end(NOW), g.semaphores) for g in grants]
        self.usable = {
            pool: free[pool] + sum(dict(g.held).get(pool, 0) for g in grants) for pool in free
        }

    def age(self, one: WaitingLease) -> tuple[float, ...]:
        old = NOW - one.created >= self.policy.aging_seconds
        return -one.priority, not old, one.created, self.waiting.index(one)

    def order(self, one: WaitingLease) -> tuple[float, ...]:
        priority, young, *age = self.age(one)
        weight = self.policy.namespace_weights.get(one.namespace, 1)
        held = sum(sum(m.values()) for of, m, _, _ in self.running if of == one.namespace)
        return (priority, young, held / weight * young, *age)

    def head(self) -> WaitingLease:
        return min(self.waiting, key=self.order)

    def free_at(self, pool: str, when: float) -> int:
        return self.free[pool] + sum(
            machines.get(pool, 0) for _, machines, end, _ in self.running if end <= when
        )

    def start(self, one: WaitingLease) -> float:
        times = {NOW, *(end for _, _, end, _ in self.running)}
        fitting = (when for when in times if all(self.free_at(p, when) >= n for p, n in one.need))
        return min(fitting, default=inf)

    def held_back(self, one: WaitingLease) -> str:
        if any(count > self.usable[pool] for pool, count in one.need):
            return "usable"
        if any(pool in self.policy.draining_pools for pool, _ in one.need):
            return "draining"
        taken = sum("s" in semaphores for *_, semaphores in self.running)
        limit = self.policy.semaphores.get("s", inf)
        return "semaphore" if "s" in one.semaphores and taken >= limit else ""

    def fits(self, one: WaitingLease) -> bool:
        return all(count <= self.free[pool] for pool, count in one.need)

    def decide(self) -> list[str]:
        granted: list[str] = []
        while True:
            left = sorted((w for w in self.waiting if w.uid not in granted), key=self.order)
            full = self.policy.max_granted is not None
            if full and len(self.running) >= (self.policy.max_granted or 0):
                return granted
            fitting = [
                one
                for index, one in enumerate(left)
                if not self.held_back(one)
                and self.fits(one)
                and not any(self.delays(one, pool, left[:index]) for pool, _ in one.need)
            ]
            if not fitting:
                return granted
            one = fitting[0]
            granted.append(one.uid)
            end = NOW + one.expected_s if one.expected_s else inf
            self.running.append((one.namespace, dict(one.need), end, one.semaphores))
            for pool, count in one.need:
                self.free[pool] -= count

    def delays(self, one: WaitingLease, pool: str, earlier: list[WaitingLease]) -> bool:
        earlier = [head for head in earlier if pool in dict(head.need)]
        if self.policy.order == STRICT:
            return any(self.held_back(head) in {"", "semaphore"} for head in earlier)
        heads = [head for head in earlier if not self.held_back(head) and not self.fits(head)]
        if not heads:
            return False
        head = heads[0]
        start, old = self.start(head), not self.age(head)[1]
        if self.policy.order == FIRST_FIT or start == inf:
            return old
        end = NOW + one.expected_s if one.expected_s else inf
        left = self.free_at(pool, start) - dict(one.need)[pool]
        return end > start and left < dict(head.need)[pool]


def filled(
    policy: LeasePolicySpec,
    free: dict[str, int],
    waiting: list[WaitingLease],
    grants: list[GrantedLease],
) -> LeaseQueue:
    queue = LeaseQueue(policy)
    usable = Reference(policy, free, waiting, grants).usable
    for pool, count in free.items():
        queue.set_pool(pool, MachineCounts(count, usable[pool], usable[pool]))
    for grant in grants:
        queue.hold(grant)
    for one in waiting:
        queue.put(one)
    return queue


@given(POLICIES, FREE, REQUESTS, GRANTS)
def test_the_queue_decides_as_the_reference(
    policy: LeasePolicySpec,
    free: dict[str, int],
    waiting: list[WaitingLease],
    grants: list[GrantedLease],
) -> None:
    queue = filled(policy, free, waiting, grants)
    wanted = Reference(policy, free, waiting, grants).decide()
    decision = queue.decide(NOW)
    assert [one.uid for one in decision.granted] == wanted
    assert queue.decide(NOW, whole=True).granted == decision.granted
    shown = [*outlooks(queue, NOW)]
    assert [found.position for found in shown] == [*range(1, len(waiting) + 1)]
    assert {found.request.uid for found in shown if not found.reason} == {*wanted}
    for found in shown:
        assert found.message
        assert found.expected_start is None or found.expected_start >= NOW
    if shown:
        assert shown[0].request == Reference(policy, free, waiting, grants).head()


@given(REQUESTS, GRANTS, st.data())
def test_bookkeeping_is_undone_exactly(
    waiting: list[WaitingLease], grants: list[GrantedLease], data: st.DataObject
) -> None:
    """A queue that things came to and left again decides as one to which they never came."""
    free = dict.fromkeys(POOLS, 3)
    queue = filled(LeasePolicySpec(), free, waiting, grants)
    gone = data.draw(
        st.sets(st.sampled_from([*(one.uid for one in waiting), *(one.uid for one in grants), ""]))
    )
    for uid in sorted(gone):
        queue.remove(uid)
    waiting = [one for one in waiting if one.uid not in gone]
    grants = [one for one in grants if one.uid not in gone]
    fresh = filled(LeasePolicySpec(), free, waiting, grants)
    for pool, counts in fresh.pools.items():
        queue.set_pool(pool, counts)
    assert queue.decide(NOW, whole=True) == fresh.decide(NOW, whole=True)
    assert {k: v for k, v in queue.queue_length().items() if v} == fresh.queue_length()


@pytest.mark.parametrize("number", range(20))
def test_a_blocked_head_starts_by_its_estimate(number: int) -> None:
    """Where estimates are true, no lease that passes the first lease of the queue delays it."""
    draw, now = Stream(number), NOW
    queue = Queue({"a": 6, "b": 6}, aging_seconds=10**6)
    promised: dict[str, float] = {}
    ends: dict[str, float] = {}
    heads, machine_seconds, busy_s = 0, 0.0, 0.0
    for step in range(400):
        for uid in [uid for uid, end in ends.items() if end <= now]:
            queue.end(uid)
            del ends[uid]
        while len(queue.waiting) < 8:
            pools = draw.choice([("a",), ("b",), ("a", "b")])
            need = tuple((pool, draw.integer(1, 6)) for pool in pools)
            uid = f"{step}.{len(queue.waiting)}.{draw.integer(0, 10**9)}"
            duration = float(draw.integer(1, 30))
            queue.put(WaitingLease(uid, "ns", need, created=now, expected_s=duration))
        for one in queue.decide(now).granted:
            assert now <= promised.get(one.uid, inf), f"{one.uid} was delayed"
            queue.begin(one, now)
            ends[one.uid] = now + (one.expected_s or 0.0)
        head = next(outlooks(queue, now))
        assert head.expected_start is not None
        if head.request.uid not in promised:
            heads += 1
        promised.setdefault(head.request.uid, head.expected_start)
        then = min(ends.values())
        machine_seconds += sum(c.total - c.free for c in queue.pools.values()) * (then - now)
        busy_s += 12 * (then - now)
        now = then
    assert heads > 20
    assert machine_seconds / busy_s > 0.6
