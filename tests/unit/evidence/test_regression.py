"""Regressions: change points of known series, and verdicts on their newest level."""

import itertools
import math

import pytest
from hypothesis import given, strategies as st

from grange.base.rng import Stream
from grange.evidence import regression
from grange.evidence.regression import BETTER, NOT_ENOUGH_RUNS, UNCHANGED, WORSE

# The annual flow of the Nile at Aswan from 1871 on, whose change in 1899 (index 28) is well known.
NILE = (
    *(1120, 1160, 963, 1210, 1160, 1160, 813, 1230, 1370, 1140, 995, 935, 1110, 994, 1020, 960),
    *(1180, 799, 958, 1140, 1100, 1210, 1150, 1250, 1260, 1220, 1030, 1100, 774, 840, 874, 694),
    *(940, 833, 701, 916, 692, 1020, 1050, 969, 831, 726, 456, 824, 702, 1120, 1100, 832, 764),
    *(821, 768, 845, 864, 862, 698, 845, 744, 796, 1040, 759, 781, 865, 845, 944, 984, 897, 822),
    *(1010, 771, 676, 649, 846, 812, 742, 801, 1040, 860, 874, 848, 890, 744, 749, 838, 1050),
    *(918, 986, 797, 923, 975, 815, 1020, 906, 901, 1170, 912, 746, 919, 718, 714, 740),
)


def noise(count: int, level: float, spread: float = 1.0, seed: int = 7) -> list[float]:
    rng = Stream(seed)
    return [level + rng.uniform(-spread, spread) for _ in range(count)]


def test_known_change_of_the_nile_is_found() -> None:
    assert regression.change_points(NILE) == (28,)


def test_two_changes_are_found_in_order() -> None:
    values = [*noise(20, 100), *noise(15, 120, seed=8), *noise(15, 90, seed=9)]
    assert regression.change_points(values) == (20, 35)


@pytest.mark.parametrize("which", range(20))
def test_noise_seldom_has_a_change(which: int) -> None:
    """One in a hundred series may: none of these does."""
    assert regression.change_points(noise(40, 100, seed=which + 100)) == ()


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 50, [1.0, 2.0, 1.0, 2.0, 1.0]])
def test_constant_and_short_series_have_no_change(values: list[float]) -> None:
    assert regression.change_points(values) == ()


@pytest.mark.parametrize(
    ("better", "level", "expected"),
    [
        *(("Lower", 120, WORSE), ("Lower", 80, BETTER), ("Higher", 120, BETTER)),
        *(("Higher", 80, WORSE), ("", 120, WORSE), ("", 80, WORSE), ("Lower", 105, UNCHANGED)),
    ],
)
def test_new_level_is_compared_with_the_one_before(
    better: str, level: float, expected: str
) -> None:
    found = regression.check([*noise(20, 100), *noise(5, level, seed=8)], better=better)
    assert found.verdict == expected
    assert found.change_points == (20,)
    assert found.change == pytest.approx((level - 100) / 100, abs=0.02)
    assert "for 5 runs against" in found.message


def test_slow_drift_is_found_by_its_levels() -> None:
    """No run is ten percent worse than the one before."""
    steps = [100.0, 104.0, 108.0, 112.0, 116.0]
    values = [value for step in steps for value in noise(8, step, 0.5, seed=int(step))]
    assert all(abs(b - a) / a < 0.1 for a, b in itertools.pairwise(values))
    assert regression.check(values, better="Lower", threshold=0.03).verdict == WORSE


def test_single_run_far_off_is_worse() -> None:
    found = regression.check([*noise(20, 100), 150.0], better="Lower")
    assert (found.verdict, found.value, found.change_points) == (WORSE, 150.0, ())


def test_single_run_within_the_noise_is_unchanged() -> None:
    found = regression.check([*noise(20, 100, 30), 125.0], better="Lower")
    assert found.verdict == UNCHANGED
    assert found.change > 0.1
    assert found.message.endswith("which single runs vary by")


def test_level_that_holds_for_long_is_the_normal_one() -> None:
    values = [*noise(20, 100), *noise(20, 150, seed=8)]
    found = regression.check(values, better="Lower")
    assert (found.verdict, found.change_points) == (UNCHANGED, (20,))
    assert found.baseline == pytest.approx(150, abs=1)
    assert regression.check([*values, 200.0], better="Lower").verdict == WORSE


def test_given_baseline_is_compared_with_the_level() -> None:
    found = regression.check([*noise(20, 150)], better="Lower", baseline=[100.0, 101.0, 99.0])
    assert (found.verdict, found.baseline) == (WORSE, 100.0)
    found = regression.check([104.0], better="Lower", baseline=[100.0])
    assert found.verdict == UNCHANGED


@pytest.mark.parametrize("count", range(6))
def test_few_runs_have_no_verdict(count: int) -> None:
    found = regression.check([*noise(count, 100)][:count], better="Lower")
    assert found.verdict == NOT_ENOUGH_RUNS
    assert found.message


def test_equal_runs_are_unchanged_and_any_change_counts() -> None:
    assert regression.check([5.0] * 10).verdict == UNCHANGED
    assert regression.check([5.0] * 10 + [6.0], better="Lower").verdict == WORSE


def test_change_from_zero_is_infinite() -> None:
    found = regression.check([0.0] * 10 + [1.0], better="Lower")
    assert (found.verdict, found.change) == (WORSE, math.inf)
    assert regression.check([0.0] * 10).verdict == UNCHANGED


def test_verdict_is_the_same_every_time() -> None:
    values = [*noise(50, 100, 20), *noise(20, 115, 20, seed=3)]
    assert len({repr(regression.check(values)) for _ in range(3)}) == 1


def test_only_the_last_runs_count() -> None:
    values = [*noise(200, 10), *noise(100, 100)]
    assert regression.check(values) == regression.check(values[-100:])


def test_scale_of_the_values_is_irrelevant() -> None:
    values = [*noise(20, 100), *noise(5, 120, seed=8)]
    found = [regression.check([value * factor for value in values]) for factor in (1, 1e-9, 1e9)]
    assert len({(item.verdict, item.change_points) for item in found}) == 1


@given(st.lists(st.floats(-1e9, 1e9), max_size=30))
def test_any_series_has_a_verdict(values: list[float]) -> None:
    found = regression.check(values, better="Lower")
    assert found.verdict in {BETTER, WORSE, UNCHANGED, NOT_ENOUGH_RUNS}
    assert all(3 <= point <= len(values) - 3 for point in found.change_points)
