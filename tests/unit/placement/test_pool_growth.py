"""Pools of leases that NodePools may add machines to: capacity, whose turn it is, and what is shown."""

from typing import Any

import msgspec
import pytest
from tests.unit.placement.test_lease_queue import NOW, Queue, request

from grange.api.kinds.nodepool import (
    DEDICATED,
    NodePool,
    NodePoolSpec,
    NodePoolStatus,
    NodeTemplate,
    PoolLimits,
)
from grange.api.meta import Condition, ObjectMeta
from grange.placement.lease_model import GrantedLease, MachineCounts
from grange.placement.pool_growth import PoolGrowth, growth_of, lease_pool, most_machines

REFUSED = Condition("Launching", "False", reason="NoMachine", message="none to be had")


def node_pool(name: str = "p", machines: int | None = 3, **spec: Any) -> NodePool:
    template = NodeTemplate(labels={"pool": "w"})
    wanted = NodePoolSpec(template=template, limits=PoolLimits(machines=machines), **spec)
    return NodePool(metadata=ObjectMeta(name=name, generation=1), spec=wanted)


def with_status(pool: NodePool, **status: Any) -> NodePool:
    return msgspec.structs.replace(pool, status=NodePoolStatus(observed_generation=1, **status))


class GrowingQueue(Queue):
    """A queue whose pool ``w`` has free machines and may have more."""

    def __init__(
        self,
        free: int,
        more: int,
        *,
        held: int = 0,
        refusal: str = "",
        boot_s: float | None = None,
        **policy: Any,
    ) -> None:
        super().__init__(0, **policy)
        growth = PoolGrowth(more, f"NodePool p allows {free + held + more}", refusal, boot_s)
        self.set_pool("w", MachineCounts(free, free + held, free + held, growth=growth))

    def growing_now(self) -> list[str]:
        return sorted(self.growing(NOW))


# --- what NodePools may add ----------------------------------------------------------------------


def test_node_pools_of_one_label_add_up() -> None:
    pools = [node_pool("a", 3), node_pool("b", 2)]
    found = growth_of(pools, {"a": 1, "b": 5})
    assert found == PoolGrowth(2, "NodePool a allows 3, NodePool b allows 2")
    assert growth_of([], {}) is None


def test_dedicated_and_deleted_node_pools_add_nothing() -> None:
    assert lease_pool(node_pool()) == "w"
    assert lease_pool(node_pool(mode=DEDICATED)) == ""
    meta = ObjectMeta(name="p", deletion_timestamp="2026-01-01T00:00:00Z")
    assert lease_pool(msgspec.structs.replace(node_pool(), metadata=meta)) == ""


@pytest.mark.parametrize(
    ("machines", "known", "most"),
    [(3, None, 3), (None, 2, 2), (3, 2, 2), (2, 3, 2), (None, None, None)],
)
def test_the_strictest_limit_counts(
    machines: int | None, known: int | None, most: int | None
) -> None:
    assert most_machines(with_status(node_pool(machines=machines), max_machines=known)) == most


def test_limits_of_an_earlier_spec_do_not_count() -> None:
    pool = with_status(node_pool(machines=5), max_machines=1)
    meta = msgspec.structs.replace(pool.metadata, generation=2)
    assert most_machines(msgspec.structs.replace(pool, metadata=meta)) == 5


def test_a_refusal_counts_while_every_node_pool_refuses() -> None:
    refusing, other = with_status(node_pool("a"), conditions=(REFUSED,)), node_pool("b")
    found = growth_of([refusing], {})
    assert found is not None
    assert found.refusal == "NodePool a: none to be had"
    both = growth_of([refusing, other], {})
    assert both is not None
    assert both.refusal == ""


# --- capacity ------------------------------------------------------------------------------------


def test_a_request_within_the_limit_is_possible() -> None:
    queue = GrowingQueue(0, 2)
    queue.add(request("two", 2), request("three", 3))
    found = [(one.uid, pool, size) for one, pool, size in queue.impossible()]
    assert found == [("three", "w", 2)]


def test_nothing_is_granted_that_is_not_there() -> None:
    queue = GrowingQueue(1, 2)
    queue.add(request("two", 2))
    assert queue.grant() == []
    assert queue.why("two") == (
        "PoolAvailability",
        "pool w has 1 of 1 machine free and 2 are requested; it can grow: NodePool p allows 3",
    )


def test_a_refusal_of_the_node_pool_is_shown() -> None:
    queue = GrowingQueue(0, 2, refusal="NodePool p: none to be had")
    queue.add(request("two", 2))
    assert queue.why("two")[1].endswith("; it does not grow now: NodePool p: none to be had")


