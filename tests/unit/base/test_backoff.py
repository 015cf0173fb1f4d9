"""Delays grow, stay under their cap, and a rate is a rate."""

import pytest
from hypothesis import given, settings, strategies as st

from grange.base.backoff import Exponential, FailureLimiter, TokenBucket
from grange.base.rng import Stream


def test_delays_double_from_the_first_failure_to_the_cap() -> None:
    backoff = Exponential(initial_s=0.5, cap_s=3)
    assert [backoff.delay(n) for n in range(6)] == [0, 0.5, 1, 2, 3, 3]


def test_huge_numbers_of_failures_do_not_overflow() -> None:
    assert Exponential(initial_s=1, cap_s=60).delay(10**9) == 60


@settings(max_examples=200, deadline=None)
@given(
    failures=st.integers(-1, 2000),
    initial_s=st.floats(0.001, 10),
    cap_s=st.floats(0.001, 1e4),
    jitter=st.floats(0, 1),
    seed=st.integers(),
)
def test_jitter_only_shortens_and_never_below_its_fraction(
    failures: int, initial_s: float, cap_s: float, jitter: float, seed: int
) -> None:
    backoff = Exponential(initial_s=initial_s, cap_s=cap_s, jitter=jitter)
    plain = backoff.delay(failures)
    drawn = backoff.delay(failures, Stream(seed))
    assert plain * (1 - jitter) * 0.999999 <= drawn <= plain * 1.000001
    assert drawn <= cap_s * 1.000001
    assert backoff.delay(failures + 1) >= plain


@pytest.mark.parametrize("bad", [{"initial_s": -1.0}, {"cap_s": -1.0}, {"jitter": 1.1}])
def test_nonsense_delays_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="delays"):
        Exponential(**bad)


def test_bucket_lets_a_burst_through_and_then_keeps_the_rate() -> None:
    bucket = TokenBucket(rate_per_s=2, burst=3)
    assert [bucket.reserve(10.0) for _ in range(5)] == [0, 0, 0, 0.5, 1.0]


def test_bucket_refills_with_time_up_to_the_burst() -> None:
    bucket = TokenBucket(rate_per_s=2, burst=3)
    for _ in range(3):
        bucket.reserve(0.0)
    assert bucket.reserve(0.5) == 0.0
    assert [bucket.reserve(1000.0) for _ in range(4)] == [0, 0, 0, 0.5]


def test_bucket_gains_nothing_from_a_clock_that_goes_back() -> None:
    bucket = TokenBucket(rate_per_s=1, burst=1)
    assert bucket.reserve(100.0) == 0
    assert bucket.reserve(0.0) == 1.0
    assert bucket.reserve(100.0) == 2.0


@settings(max_examples=200, deadline=None)
@given(
    rate=st.floats(0.1, 100),
    burst=st.integers(1, 10),
    gaps=st.lists(st.floats(0, 5), min_size=1, max_size=60),
)
def test_no_window_grants_more_than_burst_and_rate(
    rate: float, burst: int, gaps: list[float]
) -> None:
    bucket = TokenBucket(rate_per_s=rate, burst=burst)
    now, grants = 0.0, []
    for gap in gaps:
        now += gap
        grants.append(now + bucket.reserve(now))
    assert grants == sorted(grants)
    for first, at in enumerate(grants):
        for last in range(first, len(grants)):
            assert last - first + 1 <= burst + (grants[last] - at) * rate + 1e-6


@pytest.mark.parametrize(("rate", "burst"), [(0.0, 1), (-1.0, 1), (1.0, 0)])
def test_bucket_that_never_grants_is_refused(rate: float, burst: int) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        TokenBucket(rate_per_s=rate, burst=burst)


def test_limiter_counts_each_item_alone() -> None:
    limiter = FailureLimiter(
        exponential=Exponential(initial_s=1, cap_s=100),
        bucket=TokenBucket(rate_per_s=1000, burst=1000),
    )
    assert [limiter.when("a", 0) for _ in range(3)] == [1, 2, 4]
    assert limiter.when("b", 0) == 1
    assert (limiter.failures("a"), limiter.failures("b"), limiter.failures("c")) == (3, 1, 0)
    limiter.forget("a")
    limiter.forget("never seen")
    assert limiter.failures("a") == 0
    assert limiter.when("a", 0) == 1


def test_limiter_shares_one_bucket_and_the_longer_wait_wins() -> None:
    limiter = FailureLimiter(
        exponential=Exponential(initial_s=0.01), bucket=TokenBucket(rate_per_s=1, burst=1)
    )
    assert [limiter.when(item, 0) for item in "abc"] == [0.01, 1, 2]


def test_default_limiter_is_the_field_s() -> None:
    limiter = FailureLimiter()
    delays = [limiter.when("x", 0) for _ in range(20)]
    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert delays[-1] == 1000.0


def test_try_take_refuses_without_debt() -> None:
    """Those who are turned away must not push the next turn further into the future."""
    bucket = TokenBucket(rate_per_s=1.0, burst=2)
    assert [bucket.try_take(0.0) for _ in range(5)] == [True, True, False, False, False]
    assert not bucket.try_take(0.5)
    assert bucket.try_take(1.0)
    assert not bucket.try_take(1.5)
