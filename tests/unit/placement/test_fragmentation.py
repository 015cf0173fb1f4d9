"""Fragmentation as the paper defines it: golden cases, and any case by the definition."""

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


def by_definition(kinds: list[PodKind], cpu: int, left: list[int]) -> int:
    """Σ p(m) · F(m), class by class."""
    total = 0
    for kind in kinds:
        usable = [item for item in left if item >= min(kind.gpu_milli, 1000)]
        runs = kind.gpu_milli and cpu >= kind.cpu_milli
        if not runs or len(usable) < max(1, kind.gpu_milli // 1000):
            usable = []
        total += kind.number * (sum(left) - sum(usable))
    return total


@given(st.lists(KIND, min_size=1, max_size=6), LEFT, st.integers(0, 9000))
def test_fragmentation_equals_its_definition(
    kinds: list[PodKind], left: list[int], cpu: int
) -> None:
    """Whatever is summed beforehand and remembered."""
    workload = TargetWorkload(kinds)
    found = workload.fragmentation(workload.rank(cpu), tuple(left))
    assert found == by_definition(kinds, cpu, left)
