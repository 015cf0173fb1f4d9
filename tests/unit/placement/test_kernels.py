"""Every kernel equals its scalar object of the same name, for all rows and for any subset of them."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from grange.api.kinds.node import Node
from grange.api.kinds.pod import PodSpec, Toleration
from grange.api.pod_requests import PodRequest, Resources, allocatable, pod_request
from grange.placement import (
    allocation,
    kernels,
    node_rules,
    ports_and_disks,
    resource_fit,
    taint_toleration,
)
from grange.placement.columns import NodeTable, Rows
from grange.placement.node_rules import NodeRequirement, NodeRules, NodeTerm, PreferredNodes
from grange.placement.node_usage import IDLE, Usage, charged
from grange.sim import builders

GIB = 2**30
LEAST = allocation.LeastAllocated(allocation.CPU_AND_MEMORY)
WEIGHTED = allocation.LeastAllocated(
    (allocation.ResourceWeight("cpu", 3), allocation.ResourceWeight("memory", 1))
)


@dataclass
class Row:
    node: Node
    offered: Resources
    usage: Usage


@dataclass
class World:
    table: NodeTable
    rows: dict[int, Row]


SMALL = st.integers(0, 6)
AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": SMALL,
        "memory": SMALL.map(lambda n: n * GIB),
        "ephemeral-storage": SMALL,
        "example.com/gpu": SMALL,
        "hugepages-2Mi": SMALL,
    },
)
TOTALS = st.tuples(AMOUNTS, st.integers(0, 4)).map(lambda pair: {**pair[0], "pods": pair[1]})
PODS = st.builds(
    lambda asks, wanted: builders.pod("p", requests=asks, host_ports=wanted).spec,
    AMOUNTS,
    st.lists(
        st.tuples(
            st.sampled_from(["", "10.0.0.1"]), st.sampled_from(["", "UDP"]), st.integers(1, 2)
        ),
        max_size=2,
    ),
)
LABELS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.sampled_from(["1", "2", "x", "-3"]), max_size=3
)
EFFECTS = ["NoSchedule", "NoExecute", "PreferNoSchedule"]
TAINTS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from("pq"),
            "value": st.sampled_from("uv"),
            "effect": st.sampled_from(EFFECTS),
        }
    ),
    max_size=2,
)
TOLERATIONS = st.lists(
    st.builds(
        Toleration,
        key=st.sampled_from(["", "p", "q"]),
        operator=st.sampled_from(["Equal", "Exists"]),
        value=st.sampled_from("uv"),
        effect=st.sampled_from(["", *EFFECTS]),
    ),
    max_size=3,
)
REQUIREMENTS = st.builds(
    NodeRequirement,
    st.sampled_from(["a", "b", "zz"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Odd"]),
    st.lists(st.sampled_from(["1", "2", "x", "0"]), max_size=2).map(tuple),
)
NAMED = st.builds(
    NodeRequirement,
    st.sampled_from(["metadata.name", "metadata.uid"]),
    st.sampled_from(["In", "NotIn", "Exists"]),
    st.lists(st.sampled_from(["n0", "n1", "n9"]), max_size=2).map(tuple),
)
TERMS = st.builds(
    NodeTerm, st.lists(REQUIREMENTS, max_size=2).map(tuple), st.lists(NAMED, max_size=1).map(tuple)
)
AFFINITIES = st.builds(
    NodeRules,
    st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "x"]), max_size=2).map(
        lambda found: tuple(sorted(found.items()))
    ),
    st.none() | st.lists(TERMS, max_size=2).map(tuple),
    st.lists(st.builds(PreferredNodes, st.integers(1, 100), TERMS), max_size=3).map(tuple),
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Nodes come, change and go, so that rows are freed, used again and the arrays grow."""
    table = NodeTable(capacity=2)
    rows: dict[int, Row] = {}
    for _ in range(draw(st.integers(1, 9))):
        name = f"n{draw(st.integers(0, 5))}"
        if name in table.rows and draw(st.booleans()):
            del rows[table.rows[name]]
            table.remove(name)
            continue
        node = builders.node(name, labels=draw(LABELS), capacity=draw(TOTALS), taints=draw(TAINTS))
        offered = allocatable(node.status.allocatable)
        row = table.put_node(node, offered)
        usage = IDLE
        for spec in draw(st.lists(PODS, max_size=3)):
            usage = charged(usage, pod_request(spec), ports_and_disks.host_ports(spec))
        table.put_usage(row, usage)
        rows[row] = Row(node, offered, usage)
    return World(table, rows)


def selections(world: World) -> list[tuple[Rows, list[int]]]:
    """Some ways to name rows: all of them, and an array of the valid ones backwards."""
    backwards = sorted(world.rows, reverse=True)
    return [
        (world.table.all, list(range(world.table.size))),
        (np.asarray(backwards, np.int64), backwards),
    ]


