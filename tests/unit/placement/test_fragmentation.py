"""Fragmentation as the paper defines it: golden cases, and both forms alike."""

import numpy as np
from hypothesis import given, strategies as st

from grange.placement.fragmentation import PodKind, TargetWorkload

KIND = st.builds(
    PodKind,
    st.sampled_from([0, 500, 1000, 8000]),
    st.sampled_from([0, 1, 300, 500, 1000, 2000, 8000]),
    st.integers(1, 5),
)
LEFT = st.lists(st.sampled_from([0, 1, 299, 300, 500, 700, 1000]), min_size=4, max_size=4)


def of(workload: TargetWorkload, cpu: int, *left: int) -> float:
    return workload.fragmentation(workload.rank(cpu), left) / workload.number


def test_what_a_class_cannot_use_is_fragmented() -> None:
    half = TargetWorkload([PodKind(1000, 500, 1)])
    assert of(half, 1000, 1000, 500, 400) == 400
    assert of(half, 999, 1000, 500, 400) == 1900  # too little CPU: all of it
    assert of(half, 1000, 499, 499) == 998


def test_whole_devices_need_so_many_untouched() -> None:
    two = TargetWorkload([PodKind(0, 2000, 1)])
    assert of(two, 0, 1000, 1000, 900) == 900
    assert of(two, 0, 1000, 999) == 1999


def test_pods_without_devices_can_use_none() -> None:
    assert of(TargetWorkload([PodKind(0, 0, 1)]), 0, 1000) == 1000


def test_classes_count_by_their_share() -> None:
    mixed = TargetWorkload([PodKind(0, 500, 3), PodKind(0, 1000, 1)])
    assert of(mixed, 0, 600) == 600 / 4


@given(st.lists(KIND, min_size=1, max_size=6), st.lists(LEFT, min_size=1), st.integers(0, 9000))
def test_both_forms_are_alike(kinds: list[PodKind], lefts: list[list[int]], cpu: int) -> None:
    workload = TargetWorkload(kinds)
    rows = workload.fragmentation_rows(np.full(len(lefts), cpu), np.asarray(lefts, np.int64))
    rank = workload.rank(cpu)
    assert rows.tolist() == [workload.fragmentation(rank, tuple(left)) for left in lefts]
