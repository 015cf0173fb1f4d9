"""Pools of machines: the checks R1 to R11 and P1 to P3 of the reservation manager, and its ledger."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from grange.api.kinds.machine import DEDICATED_TAINT
from grange.api.kinds.node import Node
from grange.placement.machine_pools import (
    Pool,
    PoolAvailabilityError,
    PoolCapacityError,
    PoolUnknownError,
    ReservationManager,
    find_pools,
)
from grange.sim import builders


def manager(*pools: Pool) -> ReservationManager:
    made = ReservationManager()
    for pool in (Pool("drivers", 1, 1), *pools):
        made.add_pool(pool)
    return made


def need(workers: int) -> dict[str, int]:
    return {"drivers": 1, "workers": workers}


def node(name: str, ready: str = "True", **options: Any) -> Node:
    document = builders.node_document(name, **options)
    document["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    return msgspec.convert(document, Node)


def test_r1_an_added_pool_is_unchanged() -> None:
    pool = Pool("workers", 3, 5)
    assert manager(pool).pools()["workers"] == pool


@pytest.mark.parametrize("other", [Pool("workers", 3, 5), Pool("workers", 0, 9)])
def test_r2_a_pool_is_removed_by_its_name(other: Pool) -> None:
    made = manager(Pool("workers", 3, 5))
    made.remove_pool(other)
    assert "workers" not in made.pools()


def test_r3_removing_an_unknown_pool_raises() -> None:
    with pytest.raises(PoolUnknownError) as raised:
        manager().remove_pool(Pool("workers", 1, 1))
    assert raised.value.pool == "workers"


def test_r4_more_than_the_capacity_is_refused() -> None:
    made = manager(Pool("workers", 4, 4))
    before = made.pools()
    with pytest.raises(PoolCapacityError, match="has 4 machines and 5 are requested") as raised:
        made.reserve("s", need(5))
    assert (raised.value.pool, raised.value.requested, raised.value.capacity) == ("workers", 5, 4)
    assert made.pools() == before


def test_r5_more_than_is_free_is_refused() -> None:
    made = manager(Pool("workers", 5, 7))
    before = made.pools()
    with pytest.raises(PoolAvailabilityError) as raised:
        made.reserve("s", need(7))
    assert (raised.value.requested, raised.value.available) == (7, 5)
    assert made.pools() == before


@pytest.mark.parametrize(("free", "capacity", "left"), [(3, 3, 0), (8, 9, 5)])
def test_r6_r7_machines_are_reserved(free: int, capacity: int, left: int) -> None:
    made = manager(Pool("workers", free, capacity))
    made.reserve("s", need(3))
    assert made.pools()["workers"].available == left
    assert made.held("s") == need(3)


def test_r8_the_capacity_never_changes() -> None:
    made = manager(Pool("workers", 5, 7))
    made.reserve("s", need(3))
    assert made.pools()["workers"].capacity == 7
    made.unreserve("s")
    assert made.pools()["workers"].capacity == 7


def test_r9_an_unknown_pool_is_refused() -> None:
    made = manager()
    with pytest.raises(PoolUnknownError, match='pool="workers"'):
        made.reserve("s", need(1))
    assert made.pools()["drivers"].available == 1


def test_r10_machines_are_given_back() -> None:
    made = manager(Pool("workers", 7, 7))
    made.reserve("s", need(3))
    assert made.pools()["workers"].available == 4
    made.unreserve("s", need(3))
    assert made.pools()["workers"].available == 7


def test_r11_giving_back_to_an_unknown_pool_raises() -> None:
    made = manager()
    with pytest.raises(PoolUnknownError):
        made.unreserve("s", need(1))


# --- pools from nodes ----------------------------------------------------------------------------


def test_p1_nodes_are_counted_by_their_label() -> None:
    nodes = [node(f"a{n}", labels={"pool": "a"}) for n in range(3)]
    nodes += [node("b0", labels={"pool": "b"})]
    assert find_pools(nodes) == {"a": Pool("a", 3, 3), "b": Pool("b", 1, 1)}


def test_p2_nodes_without_the_label_are_ignored() -> None:
    nodes = [node("n"), node("m", labels={"disk": "ssd"}), node("o", labels={"pool": ""})]
    assert find_pools(nodes) == {}


def test_p3_an_error_of_the_list_is_raised() -> None:
    def listed() -> Iterator[Node]:
        yield node("n", labels={"pool": "a"})
        raise ConnectionError("no answer")

    with pytest.raises(ConnectionError, match="no answer"):
        find_pools(listed())


def test_machines_that_take_no_pods_do_not_count() -> None:
    nodes = [
        node("ready", labels={"pool": "a"}),
        node("silent", ready="Unknown", labels={"pool": "a"}),
        node("cordoned", labels={"pool": "a"}, unschedulable=True),
        node(
            "dedicated",
            labels={"pool": "a"},
            taints=[{"key": DEDICATED_TAINT, "effect": "NoSchedule"}],
        ),
    ]
    assert find_pools(nodes) == {"a": Pool("a", 1, 1)}


# --- the ledger ----------------------------------------------------------------------------------


def test_errors_have_a_fixed_precedence() -> None:
    """Unknown first, in the order of the request; then capacity, then availability, by name."""
    made = manager(Pool("a", 0, 4), Pool("b", 0, 1), Pool("c", 0, 1))
    with pytest.raises(PoolUnknownError, match='"z"'):
        made.reserve("s", {"a": 1, "b": 5, "z": 1, "y": 1})
    with pytest.raises(PoolCapacityError, match="pool b "):
        made.reserve("s", {"c": 5, "a": 1, "b": 5})
    with pytest.raises(PoolAvailabilityError, match="pool a "):
        made.reserve("s", {"b": 1, "a": 1})


def test_a_pool_of_no_machines_need_not_be_known() -> None:
    made = manager()
    made.reserve("s", {"drivers": 1, "unknown": 0})
    assert made.held("s") == {"drivers": 1}


def test_a_holder_that_reserves_twice_has_its_machines_once() -> None:
    made = manager(Pool("workers", 7, 7))
    made.reserve("s", need(3))
    made.reserve("s", need(2))
    assert made.pools()["workers"].available == 4
    assert made.held("s") == need(3)


def test_giving_back_twice_gives_back_once() -> None:
    made = manager(Pool("workers", 7, 7))
    made.reserve("s", need(3))
    made.reserve("t", {"workers": 2})
    made.unreserve("s")
    made.unreserve("s")
    assert made.pools()["workers"].available == 5


def test_a_pool_that_is_removed_in_use_leaks_nothing() -> None:
    made = manager(Pool("workers", 7, 7))
    made.reserve("s", need(3))
    made.remove_pool(Pool("workers", 0, 0))
    made.unreserve("s", need(3))
    assert made.pools() == {"drivers": Pool("drivers", 1, 1)}
    made.add_pool(Pool("workers", 7, 7))
    assert made.pools()["workers"].available == 7


def test_a_pool_that_is_made_smaller_is_not_granted_twice() -> None:
    made = manager(Pool("workers", 5, 5))
    made.reserve("s", {"workers": 3})
    made.reserve("t", {"workers": 2})
    made.add_pool(Pool("workers", 0, 2))
    made.unreserve("s")
    assert made.pools()["workers"] == Pool("workers", 0, 2)
    made.unreserve("t")
    assert made.pools()["workers"] == Pool("workers", 2, 2)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "unreserve", "add", "remove"]),
        st.integers(0, 4),
        st.sampled_from("ab"),
        st.integers(0, 5),
        st.integers(0, 5),
    ),
    max_size=40,
)


@given(OPERATIONS)
def test_no_more_is_reserved_than_there_is(
    operations: list[tuple[str, int, str, int, int]],
) -> None:
    made = ReservationManager()
    for operation, holder, name, first, second in operations:
        before = in_use(made)
        try:
            if operation == "reserve":
                made.reserve(str(holder), {"a": first, "b": second})
            elif operation == "unreserve":
                made.unreserve(str(holder))
            elif operation == "add":
                made.add_pool(Pool(name, min(first, second), second))
            else:
                made.remove_pool(Pool(name, 0, 0))
        except (PoolUnknownError, PoolCapacityError, PoolAvailabilityError):
            assert in_use(made) == before
            continue
        for pool in made.pools().values():
            used = in_use(made)[pool.name]
            assert 0 <= pool.available <= max(0, pool.capacity - used)
            assert used <= max(pool.capacity, before[pool.name]), "nothing is lent beyond it"


def in_use(made: ReservationManager) -> dict[str, int]:
    held = [made.held(str(holder)) for holder in range(5)]
    return {name: sum(one.get(name, 0) for one in held) for name in "ab"}


def test_threads_never_share_a_machine() -> None:
    capacity, workers, rounds = 7, 8, 300
    made = ReservationManager()
    made.add_pool(Pool("a", capacity, capacity))
    over: list[int] = []

    def work(holder: int) -> int:
        draw, granted = Random(holder), 0
        for _ in range(rounds):
            try:
                made.reserve(str(holder), {"a": draw.randint(1, 4)})
            except PoolAvailabilityError:
                continue
            granted += 1
            used = capacity - made.pools()["a"].available
            if not made.held(str(holder))["a"] <= used <= capacity:
                over.append(used)
            made.unreserve(str(holder))
        return granted

    with ThreadPoolExecutor(workers) as pool:
        granted = list(pool.map(work, range(workers)))
    assert over == []
    assert sum(granted) > rounds
    assert made.pools()["a"] == Pool("a", capacity, capacity)
