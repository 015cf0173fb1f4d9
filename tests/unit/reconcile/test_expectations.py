"""Expectations hold a reconcile back exactly until the cache shows our own writes."""

import asyncio

import pytest
from hypothesis import given, settings, strategies as st

from grange.api.status import Invalid, Timeout
from grange.base.clock import Clock, LoopClock
from grange.reconcile.expectations import OVERDUE_S, Doubtful, Expectations


async def test_check_25_surplus_observations_do_not_satisfy_the_rest(
    clock: Clock,
) -> None:
    """Upstream counts and goes to (-1, -1); names and UIDs cannot be overcounted at all."""
    expectations = Expectations(clock)
    expectations.expect_creations("owner", [f"pod-{number}" for number in range(10)])
    expectations.expect_deletions("owner", {f"uid-{number}": "" for number in range(30)})
    for number in range(11):
        expectations.creation_observed("owner", f"pod-{number}")
    assert not expectations.satisfied("owner")
    for number in range(31):
        expectations.deletion_observed("owner", f"uid-{number}")
    assert expectations.satisfied("owner")
    expectations.expect_creations("owner", ["pod-99"])
    assert not expectations.satisfied("owner"), "no surplus pays for a later expectation"


async def test_check_26_timeout_frees_and_new_expectation_restarts_it(clock: Clock) -> None:
    expectations = Expectations(clock)
    expectations.expect_creations("owner", ["a"])
    await clock.sleep(200)
    expectations.expect_deletions("owner", {"u": "pod-u", "v": "pod-v"})
    await clock.sleep(200)
    assert not expectations.satisfied("owner")
    assert expectations.remaining_s("owner") == 100
    await clock.sleep(100)
    assert expectations.satisfied("owner")
    assert expectations.expired == 1
    assert expectations.awaited("owner").creations == ()


async def test_check_27_unknown_owner_is_free_and_observing_adds_none(clock: Clock) -> None:
    expectations = Expectations(clock)
    assert expectations.satisfied("owner")
    expectations.creation_observed("owner", "a")
    expectations.deletion_observed("owner", "u")
    expectations.creation_failed("owner", "a", Invalid("no"))
    assert len(expectations) == 0
    assert expectations.remaining_s("owner") == 0


async def test_check_28_only_create_of_unknown_outcome_is_awaited(
    clock: Clock,
) -> None:
    expectations = Expectations(clock)
    expectations.expect_creations("owner", ["a", "b", "c"])
    expectations.expect_deletions("owner", {"u": "pod-u", "v": "pod-v"})
    expectations.creation_failed("owner", "a", Invalid("refused"))
    expectations.creation_failed("owner", "b", Timeout("no answer"))
    expectations.creation_failed("owner", "c", asyncio.CancelledError())
    expectations.deletion_failed("owner", "u", Invalid("refused"))
    expectations.deletion_failed("owner", "v", Timeout("no answer"))
    assert not expectations.satisfied("owner")
    awaited = expectations.awaited("owner")
    assert awaited.creations == ("b", "c")
    assert awaited.deletions == ("v",)


async def test_check_29_any_kind_holds_the_owner_until_forgotten(clock: Clock) -> None:
    expectations = Expectations(clock)
    expectations.expect_creations("owner", ["web-0"], kind="pods")
    expectations.expect_creations("owner", ["web-0"], kind="services")
    expectations.creation_observed("owner", "web-0", kind="pods")
    assert not expectations.satisfied("owner")
    assert expectations.awaited("owner").creations == ("services/web-0",)
    expectations.forget("owner")
    assert expectations.satisfied("owner")
    assert len(expectations) == 0


async def test_check_29_owner_of_the_same_name_starts_clean(clock: Clock) -> None:
    """Records belong to the UID, so the old job's pods never hold back the new one."""
    expectations = Expectations(clock)
    expectations.expect_creations("uid-of-old", ["web-0"])
    assert expectations.satisfied("uid-of-new")


async def test_check_23_deletion_counts_once_per_uid(clock: Clock) -> None:
    """Seen once as a deletionTimestamp and once as gone, it is still one deletion."""
    expectations = Expectations(clock)
    expectations.expect_deletions("owner", {"u": "pod-u", "v": "pod-v"})
    expectations.deletion_observed("owner", "u")
    expectations.deletion_observed("owner", "u")
    assert not expectations.satisfied("owner")


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["expect", "observe"]), st.sampled_from("abc")), max_size=20
    )
)
def test_satisfied_exactly_when_all_that_is_expected_was_seen(steps: list[tuple[str, str]]) -> None:
    expectations = Expectations(LoopClock())
    waiting: set[str] = set()
    for step, name in steps:
        if step == "expect":
            expectations.expect_creations("owner", [name])
            waiting.add(name)
        else:
            expectations.creation_observed("owner", name)
            waiting.discard(name)
        assert expectations.satisfied("owner") == (not waiting)


async def test_who_asks_after_the_remaining_time_is_free(clock: Clock) -> None:
    """To the last bit: where time moves only when everybody waits, one bit early is forever."""
    for fraction in range(200):
        await clock.sleep(0.1 + fraction / 7)
        expectations = Expectations(clock)
        expectations.expect_deletions("owner", {"uid": "pod"})
        await clock.sleep(fraction / 3)
        await clock.sleep(expectations.remaining_s("owner"))
        assert expectations.satisfied("owner")


async def test_unsettled_writes_are_doubtful_when_overdue(clock: Clock) -> None:
    expectations = Expectations(clock)
    expectations.expect_creations("owner", ["a"], kind="pods")
    expectations.expect_deletions("owner", {"u": "b"}, kind="services")
    writes = (Doubtful("pods", "a"), Doubtful("services", "b", "u"))
    assert expectations.unsettled("owner") == writes
    assert expectations.doubtful("owner") == ()
    await clock.sleep(OVERDUE_S)
    assert expectations.doubtful("owner") == writes
    assert expectations.unsettled("other") == ()


async def test_of_expected_writes_only_those_sent_are_awaited(clock: Clock) -> None:
    expectations = Expectations(clock)
    with pytest.raises(Invalid), expectations.creating("owner", ["a", "b", "c"]) as writes:
        assert expectations.awaited("owner").creations == ("a", "b", "c"), "before the first"
        with writes.sending("a"):
            pass
        with writes.sending("b"):
            raise Invalid("refused")
    assert expectations.awaited("owner").creations == ("a",)
    going = {"u": "pod-u", "v": "pod-v", "w": "pod-w"}
    with pytest.raises(Timeout), expectations.deleting("owner", going, kind="pods") as writes:
        with writes.sending("u"):
            pass
        with writes.sending("v"):
            raise Timeout("no answer")
    assert expectations.awaited("owner").deletions == ("u", "v")
    assert expectations.doubtful("owner") == (Doubtful("pods", "pod-v", "v"),)


async def test_a_cancelled_write_may_have_happened(clock: Clock) -> None:
    expectations = Expectations(clock)
    with (
        pytest.raises(asyncio.CancelledError),
        expectations.creating("owner", ["a", "b"]) as writes,
        writes.sending("a"),
    ):
        raise asyncio.CancelledError
    assert expectations.doubtful("owner") == (Doubtful("", "a"),)
