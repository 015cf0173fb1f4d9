"""Metrics of jobs. Those with a job's name exist for a bounded number of jobs that have not ended."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from grange.api import conditions, timestamps
from grange.api.job_status import (
    CREATED,
    FAILED,
    FINISHED_TYPES,
    RESTARTING,
    RUNNING,
    SUCCEEDED,
    JobStatus,
)
from grange.api.meta import Resource
from grange.base.metrics import CollectorRegistry, Counter, Gauge, Histogram, once_per_registry

JOBS_MAX = 300
ROLES_MAX = 8
_SECONDS = (0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
_STATES = ("active", "ready", "succeeded")


class JobMetrics:
    """The instruments of one registry.

    Attributes:
        phases: grange_jobs by kind and phase.
        ends: grange_job_ends_total by kind and outcome.
        restarts: grange_job_restarts_total by kind, and whether they were charged.
        start: grange_job_start_seconds by kind: until a job runs for the first time.
        duration: grange_job_duration_seconds by kind and outcome.
        pods: grange_job_pods of one job by role and state.
        charged: grange_job_charged_restarts of one job.
        progress: grange_job_progress_percent of one job.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        job = ["kind", "namespace", "job"]
        self.phases = Gauge(
            "grange_jobs",
            "Jobs that this process works on and that have not ended, by phase.",
            ["kind", "phase"],
            registry=registry,
        )
        self.ends = Counter(
            "grange_job_ends",
            "Jobs that have succeeded or failed.",
            ["kind", "outcome"],
            registry=registry,
        )
        self.restarts = Counter(
            "grange_job_restarts",
            "Restarts of pods of jobs; disruptions and some rules cause uncharged ones.",
            ["kind", "charged"],
            registry=registry,
        )
        self.start = Histogram(
            "grange_job_start_seconds",
            "Time from the creation of a job to its first phase Running.",
            ["kind"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.duration = Histogram(
            "grange_job_duration_seconds",
            "Time from the creation of a job to its end.",
            ["kind", "outcome"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.pods = Gauge(
            "grange_job_pods",
            "Pods of one job by role and state: active, ready, succeeded.",
            [*job, "role", "state"],
            registry=registry,
        )
        self.charged = Gauge(
            "grange_job_charged_restarts",
            "Restarts of one job that count towards its limits.",
            job,
            registry=registry,
        )
        self.progress = Gauge(
            "grange_job_progress_percent",
            "How far one job is, as its pods report it.",
            job,
            registry=registry,
        )


instruments = once_per_registry(JobMetrics)
"""The instruments of a registry; the same object for the same registry."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the instruments show of one job.

    Attributes:
        status: as it was observed last.
        labels: those of the job's series; empty where it has none.
        roles: with series.
    """

    status: JobStatus
    labels: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


class JobInstruments:
    """Keeps the metrics of the jobs of one kind that this process works on.

    Args:
        metrics: the instruments.
        kind: of the jobs.
    """

    def __init__(self, metrics: JobMetrics, kind: str) -> None:
        self._metrics = metrics
        self._kind = kind
        self._shown: dict[str, _Shown] = {}  # by UID
        self._named = 0

    def observe(self, job: Resource, old: JobStatus, new: JobStatus, now: datetime) -> None:
        """Show a job.

        Args:
            job: the job.
            old: its status before.
            new: what this process has written, or the same where nothing changed.
            now: the time.
        """
        if old is not new:
            self._count(job, old, new, now)
        uid = job.metadata.uid
        shown = self._shown.get(uid)
        if shown is not None and shown.status == new:
            return
        if new.phase in FINISHED_TYPES:
            self.forget(uid)
            return
        labels = shown.labels if shown else self._labels(job)
        before = shown.roles if shown else ()
        if shown:
            self._metrics.phases.labels(self._kind, shown.status.phase or CREATED).dec()
        self._metrics.phases.labels(self._kind, new.phase or CREATED).inc()
        self._shown[uid] = _Shown(new, labels, self._show(labels, before, new))

    def changed(self, uid: str, status: Callable[[], JobStatus]) -> None:
        """The job has changed: where this process did not write its status, another one works on it."""
        shown = self._shown.get(uid)
        if shown is not None and shown.status != status():
            self.forget(uid)

    def forget(self, uid: str) -> None:
        """The job has ended, is gone, or is worked on elsewhere."""
        shown = self._shown.pop(uid, None)
        if shown is None:
            return
        self._metrics.phases.labels(self._kind, shown.status.phase or CREATED).dec()
        if shown.labels:
            self._named -= 1
            self._remove_roles(shown.labels, shown.roles)
            for gauge in (self._metrics.charged, self._metrics.progress):
                gauge.remove(*shown.labels)

    def _labels(self, job: Resource) -> tuple[str, ...]:
        if self._named >= JOBS_MAX:
            return ()
        self._named += 1
        return self._kind, job.metadata.namespace, job.metadata.name

    def _show(
        self, labels: tuple[str, ...], before: tuple[str, ...], status: JobStatus
    ) -> tuple[str, ...]:
        """Set the series of one job; the roles that have some."""
        if not labels:
            return ()
        self._metrics.charged.labels(*labels).set(status.restarts)
        self._metrics.progress.labels(*labels).set(
            status.progress.percent if status.progress else 0
        )
        roles = tuple(status.replica_statuses)[:ROLES_MAX]
        self._remove_roles(labels, tuple(role for role in before if role not in roles))
        for role in roles:
            for state in _STATES:
                count = getattr(status.replica_statuses[role], state)
                self._metrics.pods.labels(*labels, role, state).set(count)
        return roles

    def _remove_roles(self, labels: tuple[str, ...], roles: tuple[str, ...]) -> None:
        for role in roles:
            for state in _STATES:
                self._metrics.pods.remove(*labels, role, state)

    def _count(self, job: Resource, old: JobStatus, new: JobStatus, now: datetime) -> None:
        metrics, kind = self._metrics, self._kind
        charged = max(0, new.restarts - old.restarts)
        uncharged = max(0, new.uncharged_restarts - old.uncharged_restarts)
        metrics.restarts.labels(kind, "true").inc(charged)
        metrics.restarts.labels(kind, "false").inc(uncharged)
        created = timestamps.parse_or(job.metadata.creation_timestamp, now)
        age_s = max(0.0, (now - created).total_seconds())
        if conditions.is_true(new.conditions, RUNNING) and not any(
            item.type in (RUNNING, RESTARTING) for item in old.conditions
        ):
            metrics.start.labels(kind).observe(age_s)
        if new.phase in FINISHED_TYPES and old.phase not in FINISHED_TYPES:
            outcome = SUCCEEDED if new.phase == SUCCEEDED else FAILED
            metrics.ends.labels(kind, outcome).inc()
            metrics.duration.labels(kind, outcome).observe(age_s)