@settings(max_examples=120, deadline=None)
@given(worlds(), PODS)
def test_fit_and_scores_equal_the_reference(world: World, spec: PodSpec) -> None:
    need: PodRequest = pod_request(spec)
    for rows, numbers in selections(world):
        fits = kernels.fits(world.table, rows, need)
        reasons = kernels.fit_reasons(world.table, rows, need)
        least = LEAST.score_rows(need, world.table, rows)
        weighted = WEIGHTED.score_rows(need, world.table, rows)
        balanced = allocation.balanced_rows(("cpu", "memory"), need, world.table, rows)
        for at, number in enumerate(numbers):
            if number not in world.rows:
                continue
            row = world.rows[number]
            one = (need, row.offered, row.usage)
            expected = resource_fit.fit_reasons(*one)
            assert [reason for reason, mask in reasons if mask[at]] == expected
            assert bool(fits[at]) == resource_fit.fits(*one) == (not expected)
            assert expected or not resource_fit.exceeds_node(need, row.offered)
            assert least[at] == LEAST.score(*one)
            assert weighted[at] == WEIGHTED.score(*one)
            assert balanced[at] == allocation.balanced(("cpu", "memory"), *one)
            assert 0 <= balanced[at] <= 100


@settings(max_examples=120, deadline=None)
@given(worlds(), AFFINITIES, TOLERATIONS)
def test_affinity_and_taints_equal_the_reference(
    world: World, affinity: NodeRules, tolerations: list[Toleration]
) -> None:
    for rows, numbers in selections(world):
        matches = kernels.matches(world.table, rows, affinity)
        preference = kernels.preference(world.table, rows, affinity)
        untainted = kernels.untainted(world.table, rows, tolerations)
        for at, number in enumerate(numbers):
            if number not in world.rows:
                continue
            node = world.rows[number].node
            name, labels = node.metadata.name, node.metadata.labels
            assert bool(matches[at]) == node_rules.matches(affinity, name, labels)
            assert preference[at] == node_rules.preference(affinity, name, labels)
            marks = node.spec.taints
            assert bool(untainted[at]) == (
                taint_toleration.first_untolerated(marks, tolerations) is None
            )


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=6), st.booleans())
def test_normalising_a_column_equals_each_score(raw: list[int], reverse: bool) -> None:
    most = max(raw)
    result = resource_fit.normalised(np.asarray(raw, np.int64), most, reverse=reverse)
    assert result.tolist() == [resource_fit.normalised(one, most, reverse=reverse) for one in raw]
    assert min(result) >= 0
    assert max(result) <= 100


def test_check_106_golden_scores() -> None:
    """100m/500Mi on an empty node of 4 CPUs and 32Gi scores 97 and 74 (spec §2.7)."""
    offered = allocatable({"cpu": "4", "memory": "32Gi", "pods": "110"})
    need = pod_request(builders.pod("p", requests={"cpu": "100m", "memory": "500Mi"}).spec)
    assert LEAST.score(need, offered, IDLE) == 97
    assert allocation.balanced(("cpu", "memory"), need, offered, IDLE) == 74
    raw = np.asarray([0, 1, 2, 3], np.int64)
    assert resource_fit.normalised(raw, 3, reverse=True).tolist() == [100, 67, 34, 0]


def test_zero_requests_need_only_a_place() -> None:
    """With every amount zero only the pod count decides, even on an overcommitted node."""
    offered = allocatable({"cpu": "1", "pods": "2"})
    crowded = Usage(cpu_milli=5000, pods=1)
    nothing = pod_request(PodSpec())
    assert resource_fit.fit_reasons(nothing, offered, crowded) == []
    assert resource_fit.fit_reasons(nothing, offered, Usage(pods=2)) == ["Too many pods"]


def test_absurd_usage_is_clamped_rather_than_overflowing() -> None:
    """Pods bound by hand may sum past int64; the row is then simply full."""
    table = NodeTable()
    node = builders.node("n")
    row = table.put_node(node, allocatable(node.status.allocatable))
    table.put_usage(row, Usage(memory_bytes=2**65, scalars={"example.com/gpu": 2**70}))
    need = pod_request(builders.pod("p", requests={"memory": 1}).spec)
    assert not kernels.fits(table, table.all, need)[row]


def test_removing_an_unknown_node_is_refused() -> None:
    with pytest.raises(KeyError):
        NodeTable().remove("absent")


def test_a_label_column_is_rebuilt_before_dead_values_pile_up() -> None:
    """Nodes that come and go leave values behind; their number stays bounded by the table's."""
    table = NodeTable(capacity=4)
    table.labels("kubernetes.io/hostname")
    for number in range(1000):
        node = builders.node(f"n{number}")
        table.put_node(node, allocatable(node.status.allocatable))
        table.remove(node.metadata.name)
    assert len(table.labels("kubernetes.io/hostname").values) <= 4 * table.capacity + 65
    assert table.taint_sets == [()]
