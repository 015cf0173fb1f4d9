"""CronJobs: which Job is due, replaced, kept."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from grange.api.cron import CronSchedule, parse_schedule
from grange.controllers.cronjob.logic import (
    FORBID,
    REPLACE,
    CronChild,
    CronPlan,
    CronSpec,
    CronState,
    job_name,
    plan,
)

START = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
EVERY_MINUTE = CronSchedule("* * * * *")


def child(name: str, *, age_min: int = 1, **outcome: Any) -> CronChild:
    return CronChild(name, f"uid-{name}", START - age_min * MINUTE, **outcome)


def planned(
    spec: CronSpec,
    *children: CronChild,
    state: CronState | None = None,
    now: datetime = START,
    created_at: datetime = START - 10 * MINUTE,
) -> CronPlan:
    return plan(spec, state or CronState(), children, created_at=created_at, now=now)


def test_latest_missed_time_is_started_once() -> None:
    found = planned(CronSpec(EVERY_MINUTE))
    assert found.create_for == datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    assert found.requeue_s == 30.0


def test_a_handled_time_is_not_started_again() -> None:
    state = CronState(last_schedule=datetime(2026, 3, 1, 12, 0, tzinfo=UTC))
    assert planned(CronSpec(EVERY_MINUTE), state=state).create_for is None


def test_nothing_is_due_before_creation() -> None:
    assert planned(CronSpec(EVERY_MINUTE), created_at=START).create_for is None


def test_suspended_starts_nothing_and_still_prunes() -> None:
    done = [child(f"j{n}", age_min=n, succeeded=True) for n in range(1, 6)]
    found = planned(CronSpec(EVERY_MINUTE, suspend=True), *done)
    assert found.create_for is None
    assert found.requeue_s is None
    assert [item.name for item, _ in found.delete] == ["j5", "j4"]


def test_too_late_is_skipped_with_an_event() -> None:
    found = planned(CronSpec(EVERY_MINUTE, starting_deadline_s=20))
    assert found.create_for is None
    assert [event[1] for event in found.events] == ["MissSchedule"]


def test_skipped_time_has_the_same_event_in_every_pass() -> None:
    spec = CronSpec(EVERY_MINUTE, starting_deadline_s=20)
    first, later = planned(spec), planned(spec, now=START + timedelta(seconds=5))
    assert first.events == later.events
    following = planned(spec, now=START + MINUTE)
    assert following.events != first.events


def test_interval_counts_from_the_last_time() -> None:
    spec = CronSpec(parse_schedule("@every 90s", since=START - 10 * MINUTE))
    found = planned(spec, now=START - 8 * MINUTE)
    assert found.create_for == START - 8.5 * MINUTE
    assert found.requeue_s == 60.0
    created = START - 10 * MINUTE
    assert planned(spec, now=created + timedelta(seconds=89)).create_for is None


def test_forbid_waits_for_the_running_job() -> None:
    found = planned(CronSpec(EVERY_MINUTE, concurrency=FORBID), child("busy"))
    assert found.create_for is None
    assert [event[1] for event in found.events] == ["JobAlreadyActive"]
    assert found.state.active == ("uid-busy",)


def test_replace_deletes_the_running_job() -> None:
    found = planned(CronSpec(EVERY_MINUTE, concurrency=REPLACE), child("busy"))
    assert [(item.name, why) for item, why in found.delete] == [("busy", "replaced")]
    assert found.create_for is not None


@pytest.mark.parametrize("concurrency", [FORBID, REPLACE])
def test_job_started_by_a_user_is_left_to_run(concurrency: str) -> None:
    """``kubectl create job --from=cronjob/NAME`` makes a Job that the CronJob controls."""
    own = child("by-hand", scheduled=False)
    found = planned(CronSpec(EVERY_MINUTE, concurrency=concurrency), own)
    assert (found.create_for is not None, found.delete, found.state.active) == (True, (), ())
    done = [child(f"j{n}", age_min=n, succeeded=True, scheduled=False) for n in range(5)]
    pruned = planned(CronSpec(EVERY_MINUTE), *done)
    assert [item.name for item, _ in pruned.delete] == ["j4", "j3"]


def test_completion_is_reported_once() -> None:
    ended = START - MINUTE
    done = child("done", succeeded=True, completed_at=ended)
    first = planned(CronSpec(EVERY_MINUTE), done, state=CronState(active=("uid-done",)))
    assert [event[1] for event in first.events] == ["SawCompletedJob"]
    assert first.state.last_successful == ended
    again = planned(CronSpec(EVERY_MINUTE), done, state=first.state)
    assert not again.events


def test_job_names_are_the_same_for_a_time() -> None:
    due = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    assert job_name("backup", due) == f"backup-{int(due.timestamp()) // 60}"
    assert job_name("backup", due) != job_name("backup", due + MINUTE)


def test_job_names_of_times_in_one_minute_differ() -> None:
    assert job_name("c", START) != job_name("c", START + timedelta(seconds=1))
    assert len(job_name("c" * 52, START)) == 63


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), max_size=12),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_history_limits_hold_and_running_jobs_stay(
    outcomes: list[tuple[bool, bool]], keep_successful: int, keep_failed: int
) -> None:
    children = [
        child(f"j{n}", age_min=n, succeeded=good, failed=bad and not good)
        for n, (good, bad) in enumerate(outcomes)
    ]
    spec = CronSpec(
        EVERY_MINUTE, suspend=True, keep_successful=keep_successful, keep_failed=keep_failed
    )
    gone = {item.name for item, _ in planned(spec, *children).delete}
    left = [item for item in children if item.name not in gone]
    assert sum(item.succeeded for item in left) == min(
        keep_successful, sum(item.succeeded for item in children)
    )
    assert sum(item.failed for item in left) == min(
        keep_failed, sum(item.failed for item in children)
    )
    assert not gone.intersection(item.name for item in children if not item.finished)
