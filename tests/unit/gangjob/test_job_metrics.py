"""Metrics of jobs: counted once, bounded, and gone with their job."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from msgspec.structs import replace
from tests.support.job_world import JobWorld, job_world

from grange.api.job_status import JobStatus, RoleStatus
from grange.api.kinds.gangjob import GangJob
from grange.api.meta import Condition, ObjectMeta
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import CollectorRegistry, registry
from grange.base.rng import Stream
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER
from grange.controllers.gangjob.controller import JobService
from grange.controllers.gangjob.job_metrics import (
    JOBS_MAX,
    ROLES_MAX,
    JobInstruments,
    JobMetrics,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def world(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[JobWorld]:
    async with job_world(clock, rng, log) as made:
        service = JobService(made.deps, GANGJOB_ADAPTER)
        made.nursery.start(made.deps.informers.run())
        made.start(service)
        yield made


def series(found: CollectorRegistry, name: str) -> Iterator[dict[str, str]]:
    """The labels of a metric's samples."""
    for family in found.collect():
        for sample in family.samples:
            if sample.name == name:
                yield dict(sample.labels)


async def test_metrics_follow_a_job(world: JobWorld) -> None:
    def value(name: str, **labels: str) -> float | None:
        return world.deps.metrics.get_sample_value(name, {"kind": "GangJob", **labels})

    job = {"namespace": "default", "job": "train"}
    role = {**job, "role": "worker"}
    await world.add_job(roles={"worker": {"replicas": 2, "restartPolicy": "ExitCode"}})
    await world.reaches("Running")
    await world.settle()
    assert value("grange_jobs", phase="Running") == 1
    assert value("grange_job_pods", state="active", **role) == 2
    assert value("grange_job_start_seconds_count") == 1
    await world.finish("train-worker-1", 130)
    await world.settle(20)
    await world.reaches("Running")
    assert value("grange_job_restarts_total", charged="true") == 1
    assert value("grange_job_charged_restarts", **job) == 1
    for name in await world.pods():
        await world.finish(name)
    await world.reaches("Succeeded")
    await world.settle()
    assert value("grange_job_ends_total", outcome="Succeeded") == 1
    assert value("grange_job_duration_seconds_count", outcome="Succeeded") == 1
    assert value("grange_job_start_seconds_count") == 1
    assert value("grange_jobs", phase="Running") == 0
    assert value("grange_job_pods", state="active", **role) is None
    assert value("grange_job_charged_restarts", **job) is None


def job_named(name: str) -> GangJob:
    return GangJob(metadata=ObjectMeta(name=name, namespace="default", uid=name))


def status(*roles: str, phase: str = "Running") -> JobStatus:
    return JobStatus(phase=phase, replica_statuses={role: RoleStatus(active=1) for role in roles})


@pytest.fixture
def found() -> CollectorRegistry:
    return registry()


@pytest.fixture
def shown(found: CollectorRegistry) -> JobInstruments:
    return JobInstruments(JobMetrics(found), "GangJob")


def observe(shown: JobInstruments, name: str, new: JobStatus, old: JobStatus | None = None) -> None:
    shown.observe(job_named(name), new if old is None else old, new, NOW)


def test_series_of_jobs_are_bounded(found: CollectorRegistry, shown: JobInstruments) -> None:
    roles = [f"role-{number}" for number in range(ROLES_MAX + 5)]
    for number in range(JOBS_MAX + 20):
        observe(shown, f"job-{number}", status(*roles))
    assert len(list(series(found, "grange_job_pods"))) == JOBS_MAX * ROLES_MAX * 3
    assert len(list(series(found, "grange_job_charged_restarts"))) == JOBS_MAX
    labels = {"kind": "GangJob", "phase": "Running"}
    assert found.get_sample_value("grange_jobs", labels) == JOBS_MAX + 20
    for number in range(JOBS_MAX + 20):
        shown.forget(f"job-{number}")
    assert list(series(found, "grange_job_pods")) == []
    assert list(series(found, "grange_job_progress_percent")) == []
    assert found.get_sample_value("grange_jobs", labels) == 0
    observe(shown, "next", status("worker"))
    assert len(list(series(found, "grange_job_charged_restarts"))) == 1


def test_series_go_with_their_role(found: CollectorRegistry, shown: JobInstruments) -> None:
    observe(shown, "train", status("a", "b"))
    observe(shown, "train", status("b", "c"), status("a", "b"))
    assert {item["role"] for item in series(found, "grange_job_pods")} == {"b", "c"}


def test_job_of_another_member_is_not_shown(
    found: CollectorRegistry, shown: JobInstruments
) -> None:
    mine = status("worker")
    observe(shown, "train", mine)
    shown.changed("train", lambda: status("worker"))
    assert list(series(found, "grange_job_charged_restarts"))
    shown.changed("train", lambda: replace(mine, restarts=1))
    assert list(series(found, "grange_job_charged_restarts")) == []


def test_end_and_first_start_count_once(found: CollectorRegistry, shown: JobInstruments) -> None:
    running = Condition(type="Running", status="True")
    begun = JobStatus(phase="Running", conditions=(running,))
    stopped = Condition(type="Restarting", status="True")
    restarting = JobStatus(phase="Restarting", conditions=(stopped,))
    again = JobStatus(phase="Running", conditions=(running,), restarts=2, uncharged_restarts=1)
    ended = JobStatus(phase="Failed", restarts=2, uncharged_restarts=1)
    steps = (JobStatus(), begun, restarting, again, ended, ended)
    for old, new in pairwise(steps):
        observe(shown, "train", new, old)
    kind = {"kind": "GangJob"}
    assert found.get_sample_value("grange_job_start_seconds_count", kind) == 1
    failed = {**kind, "outcome": "Failed"}
    assert found.get_sample_value("grange_job_ends_total", failed) == 1
    for charged, count in (("true", 2), ("false", 1)):
        labels = {**kind, "charged": charged}
        assert found.get_sample_value("grange_job_restarts_total", labels) == count
