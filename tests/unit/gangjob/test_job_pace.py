"""How soon a job is planned again after an event of its pods."""

import pytest

from grange.api.meta import ObjectKey
from grange.base.clock import Clock
from grange.controllers.gangjob.job_pace import JobPace
from grange.reconcile.expectations import Expectations

KEY, UID = ObjectKey("default", "train"), "uid"


@pytest.fixture
def expectations(clock: Clock) -> Expectations:
    return Expectations(clock)


@pytest.fixture
def pace(clock: Clock, expectations: Expectations) -> JobPace:
    return JobPace(clock, expectations)


async def test_job_that_was_never_planned_is_planned_at_once(pace: JobPace) -> None:
    assert pace.delay_s(KEY) == 0.0


async def test_planning_takes_a_sixteenth_of_the_time_at_most(pace: JobPace, clock: Clock) -> None:
    pace.planned(KEY, 0.02)
    assert pace.delay_s(KEY) == pytest.approx(0.3)
    await clock.sleep(0.1)
    assert pace.delay_s(KEY) == pytest.approx(0.2)


async def test_pause_of_a_huge_job_is_limited(pace: JobPace) -> None:
    pace.planned(KEY, 10.0)
    assert pace.delay_s(KEY) == pytest.approx(1.0)


async def test_event_after_a_quiet_time_waits_for_those_of_its_cause(
    pace: JobPace, clock: Clock
) -> None:
    pace.planned(KEY, 0.02)
    await clock.sleep(60)
    assert pace.delay_s(KEY) == pytest.approx(0.05)
    pace.planned(KEY, 0.001)
    await clock.sleep(60)
    assert pace.delay_s(KEY) == pytest.approx(0.015)


async def test_job_with_more_to_do_goes_on_when_its_writes_are_seen(
    pace: JobPace, expectations: Expectations
) -> None:
    pace.planned(KEY, 0.02, left_of=UID)
    expectations.expect_creations(UID, ["train-worker-0"])
    assert pace.delay_s(KEY) == pytest.approx(0.3)
    expectations.creation_observed(UID, "train-worker-0")
    assert pace.delay_s(KEY) == 0.0
    pace.planned(KEY, 0.02)
    assert pace.delay_s(KEY) == pytest.approx(0.3)


async def test_job_whose_writes_failed_is_not_tried_with_each_event(pace: JobPace) -> None:
    pace.planned(KEY, 0.02, left_of=UID)
    pace.failed(KEY)
    assert pace.delay_s(KEY) == pytest.approx(0.3)


async def test_job_that_is_gone_is_forgotten(pace: JobPace) -> None:
    pace.planned(KEY, 0.02)
    pace.forget(KEY)
    assert pace.delay_s(KEY) == 0.0