# --- whose turn it is ----------------------------------------------------------------------------


def test_a_pool_grows_for_as_many_as_its_limit_holds() -> None:
    queue = GrowingQueue(0, 4)
    queue.add(*(request(f"s{number}", 2) for number in range(5)))
    assert queue.growing_now() == ["s0", "s1"]


def test_no_pool_grows_without_a_node_pool() -> None:
    queue = Queue(1)
    queue.add(request("two", 2))
    assert queue.growing(NOW) == frozenset()


def test_concurrency_and_semaphores_bound_growth() -> None:
    limited = GrowingQueue(0, 9, max_granted=2)
    limited.add(*(request(f"s{number}", 1) for number in range(5)))
    assert limited.growing_now() == ["s0", "s1"]
    licensed = GrowingQueue(0, 9, semaphores={"licence": 1})
    licensed.add(*(request(f"s{number}", 1, semaphores=("licence",)) for number in range(5)))
    assert licensed.growing_now() == ["s0"]


@pytest.mark.parametrize("policy", [{"paused": True}, {"draining_pools": ("w",)}])
def test_a_paused_queue_or_drained_pool_does_not_grow(policy: dict[str, Any]) -> None:
    queue = GrowingQueue(0, 4, **policy)
    queue.add(request("a", 1))
    assert queue.growing_now() == []


def test_growth_is_shared_between_namespaces() -> None:
    queue = GrowingQueue(0, 4)
    queue.add(*(request(f"a{number}", 1, "a") for number in range(4)))
    queue.add(*(request(f"b{number}", 1, "b", created=NOW + 1) for number in range(4)))
    assert queue.growing_now() == ["a0", "a1", "b0", "b1"]


# --- what is kept for the head -------------------------------------------------------------------


def test_machines_for_a_head_that_boots_the_rest_are_kept() -> None:
    queue = GrowingQueue(1, 1)
    queue.add(request("two", 2), request("one", 1))
    assert queue.grant() == []
    assert queue.why("one")[0] == "BlockedByHead"
    assert queue.growing_now() == ["two"]


def test_what_the_head_leaves_over_is_granted() -> None:
    queue = GrowingQueue(1, 2)
    queue.add(request("two", 2), request("one", 1))
    assert queue.grant() == ["one"]


def test_a_pool_that_refuses_to_grow_keeps_nothing_back() -> None:
    queue = GrowingQueue(1, 1, refusal="none to be had")
    queue.add(request("two", 2), request("one", 1))
    assert queue.growing_now() == ["two"], "it is tried all the same"
    assert queue.grant() == ["one"]


# --- expected start ------------------------------------------------------------------------------


def test_no_start_is_expected_of_what_has_to_boot() -> None:
    queue = GrowingQueue(1, 1)
    queue.add(request("two", 2, expected_s=100.0), request("next", 1))
    assert queue.outlook("two").expected_start is None
    assert queue.outlook("next").expected_start == NOW + 100.0


def test_slowest_pool_that_grows_decides_how_long_machines_boot() -> None:
    for a, b, there, expected in (
        (40, 90, 0, 90),
        (40, None, 0, None),
        (None, None, 0, None),
        (40, None, 2, 40),  # b makes none
    ):
        pools = [
            with_status(node_pool(name, 2), boot_seconds=boot_s)
            for name, boot_s in (("a", a), ("b", b))
        ]
        found = growth_of(pools, {"b": there})
        assert found is not None
        assert found.boot_s == expected, (a, b, there)


def test_start_is_expected_of_what_has_to_boot_as_long_as_before() -> None:
    queue = GrowingQueue(1, 1, boot_s=40.0)
    queue.add(request("two", 2, expected_s=100.0), request("next", 1))
    assert queue.outlook("two").expected_start == NOW + 40.0
    assert queue.outlook("next").expected_start == NOW + 140.0
    queue.add(request("two", 2, expected_s=100.0, requested=NOW - 30.0))
    assert queue.outlook("two").expected_start == NOW + 10.0
    queue.add(request("two", 2, expected_s=100.0, requested=NOW - 50.0))
    assert queue.outlook("two").expected_start == NOW + 5.0, "they take longer than expected"


def test_a_start_is_expected_of_machines_that_are_released() -> None:
    queue = GrowingQueue(0, 0, held=2)
    queue.hold(GrantedLease("held", "ns", (("w", 2),), started=NOW, expected_s=60.0))
    queue.add(request("two", 2))
    assert queue.outlook("two").expected_start == NOW + 60.0
