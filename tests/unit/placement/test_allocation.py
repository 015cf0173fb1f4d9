"""The strategies' arithmetic: golden values, and both forms alike."""

import numpy as np
import pytest

from grange.api.pod_requests import PodRequest, Resources, allocatable, pod_request
from grange.placement.allocation import (
    CPU_AND_MEMORY,
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio,
    ResourceWeight,
    Strategy,
    balanced,
    balanced_rows,
)
from grange.placement.columns import NodeTable
from grange.placement.node_usage import IDLE, Usage
from grange.sim import builders

GPU = "example.com/gpu"
NODE = {"cpu": "4", "memory": "32Gi", "pods": "110", GPU: "8"}


def request(**requests: str) -> PodRequest:
    return pod_request(builders.pod("p", requests=requests).spec)


def both(strategy: Strategy, wanted: PodRequest, usage: Usage = IDLE) -> int:
    offered = allocatable(NODE)
    table = NodeTable()
    row = table.put_node(builders.node("n", capacity=NODE), offered)
    table.put_usage(row, usage)
    one = strategy.score(wanted, offered, usage)
    assert strategy.score_rows(wanted, table, table.all).tolist() == [one]
    return one


def test_check_106_least_allocated() -> None:
    assert both(LeastAllocated(CPU_AND_MEMORY), request(cpu="100m", memory="500Mi")) == 97
    assert both(LeastAllocated((ResourceWeight("cpu", 1),)), request(cpu="5")) == 0


def test_check_106_most_allocated() -> None:
    assert both(MostAllocated(CPU_AND_MEMORY), request(cpu="1", memory="16Gi")) == (25 + 50) // 2
    weighted = (ResourceWeight("cpu", 3), ResourceWeight("memory", 1))
    assert both(MostAllocated(weighted), request(cpu="1", memory="16Gi")) == (75 + 50) // 4
    # More than there is counts as all of it.
    assert both(MostAllocated((ResourceWeight("cpu", 1),)), request(cpu="5")) == 100


def test_an_extended_resource_counts_for_pods_that_ask_for_it() -> None:
    resources = (ResourceWeight("cpu", 1), ResourceWeight(GPU, 1))
    assert both(MostAllocated(resources), request(cpu="1")) == 25
    assert both(MostAllocated(resources), request(cpu="1", **{GPU: "4"})) == (25 + 50) // 2
    assert both(MostAllocated((ResourceWeight(GPU, 1),)), request(cpu="1")) == 0


SHAPE = ((0, 0), (50, 100), (100, 20))


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [("0", 0), ("1", 50), ("2", 100), ("3", 60), ("2480m", 80 + 1), ("4", 20), ("9", 20)],
)
def test_check_106_requested_to_capacity_ratio_follows_the_line(cpu: str, expected: int) -> None:
    strategy = RequestedToCapacityRatio((ResourceWeight("cpu", 1),), SHAPE)
    assert both(strategy, request(cpu=cpu)) == expected


def test_check_106_ratio_leaves_out_zero_scores_and_rounds() -> None:
    strategy = RequestedToCapacityRatio(
        (ResourceWeight("cpu", 1), ResourceWeight("memory", 2)), SHAPE
    )
    assert both(strategy, request(cpu="1", memory="0")) == 50
    # (50 + 2 * 6) / 3 = 20.67: rounded, not truncated.
    assert both(strategy, request(cpu="1", memory="1Gi")) == 21


def test_check_106_outside_its_points_the_line_is_flat() -> None:
    strategy = RequestedToCapacityRatio((ResourceWeight("cpu", 1),), ((30, 40), (60, 70)))
    assert both(strategy, request(cpu="0")) == 40
    assert both(strategy, request(cpu="4")) == 70


def test_check_106_balance_over_three_resources() -> None:
    offered = allocatable(NODE)
    names = ("cpu", "memory", GPU)
    wanted = request(cpu="2", memory="8Gi", **{GPU: "8"})
    table = NodeTable()
    table.put_node(builders.node("n", capacity=NODE), offered)
    spread = float(np.std([0.5, 0.25, 1.0]))
    expected = 50 + (50 + int((1 - spread) * 100) - 100) // 2
    assert balanced(names, wanted, offered, IDLE) == expected
    assert balanced_rows(names, wanted, table, table.all).tolist() == [expected]


def test_a_node_without_the_resources_scores_nothing() -> None:
    bare = Resources()
    assert LeastAllocated(CPU_AND_MEMORY).score(request(cpu="1"), bare, IDLE) == 0
    assert balanced(("cpu", "memory"), request(cpu="1"), bare, IDLE) == 75
